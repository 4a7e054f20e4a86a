// SPDX-License-Identifier: Apache-2.0
//
// LoadRecord is what a client saw of one request: when it was sent, when each piece of the answer
// came, what the server said of it, and how it ended.
//
// Threads: a value.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace tessera {

enum class LoadOutcome {
  kCompleted,   // the whole answer came
  kFailed,      // LoadRecord::failure says how
  kCancelled,   // the client went away on purpose
  kUnfinished,  // an interrupt ended the run before it, or while it ran
};

enum class LoadFailure {
  kNone,
  kConnect,       // no connection
  kTimeout,       // no byte for too long
  kStatus,        // an HTTP status other than 200
  kDisconnected,  // the connection ended before the answer did
  kMalformed,     // not HTTP, not server-sent events, not JSON, or an answer without its end
  kServerError,   // an error after the first byte, as an event of the stream
};

// "connect", "timeout" …
std::string_view LoadFailureName(LoadFailure failure);

struct LoadRecord {
  LoadOutcome outcome = LoadOutcome::kUnfinished;
  LoadFailure failure = LoadFailure::kNone;
  int status = 0;     // HTTP's, once it is known
  std::string error;  // one line; empty unless it failed
  bool started = false;
  uint64_t arrival_ns = 0;  // all since the run's start: when it was due,
  uint64_t start_ns = 0;    // when its connection was begun
  // Since start_ns: the first piece of the answer, and the last one.
  uint64_t first_ns = 0;
  uint64_t last_ns = 0;
  std::vector<uint64_t> gaps_ns;  // between pieces, one less than pieces
  uint32_t pieces = 0;            // events with text, and the one with the finish reason if first
  uint64_t prompt_tokens = 0;     // the server's count, else what was planned
  uint64_t output_tokens = 0;     // the server's count, else pieces
  std::optional<uint64_t> cached_tokens;  // absent when the server does not say: not zero
  std::string text;
  std::string finish_reason;
  std::string receipt;  // Tessera's, else empty
};

}  // namespace tessera
