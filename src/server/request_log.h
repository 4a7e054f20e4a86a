// SPDX-License-Identifier: Apache-2.0
//
// RequestLog appends one line of JSON (trace/request_record.h) for each request that has ended to a
// file. A thread of its own writes, so that nobody who serves waits for a disk.
//
//   Append --> queue --> writer thread --> FILE          (Append never blocks)
//                |
//                +-- full --> dropped, counted
//
// G1  Losing the log never harms serving: a queue that is full, a full disk, a file that went away
//     cost records, which are counted, and nothing else. After each loss it goes on with the next.
// G2  FILE gets whole lines only: what a failing write left of one is cut off again. What was in
//     FILE before stays, and when that ends within a line (whoever wrote it was killed, or lost its
//     machine) the line is ended, so that the next record is one by itself.
// G3  When FILE would grow beyond `rotate_bytes`, it becomes FILE.1 (the one before goes) and a new
//     one begins. When somebody else moves or removes FILE, the next line begins a new one. What is
//     no regular file (a pipe, a terminal) is never rotated.
// G4  What Append took is written, or counted as dropped, when the destructor returns.
//
// Each batch is handed to the system at once: it survives the process, not a loss of power.
//
// Failure: Open gives kIo with the path. Threads: Append and Counts from any.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "base/bytes.h"
#include "base/status.h"
#include "base/thread_annotations.h"
#include "engine/engine.h"
#include "trace/request_record.h"

namespace tessera {

struct RequestLogOptions {
  std::string path;
  uint64_t rotate_bytes = 64 * kMiB;  // 0: never
  size_t queue_max = 4096;            // records
};

struct RequestLogCounts {
  uint64_t written = 0;
  uint64_t dropped = 0;
};

class RequestLog {
 public:
  static Result<std::unique_ptr<RequestLog>> Open(RequestLogOptions options);
  ~RequestLog();
  RequestLog(const RequestLog&) = delete;
  RequestLog& operator=(const RequestLog&) = delete;

  void Append(RequestRecord record);
  RequestLogCounts Counts() const;

 private:
  explicit RequestLog(RequestLogOptions options) : options_(std::move(options)) {}

  void Run();
  void Write(const RequestRecord& record);
  // Whether there is an open file with room for so many bytes: opens, reopens or rotates it.
  bool Prepare(size_t bytes);
  Status OpenFile();
  void CloseFile();

  const RequestLogOptions options_;
  std::thread thread_;
  std::atomic<uint64_t> written_{0};
  std::atomic<uint64_t> dropped_{0};

  Mutex mutex_;
  CondVar changed_;
  std::vector<RequestRecord> queue_ GUARDED_BY(mutex_);
  bool stopping_ GUARDED_BY(mutex_) = false;

  // The writer's own.
  int file_ = -1;
  bool regular_ = false;
  bool within_line_ = false;  // what FILE had ends so: the next record ends that line first
  uint64_t size_ = 0;
};

// What the engine says of a request, as a record of this moment.
RequestRecord RecordOf(const FinishedRequest& request, const std::string& model);
std::string_view FinishName(FinishReason reason);  // stop, length, abort, error, refused

}  // namespace tessera
