// SPDX-License-Identifier: Apache-2.0
#include "trace/trace_tokens.h"

#include <algorithm>

#include "base/check.h"
#include "base/random.h"

namespace tessera {
namespace {

constexpr uint64_t kOwnKeys = uint64_t{1} << 63;  // apart from the keys of ids, which are below

}  // namespace

TraceTokens::TraceTokens(const RequestTrace& trace, PartialBlock partial, uint32_t vocabulary)
    : trace_(trace), partial_(partial), vocabulary_(vocabulary) {
  TESSERA_CHECK(vocabulary_ > 0 && vocabulary_ <= (uint32_t{1} << 31));
  for (const char c : trace.name) trace_key_ = CounterRandom(trace_key_, static_cast<uint8_t>(c));
}

void TraceTokens::Append(uint64_t key, uint64_t count, std::vector<int32_t>* tokens) const {
  const size_t start = tokens->size();
  tokens->resize(start + count);
  for (uint64_t j = 0; j < count; ++j) {
    // The high half times the vocabulary, the high half of that: a fair draw without a division.
    const uint64_t draw = (CounterRandom(key, j) >> 32) * vocabulary_;
    (*tokens)[start + j] = static_cast<int32_t>(draw >> 32);
  }
}

uint64_t TraceTokens::OwnKey(const TraceRequest& request) const {
  return CounterRandom(CounterRandom(trace_key_, kOwnKeys | request.session), request.index);
}

void TraceTokens::Prompt(const TraceRequest& request, std::vector<int32_t>* tokens) const {
  tokens->clear();
  tokens->reserve(request.input_tokens);
  const uint64_t space_key = CounterRandom(trace_key_, request.id_space);
  const uint64_t by_id = partial_ == PartialBlock::kById
                             ? request.input_tokens
                             : trace_.FullBlocks(request) * trace_.block_tokens;
  for (const IdRange& range : trace_.Ranges(request)) {
    for (uint64_t id = range.first; id <= range.last && tokens->size() < by_id; ++id) {
      const uint64_t left = by_id - tokens->size();
      Append(CounterRandom(space_key, id), std::min<uint64_t>(left, trace_.block_tokens), tokens);
    }
  }
  Append(OwnKey(request), request.input_tokens - tokens->size(), tokens);
}

void TraceTokens::Answer(const TraceRequest& request, std::vector<int32_t>* tokens) const {
  tokens->clear();
  // The partial block draws fewer than a block's tokens from the same key; these come after it.
  Append(SplitMix64(OwnKey(request)), request.output_tokens, tokens);
}

}  // namespace tessera
