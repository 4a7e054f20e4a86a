// SPDX-License-Identifier: Apache-2.0
//
// Clang's thread-safety attributes (checked by the `analyze` preset, empty elsewhere) and the mutex
// that carries them: std::mutex has no annotations in libstdc++.
#pragma once

#include <condition_variable>
#include <mutex>

#if defined(__clang__)
#define TESSERA_THREAD_ATTRIBUTE(x) __attribute__((x))
#else
#define TESSERA_THREAD_ATTRIBUTE(x)
#endif

#define CAPABILITY(x) TESSERA_THREAD_ATTRIBUTE(capability(x))
#define SCOPED_CAPABILITY TESSERA_THREAD_ATTRIBUTE(scoped_lockable)
#define GUARDED_BY(x) TESSERA_THREAD_ATTRIBUTE(guarded_by(x))
#define REQUIRES(...) TESSERA_THREAD_ATTRIBUTE(requires_capability(__VA_ARGS__))
#define EXCLUDES(...) TESSERA_THREAD_ATTRIBUTE(locks_excluded(__VA_ARGS__))
#define ACQUIRE(...) TESSERA_THREAD_ATTRIBUTE(acquire_capability(__VA_ARGS__))
#define RELEASE(...) TESSERA_THREAD_ATTRIBUTE(release_capability(__VA_ARGS__))

namespace tessera {

class CAPABILITY("mutex") Mutex {
 public:
  void lock() ACQUIRE() { mutex_.lock(); }
  void unlock() RELEASE() { mutex_.unlock(); }

 private:
  std::mutex mutex_;
};

class SCOPED_CAPABILITY MutexLock {
 public:
  explicit MutexLock(Mutex& mutex) ACQUIRE(mutex) : mutex_(mutex) { mutex_.lock(); }
  ~MutexLock() RELEASE() { mutex_.unlock(); }
  MutexLock(const MutexLock&) = delete;
  MutexLock& operator=(const MutexLock&) = delete;

 private:
  Mutex& mutex_;
};

using CondVar = std::condition_variable_any;

}  // namespace tessera
