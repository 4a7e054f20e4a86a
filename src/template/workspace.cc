// SPDX-License-Identifier: Apache-2.0
#include "template/workspace.h"

#include <fmt/format.h>

#include <algorithm>

namespace tessera::jinja {
namespace {

// A list's or dict's own bytes and those of the shared pointer around it, about.
constexpr uint64_t kBodyBytes = 96;
// A dict's entry with its share of the index.
constexpr uint64_t kEntryBytes = sizeof(DictBody::Entry) + 64;

}  // namespace

// Namespaces may refer to one another in a cycle, so they are emptied while all are still there.
Workspace::~Workspace() {
  for (Namespace& space : namespaces_) {
    space.members = DictBody();
  }
}

void Workspace::Fail(std::string message) const { throw TemplateError(place_, std::move(message)); }

void Workspace::ChargeSteps(uint64_t steps) {
  steps_ += std::min(steps, limits_.steps_max + 1);
  if (steps_ > limits_.steps_max) {
    Fail(fmt::format("takes more than {} steps", limits_.steps_max));
  }
}

void Workspace::ChargeMaking(uint64_t size_bytes) {
  bytes_made_ += std::min(size_bytes, limits_.bytes_made_max + 1);
  if (bytes_made_ > limits_.bytes_made_max) {
    Fail(fmt::format("makes more than {} bytes of text and lists", limits_.bytes_made_max));
  }
  ChargeSteps(size_bytes / kBytesPerStep);
}

Value Workspace::MakeString(std::string text) {
  ChargeMaking(kBodyBytes + text.size());
  return Value::Text(std::make_shared<const std::string>(std::move(text)));
}

Value Workspace::MakeString(std::string_view text) {
  ChargeMaking(kBodyBytes + text.size());
  return Value::Text(text);
}

Value Workspace::MakeSequence(Kind kind, std::vector<Value> items) {
  ChargeMaking(kBodyBytes + items.size() * sizeof(Value));
  auto body = std::make_shared<ListBody>();
  for (const Value& item : items) {
    body->depth = std::max(body->depth, 1 + item.depth());
  }
  if (body->depth > kValueDepthMax) {
    Fail(fmt::format("nests lists more than {} deep", kValueDepthMax));
  }
  body->items = std::move(items);
  return Value::Sequence(kind, std::move(body));
}

Value Workspace::MakeDict(DictBody dict) {
  ChargeMaking(kBodyBytes + dict.entries().size() * kEntryBytes);
  if (dict.depth() > kValueDepthMax) {
    Fail(fmt::format("nests dicts more than {} deep", kValueDepthMax));
  }
  return Value::Dict(std::make_shared<const DictBody>(std::move(dict)));
}

Value Workspace::MakeNamespace(const DictBody& members) {
  ChargeMaking(kBodyBytes + members.entries().size() * kEntryBytes);
  namespaces_.push_back(Namespace{members});
  return Value::Space(&namespaces_.back());
}

void Workspace::SetMember(Namespace& space, const String& name, Value value) {
  ChargeMaking(kEntryBytes);
  space.members.Set(name, std::move(value));
}

}  // namespace tessera::jinja
