// SPDX-License-Identifier: Apache-2.0
#include "server/python_calls.h"

#include <cctype>
#include <utility>

#include "server/json_body.h"

namespace tessera {
namespace {

using Json = nlohmann::ordered_json;

// What a string's escapes stand for; others are kept with their backslash, as Python does.
constexpr std::pair<char, char> kEscapes[] = {{'n', '\n'},  {'t', '\t'},  {'r', '\r'},
                                              {'\\', '\\'}, {'\'', '\''}, {'"', '"'}};

class Parser {
 public:
  explicit Parser(std::string_view text) : text_(text) {}

  bool Calls(std::vector<PythonCall>* calls) {
    const bool list = Take('[') && Items(']', [&] { return Call(&calls->emplace_back()); });
    SkipSpace();
    return list && at_ == text_.size();
  }

 private:
  void SkipSpace() {
    while (at_ < text_.size() && std::isspace(static_cast<unsigned char>(text_[at_])) != 0) ++at_;
  }
  bool Take(char c) {
    SkipSpace();
    if (at_ >= text_.size() || text_[at_] != c) return false;
    ++at_;
    return true;
  }
  // Items, parted by commas, up to the end mark; a comma may follow the last.
  template <typename Item>
  bool Items(char end, const Item& item) {
    while (!Take(end)) {
      if (!item()) return false;
      if (!Take(',')) return Take(end);
    }
    return true;
  }
  std::string Word() {
    SkipSpace();
    const size_t begin = at_;
    while (at_ < text_.size() && IsWordPart(text_[at_])) ++at_;
    return std::string(text_.substr(begin, at_ - begin));
  }
  static bool IsWordPart(char c) {
    return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_' || c == '.' || c == '-' ||
           c == '+';
  }

  bool Call(PythonCall* call) {
    call->name = Word();
    call->arguments = Json::object();
    return !call->name.empty() && Take('(') && Items(')', [&] {
      const std::string name = Word();
      return !name.empty() && Take('=') && Member(name, &call->arguments);
    });
  }

  bool Member(const std::string& name, Json* object) {
    // Each name is compared with all before it.
    if (object->size() >= kJsonMembersMax || object->contains(name)) return false;
    Json value;
    if (!Value(&value)) return false;
    (*object)[name] = std::move(value);
    return true;
  }

  bool Value(Json* value) {
    if (++depth_ > kJsonDepthMax) return false;
    SkipSpace();
    const char first = at_ < text_.size() ? text_[at_] : '\0';
    bool ok = false;
    if (first == '"' || first == '\'') {
      ok = String(value);
    } else if (Take('[')) {
      *value = Json::array();
      ok = Items(']', [&] { return Value(&value->emplace_back()); });
    } else if (Take('{')) {
      *value = Json::object();
      ok = Items('}', [&] {
        Json key;
        return String(&key) && Take(':') && Member(key.get<std::string>(), value);
      });
    } else {
      ok = Constant(Word(), value);
    }
    --depth_;
    return ok;
  }

  bool String(Json* value) {
    SkipSpace();
    if (at_ >= text_.size() || (text_[at_] != '"' && text_[at_] != '\'')) return false;
    const char quote = text_[at_++];
    std::string text;
    for (; at_ < text_.size() && text_[at_] != quote; ++at_) {
      if (text_[at_] != '\\' || at_ + 1 == text_.size()) {
        text += text_[at_];
        continue;
      }
      const char escaped = text_[++at_];
      bool known = false;
      for (const auto& [name, meaning] : kEscapes) {
        if (name != escaped) continue;
        text += meaning;
        known = true;
      }
      if (!known) text += {'\\', escaped};
    }
    *value = std::move(text);
    return Take(quote);
  }

  static bool Constant(const std::string& word, Json* value) {
    if (word == "True" || word == "False") {
      *value = word == "True";
    } else if (word != "None") {  // which null is
      *value = Json::parse(word, nullptr, /*allow_exceptions=*/false);
      return value->is_number();
    }
    return true;
  }

  const std::string_view text_;
  size_t at_ = 0;
  int depth_ = 0;
};

}  // namespace

std::optional<std::vector<PythonCall>> ParsePythonCalls(std::string_view text) {
  std::vector<PythonCall> calls;
  if (!Parser(text).Calls(&calls)) return std::nullopt;
  return calls;
}

}  // namespace tessera
