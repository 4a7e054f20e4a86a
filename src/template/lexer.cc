// SPDX-License-Identifier: Apache-2.0
#include "template/lexer.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <optional>

#include "template/text.h"

namespace tessera::jinja {
namespace {

std::string WithNewlines(std::string_view source) {
  std::string text;
  text.reserve(source.size());
  for (size_t i = 0; i < source.size(); ++i) {
    if (source[i] == '\r') {
      text += '\n';
      i += source.substr(i + 1, 1) == "\n" ? 1 : 0;
    } else {
      text += source[i];
    }
  }
  if (text.ends_with('\n')) {
    text.pop_back();
  }
  return text;
}

bool IsDigit(char c) { return c >= '0' && c <= '9'; }
bool IsNameStart(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' ||
         static_cast<unsigned char>(c) >= 0x80;
}

void AppendUtf8(uint32_t code, std::string& out) {
  const auto byte = [&](uint32_t value) { out += static_cast<char>(value); };
  if (code < 0x80) {
    byte(code);
  } else if (code < 0x800) {
    byte(0xC0 | code >> 6);
    byte(0x80 | (code & 0x3F));
  } else if (code < 0x10000) {
    byte(0xE0 | code >> 12);
    byte(0x80 | (code >> 6 & 0x3F));
    byte(0x80 | (code & 0x3F));
  } else {
    byte(0xF0 | code >> 18);
    byte(0x80 | (code >> 12 & 0x3F));
    byte(0x80 | (code >> 6 & 0x3F));
    byte(0x80 | (code & 0x3F));
  }
}

class Lexer {
 public:
  explicit Lexer(std::string source) : source_(std::move(source)) {}

  std::vector<Token> Run() {
    while (at_ < source_.size()) {
      ReadText();
    }
    Add(Token::Kind::kEnd, at_, "");
    return std::move(tokens_);
  }

 private:
  enum class Sign { kNone, kMinus, kPlus };

  std::string_view Rest() const { return std::string_view(source_).substr(at_); }
  bool At(std::string_view text) const { return Rest().starts_with(text); }

  // Places are asked for in ascending order, so lines are counted once.
  Place PlaceOf(size_t offset) {
    for (; counted_ < offset; ++counted_) {
      if (source_[counted_] == '\n') {
        ++line_;
        line_begin_ = counted_ + 1;
      }
    }
    return {.line = line_, .column = static_cast<uint32_t>(offset - line_begin_ + 1)};
  }

  // An error may lie before what was counted: at the beginning of what has no end.
  [[noreturn]] void Fail(size_t offset, std::string message) {
    counted_ = 0;
    line_ = 1;
    line_begin_ = 0;
    throw TemplateError(PlaceOf(offset), std::move(message));
  }

  void Add(Token::Kind kind, size_t offset, std::string text) {
    tokens_.push_back({.kind = kind, .place = PlaceOf(offset), .text = std::move(text)});
  }

  // Up to and with the next delimiter, and what it opens.
  void ReadText() {
    const size_t begin = at_;
    while (at_ < source_.size() && !At("{{") && !At("{%") && !At("{#")) {
      at_ = std::min(source_.find('{', at_ + 1), source_.size());
    }
    const size_t tag = at_;
    std::string_view text = std::string_view(source_).substr(begin, tag - begin);
    if (tag == source_.size()) {
      AddText(begin, text);
      return;
    }
    const char what = source_[tag + 1];
    at_ += 2;
    const Sign sign = ReadSign();
    if (sign == Sign::kMinus) {
      text = Strip(text, Side::kRight);
    } else if (sign == Sign::kNone && what != '{') {
      text = WithoutIndent(begin, text);
    }
    AddText(begin, text);
    if (what == '#') {
      ReadComment(tag);
    } else if (what == '%' && ReadRaw()) {
      return;
    } else {
      ReadTag(tag, what == '%');
    }
  }

  void AddText(size_t offset, std::string_view text) {
    if (!text.empty()) {
      Add(Token::Kind::kText, offset, std::string(text));
    }
  }

  Sign ReadSign() {
    if (At("-") || At("+")) {
      return source_[at_++] == '-' ? Sign::kMinus : Sign::kPlus;
    }
    return Sign::kNone;
  }

  // lstrip_blocks: what stands between the start of the line and the tag, when it is blank.
  std::string_view WithoutIndent(size_t begin, std::string_view text) const {
    const size_t line = text.rfind('\n') + 1;  // 0 when there is none
    const bool starts_line = line > 0 || begin == 0 || source_[begin - 1] == '\n';
    return starts_line && Strip(text.substr(line), Side::kLeft).empty() ? text.substr(0, line)
                                                                        : text;
  }

