// SPDX-License-Identifier: Apache-2.0
//
// What the kernel tests share: the tables to test, data with every awkward value, comparison of
// bits, and paged state with poison around it.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "base/random.h"
#include "compute/kernels/kernel_table.h"
#include "compute/tensor/number_formats.h"
#include "memory/geometry/paged_bytes.h"
#include "port/float_environment.h"

namespace tessera::testing {

inline uint32_t BitsOf(float x) { return std::bit_cast<uint32_t>(x); }

// A test per instruction set; `table()` is never null inside a test body.
class KernelTest : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    const KernelChoice choice = ChooseKernels(GetParam());
    table_ = choice.table;
    if (table_ == nullptr) GTEST_SKIP() << choice.reason;
  }
  const KernelTable& table() const { return *table_; }

 private:
  ScopedFloatEnvironment environment_;
  const KernelTable* table_ = nullptr;
};

#define TESSERA_KERNEL_TEST_SUITE(suite)                         \
  INSTANTIATE_TEST_SUITE_P(                                      \
      Isa, suite, ::testing::Values("scalar", "avx2", "avx512"), \
      [](const ::testing::TestParamInfo<const char*>& info_) { return std::string(info_.param); })

enum class Data {
  kPlain,  // around 1
  kNear,   // nearly equal magnitudes of both signs: cancellation
  kTiny,   // denormals, zeros of both signs, products that underflow
  kWide,   // every exponent, infinities by overflow included
};
inline constexpr Data kAllData[] = {Data::kPlain, Data::kNear, Data::kTiny, Data::kWide};

inline float AwkwardFloat(Random& random, Data data) {
  const uint32_t bits = static_cast<uint32_t>(random.Next());
  const uint32_t sign = bits & 0x80000000u;
  switch (data) {
    case Data::kPlain:
      return random.Uniform(-2.0f, 2.0f);
    case Data::kNear:
      return std::bit_cast<float>(sign | 0x3F800000u | (bits & 0xFFu) << 12);
    case Data::kTiny:
      if (bits % 5 == 0) return std::bit_cast<float>(sign);
      if (bits % 5 == 1) return std::bit_cast<float>(sign | (bits & 0x007FFFFFu));
      return std::bit_cast<float>(sign | (32 + (bits >> 23) % 48) << 23 | (bits & 0x007FFFFFu));
    case Data::kWide:
      return std::bit_cast<float>(sign | (1 + (bits >> 23) % 254) << 23 | (bits & 0x007FFFFFu));
  }
  return 0;
}

inline std::vector<float> Floats(Random& random, size_t n, Data data) {
  std::vector<float> v(n);
  for (float& x : v) x = AwkwardFloat(random, data);
  return v;
}
inline std::vector<float> Floats(Random& random, size_t n, float low, float high) {
  std::vector<float> v(n);
  for (float& x : v) x = random.Uniform(low, high);
  return v;
}

// Index of the first element whose bits differ, or -1. NaNs are one value: which operand's payload
// survives is not part of the contract.
inline ptrdiff_t FirstDifference(const float* a, const float* b, size_t n) {
  for (size_t i = 0; i < n; ++i) {
    if (BitsOf(a[i]) != BitsOf(b[i]) && !(std::isnan(a[i]) && std::isnan(b[i]))) {
      return static_cast<ptrdiff_t>(i);
    }
  }
  return -1;
}

inline ::testing::AssertionResult SameBits(const std::vector<float>& got,
                                           const std::vector<float>& want) {
  if (got.size() != want.size()) return ::testing::AssertionFailure() << "sizes differ";
  const ptrdiff_t i = FirstDifference(got.data(), want.data(), got.size());
  if (i < 0) return ::testing::AssertionSuccess();
  const size_t at = static_cast<size_t>(i);
  return ::testing::AssertionFailure()
         << "at " << i << " of " << got.size() << ": " << got[at] << " (" << std::hex
         << BitsOf(got[at]) << "), expected " << want[at] << " (" << BitsOf(want[at]) << ")";
}

// A linear range of state cut into members that lie in shuffled order between poison (0xFF: NaN in
// bf16 and fp32), so that a read or write outside the members shows. Members begin `skew_bytes`
// after a multiple of 64.
class PagedState {
 public:
  PagedState(uint64_t size_bytes, uint64_t unit_bytes, uint64_t seed, uint64_t skew_bytes = 0)
      : size_bytes_(size_bytes), unit_bytes_(unit_bytes) {
    const uint64_t members = (size_bytes + unit_bytes - 1) / unit_bytes;
    const uint64_t pitch = unit_bytes + 64;
    arena_.assign(members * pitch + 192, std::byte{0xFF});
    const uint64_t first = 64 - reinterpret_cast<uintptr_t>(arena_.data()) % 64 + 64 + skew_bytes;
    Random random(seed);
    for (uint64_t m = 0; m < members; ++m) offsets_.push_back(first + m * pitch);
    for (uint64_t m = members; m > 1; --m) std::swap(offsets_[m - 1], offsets_[random.Below(m)]);
  }
  PagedBytes bytes() { return {arena_.data(), offsets_.data(), unit_bytes_}; }
  void Write(const std::vector<std::byte>& linear) {
    for (uint64_t x = 0; x < linear.size(); ++x) *bytes().At(x) = linear[x];
  }
  std::vector<std::byte> Read() {
    std::vector<std::byte> linear(size_bytes_);
    for (uint64_t x = 0; x < size_bytes_; ++x) linear[x] = *bytes().At(x);
    return linear;
  }
  bool PoisonIntact() {
    std::vector<bool> inside(arena_.size());
    for (uint64_t o : offsets_)
      std::fill_n(inside.begin() + static_cast<ptrdiff_t>(o), unit_bytes_, true);
    for (size_t i = 0; i < arena_.size(); ++i) {
      if (!inside[i] && arena_[i] != std::byte{0xFF}) return false;
    }
    return true;
  }

 private:
  uint64_t size_bytes_;
  uint64_t unit_bytes_;
  std::vector<std::byte> arena_;
  std::vector<uint64_t> offsets_;
};

}  // namespace tessera::testing
