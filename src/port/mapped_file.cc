// SPDX-License-Identifier: Apache-2.0
#include "port/mapped_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

namespace tessera {

Result<MappedFile> MappedFile::Open(const std::string& path) {
  // Without O_NONBLOCK, opening a FIFO waits for a writer; a regular file does not mind.
  int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) return IoError(fmt::format("{}: {}", path, std::strerror(errno)));
  struct stat info = {};
  if (::fstat(fd, &info) != 0 || !S_ISREG(info.st_mode)) {
    ::close(fd);
    return BadFile(fmt::format("{}: not a regular file", path));
  }
  if (info.st_size == 0) {
    ::close(fd);
    return BadFile(fmt::format("{}: the file is empty", path));
  }
  size_t size_bytes = static_cast<size_t>(info.st_size);
  void* data = ::mmap(nullptr, size_bytes, PROT_READ, MAP_PRIVATE, fd, 0);
  int map_errno = errno;
  ::close(fd);
  if (data == MAP_FAILED) {
    return IoError(fmt::format("{}: cannot map: {}", path, std::strerror(map_errno)));
  }
  return MappedFile(static_cast<const std::byte*>(data), size_bytes);
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)),
      size_bytes_(std::exchange(other.size_bytes_, 0)) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_bytes_, other.size_bytes_);
  return *this;
}

MappedFile::~MappedFile() {
  if (data_ != nullptr) ::munmap(const_cast<std::byte*>(data_), size_bytes_);
}

void MappedFile::ReleasePages() const {
  if (data_ != nullptr) ::madvise(const_cast<std::byte*>(data_), size_bytes_, MADV_DONTNEED);
}

}  // namespace tessera
