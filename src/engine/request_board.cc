// SPDX-License-Identifier: Apache-2.0
#include "engine/request_board.h"

#include <algorithm>

#include "port/clock.h"

namespace tessera {

RequestBoard::RequestBoard() {
  live_.reserve(kLiveMax);
  ended_.reserve(kEndedMax);
}

// Where the request is, or would be.
std::vector<RequestProgress>::iterator RequestBoard::Place(RequestId id) {
  const auto before = [](const RequestProgress& a, RequestId b) { return a.summary.id < b; };
  return std::lower_bound(live_.begin(), live_.end(), id, before);
}

void RequestBoard::Show(const RequestProgress& request) {
  MutexLock lock(mutex_);
  const auto at = Place(request.summary.id);
  if (at != live_.end() && at->summary.id == request.summary.id) {
    *at = request;
  } else if (live_.size() < kLiveMax) {
    live_.insert(at, request);
  }
}

void RequestBoard::End(const RequestProgress& request) {
  MutexLock lock(mutex_);
  const auto at = Place(request.summary.id);
  if (at != live_.end() && at->summary.id == request.summary.id) live_.erase(at);
  if (ended_.size() < kEndedMax) {
    ended_.push_back(request);
  } else {
    ended_[next_ended_] = request;
  }
  next_ended_ = (next_ended_ + 1) % kEndedMax;
}

RequestList RequestBoard::Read() const {
  RequestList list;
  MutexLock lock(mutex_);
  list.now_ns = NowNs();
  list.live = live_;
  // The newest is the one before next_ended_, and the oldest next_ended_ once all places are taken.
  for (size_t i = 0; i < ended_.size(); ++i) {
    list.ended.push_back(ended_[(next_ended_ + kEndedMax - 1 - i) % kEndedMax]);
  }
  return list;
}

}  // namespace tessera
