// SPDX-License-Identifier: Apache-2.0
//
// AnswerStream turns the bytes of one streamed answer, of /v1/completions or
// /v1/chat/completions, into its LoadRecord. It sees no socket and no clock: whoever reads the
// bytes says when they came.
//
//   Open --([DONE] or a finish reason, and the end of the reply)--> Completed
//     |----(a status other than 200, an error, a broken stream)--> Failed
//
// A piece is an event with text in choice 0, or, when there was none before, the one that carries
// the finish reason: an answer of no text has a first byte too. Chat's role event is none. Events
// of one read share its time.
//
// Threads: one at a time. The record must outlive this.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "bench/serve/event_lines.h"
#include "bench/serve/http_reply.h"
#include "bench/serve/load_record.h"

namespace tessera {

class AnswerStream {
 public:
  explicit AnswerStream(LoadRecord* record) : record_(record) {}

  // `at_ns` since the request's start. False when the answer is over, well or badly: the record's
  // outcome then says which.
  bool Take(std::string_view bytes, uint64_t at_ns);
  // The connection ended; `why` when it did not end well. The answer is over.
  void PeerClosed(std::string_view why);
  // Ends it as failed from outside.
  void Fail(LoadFailure failure, std::string error);

 private:
  void TakeEvent(std::string_view data, uint64_t at_ns);
  void TakePiece(std::string_view text, uint64_t at_ns);
  void Refused();
  bool Finish();
  bool failed() const { return record_->outcome == LoadOutcome::kFailed; }

  LoadRecord* record_;
  HttpReply reply_;
  EventLines events_;
  std::string body_;   // of the current read, or of a refusal
  bool done_ = false;  // [DONE] came
  uint64_t last_piece_ns_ = 0;
};

}  // namespace tessera
