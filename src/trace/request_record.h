// SPDX-License-Identifier: Apache-2.0
//
// RequestRecord is what became of one request: what it asked for, what of its prompt was reused and
// why not more (the supply ledger), how long each part took, how it ended. One line of JSON each:
//
//   {"schema":1,"id":7,"ended":1767225600.125,"model":"m","prompt_tokens":50,"max_tokens":20,
//    "completion_tokens":20,"finish":"length","salted":false,
//    "supply":{"a_max":48,"r_max":48,"j_adopt":48,"gap_r":0,"diverged_at":48,"from_row":false,
//              "computed":[{"from":48,"to":50,"reason":"cold"}]},
//    "queue_ms":0.1,"prefill_ms":3.5,"decode_ms":40.2,"receipt":"00c0ffee00c0ffee"}
//
// `supply` is absent when the request never got memory, `error` is there with finish "error" and
// "refused" alone. A refused one was not taken: all it has is what it asked for, and why not.
// No text, no token and no salt is in a record.
//
// Invariants of a value that was read: gap_r is r_max - j_adopt; the ranges of `computed` begin at
// j_adopt and join up to prompt_tokens.
//
// Failure: kBadFile naming name:line, the field, what was expected and what was found.
// Threads: values.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace tessera {

struct RecordedRange {  // tokens [from, to) of the prompt
  uint32_t from = 0;
  uint32_t to = 0;
  std::string reason;

  bool operator==(const RecordedRange&) const = default;
};

struct SupplyRecord {
  uint32_t attention = 0;  // a_max
  uint32_t recurrent = 0;  // r_max
  uint32_t adopted = 0;    // j_adopt: tokens that were not computed
  uint32_t diverged_at = 0;
  bool from_row = false;
  std::vector<RecordedRange> computed;

  bool operator==(const SupplyRecord&) const = default;
};

struct RequestRecord {
  uint64_t id = 0;
  double ended = 0;  // seconds since 1970
  std::string model;
  uint32_t prompt_tokens = 0;
  uint32_t max_tokens = 0;
  uint32_t completion_tokens = 0;
  std::string finish;  // stop, length, abort, error, refused
  std::string error;
  bool salted = false;
  std::optional<SupplyRecord> supply;
  double queue_ms = 0;
  double prefill_ms = 0;
  double decode_ms = 0;
  uint64_t receipt = 0;  // 0: nothing was sampled

  bool operator==(const RequestRecord&) const = default;
};

// Without the line's end.
std::string WriteRequestRecord(const RequestRecord& record);
// `name` and `line` stand in messages.
Result<RequestRecord> ParseRequestRecord(std::string_view text, const std::string& name,
                                         uint64_t line);

}  // namespace tessera
