// SPDX-License-Identifier: Apache-2.0
//
// Matrix is the dimensions of the exactness matrix and their values. A cell is one value of each;
// value 0 of every dimension is what the reference uses, so the reference is the cell of zeros, and
// making a failing cell simpler means setting indices to 0.
//
//   organisation  s0 (one page per image), s1, s2, d0, s3; small blocks: many to a sequence
//   cut           prompt tokens per step: all at once, 1, 2, 7, 15, 16, 17, seeded random 1..64
//   mix           alone; others prefilling; others decoding; many joining and leaving
//   threads       1, 2, 3
//   kernels       scalar, and each other table this CPU has
//   state         updated in place, or forked at cuts (source pages ≠ destination pages)
//   pages         in order and clean; or in random order, filled with 0xFF before first use and when
//                 freed, under a caller whose MXCSR keeps denormals or rounds another way
//   reuse         off; a short subject that others start from at each of its boundaries; a subject
//                 that others start from around edges of groups, blocks and its prompt; everybody
//                 preempted here and there and resumed where it was; the same, evicted meanwhile
//
// Threads: const after construction.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "compute/kernels/kernel_table.h"
#include "memory/geometry/organisation.h"
#include "verify/covering.h"
#include "verify/hostile_float_environment.h"

namespace tessera {

enum class Mix : uint8_t { kAlone, kPrefilling, kDecoding, kJoining };

enum class Reuse : uint8_t { kOff, kHitsEverywhere, kHitsAtEdges, kPreempted, kEvicted };

// Prompt tokens per step; two values stand for themselves.
inline constexpr uint32_t kCutNowhere = 0;
inline constexpr uint32_t kCutRandomly = UINT32_MAX;

struct CellSettings {
  OrganisationSpec organisation;
  uint32_t cut = kCutNowhere;
  Mix mix = Mix::kAlone;
  int threads = 1;
  const KernelTable* kernels = nullptr;
  bool fork = false;
  bool hostile = false;
  Reuse reuse = Reuse::kOff;
  // The caller's; null: as it is. Under hostile pages the seed picks one.
  const FloatMode* float_mode = nullptr;
  uint64_t seed = 1;  // of random cuts and page order; not a dimension: each cell gets another
};

struct Dimension {
  std::string name;
  std::vector<std::string> values;
};

class Matrix {
 public:
  static constexpr size_t kDimensions = 8;
  enum Index : size_t { kOrganisation, kCut, kMix, kThreads, kKernels, kState, kPages, kReuse };

  // kernels[0] and threads[0] are the reference's; the last kernels are the fastest.
  Matrix(std::span<const KernelTable* const> kernels, std::span<const int> threads);

  const std::vector<Dimension>& dimensions() const { return dimensions_; }
  std::vector<uint32_t> sizes() const;
  const std::vector<const KernelTable*>& kernels() const { return kernels_; }
  CellRow reference() const { return CellRow(kDimensions, 0); }
  CellSettings At(const CellRow& row) const;
  // "s2:block=64, cut 7, alone, 3 threads, avx512, forked, hostile pages, reuse off"
  std::string Describe(const CellRow& row) const;

 private:
  std::vector<const KernelTable*> kernels_;
  std::vector<int> threads_;
  std::vector<OrganisationSpec> organisations_;
  std::vector<Dimension> dimensions_;
};

}  // namespace tessera