  void SkipSpace() {
    while (at_ < source_.size() && IsSpace(CharacterAt(source_, at_).code)) {
      at_ += CharacterAt(source_, at_).size;
    }
  }

  // The end of a statement or comment with what white space control takes after it.
  bool ReadEnd(std::string_view end) {
    if (At(end)) {
      at_ += end.size();
      at_ += At("\n") ? 1 : 0;
      return true;
    }
    if (At("+") && Rest().substr(1).starts_with(end)) {
      at_ += 1 + end.size();
      return true;
    }
    if (At("-") && Rest().substr(1).starts_with(end)) {
      at_ += 1 + end.size();
      SkipSpace();
      return true;
    }
    return false;
  }

  void ReadComment(size_t tag) {
    const size_t end = source_.find("#}", at_);
    if (end == std::string::npos) {
      Fail(tag, "comment without '#}'");
    }
    const bool signed_end = end > at_ && (source_[end - 1] == '-' || source_[end - 1] == '+');
    at_ = signed_end ? end - 1 : end;
    ReadEnd("#}");
  }

  // {% raw %}…{% endraw %}: false, and nothing read, when this is another statement.
  bool ReadRaw() {
    const size_t begin = at_;
    SkipSpace();
    if (!At("raw")) {
      at_ = begin;
      return false;
    }
    at_ += 3;
    SkipSpace();
    if (At("%}")) {
      at_ += 2;  // raw alone keeps the newline after it
    } else if (!At("-%}") || !ReadEnd("%}")) {
      at_ = begin;
      return false;
    }
    ReadRawText(begin);
    return true;
  }

  void ReadRawText(size_t begin) {
    const size_t body = at_;
    for (size_t end = source_.find("{%", at_); end != std::string::npos;
         end = source_.find("{%", end + 2)) {
      at_ = end + 2;
      const Sign sign = ReadSign();
      SkipSpace();
      if (!At("endraw")) {
        continue;
      }
      at_ += 6;
      SkipSpace();
      if (!ReadEnd("%}")) {
        continue;
      }
      std::string_view text = std::string_view(source_).substr(body, end - body);
      text = sign == Sign::kMinus  ? Strip(text, Side::kRight)
             : sign == Sign::kNone ? WithoutIndent(body, text)
                                   : text;
      AddText(body, text);
      return;
    }
    Fail(begin, "raw without endraw");
  }

  void ReadTag(size_t tag, bool statement) {
    Add(statement ? Token::Kind::kStatementBegin : Token::Kind::kOutputBegin, tag, "");
    std::string open;  // brackets; an end counts only outside of all
    for (;;) {
      SkipSpace();
      const size_t offset = at_;
      if (at_ == source_.size()) {
        Fail(tag, statement ? "statement without '%}'" : "output without '}}'");
      }
      if (open.empty() && statement && ReadEnd("%}")) {
        Add(Token::Kind::kStatementEnd, offset, "");
        return;
      }
      if (open.empty() && !statement && ReadOutputEnd()) {
        Add(Token::Kind::kOutputEnd, offset, "");
        return;
      }
      ReadToken(open);
    }
  }

  bool ReadOutputEnd() {
    if (At("}}")) {
      at_ += 2;
      return true;
    }
    if (At("-}}")) {
      at_ += 3;
      SkipSpace();
      return true;
    }
    return false;
  }

  void ReadToken(std::string& open) {
    const size_t offset = at_;
    const char c = source_[at_];
    if (IsDigit(c)) {
      ReadNumber();
    } else if (IsNameStart(c)) {
      while (at_ < source_.size() && (IsNameStart(source_[at_]) || IsDigit(source_[at_]))) {
        ++at_;
      }
      Add(Token::Kind::kName, offset, source_.substr(offset, at_ - offset));
    } else if (c == '\'' || c == '"') {
      ReadString(c);
    } else {
      ReadSymbol(open);
    }
  }

  void ReadSymbol(std::string& open) {
    static constexpr std::string_view kPairs[] = {"//", "**", "==", "!=", ">=", "<="};
    const std::string_view two = Rest().substr(0, 2);
    const bool pair = std::find(std::begin(kPairs), std::end(kPairs), two) != std::end(kPairs);
    const std::string symbol(Rest().substr(0, pair ? 2 : 1));
    const size_t offset = at_;
    if (!pair && std::string_view("+-/*%~[](){}<>=.:|,").find(symbol) == std::string::npos) {
      Fail(offset, fmt::format("unexpected byte 0x{:02x}", static_cast<unsigned char>(symbol[0])));
    }
    static constexpr std::string_view kOpening = "([{";
    static constexpr std::string_view kClosing = ")]}";
    if (kOpening.find(symbol) != std::string::npos) {
      open += symbol;
    } else if (const size_t i = kClosing.find(symbol); i != std::string::npos) {
      if (open.empty() || open.back() != kOpening[i]) {
        Fail(offset, fmt::format("'{}' closes nothing", symbol));
      }
      open.pop_back();
    }
    at_ += symbol.size();
    Add(Token::Kind::kSymbol, offset, symbol);
  }

