// SPDX-License-Identifier: Apache-2.0
//
// AlignedBuffer is an array of T on a 64-byte boundary (a cache line, a 512-bit vector), zeroed, of
// a size fixed when it is made: activations and scratch, allocated once at start.
//
// B1  data() is a multiple of 64 and never changes while the buffer lives; moving hands it over and
//     leaves the source empty.
// B2  The allocation is rounded up to 64 bytes and zeroed whole.
//
// Failure: running out of memory here is a failed check: sizes that input decides are reserved
// through Arena, which reports. Threads: a value; the elements are the owner's to share.
#pragma once

#include <cstddef>
#include <type_traits>
#include <utility>

#include "base/check.h"

namespace tessera {

inline constexpr size_t kBufferAlignmentBytes = 64;

// Zeroed, 64-byte-aligned; null for 0 bytes.
void* AllocateAligned(size_t bytes);
void FreeAligned(void* data);

template <class T>
class AlignedBuffer {
  static_assert(std::is_trivially_copyable_v<T> && std::is_trivially_destructible_v<T>);

 public:
  AlignedBuffer() = default;
  explicit AlignedBuffer(size_t size) : size_(size) {
    TESSERA_CHECK(size <= static_cast<size_t>(-1) / 2 / sizeof(T));
    data_ = static_cast<T*>(AllocateAligned(size * sizeof(T)));
  }
  AlignedBuffer(AlignedBuffer&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}
  AlignedBuffer& operator=(AlignedBuffer&& other) noexcept {
    if (this != &other) {
      FreeAligned(data_);
      data_ = std::exchange(other.data_, nullptr);
      size_ = std::exchange(other.size_, 0);
    }
    return *this;
  }
  ~AlignedBuffer() { FreeAligned(data_); }

  T* data() { return data_; }
  const T* data() const { return data_; }
  size_t size() const { return size_; }
  size_t size_bytes() const { return size_ * sizeof(T); }
  bool empty() const { return size_ == 0; }
  T& operator[](size_t i) { return data_[i]; }
  const T& operator[](size_t i) const { return data_[i]; }
  T* begin() { return data_; }
  T* end() { return data_ + size_; }
  const T* begin() const { return data_; }
  const T* end() const { return data_ + size_; }

 private:
  T* data_ = nullptr;
  size_t size_ = 0;
};

}  // namespace tessera
