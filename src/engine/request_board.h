// SPDX-License-Identifier: Apache-2.0
//
// RequestBoard is what others may see of the requests an engine has: those that wait or run, and
// the last that have ended. The loop puts a request up when it is queued, shows it again with each
// step it takes part in, and moves it when it has ended.
//
//   Show --> waiting, running --End--> ended, newest first, until kEndedMax more have ended
//
// B1  A request is on the board once. When kLiveMax are up, the next one has to wait for a place;
//     it gets one with a later Show, or none before its end.
// B2  Show allocates nothing. End allocates only what the message of an error takes.
// B3  No token, text or salt is on the board.
//
// Failure: none. Threads: one shows and ends, any number read; each call takes the board's lock.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/thread_annotations.h"
#include "engine/engine.h"

namespace tessera {

class RequestBoard {
 public:
  static constexpr size_t kLiveMax = 256;  // 56 KiB; a default server runs 16 and takes 239
  static constexpr size_t kEndedMax = 64;

  RequestBoard();

  void Show(const RequestProgress& request);
  void End(const RequestProgress& request);
  RequestList Read() const;

 private:
  std::vector<RequestProgress>::iterator Place(RequestId id) REQUIRES(mutex_);

  mutable Mutex mutex_;
  std::vector<RequestProgress> live_ GUARDED_BY(mutex_);   // by id, ascending
  std::vector<RequestProgress> ended_ GUARDED_BY(mutex_);  // a ring once it is full
  size_t next_ended_ GUARDED_BY(mutex_) = 0;
};

}  // namespace tessera
