// SPDX-License-Identifier: Apache-2.0
#include "bench/serve/result_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

namespace tessera {
namespace {

Status Error(const std::string& path, std::string_view what) {
  return IoError(fmt::format("{}: {}: {}", path, what, std::strerror(errno)));
}

bool IsSpecial(const std::string& path) {
  struct stat info {};
  return ::stat(path.c_str(), &info) == 0 && !S_ISREG(info.st_mode) && !S_ISDIR(info.st_mode);
}

// It has the process in it, so that two runs with one path do not meet.
std::string PartialPath(const std::string& path) {
  return fmt::format("{}.partial-{}", path, ::getpid());
}

bool WriteAll(int fd, std::string_view text) {
  while (!text.empty()) {
    const ssize_t count = ::write(fd, text.data(), text.size());
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return false;
    text.remove_prefix(static_cast<size_t>(count));
  }
  return true;
}

// Closes `fd` and removes the file, and keeps the errno that led here.
Status GiveUp(int fd, const std::string& partial, const std::string& path, std::string_view what) {
  const Status status = Error(path, what);
  if (fd >= 0) ::close(fd);
  ::unlink(partial.c_str());
  return status;
}

Status WriteSpecial(const std::string& path, std::string_view text) {
  const int fd = ::open(path.c_str(), O_WRONLY | O_CLOEXEC);
  if (fd < 0) return Error(path, "cannot open");
  const bool written = WriteAll(fd, text);
  const Status status = written ? Status::Ok() : Error(path, "cannot write");
  ::close(fd);
  return status;
}

}  // namespace

Status CheckResultPath(const std::string& path) {
  if (IsSpecial(path)) return Status::Ok();
  struct stat info {};
  if (::stat(path.c_str(), &info) == 0 && S_ISDIR(info.st_mode)) {
    errno = EISDIR;
    return Error(path, "cannot create");
  }
  const std::string partial = PartialPath(path);
  const int fd = ::open(partial.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  if (fd < 0) return Error(path, "cannot create");
  ::close(fd);
  ::unlink(partial.c_str());
  return Status::Ok();
}

Status WriteResultFile(const std::string& path, std::string_view text) {
  if (IsSpecial(path)) return WriteSpecial(path, text);
  const std::string partial = PartialPath(path);
  const int fd = ::open(partial.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  if (fd < 0) return Error(path, "cannot create");
  if (!WriteAll(fd, text) || ::fsync(fd) != 0) return GiveUp(fd, partial, path, "cannot write");
  if (::close(fd) != 0) return GiveUp(-1, partial, path, "cannot close");
  if (::rename(partial.c_str(), path.c_str()) != 0) {
    return GiveUp(-1, partial, path, "cannot rename the finished file");
  }
  return Status::Ok();
}

}  // namespace tessera
