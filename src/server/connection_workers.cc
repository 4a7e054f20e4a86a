// SPDX-License-Identifier: Apache-2.0
#include "server/connection_workers.h"

#include <fmt/format.h>

#include <exception>
#include <utility>

namespace tessera {

Result<std::unique_ptr<ConnectionWorkers>> ConnectionWorkers::Create(
    size_t count, std::function<void(int)> serve) {
  std::unique_ptr<ConnectionWorkers> workers(new ConnectionWorkers(std::move(serve)));
  try {
    workers->threads_.reserve(count);
    for (size_t i = 0; i < count; ++i) {
      workers->threads_.emplace_back([self = workers.get()] { self->Run(); });
    }
  } catch (const std::exception& error) {  // a limit on processes, no memory for a stack
    return IoError(fmt::format("cannot start {} threads for connections, got {}: {}", count,
                               workers->threads_.size(), error.what()));
  }
  return workers;
}

void ConnectionWorkers::Add(int socket) {
  {
    MutexLock lock(mutex_);
    waiting_.push_back(socket);
  }
  changed_.notify_one();
}

void ConnectionWorkers::Finish() {
  {
    MutexLock lock(mutex_);
    finishing_ = true;
  }
  changed_.notify_all();
  for (std::thread& thread : threads_) {
    if (thread.joinable()) thread.join();
  }
}

void ConnectionWorkers::Run() {
  for (;;) {
    int socket = -1;
    {
      MutexLock lock(mutex_);
      while (waiting_.empty() && !finishing_) changed_.wait(mutex_);
      if (waiting_.empty()) return;
      socket = waiting_.front();
      waiting_.pop_front();
    }
    serve_(socket);
  }
}

}  // namespace tessera
