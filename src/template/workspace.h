// SPDX-License-Identifier: Apache-2.0
//
// Workspace is what one rendering may use: its steps, its bytes, its clock, and its namespaces. All
// strings, lists and dicts of a rendering are made here, and so are all its errors.
//
// Every function fails by TemplateError at the place last set.
// Threads: one.
#pragma once

#include <ctime>
#include <deque>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "template/limits.h"
#include "template/template_error.h"
#include "template/value.h"

namespace tessera::jinja {

class Workspace {
 public:
  Workspace(const std::tm& now, const Limits& limits) : now_(now), limits_(limits) {}
  ~Workspace();
  Workspace(const Workspace&) = delete;
  Workspace& operator=(const Workspace&) = delete;

  void set_place(Place place) { place_ = place; }
  Place place() const { return place_; }
  const std::tm& now() const { return now_; }
  [[noreturn]] void Fail(std::string message) const;

  // Before the work is done.
  void ChargeSteps(uint64_t steps);
  void ChargeReading(size_t size_bytes) { ChargeSteps(size_bytes / kBytesPerStep); }
  void ChargeMaking(uint64_t size_bytes);

  Value MakeString(std::string text);
  Value MakeString(std::string_view text);  // charged before it is copied
  Value MakeString(const char* text) { return MakeString(std::string_view(text)); }
  Value MakeSequence(Kind kind, std::vector<Value> items);
  Value MakeList(std::vector<Value> items) { return MakeSequence(Kind::kList, std::move(items)); }
  Value MakeDict(DictBody dict);
  Value MakeNamespace(const DictBody& members);
  void SetMember(Namespace& space, const String& name, Value value);

 private:
  Place place_;
  std::tm now_;
  Limits limits_;
  uint64_t steps_ = 0;
  uint64_t bytes_made_ = 0;
  std::deque<Namespace> namespaces_;  // values point into it
};

}  // namespace tessera::jinja
