// SPDX-License-Identifier: Apache-2.0
//
// Linked into a test binary, this replaces operator new by one whose every block ends at a page
// that nobody may touch (up to 15 bytes of alignment before it), so that a kernel which reads or
// writes a vector too far dies there. It shows K4 where the kernels themselves are built without
// sanitizers: all of the binary's buffers are guarded, at all the sizes its tests use.
#include <sys/mman.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <mutex>
#include <new>

namespace {

constexpr std::size_t kPage = 4096;
constexpr std::size_t kAlignment = 16;

struct Header {  // directly before the block
  void* mapping;
  std::size_t mapping_bytes;
  std::size_t block_bytes;
  std::size_t unused = 0;
};
static_assert(sizeof(Header) % kAlignment == 0);

constexpr std::size_t Up(std::size_t value, std::size_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

// Freed blocks by size, because tests make the same few hundred sizes a million times and a mapping
// costs three system calls. A block's first word links to the next.
constexpr std::size_t kCachedBytesMax = 64 * 1024;
std::mutex cache_mutex;
void* cache[kCachedBytesMax / kAlignment + 1];

void* Map(std::size_t block) {
  const std::size_t usable = Up(block + sizeof(Header), kPage);
  void* mapping = ::mmap(nullptr, usable + kPage, PROT_READ | PROT_WRITE,
                         MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (mapping == MAP_FAILED) throw std::bad_alloc();
  auto* guard = static_cast<std::byte*>(mapping) + usable;
  ::mprotect(guard, kPage, PROT_NONE);
  std::byte* data = guard - block;
  *(reinterpret_cast<Header*>(data) - 1) = {mapping, usable + kPage, block, 0};
  return data;
}

void* Allocate(std::size_t size, std::size_t alignment) {
  // A block ends at a page, so one whose size is a multiple of its alignment begins at one too.
  const std::size_t block = Up(size > 0 ? size : 1, alignment);
  if (block <= kCachedBytesMax) {
    const std::lock_guard lock(cache_mutex);
    void*& first = cache[block / kAlignment];
    if (first != nullptr) {
      void* data = first;
      first = *static_cast<void**>(data);
      return data;
    }
  }
  return Map(block);
}

void Free(void* data) {
  if (data == nullptr) return;
  const Header header = *(static_cast<Header*>(data) - 1);
  if (header.block_bytes <= kCachedBytesMax) {
    const std::lock_guard lock(cache_mutex);
    void*& first = cache[header.block_bytes / kAlignment];
    *static_cast<void**>(data) = first;
    first = data;
    return;
  }
  ::munmap(header.mapping, header.mapping_bytes);
}

}  // namespace

void* operator new(std::size_t size) { return Allocate(size, kAlignment); }
void* operator new(std::size_t size, std::align_val_t alignment) {
  return Allocate(size, static_cast<std::size_t>(alignment));
}
void operator delete(void* data) noexcept { Free(data); }
void operator delete(void* data, std::size_t) noexcept { Free(data); }
void operator delete(void* data, std::align_val_t) noexcept { Free(data); }
void operator delete(void* data, std::size_t, std::align_val_t) noexcept { Free(data); }
