// SPDX-License-Identifier: Apache-2.0
//
// ConnectionWorkers are the threads that serve connections, first come, first served.
//
// W1  Every connection added is served once, also those added before Finish and not yet begun.
//
// Failure: kIo when the system does not give that many threads; those it gave end.
// Threads: Add and Finish from one; `serve` runs on each of the workers.
#pragma once

#include <cstddef>
#include <deque>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "base/status.h"
#include "base/thread_annotations.h"

namespace tessera {

class ConnectionWorkers {
 public:
  // `serve` gets the socket, and closes it.
  static Result<std::unique_ptr<ConnectionWorkers>> Create(size_t count,
                                                           std::function<void(int)> serve);
  ~ConnectionWorkers() { Finish(); }
  ConnectionWorkers(const ConnectionWorkers&) = delete;
  ConnectionWorkers& operator=(const ConnectionWorkers&) = delete;

  void Add(int socket) EXCLUDES(mutex_);
  // Returns when all are served.
  void Finish() EXCLUDES(mutex_);

 private:
  explicit ConnectionWorkers(std::function<void(int)> serve) : serve_(std::move(serve)) {}
  void Run() EXCLUDES(mutex_);

  const std::function<void(int)> serve_;
  Mutex mutex_;
  CondVar changed_;
  bool finishing_ GUARDED_BY(mutex_) = false;
  std::deque<int> waiting_ GUARDED_BY(mutex_);
  std::vector<std::thread> threads_;
};

}  // namespace tessera
