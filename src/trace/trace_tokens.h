// SPDX-License-Identifier: Apache-2.0
//
// TraceTokens makes the token content of a trace: token j of block id h is a hash of (trace, id
// space, h) and j, so two prompts are equal exactly where their ids are. The partial last block of
// a prompt is its own (a hash of session and index in it) or, where the trace gives it an id and
// the caller wants it, that id's tokens, cut.
//
// The ids of one block differ from those of another from their first token on, up to one chance in
// `vocabulary` a token.
//
// Threads: const after construction. Holds the trace: it must outlive this.
#pragma once

#include <cstdint>
#include <vector>

#include "trace/request_trace.h"

namespace tessera {

enum class PartialBlock {
  kOwn,   // equal to no other request's: reference figures count full blocks only
  kById,  // as the trace has it, where it does
};

class TraceTokens {
 public:
  TraceTokens(const RequestTrace& trace, PartialBlock partial, uint32_t vocabulary);

  // The prompt, input_tokens long.
  void Prompt(const TraceRequest& request, std::vector<int32_t>* tokens) const;
  // The answer, output_tokens long, equal to no other request's.
  void Answer(const TraceRequest& request, std::vector<int32_t>* tokens) const;

 private:
  void Append(uint64_t key, uint64_t count, std::vector<int32_t>* tokens) const;
  uint64_t OwnKey(const TraceRequest& request) const;

  const RequestTrace& trace_;
  const PartialBlock partial_;
  const uint32_t vocabulary_;
  uint64_t trace_key_ = 0;
};

}  // namespace tessera
