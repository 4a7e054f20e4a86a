// SPDX-License-Identifier: Apache-2.0
//
// RequestBodies writes the JSON bodies of a load's requests: always a stream with usage, to
// /v1/completions or /v1/chat/completions.
//
// Token ids go as they are where the endpoint takes them. As text, which a chat needs, id n is a
// word of its own, so prompts that begin alike as ids do as text; how many tokens that is for the
// server, its usage says.
//
// Failure: kInvalidArgument naming --extra-body.
// Threads: const.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "base/status.h"
#include "bench/serve/workload.h"

namespace tessera {

struct BodyOptions {
  std::string model;
  bool chat = false;
  bool as_text = false;  // token ids too
  double temperature = 0;
  bool ignore_eos = false;
  std::string extra;  // a JSON object of further fields, or empty
};

class RequestBodies {
 public:
  static Result<RequestBodies> Create(const BodyOptions& options);
  std::string Body(const LoadPrompt& prompt) const;

 private:
  RequestBodies(std::string fixed, bool chat, bool as_text)
      : fixed_(std::move(fixed)), chat_(chat), as_text_(as_text || chat) {}

  std::string fixed_;  // an object without its last brace
  bool chat_;
  bool as_text_;
};

// "ba cd": ids as words.
std::string TokensAsWords(const std::vector<int32_t>& tokens);

}  // namespace tessera
