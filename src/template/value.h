// SPDX-License-Identifier: Apache-2.0
//
// Value is what a template computes with: undefined, none, a bool, an int, a float, a string, a
// list, tuple or generator, a dict, a namespace, the `loop` of a for, or something to call.
// Copying one is cheap: strings, lists and dicts are shared and never change.
//
// V1  Only a namespace changes after it is made. Namespaces belong to the rendering (Workspace),
//     which empties them at its end, so that a cycle through one is not kept for ever.
// V2  Lists, dicts and what refers to them nest at most kValueDepthMax deep, so recursion over a
//     value is bounded. What a namespace holds does not count, and nothing recurses into one.
// V3  Keys of dicts are strings. They keep the order in which they came.
//
// A generator is what Python gives for map, select and their like: it can be looped over, and is
// true even when empty. (Here it can be looped over twice.)
//
// Threads: values of a compiled template are shared by renderings on several threads; what they
// share is immutable. All others belong to one rendering.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace tessera::jinja {

class Value;
struct Macro;

using String = std::shared_ptr<const std::string>;

struct ListBody {
  std::vector<Value> items;
  int depth = 1;
};

class DictBody {
 public:
  using Entry = std::pair<String, Value>;

  // Replaces the value of a key that is there.
  void Set(String key, Value value);
  const Value* Find(std::string_view key) const;  // null: not there
  const std::vector<Entry>& entries() const { return entries_; }
  int depth() const { return depth_; }

 private:
  size_t IndexOf(std::string_view key) const;  // entries().size(): not there

  static constexpr size_t kIndexFrom = 8;  // fewer entries are searched one by one

  std::vector<Entry> entries_;
  std::map<std::string_view, size_t> index_;  // views of the keys of entries_; empty below that
  int depth_ = 1;
};

struct Namespace {
  DictBody members;
};

// The `loop` of one for statement.
struct LoopState {
  std::shared_ptr<const ListBody> items;
  size_t index = 0;
};

enum class Kind : uint8_t {
  kUndefined,
  kNone,
  kBool,
  kInt,
  kFloat,
  kString,
  kList,
  kTuple,
  kGenerator,
  kDict,
  kNamespace,
  kLoop,
  kMacro,     // also the `caller` of a call block
  kMethod,    // a method and what it is a method of
  kFunction,  // one of template/builtins.h, by name
};

struct BoundMethod;

class Value {
 public:
  Value() = default;  // undefined, of no name
  static Value Undefined(String name);
  static Value None() { return Value(Kind::kNone, Empty()); }
  static Value Bool(bool value) { return Value(Kind::kBool, static_cast<int64_t>(value)); }
  static Value Int(int64_t value) { return Value(Kind::kInt, value); }
  static Value Float(double value) { return Value(Kind::kFloat, value); }
  static Value Text(String text) { return Value(Kind::kString, std::move(text)); }
  // For text of the template itself; a rendering makes strings through its Workspace.
  static Value Text(std::string_view text);
  // `kind` is kList, kTuple or kGenerator.
  static Value Sequence(Kind kind, std::shared_ptr<const ListBody> body) {
    return Value(kind, std::move(body));
  }
  static Value Dict(std::shared_ptr<const DictBody> body) {
    return Value(Kind::kDict, std::move(body));
  }
  static Value Space(Namespace* space) { return Value(Kind::kNamespace, space); }
  static Value Loop(std::shared_ptr<const LoopState> loop) {
    return Value(Kind::kLoop, std::move(loop));
  }
  static Value Call(const Macro* macro) { return Value(Kind::kMacro, macro); }
  static Value Function(String name) { return Value(Kind::kFunction, std::move(name)); }
  static Value Method(Value self, std::string_view name);

  Kind kind() const { return kind_; }
  bool is(Kind kind) const { return kind_ == kind; }
  bool is_sequence() const {
    return kind_ == Kind::kList || kind_ == Kind::kTuple || kind_ == Kind::kGenerator;
  }
  bool is_integral() const { return kind_ == Kind::kInt || kind_ == Kind::kBool; }
  bool is_number() const { return is_integral() || kind_ == Kind::kFloat; }

  // Each only for its kind.
  bool boolean() const { return std::get<int64_t>(body_) != 0; }
  int64_t integer() const { return std::get<int64_t>(body_); }  // kBool too: 0 or 1
  double number() const {                                       // any of the three
    return is_integral() ? static_cast<double>(integer()) : std::get<double>(body_);
  }
  std::string_view text() const { return *std::get<String>(body_); }
  const String& string() const { return std::get<String>(body_); }
  const std::vector<Value>& items() const { return list()->items; }
  const std::shared_ptr<const ListBody>& list() const {
    return std::get<std::shared_ptr<const ListBody>>(body_);
  }
  const DictBody& dict() const { return *std::get<std::shared_ptr<const DictBody>>(body_); }
  Namespace& space() const { return *std::get<Namespace*>(body_); }
  const LoopState& loop() const { return *std::get<std::shared_ptr<const LoopState>>(body_); }
  const Macro& macro() const { return *std::get<const Macro*>(body_); }
  const BoundMethod& method() const { return *std::get<std::shared_ptr<const BoundMethod>>(body_); }
  std::string_view function() const { return *std::get<String>(body_); }
  // Of an undefined value: the name that was looked for; empty when there was none.
  std::string_view missing_name() const;

  int depth() const;  // 0 for what holds no list or dict
  // The list's or dict's own address; null for others.
  const void* identity() const;

 private:
  using Empty = std::monostate;
  using Body =
      std::variant<Empty, int64_t, double, String, std::shared_ptr<const ListBody>,
                   std::shared_ptr<const DictBody>, Namespace*, std::shared_ptr<const LoopState>,
                   const Macro*, std::shared_ptr<const BoundMethod>>;

  Value(Kind kind, Body body) : kind_(kind), body_(std::move(body)) {}

  Kind kind_ = Kind::kUndefined;
  Body body_;
};

struct BoundMethod {
  Value self;
  std::string name;
};

// As in Python: 0, "", an empty list or dict, none and undefined are false.
bool Truth(const Value& value);

// "a string", "a list": for messages.
std::string_view KindName(Kind kind);

}  // namespace tessera::jinja
