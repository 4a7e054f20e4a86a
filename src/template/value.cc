// SPDX-License-Identifier: Apache-2.0
#include "template/value.h"

#include <algorithm>

namespace tessera::jinja {

void DictBody::Set(String key, Value value) {
  depth_ = std::max(depth_, 1 + value.depth());
  if (const size_t at = IndexOf(*key); at < entries_.size()) {
    entries_[at].second = std::move(value);
    return;
  }
  entries_.emplace_back(std::move(key), std::move(value));
  if (entries_.size() == kIndexFrom) {
    for (size_t i = 0; i < entries_.size(); ++i) {
      index_.emplace(*entries_[i].first, i);
    }
  } else if (entries_.size() > kIndexFrom) {
    index_.emplace(*entries_.back().first, entries_.size() - 1);
  }
}

const Value* DictBody::Find(std::string_view key) const {
  const size_t at = IndexOf(key);
  return at < entries_.size() ? &entries_[at].second : nullptr;
}

size_t DictBody::IndexOf(std::string_view key) const {
  if (!index_.empty()) {
    const auto found = index_.find(key);
    return found == index_.end() ? entries_.size() : found->second;
  }
  const auto found = std::find_if(entries_.begin(), entries_.end(),
                                  [&](const Entry& entry) { return *entry.first == key; });
  return static_cast<size_t>(found - entries_.begin());
}

Value Value::Undefined(String name) { return Value(Kind::kUndefined, std::move(name)); }

Value Value::Text(std::string_view text) { return Text(std::make_shared<const std::string>(text)); }

Value Value::Method(Value self, std::string_view name) {
  return Value(Kind::kMethod, std::make_shared<const BoundMethod>(
                                  BoundMethod{std::move(self), std::string(name)}));
}

std::string_view Value::missing_name() const {
  const String* name = std::get_if<String>(&body_);
  return name == nullptr ? std::string_view() : **name;
}

int Value::depth() const {
  if (is_sequence()) {
    return list()->depth;
  }
  if (is(Kind::kDict)) {
    return dict().depth();
  }
  // These keep alive what they are a loop over or a method of, so they count as lists do.
  if (is(Kind::kLoop)) {
    return 1 + loop().items->depth;
  }
  return is(Kind::kMethod) ? 1 + method().self.depth() : 0;
}

const void* Value::identity() const {
  if (is_sequence()) {
    return list().get();
  }
  return is(Kind::kDict) ? &dict() : nullptr;
}

bool Truth(const Value& value) {
  switch (value.kind()) {
    case Kind::kUndefined:
    case Kind::kNone:
      return false;
    case Kind::kBool:
    case Kind::kInt:
      return value.integer() != 0;
    case Kind::kFloat:
      return value.number() != 0;
    case Kind::kString:
      return !value.text().empty();
    case Kind::kList:
    case Kind::kTuple:
      return !value.items().empty();
    case Kind::kDict:
      return !value.dict().entries().empty();
    case Kind::kLoop:
      return !value.loop().items->items.empty();
    case Kind::kGenerator:
    case Kind::kNamespace:
    case Kind::kMacro:
    case Kind::kMethod:
    case Kind::kFunction:
      return true;
  }
  return false;
}

std::string_view KindName(Kind kind) {
  switch (kind) {
    case Kind::kUndefined:
      return "undefined";
    case Kind::kNone:
      return "none";
    case Kind::kBool:
      return "a bool";
    case Kind::kInt:
      return "an int";
    case Kind::kFloat:
      return "a float";
    case Kind::kString:
      return "a string";
    case Kind::kList:
      return "a list";
    case Kind::kTuple:
      return "a tuple";
    case Kind::kGenerator:
      return "a generator";
    case Kind::kDict:
      return "a dict";
    case Kind::kNamespace:
      return "a namespace";
    case Kind::kLoop:
      return "a loop";
    case Kind::kMacro:
      return "a macro";
    case Kind::kMethod:
      return "a method";
    case Kind::kFunction:
      return "a function";
  }
  return "a value";
}

}  // namespace tessera::jinja
