// SPDX-License-Identifier: Apache-2.0
//
// What the answers of completions and chat completions have in common: who answers, what it cost,
// and the members beyond OpenAI's schema:
//
//   choices[i].receipt   16 hex digits; equal receipts mean the same bits were computed
//   choices[i].reuse     how much of the prompt was reused, and why each other token was not
//   seed                 the one used: sending it again repeats the answer
//   timings              llama-server's names
//
// In a stream these come with the chunks that carry finish_reason: receipt and reuse with their
// choice, seed and timings with the last of them.
//
// Threads: pure functions of their arguments.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "engine/engine.h"
#include "server/generation_request.h"

namespace tessera {

using OrderedJson = nlohmann::ordered_json;

// The same for every chunk of an answer.
struct AnswerHead {
  std::string id;
  int64_t created = 0;  // seconds since 1970
  std::string model;
};

// Sums over the choices of an answer, a prompt counted once however many choices share it; times
// are the longest of any: choices run together.
struct AnswerTotals {
  uint64_t prompt_tokens = 0;
  uint64_t cached_tokens = 0;
  uint64_t completion_tokens = 0;
  // predicted_ms runs from the first token of a choice to its last: one interval less than tokens.
  uint64_t predicted_intervals = 0;
  double prompt_ms = 0;
  double predicted_ms = 0;
};

// What the last chunk with a finish_reason carries besides.
struct StreamEnding {
  RequestSeed seed;
  AnswerTotals totals;
};

// Bytes that are not UTF-8 become U+FFFD.
std::string DumpJson(const OrderedJson& json);

OrderedJson HeadJson(const AnswerHead& head, std::string_view object);
OrderedJson UsageJson(const AnswerTotals& totals);
// "stop", "length" or null.
OrderedJson FinishJson(FinishReason finish);
std::string FormatReceipt(uint64_t receipt);
// Adds receipt and reuse.
void AddChoiceEnding(uint64_t receipt, const MatchReport& match, OrderedJson* choice);
// Adds seed and timings.
void AddAnswerEnding(const RequestSeed& seed, const AnswerTotals& totals, OrderedJson* answer);
// JSON has no -inf; OpenAI writes -9999 for a token that could not have come.
double LogprobNumber(float logprob);

// A chunk without choices that says how far the prompt is, with llama-server's names and the choice
// whose prompt it is.
std::string ProgressChunk(const AnswerHead& head, std::string_view object, uint32_t choice,
                          const PromptProgress& progress);
// The chunk with empty choices that include_usage asks for.
std::string UsageChunk(const AnswerHead& head, std::string_view object, const AnswerTotals& totals);

}  // namespace tessera
