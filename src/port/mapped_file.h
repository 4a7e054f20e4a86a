// SPDX-License-Identifier: Apache-2.0
//
// MappedFile is a whole file mapped read-only. Move-only; unmapped at destruction.
//
// Failure: kIo with path and errno's text; a directory or an empty file is kBadFile.
// Threads: const after Open.
#pragma once

#include <cstddef>
#include <span>
#include <string>

#include "base/status.h"

namespace tessera {

class MappedFile {
 public:
  static Result<MappedFile> Open(const std::string& path);
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;
  ~MappedFile();

  std::span<const std::byte> bytes() const { return {data_, size_bytes_}; }
  // The pages leave this process's resident set; touching them reads the file again.
  void ReleasePages() const;

 private:
  MappedFile(const std::byte* data, size_t size_bytes) : data_(data), size_bytes_(size_bytes) {}
  const std::byte* data_ = nullptr;
  size_t size_bytes_ = 0;
};

}  // namespace tessera
