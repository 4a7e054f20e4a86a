// SPDX-License-Identifier: Apache-2.0
#include "server/request_log.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstring>
#include <system_error>
#include <utility>

namespace tessera {
namespace {

std::string Why() { return std::generic_category().message(errno); }

// Whether the file at `path` has something after its last line end: whoever wrote it was cut off.
bool EndsWithinALine(const std::string& path, uint64_t size) {
  if (size == 0) return false;
  const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (file < 0) return false;  // not for us to read: it is as it is
  char last = '\n';
  (void)!::pread(file, &last, 1, static_cast<off_t>(size - 1));
  ::close(file);
  return last != '\n';
}

SupplyRecord SupplyOf(const MatchReport& match) {
  SupplyRecord supply;
  supply.attention = match.attention;
  supply.recurrent = match.recurrent;
  supply.adopted = match.reused;
  supply.diverged_at = match.diverged_at;
  supply.from_row = match.from_row;
  for (uint32_t i = 0; i < match.computed_count; ++i) {
    const ComputedRange& range = match.computed[i];
    supply.computed.push_back(
        {range.begin, range.end, std::string(ComputeReasonName(range.reason))});
  }
  return supply;
}

}  // namespace

std::string_view FinishName(FinishReason reason) {
  switch (reason) {
    case FinishReason::kStop:
      return "stop";
    case FinishReason::kLength:
      return "length";
    case FinishReason::kCancelled:
      return "abort";
    case FinishReason::kError:
      return "error";
    case FinishReason::kRefused:
      return "refused";
    case FinishReason::kNone:
      break;
  }
  return "none";
}

RequestRecord RecordOf(const FinishedRequest& request, const std::string& model) {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  RequestRecord record;
  record.id = request.id.index();
  record.ended = std::chrono::duration<double>(now).count();
  record.model = model;
  record.prompt_tokens = request.prompt_tokens;
  record.max_tokens = request.max_tokens;
  record.completion_tokens = request.completion_tokens;
  record.finish = FinishName(request.finish);
  record.error = request.error.message();
  record.salted = request.salted;
  if (request.admitted) record.supply = SupplyOf(request.match);
  record.queue_ms = request.timings.queue_ms;
  record.prefill_ms = request.timings.prompt_ms;
  record.decode_ms = request.timings.predicted_ms;
  record.receipt = request.receipt;
  return record;
}

Result<std::unique_ptr<RequestLog>> RequestLog::Open(RequestLogOptions options) {
  std::unique_ptr<RequestLog> log(new RequestLog(std::move(options)));
  TESSERA_RETURN_IF_ERROR(log->OpenFile());
  try {
    log->thread_ = std::thread([raw = log.get()] { raw->Run(); });
  } catch (const std::system_error& error) {
    return IoError(fmt::format("request log {}: no thread to write it: {}", log->options_.path,
                               error.code().message()));
  }
  return log;
}

RequestLog::~RequestLog() {
  {
    MutexLock lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
  CloseFile();
}

void RequestLog::Append(RequestRecord record) {
  {
    MutexLock lock(mutex_);
    if (queue_.size() >= options_.queue_max) {
      dropped_.fetch_add(1, std::memory_order_relaxed);
      return;
    }
    queue_.push_back(std::move(record));
  }
  changed_.notify_one();
}

RequestLogCounts RequestLog::Counts() const {
  return {written_.load(std::memory_order_relaxed), dropped_.load(std::memory_order_relaxed)};
}

void RequestLog::Run() {
  // A file that may not grow (ulimit -f) is an error of write here, not the end of the process.
  sigset_t too_large;
  sigemptyset(&too_large);
  sigaddset(&too_large, SIGXFSZ);
  sigaddset(&too_large, SIGPIPE);
  pthread_sigmask(SIG_BLOCK, &too_large, nullptr);
  std::vector<RequestRecord> taken;
  for (bool stopping = false; !stopping;) {
    taken.clear();
    {
      MutexLock lock(mutex_);
      while (queue_.empty() && !stopping_) changed_.wait(mutex_);
      taken.swap(queue_);
      stopping = stopping_;
    }
    for (const RequestRecord& record : taken) Write(record);
  }
}

void RequestLog::Write(const RequestRecord& record) {
  std::string line = WriteRequestRecord(record) + "\n";
  if (!Prepare(line.size())) {
    dropped_.fetch_add(1, std::memory_order_relaxed);
    return;
  }
  if (within_line_) line.insert(line.begin(), '\n');
  size_t done = 0;
  while (done < line.size()) {
    const ssize_t wrote = ::write(file_, line.data() + done, line.size() - done);
    if (wrote < 0 && errno == EINTR) continue;
    if (wrote <= 0) break;
    done += static_cast<size_t>(wrote);
  }
  if (done == line.size()) {
    size_ += done;
    within_line_ = false;
    written_.fetch_add(1, std::memory_order_relaxed);
    return;
  }
  dropped_.fetch_add(1, std::memory_order_relaxed);
  if (done == 0) return;
  // Half a line: off with it. Where that cannot be done the file is not ours to go on with.
  if (!regular_ || ::ftruncate(file_, static_cast<off_t>(size_)) != 0) CloseFile();
}

bool RequestLog::Prepare(size_t bytes) {
  struct stat there = {};
  struct stat ours = {};
  if (file_ >= 0 && regular_ &&
      (::stat(options_.path.c_str(), &there) != 0 || ::fstat(file_, &ours) != 0 ||
       there.st_ino != ours.st_ino || there.st_dev != ours.st_dev)) {
    CloseFile();
  }
  const bool full = options_.rotate_bytes > 0 && size_ > 0 && size_ + bytes > options_.rotate_bytes;
  if (file_ >= 0 && regular_ && full) {
    // When it cannot be renamed, a file that is too long is better than none.
    if (::rename(options_.path.c_str(), (options_.path + ".1").c_str()) == 0) CloseFile();
  }
  return file_ >= 0 || OpenFile().ok();
}

Status RequestLog::OpenFile() {
  // O_NONBLOCK: a pipe that nobody reads must not stop the start, nor a full one the writer.
  file_ =
      ::open(options_.path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NONBLOCK, 0640);
  if (file_ < 0) return IoError(fmt::format("request log {}: {}", options_.path, Why()));
  struct stat found = {};
  regular_ = ::fstat(file_, &found) == 0 && S_ISREG(found.st_mode);
  size_ = regular_ ? static_cast<uint64_t>(found.st_size) : 0;
  within_line_ = EndsWithinALine(options_.path, size_);
  return Status::Ok();
}

void RequestLog::CloseFile() {
  if (file_ >= 0) ::close(file_);
  file_ = -1;
  size_ = 0;
}

}  // namespace tessera
