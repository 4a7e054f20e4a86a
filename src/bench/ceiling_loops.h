// SPDX-License-Identifier: Apache-2.0
//
// CeilingLoops is what this machine can do at best, as loops of one instruction set: read, update
// and copy memory, and issue products. A kernel is compared with the best of the variants of each.
//
//   read    plain           loads in order
//           next-4k         each line fetched 4 KiB ahead into L2
//           touch           one line of each 4 KiB fetched 32 KiB ahead, which hides the walk of
//                           the page tables and starts the hardware prefetcher early
//           touch-next      both
//           streams         four streams at once, fetched 16 KiB ahead, as the product reads panels
//   update  read, multiplied and written back in place: plain, next-4k, touch-next
//   copy    plain, touch, past-cache (non-temporal stores)
//   fma bf16 int8   chains that hide each other's latency; the operands stay in registers
//
// Failure: none; a table of an instruction set the CPU lacks must not be called. Threads: pure
// functions on the caller's bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace tessera {

struct ReadLoop {
  const char* variant = "";
  void (*run)(const std::byte* data, size_t bytes) = nullptr;  // a multiple of 16 KiB
};
struct UpdateLoop {
  const char* variant = "";
  void (*run)(std::byte* data, size_t bytes) = nullptr;
};
struct CopyLoop {
  const char* variant = "";
  void (*run)(const std::byte* from, std::byte* to, size_t bytes) = nullptr;
};
struct ProductLoop {
  void (*run)(uint64_t rounds) = nullptr;  // null: the instruction set has no such instruction
  double operations_per_round = 0;         // a multiplication and an addition are two
};

struct CeilingLoops {
  const char* isa = "";
  std::span<const ReadLoop> reads;
  std::span<const UpdateLoop> updates;
  std::span<const CopyLoop> copies;
  ProductLoop fma;
  ProductLoop bf16;
  ProductLoop int8;
};

const CeilingLoops& Avx2CeilingLoops();
// Only for CPUs whose AVX-512 kernels work.
const CeilingLoops& Avx512CeilingLoops();

// Those of a kernel table's instruction set; the scalar table has the AVX2 machine as its ceiling.
const CeilingLoops& CeilingLoopsOf(const char* isa);

}  // namespace tessera
