// SPDX-License-Identifier: Apache-2.0
//
// Where `run` takes its prompt from: --prompt, --prompt-file (- is stdin) or --prompt-tokens,
// exactly one of them. A file is taken byte for byte, its last newline included.
//
// Failure: kInvalidArgument naming the flag, kIo naming the file.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "base/strong_id.h"

namespace tessera::cli {

struct PromptSource {
  std::optional<std::string> text;
  std::optional<std::string> file;
  std::optional<std::string> tokens;
};

struct Prompt {
  std::string text;
  std::optional<std::vector<TokenId>> tokens;  // given as ids: `text` is not used
};

Result<Prompt> ReadPrompt(const PromptSource& source);

// "1,2,3", spaces allowed.
Result<std::vector<TokenId>> ParseTokenIds(std::string_view text);

}  // namespace tessera::cli