  void ReadDigits(std::string& digits) {
    while (at_ < source_.size() && (IsDigit(source_[at_]) || (At("_") && at_ + 1 < source_.size() &&
                                                              IsDigit(source_[at_ + 1])))) {
      if (source_[at_] != '_') {
        digits += source_[at_];
      }
      ++at_;
    }
  }

  bool DigitAt(size_t offset) const { return offset < source_.size() && IsDigit(source_[offset]); }

  void ReadNumber() {
    const size_t offset = at_;
    const bool after_dot = offset > 0 && source_[offset - 1] == '.';  // a.0.1 has two indices
    std::string digits;
    ReadDigits(digits);
    bool is_float = false;
    if (!after_dot && At(".") && DigitAt(at_ + 1)) {
      digits += source_[at_++];
      ReadDigits(digits);
      is_float = true;
    }
    if (!after_dot && (At("e") || At("E"))) {
      const bool sign =
          at_ + 1 < source_.size() && (source_[at_ + 1] == '+' || source_[at_ + 1] == '-');
      if (DigitAt(at_ + (sign ? 2 : 1))) {
        digits += source_.substr(at_, sign ? 2 : 1);
        at_ += sign ? 2 : 1;
        ReadDigits(digits);
        is_float = true;
      }
    }
    Add(is_float ? Token::Kind::kFloat : Token::Kind::kInteger, offset, digits);
  }

  void ReadString(char quote) {
    const size_t offset = at_++;
    std::string text;
    for (;;) {
      if (at_ >= source_.size()) {
        Fail(offset, "string without its closing quote");
      }
      const char c = source_[at_++];
      if (c == quote) {
        break;
      }
      if (c == '\\') {
        ReadEscape(offset, text);
      } else {
        text += c;
      }
    }
    Add(Token::Kind::kString, offset, std::move(text));
  }

  // After a backslash: Python's escapes; one it does not know stands for itself.
  void ReadEscape(size_t string_begin, std::string& text) {
    if (at_ >= source_.size()) {
      return;  // the string has no end
    }
    static constexpr std::string_view kLetters = "ntrabfv\\'\"";
    static constexpr std::string_view kStandFor = "\n\t\r\a\b\f\v\\'\"";
    const char c = source_[at_++];
    if (const size_t i = kLetters.find(c); i != std::string::npos) {
      text += kStandFor[i];
    } else if (c == 'x' || c == 'u' || c == 'U') {
      AppendUtf8(ReadHex(string_begin, c == 'x' ? 2 : c == 'u' ? 4 : 8), text);
    } else if (c >= '0' && c <= '7') {
      uint32_t code = static_cast<uint32_t>(c - '0');
      for (int more = 0;
           more < 2 && at_ < source_.size() && source_[at_] >= '0' && source_[at_] <= '7'; ++more) {
        code = code * 8 + static_cast<uint32_t>(source_[at_++] - '0');
      }
      AppendUtf8(code, text);
    } else if (c == 'N') {
      Fail(string_begin, "the escape \\N is not supported");
    } else if (c != '\n') {  // an escaped newline is none
      text += '\\';
      text += c;
    }
  }

  uint32_t ReadHex(size_t string_begin, int digits) {
    uint32_t code = 0;
    for (int i = 0; i < digits; ++i) {
      const char c = at_ < source_.size() ? source_[at_++] : '\0';
      const char lower = static_cast<char>(c | 0x20);
      if (!IsDigit(c) && !(lower >= 'a' && lower <= 'f')) {
        Fail(string_begin, "an escape lacks hexadecimal digits");
      }
      code = code << 4 | static_cast<uint32_t>(IsDigit(c) ? c - '0' : lower - 'a' + 10);
    }
    if (code > 0x10FFFF || (code >= 0xD800 && code < 0xE000)) {
      Fail(string_begin, "an escape is no Unicode character");
    }
    return code;
  }

  std::string source_;
  size_t at_ = 0;
  std::vector<Token> tokens_;
  size_t counted_ = 0;
  uint32_t line_ = 1;
  size_t line_begin_ = 0;
};

}  // namespace

std::vector<Token> Tokenize(std::string_view source) { return Lexer(WithNewlines(source)).Run(); }

}  // namespace tessera::jinja
