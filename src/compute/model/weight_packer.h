// SPDX-License-Identifier: Apache-2.0
//
// WeightPacker moves a model's tensors from the mapped file into memory: it is first told of each
// (which fixes where everything lies), then fills the arena in parallel, in chunks of about 1 MiB.
//
// K1  The digest depends on the tensors' bytes, types and shapes, in the order they were added, and
//     on where the bytes are cut into chunks: not on threads. So kChunkBytes and kGroupColumns
//     (packed_matrix.h) are part of every contract id, and states kept under another cut are not
//     found.
// K2  The mapped file's pages in memory never exceed about kReleaseEveryBytes: they are released
//     each time that much was packed, so the peak is the packed weights and little more.
//
// Failure: kNoMemory when the arena cannot be had.
// Threads: one caller; Fill uses the pool.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/bytes.h"
#include "base/status.h"
#include "compute/gguf/gguf_file.h"
#include "compute/kernels/packed_matrix.h"
#include "port/arena.h"

namespace tessera {

class ThreadPool;

class WeightPacker {
 public:
  static constexpr uint64_t kReleaseEveryBytes = 32 * kMiB;

  struct Matrix {
    const GgufTensor* tensor = nullptr;
    WeightType type = WeightType::kF32;
    uint32_t first_row = 0;  // of the tensor; a fused one is several matrices
    uint32_t n = 0;
    uint32_t k = 0;
  };
  // `*target` is filled by Fill and must stay in place until then; so below.
  void AddMatrix(const Matrix& matrix, PackedMatrix* target);
  // The tensor's bytes as they are.
  void AddCopy(const GgufTensor& tensor, const std::byte** target);
  // `count` values of a small tensor from element `first` on, as fp32 at a multiple of 64 bytes.
  void AddValues(const GgufTensor& tensor, uint32_t first, uint32_t count, const float** target);
  void AddZeros(uint32_t count, const float** target);
  // A convolution's {taps, channels} turned to [taps][channels rounded up to 16].
  void AddConvolution(const GgufTensor& tensor, const float** target);

  uint64_t size_bytes() const { return size_bytes_; }
  Result<Arena> Fill(const GgufFile& file, ThreadPool& threads);
  uint64_t digest() const { return digest_; }  // after Fill

 private:
  struct Job {
    enum class Kind : uint8_t { kMatrix, kCopy, kValues, kZeros, kConvolution };
    Kind kind = Kind::kMatrix;
    Matrix matrix;  // n rows of k elements for kCopy too; for kValues first_row, n are elements
    uint64_t offset = 0;
    PackedMatrix* packed = nullptr;
    const std::byte** bytes = nullptr;
    const float** values = nullptr;
  };
  // Some rows of a job: what one task does.
  struct Chunk {
    uint32_t job = 0;
    uint32_t first = 0;
    uint32_t rows = 0;
    uint64_t source_bytes = 0;
  };

  uint64_t Reserve(uint64_t bytes);
  std::vector<Chunk> CutIntoChunks() const;
  // Both return the digest of the bytes read.
  uint64_t FillSmall(const Job& job, std::byte* base) const;
  uint64_t FillChunk(const Chunk& chunk, std::byte* base) const;
  void SetTargets(std::byte* base) const;
  // Of the parts' digests and what the jobs are.
  uint64_t Digest(std::vector<uint64_t> words) const;

  std::vector<Job> jobs_;
  uint64_t size_bytes_ = 0;
  uint64_t digest_ = 0;
};

}  // namespace tessera
