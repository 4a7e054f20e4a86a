// SPDX-License-Identifier: Apache-2.0
#include "compute/model/weight_packer.h"

#include <xxhash.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/check.h"
#include "compute/model/tensor_values.h"
#include "compute/tensor/number_formats.h"
#include "port/thread_pool.h"

namespace tessera {
namespace {

constexpr uint64_t kAlignmentBytes = 64;
// Part of the digest, as kGroupColumns is: changing one changes every contract id.
constexpr uint64_t kChunkBytes = kMiB;
constexpr uint32_t kVectorFloats = 16;
constexpr size_t kSmallTensorsPerRelease = 32;

const std::byte* RowOf(const WeightPacker::Matrix& matrix, uint32_t row) {
  return matrix.tensor->data + (uint64_t{matrix.first_row} + row) * matrix.tensor->row_bytes();
}

uint32_t ElementBytes(WeightType type) { return type == WeightType::kF32 ? 4 : 2; }

// Row by row, so that beside the packed form there is only one row of bf16.
void PackDequantised(const WeightPacker::Matrix& matrix, uint32_t first, uint32_t rows,
                     std::byte* storage) {
  std::vector<float> values(matrix.k);
  std::vector<uint16_t> bf16(matrix.k);
  for (uint32_t row = first; row < first + rows; ++row) {
    ReadRow(matrix.tensor->type, RowOf(matrix, row), matrix.k, values.data());
    std::transform(values.begin(), values.end(), bf16.begin(), FloatToBf16);
    PackRows(WeightType::kBF16, matrix.n, matrix.k, row, 1,
             reinterpret_cast<const std::byte*>(bf16.data()), bf16.size() * sizeof(uint16_t),
             storage);
  }
}

WeightType TypeOfSmall(const GgufTensor& tensor) {
  std::optional<WeightType> type = WeightTypeOf(tensor.type);
  TESSERA_CHECK(type.has_value() && IsSmallTensorType(tensor.type));
  return *type;
}

}  // namespace

uint64_t WeightPacker::Reserve(uint64_t bytes) {
  const uint64_t offset = size_bytes_;
  size_bytes_ += RoundUp(bytes, kAlignmentBytes);
  return offset;
}

void WeightPacker::AddMatrix(const Matrix& matrix, PackedMatrix* target) {
  const uint64_t offset = Reserve(PackedBytesNeeded(matrix.type, matrix.n, matrix.k));
  jobs_.push_back({Job::Kind::kMatrix, matrix, offset, target, nullptr, nullptr});
}

void WeightPacker::AddCopy(const GgufTensor& tensor, const std::byte** target) {
  const auto rows = static_cast<uint32_t>(tensor.row_count());
  const Matrix matrix{&tensor, WeightType::kF32, 0, rows, static_cast<uint32_t>(tensor.ne[0])};
  jobs_.push_back({Job::Kind::kCopy, matrix, Reserve(tensor.size_bytes), nullptr, target, nullptr});
}

void WeightPacker::AddValues(const GgufTensor& tensor, uint32_t first, uint32_t count,
                             const float** target) {
  const Matrix matrix{&tensor, TypeOfSmall(tensor), first, count, 1};
  const uint64_t offset = Reserve(uint64_t{count} * sizeof(float));
  jobs_.push_back({Job::Kind::kValues, matrix, offset, nullptr, nullptr, target});
}

void WeightPacker::AddZeros(uint32_t count, const float** target) {
  const Matrix matrix{nullptr, WeightType::kF32, 0, count, 1};
  const uint64_t offset = Reserve(uint64_t{count} * sizeof(float));
  jobs_.push_back({Job::Kind::kZeros, matrix, offset, nullptr, nullptr, target});
}

void WeightPacker::AddConvolution(const GgufTensor& tensor, const float** target) {
  const auto taps = static_cast<uint32_t>(tensor.ne[0]);
  const auto channels = static_cast<uint32_t>(tensor.ne[1]);
  const Matrix matrix{&tensor, TypeOfSmall(tensor), 0, channels, taps};
  const uint64_t offset = Reserve(RoundUp(channels, kVectorFloats) * taps * sizeof(float));
  jobs_.push_back({Job::Kind::kConvolution, matrix, offset, nullptr, nullptr, target});
}

// Matrices are cut at multiples of kGroupColumns rows, so that two chunks never share a group of panels.
std::vector<WeightPacker::Chunk> WeightPacker::CutIntoChunks() const {
  std::vector<Chunk> chunks;
  for (uint32_t index = 0; index < jobs_.size(); ++index) {
    const Job& job = jobs_[index];
    if (job.kind != Job::Kind::kMatrix && job.kind != Job::Kind::kCopy) continue;
    const uint64_t row_bytes = job.matrix.tensor->row_bytes();
    const uint64_t rows_per_chunk = RoundUp(DivideUp(kChunkBytes, row_bytes), kGroupColumns);
    for (uint64_t first = 0; first < job.matrix.n; first += rows_per_chunk) {
      const uint64_t rows = std::min<uint64_t>(rows_per_chunk, job.matrix.n - first);
      chunks.push_back(
          {index, static_cast<uint32_t>(first), static_cast<uint32_t>(rows), rows * row_bytes});
    }
  }
  return chunks;
}

uint64_t WeightPacker::FillSmall(const Job& job, std::byte* base) const {
  auto* values = reinterpret_cast<float*>(base + job.offset);
  const Matrix& matrix = job.matrix;
  if (job.kind == Job::Kind::kValues) {
    const std::byte* data =
        matrix.tensor->data + uint64_t{matrix.first_row} * ElementBytes(matrix.type);
    ReadRow(matrix.tensor->type, data, matrix.n, values);
  } else if (job.kind == Job::Kind::kConvolution) {
    const auto stride = static_cast<uint32_t>(RoundUp(matrix.n, kVectorFloats));
    std::vector<float> taps(matrix.k);
    for (uint32_t channel = 0; channel < matrix.n; ++channel) {
      ReadRow(matrix.tensor->type, RowOf(matrix, channel), matrix.k, taps.data());
      for (uint32_t tap = 0; tap < matrix.k; ++tap) values[tap * stride + channel] = taps[tap];
    }
  }
  if (matrix.tensor == nullptr) return 0;
  return XXH3_64bits(matrix.tensor->data, matrix.tensor->size_bytes);
}

uint64_t WeightPacker::FillChunk(const Chunk& chunk, std::byte* base) const {
  const Job& job = jobs_[chunk.job];
  const std::byte* source = RowOf(job.matrix, chunk.first);
  const size_t row_bytes = job.matrix.tensor->row_bytes();
  if (job.kind == Job::Kind::kCopy) {
    std::memcpy(base + job.offset + chunk.first * row_bytes, source, chunk.source_bytes);
  } else if (IsDequantisedAtLoad(job.matrix.tensor->type)) {
    PackDequantised(job.matrix, chunk.first, chunk.rows, base + job.offset);
  } else {
    PackRows(job.matrix.type, job.matrix.n, job.matrix.k, chunk.first, chunk.rows, source,
             row_bytes, base + job.offset);
  }
  return XXH3_64bits(source, chunk.source_bytes);
}

void WeightPacker::SetTargets(std::byte* base) const {
  for (const Job& job : jobs_) {
    if (job.kind == Job::Kind::kMatrix) {
      *job.packed = DescribePacked(job.matrix.type, job.matrix.n, job.matrix.k, base + job.offset);
    } else if (job.kind == Job::Kind::kCopy) {
      *job.bytes = base + job.offset;
    } else {
      *job.values = reinterpret_cast<const float*>(base + job.offset);
    }
  }
}

uint64_t WeightPacker::Digest(std::vector<uint64_t> words) const {
  for (const Job& job : jobs_) {
    words.push_back(static_cast<uint64_t>(job.kind));
    // The file's type too: equal bytes of two types that become bf16 are different weights.
    const auto file_type =
        job.matrix.tensor == nullptr ? 0 : static_cast<uint64_t>(job.matrix.tensor->type);
    words.push_back(file_type << 8 | static_cast<uint64_t>(job.matrix.type));
    words.push_back(uint64_t{job.matrix.n} << 32 | job.matrix.k);
  }
  return XXH3_64bits(words.data(), words.size() * sizeof(uint64_t));
}

Result<Arena> WeightPacker::Fill(const GgufFile& file, ThreadPool& threads) {
  TESSERA_ASSIGN_OR_RETURN(Arena arena, Arena::Map(size_bytes_));
  std::byte* base = arena.data();
  std::vector<uint64_t> digests;
  for (const Job& job : jobs_) {
    if (job.kind == Job::Kind::kMatrix || job.kind == Job::Kind::kCopy) continue;
    digests.push_back(FillSmall(job, base));
    // The system maps up to 512 KiB around each touched page.
    if (digests.size() % kSmallTensorsPerRelease == 0) file.ReleasePages();
  }
  const size_t small_count = digests.size();
  const std::vector<Chunk> chunks = CutIntoChunks();
  digests.resize(small_count + chunks.size());
  for (size_t begin = 0; begin < chunks.size();) {
    size_t end = begin;
    for (uint64_t bytes = 0; end < chunks.size() && bytes < kReleaseEveryBytes; ++end) {
      bytes += chunks[end].source_bytes;
    }
    threads.ParallelFor(static_cast<uint32_t>(end - begin), [&](uint32_t task, int) {
      digests[small_count + begin + task] = FillChunk(chunks[begin + task], base);
    });
    begin = end;
    file.ReleasePages();
  }
  digest_ = Digest(std::move(digests));
  SetTargets(base);
  file.ReleasePages();
  return arena;
}

}  // namespace tessera
