// SPDX-License-Identifier: Apache-2.0
#include "cli/prompt_source.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <cstring>
#include <memory>

#include "base/bytes.h"

namespace tessera::cli {
namespace {

// More than any model's context holds: /dev/zero and a pipe without an end are not read for ever.
constexpr uint64_t kPromptBytesMax = 64 * kMiB;

Result<std::string> ReadAll(std::FILE* file, const std::string& name) {
  std::string text;
  char buffer[1 << 16];
  while (const size_t count = std::fread(buffer, 1, sizeof buffer, file)) {
    text.append(buffer, count);
    if (text.size() > kPromptBytesMax) {
      return InvalidArgument(
          fmt::format("{} is longer than {}", name, FormatBytes(kPromptBytesMax)));
    }
  }
  if (std::ferror(file) != 0) {
    if (errno == EISDIR) return BadFile(fmt::format("{} is a directory", name));
    return IoError(fmt::format("cannot read {}: {}", name, std::strerror(errno)));
  }
  return text;
}

Result<std::string> ReadFile(const std::string& path) {
  if (path == "-") return ReadAll(stdin, "stdin");
  const std::string name = fmt::format("prompt file '{}'", path);
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(std::fopen(path.c_str(), "rb"),
                                                             &std::fclose);
  if (file == nullptr) {
    return IoError(fmt::format("cannot open {}: {}", name, std::strerror(errno)));
  }
  return ReadAll(file.get(), name);
}

}  // namespace

Result<std::vector<TokenId>> ParseTokenIds(std::string_view text) {
  std::vector<TokenId> ids;
  for (size_t at = 0; at <= text.size();) {
    const size_t comma = std::min(text.find(',', at), text.size());
    std::string_view word = text.substr(at, comma - at);
    while (!word.empty() && word.front() == ' ') word.remove_prefix(1);
    while (!word.empty() && word.back() == ' ') word.remove_suffix(1);
    TokenId id = -1;
    const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), id);
    if (error != std::errc() || end != word.data() + word.size() || id < 0) {
      return InvalidArgument(
          fmt::format("--prompt-tokens: '{}' is not a token id; expected ids such as 1,2,3", word));
    }
    ids.push_back(id);
    at = comma + 1;
  }
  return ids;
}

Result<Prompt> ReadPrompt(const PromptSource& source) {
  const int given = (source.text ? 1 : 0) + (source.file ? 1 : 0) + (source.tokens ? 1 : 0);
  if (given != 1) {
    return InvalidArgument(
        fmt::format("run: {}; give exactly one of --prompt TEXT, --prompt-file FILE and "
                    "--prompt-tokens 1,2,3",
                    given == 0 ? "there is no prompt" : "there is more than one prompt"));
  }
  Prompt prompt;
  if (source.tokens) {
    TESSERA_ASSIGN_OR_RETURN(prompt.tokens, ParseTokenIds(*source.tokens));
  } else if (source.file) {
    TESSERA_ASSIGN_OR_RETURN(prompt.text, ReadFile(*source.file));
  } else {
    prompt.text = *source.text;
  }
  return prompt;
}

}  // namespace tessera::cli
