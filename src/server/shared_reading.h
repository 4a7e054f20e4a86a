// SPDX-License-Identifier: Apache-2.0
//
// SharedReading hands one reading of something dear to everybody who asks while it is fresh, so
// that any number of clients costs what one does.
//
//   Get --the last one is fresh--> it        Get --else--> one caller makes the next, others wait
//
// R1  A reading that took t of its thread's time is fresh for `rest` · t after it was made: making
//     them takes no more than one part in `rest` + 1 of the time. A cheap one is soon made again.
// R2  What Get returns was made after Get was called, or was fresh then.
//
// Failure: none of its own. Threads: any number; `make` is called by one at a time.
#pragma once

#include <functional>
#include <memory>
#include <utility>

#include "base/thread_annotations.h"
#include "port/clock.h"
#include "port/cpu_clock.h"

namespace tessera {

struct ReadingClocks {
  std::function<uint64_t()> now_ns = NowNs;
  std::function<uint64_t()> spent_ns = ThreadCpuNs;
};

template <typename T>
class SharedReading {
 public:
  // A `rest` of 0 shares nothing. `clocks` are for tests.
  SharedReading(uint32_t rest, std::function<T()> make, ReadingClocks clocks = {})
      : rest_(rest), make_(std::move(make)), clocks_(std::move(clocks)) {}

  std::shared_ptr<const T> Get() EXCLUDES(mutex_) {
    MutexLock lock(mutex_);
    if (last_ != nullptr && clocks_.now_ns() < stale_at_) return last_;
    const uint64_t began = clocks_.spent_ns();
    last_ = std::make_shared<const T>(make_());
    stale_at_ = clocks_.now_ns() + rest_ * (clocks_.spent_ns() - began);
    return last_;
  }
  // The next Get makes one.
  void Forget() EXCLUDES(mutex_) {
    MutexLock lock(mutex_);
    last_.reset();
  }

 private:
  const uint64_t rest_;
  const std::function<T()> make_;
  const ReadingClocks clocks_;
  Mutex mutex_;
  std::shared_ptr<const T> last_ GUARDED_BY(mutex_);
  uint64_t stale_at_ GUARDED_BY(mutex_) = 0;
};

}  // namespace tessera
