// SPDX-License-Identifier: Apache-2.0
//
// The matrix product against one std::fma chain per output, read from the file's rows: packing,
// blocking, tails and splitting of calls are all invisible in the bits.
#include <memory>
#include <new>
#include <numeric>
#include <tuple>

#include "compute/kernels/oracle.h"
#include "compute/kernels/test_support.h"

namespace tessera::testing {
namespace {

struct FileBlock {
  uint32_t elements;
  uint32_t bytes;
};
FileBlock FileBlockOf(WeightType type) {
  switch (type) {
    case WeightType::kF32:
      return {1, 4};
    case WeightType::kF16:
    case WeightType::kBF16:
      return {1, 2};
    case WeightType::kQ8_0:
      return {32, 34};
    case WeightType::kQ4_0:
      return {32, 18};
    case WeightType::kQ4_K:
      return {256, 144};
    case WeightType::kQ6_K:
      return {256, 210};
  }
  return {};
}

// Rows of the K types are whole blocks.
uint32_t KFor(WeightType type, uint32_t k) {
  return FileBlockOf(type).elements == 256 ? (k + 255) / 256 * 256 : k;
}

// Zeroed bytes at a multiple of 64, by operator new: a kernel that reads past the last group meets
// the page behind it (guarded_new.cc), which AlignedBuffer's malloc does not have.
class GuardedBytes {
 public:
  GuardedBytes() = default;
  explicit GuardedBytes(size_t size)
      : bytes_(static_cast<std::byte*>(::operator new(size, kAlignment))), size_(size) {
    std::memset(data(), 0, size);
  }
  std::byte* data() const { return bytes_.get(); }
  size_t size() const { return size_; }

 private:
  static constexpr std::align_val_t kAlignment{64};
  struct Delete {
    void operator()(std::byte* data) const { ::operator delete(data, kAlignment); }
  };
  std::unique_ptr<std::byte, Delete> bytes_;
  size_t size_ = 0;
};

// Weights as a file has them, at an odd address, and activations in the form they want.
struct Case {
  WeightType type;
  uint32_t rows, n, k;
  size_t row_bytes = 0;
  std::vector<std::byte> file;
  std::vector<float> a32;
  std::vector<uint16_t> a16;
  std::vector<int8_t> a8;
  std::vector<float> a_scales;
  std::vector<int32_t> a_sums;
  GuardedBytes storage;
  PackedMatrix matrix;

  const std::byte* data() const { return file.data() + 1; }
  template <class T>
  T At(size_t byte) const {
    T value;
    std::memcpy(&value, data() + byte, sizeof(T));
    return value;
  }
  uint32_t block_elements() const { return InputFormOf(type) == InputForm::kInt8K ? 256 : 32; }
  uint32_t blocks() const { return (k + block_elements() - 1) / block_elements(); }
  uint32_t sum_words() const { return blocks() * (block_elements() == 256 ? kKSumWords : 1); }
};

uint16_t RandomHalf(Random& random, bool any_exponent) {
  const uint32_t bits = static_cast<uint32_t>(random.Next());
  if (!any_exponent) return FloatToHalf(random.Uniform(-1.0f, 1.0f));
  const uint32_t exponent = (bits >> 16) % 31;  // 0: subnormal
  return static_cast<uint16_t>((bits & 0x83FFu) | exponent << 10);
}

void FillRow(Random& random, Data data, std::byte* row, WeightType type, uint32_t k) {
  const auto put = [&](size_t byte, auto value) { std::memcpy(row + byte, &value, sizeof(value)); };
  for (uint32_t i = 0; i < k; ++i) {
    if (type == WeightType::kF32) put(i * 4, AwkwardFloat(random, data));
    if (type == WeightType::kF16) put(i * 2, RandomHalf(random, data != Data::kPlain));
    if (type == WeightType::kBF16) {
      const uint32_t bits = BitsOf(AwkwardFloat(random, data));  // denormals stay
      put(i * 2, static_cast<uint16_t>(bits >> 16));
    }
  }
  const FileBlock block = FileBlockOf(type);
  if (block.elements == 1) return;
  for (uint32_t b = 0; b < (k + block.elements - 1) / block.elements; ++b) {
    const size_t at = size_t{b} * block.bytes;
    for (uint32_t i = 0; i < block.bytes; ++i) put(at + i, static_cast<uint8_t>(random.Next()));
    const uint16_t d = RandomHalf(random, data != Data::kPlain);
    put(at + (type == WeightType::kQ6_K ? 208 : 0), d);
    if (type == WeightType::kQ4_K) put(at + 2, RandomHalf(random, data != Data::kPlain));
  }
}

// The sums to_int8 and to_int8_k make, by their description.
void AppendSums(const int8_t* a, uint32_t block_elements, std::vector<int32_t>* sums) {
  if (block_elements == 32) return sums->push_back(-std::accumulate(a, a + 32, 0));
  for (int i = 0; i < 256; i += 16) sums->push_back(-std::accumulate(a + i, a + i + 16, 0));
  int8_t bytes[16];
  for (int s = 0; s < 8; ++s) {
    const int sum = -std::accumulate(a + s * 32, a + s * 32 + 32, 0);
    int high = 0;
    while (sum - 64 * high >= 32) ++high;
    while (sum - 64 * high < -32) --high;
    bytes[s] = static_cast<int8_t>(sum - 64 * high);
    bytes[8 + s] = static_cast<int8_t>(high);
  }
  for (int i = 0; i < 16; i += 4) {
    int32_t word;
    std::memcpy(&word, bytes + i, 4);
    sums->push_back(word);
  }
}

void SumAndPack(Case* c) {
  c->a_sums.clear();
  for (size_t i = 0; i < c->a8.size(); i += c->block_elements()) {
    AppendSums(&c->a8[i], c->block_elements(), &c->a_sums);
  }
  c->storage = GuardedBytes(PackedBytesNeeded(c->type, c->n, c->k));
  PackRows(c->type, c->n, c->k, 0, c->n, c->data(), c->row_bytes, c->storage.data());
  c->matrix = DescribePacked(c->type, c->n, c->k, c->storage.data());
}

Case MakeCase(uint64_t seed, WeightType type, uint32_t rows, uint32_t n, uint32_t k, Data data) {
  Random random(seed);
  Case c{};
  c.type = type, c.rows = rows, c.n = n, c.k = k;
  const FileBlock block = FileBlockOf(type);
  c.row_bytes = size_t{(k + block.elements - 1) / block.elements} * block.bytes;
  c.file.resize(n * c.row_bytes + 1);
  for (uint32_t i = 0; i < n; ++i) {
    FillRow(random, data, c.file.data() + 1 + i * c.row_bytes, type, k);
  }
  c.a32 = Floats(random, size_t{rows} * k, data);
  for (float x : c.a32) c.a16.push_back(static_cast<uint16_t>(BitsOf(x) >> 16));
  const uint32_t stride = c.blocks() * c.block_elements();
  c.a8.resize(size_t{rows} * stride);
  for (size_t i = 0; i < c.a8.size(); ++i) {
    if (i % stride < k) c.a8[i] = static_cast<int8_t>(random.Next());
  }
  c.a_scales = Floats(random, size_t{rows} * c.blocks(), data);
  SumAndPack(&c);
  return c;
}

// The same with every weight's byte, every sub-block's scale byte and every activation the same,
// and all other scales 1.
Case MakeEvenCase(WeightType type, uint32_t rows, uint8_t weight, uint8_t scale, int8_t a) {
  Case c = MakeCase(1, type, rows, 70, 512, Data::kPlain);
  const FileBlock block = FileBlockOf(type);
  const uint16_t one = FloatToHalf(1.0f);
  for (size_t at = 1; at < c.file.size(); at += block.bytes) {
    std::byte* bytes = &c.file[at];
    std::memset(bytes, weight, block.bytes);
    std::memcpy(bytes + (type == WeightType::kQ6_K ? 208 : 0), &one, 2);
    if (type == WeightType::kQ4_K) {
      std::memcpy(bytes + 2, &one, 2);
      std::memset(bytes + 4, scale, 12);
    }
    if (type == WeightType::kQ6_K) std::memset(bytes + 192, scale, 16);
  }
  std::fill(c.a8.begin(), c.a8.end(), a);
  std::fill(c.a_scales.begin(), c.a_scales.end(), 1.0f);
  SumAndPack(&c);
  return c;
}

// A block of the file at byte `at`, by the closed forms of the format.
float AddBlock(const Case& c, size_t at, const int8_t* a, float a_scale, float acc) {
  const auto byte = [&](size_t i) { return static_cast<int>(c.At<uint8_t>(at + i)); };
  const auto half = [&](size_t i) { return HalfToFloat(c.At<uint16_t>(at + i)); };
  int64_t sum = 0;
  int64_t mins = 0;
  if (c.type == WeightType::kQ8_0) {
    for (uint32_t i = 0; i < 32; ++i) sum += a[i] * c.At<int8_t>(at + 2 + i);
    return std::fma(static_cast<float>(sum), half(0) * a_scale, acc);
  }
  if (c.type == WeightType::kQ4_0) {
    for (uint32_t i = 0; i < 32; ++i) {
      sum += a[i] * ((i < 16 ? byte(2 + i) & 15 : byte(2 + i - 16) >> 4) - 8);
    }
    return std::fma(static_cast<float>(sum), half(0) * a_scale, acc);
  }
  if (c.type == WeightType::kQ4_K) {
    for (uint32_t i = 0; i < 256; ++i) {
      const uint32_t s = i / 32;
      const int scale = s < 4 ? byte(4 + s) & 63 : (byte(8 + s) & 15) | (byte(s) >> 6) << 4;
      const int min = s < 4 ? byte(8 + s) & 63 : byte(8 + s) >> 4 | (byte(4 + s) >> 6) << 4;
      const int q = byte(16 + i / 64 * 32 + i % 32);
      sum += a[i] * scale * (s % 2 == 0 ? q & 15 : q >> 4);
      mins += -a[i] * min;
    }
    acc = std::fma(static_cast<float>(sum), half(0) * a_scale, acc);
    return std::fma(static_cast<float>(mins), half(2) * a_scale, acc);
  }
  for (uint32_t i = 0; i < 256; ++i) {
    const uint32_t n = i / 128, r = i % 128, k = r / 32, l = r % 32;
    const int low = byte(64 * n + l + 32 * (k & 1));
    const int high = byte(128 + 32 * n + l) >> (2 * k) & 3;
    const int q = ((k < 2 ? low & 15 : low >> 4) | high << 4) - 32;
    sum += a[i] * q * c.At<int8_t>(at + 192 + 8 * n + 2 * k + l / 16);
  }
  return std::fma(static_cast<float>(sum), half(208) * a_scale, acc);
}

float WantedOutput(const Case& c, uint32_t m, uint32_t n) {
  const size_t w = n * c.row_bytes;
  float acc = 0;
  switch (c.type) {
    case WeightType::kF32:
      for (uint32_t i = 0; i < c.k; ++i) {
        acc = std::fma(c.a32[size_t{m} * c.k + i], c.At<float>(w + i * 4), acc);
      }
      return acc;
    case WeightType::kF16:
      for (uint32_t i = 0; i < c.k; ++i) {
        acc = std::fma(c.a32[size_t{m} * c.k + i], HalfToFloat(c.At<uint16_t>(w + i * 2)), acc);
      }
      return acc;
    case WeightType::kBF16: {
      std::vector<uint16_t> row(c.k);
      std::memcpy(row.data(), c.data() + w, c.k * 2);
      return oracle::ChainBf16(c.a16.data() + size_t{m} * c.k, row.data(), c.k);
    }
    case WeightType::kQ8_0:
    case WeightType::kQ4_0:
    case WeightType::kQ4_K:
    case WeightType::kQ6_K:
      for (uint32_t b = 0; b < c.blocks(); ++b) {
        const size_t block = size_t{m} * c.blocks() + b;
        acc = AddBlock(c, w + b * FileBlockOf(c.type).bytes,
                       c.a8.data() + block * c.block_elements(), c.a_scales[block], acc);
      }
      return acc;
  }
  return acc;
}

std::vector<float> Wanted(const Case& c) {
  std::vector<float> want(size_t{c.rows} * c.n);
  for (uint32_t m = 0; m < c.rows; ++m) {
    for (uint32_t n = 0; n < c.n; ++n) want[size_t{m} * c.n + n] = WantedOutput(c, m, n);
  }
  return want;
}

constexpr float kUntouched = -12345.0f;

void RunPart(const KernelTable& table, const Case& c, uint32_t row, uint32_t rows, uint32_t panel,
             uint32_t panel_end, std::vector<float>* output, size_t stride) {
  GemmArgs args;
  args.weights = &c.matrix;
  args.panel_begin = panel;
  args.panel_end = panel_end;
  args.rows = rows;
  args.output = output->data() + row * stride;
  args.output_stride = stride;
  switch (c.matrix.input_form()) {
    case InputForm::kF32:
      args.input = {c.a32.data() + size_t{row} * c.k, c.k * 4u};
      break;
    case InputForm::kBF16:
      args.input = {c.a16.data() + size_t{row} * c.k, c.k * 2u};
      break;
    case InputForm::kInt8:
    case InputForm::kInt8K: {
      const uint32_t a8_stride = c.blocks() * c.block_elements();
      args.input = {c.a8.data() + size_t{row} * a8_stride,         a8_stride,
                    c.a_scales.data() + size_t{row} * c.blocks(),  c.blocks(),
                    c.a_sums.data() + size_t{row} * c.sum_words(), c.sum_words()};
      break;
    }
  }
  table.gemm(args);
}

// The n columns of each row; fails if the rest of a row was touched.
std::vector<float> Columns(const Case& c, const std::vector<float>& output, size_t stride) {
  std::vector<float> columns;
  for (uint32_t m = 0; m < c.rows; ++m) {
    for (size_t n = 0; n < stride; ++n) {
      const float x = output[m * stride + n];
      if (n < c.n) {
        columns.push_back(x);
      } else {
        EXPECT_EQ(x, kUntouched);
      }
    }
  }
  return columns;
}

class Gemm : public KernelTest {
 protected:
  std::vector<float> RunWhole(const Case& c) {
    const size_t stride = c.n + 3;
    std::vector<float> output(c.rows * stride, kUntouched);
    RunPart(table(), c, 0, c.rows, 0, c.matrix.panel_count(), &output, stride);
    return Columns(c, output, stride);
  }
};
TESSERA_KERNEL_TEST_SUITE(Gemm);

TEST_P(Gemm, EveryRowCountIsTheChain) {
  for (WeightType type : kWeightTypes) {
    for (uint32_t rows = 1; rows <= 17; ++rows) {
      const Case c = MakeCase(rows, type, rows, 83, KFor(type, 70), Data::kPlain);
      ASSERT_TRUE(SameBits(RunWhole(c), Wanted(c))) << static_cast<int>(type) << " rows " << rows;
    }
    const Case c = MakeCase(96, type, 96, 64, KFor(type, 96), Data::kPlain);
    EXPECT_TRUE(SameBits(RunWhole(c), Wanted(c)));
  }
}

TEST_P(Gemm, TailsOfNAndKAreTheChain) {
  for (WeightType type : kWeightTypes) {
    for (uint32_t n : {1u, 15u, 16u, 17u, 48u, 64u, 100u, 128u, 129u, 200u}) {
      for (uint32_t k : {1u, 2u, 3u, 31u, 32u, 33u, 65u, 512u}) {
        if (k != 512 && KFor(type, k) != k) continue;
        for (uint32_t rows : {1u, 2u, 3u, 8u}) {
          const Case c = MakeCase(n * 1000 + k, type, rows, n, k, Data::kPlain);
          ASSERT_TRUE(SameBits(RunWhole(c), Wanted(c)))
              << static_cast<int>(type) << " n " << n << " k " << k << " rows " << rows;
        }
      }
    }
  }
}

TEST_P(Gemm, AwkwardValuesAreTheChain) {
  for (WeightType type : kWeightTypes) {
    for (Data data : kAllData) {
      for (uint32_t rows : {1u, 5u, 7u}) {
        const Case c = MakeCase(rows, type, rows, 70, KFor(type, 259), data);
        ASSERT_TRUE(SameBits(RunWhole(c), Wanted(c)))
            << static_cast<int>(type) << " data " << static_cast<int>(data);
      }
    }
  }
}

// Accumulators rest in the output between tiles of k (512 to 2048 inputs): still one chain.
TEST_P(Gemm, TilesOfKDoNotShow) {
  for (WeightType type : kWeightTypes) {
    for (uint32_t rows : {1u, 2u, 4u, 13u}) {
      const Case c = MakeCase(rows, type, rows, 150, KFor(type, 4200 + (rows & 1)), Data::kNear);
      ASSERT_TRUE(SameBits(RunWhole(c), Wanted(c))) << static_cast<int>(type) << " rows " << rows;
    }
  }
}

TEST_P(Gemm, SplittingRowsAndPanelsDoesNotShow) {
  Random random(9);
  for (WeightType type : kWeightTypes) {
    const Case c = MakeCase(5, type, 14, 250, KFor(type, 101), Data::kPlain);
    const std::vector<float> whole = RunWhole(c);
    for (int round = 0; round < 10; ++round) {
      const size_t stride = c.n;
      std::vector<float> output(c.rows * stride, kUntouched);
      for (uint32_t row = 0; row < c.rows;) {
        const uint32_t rows = 1 + static_cast<uint32_t>(random.Below(c.rows - row));
        for (uint32_t p = 0; p < c.matrix.panel_count();) {
          const uint32_t groups = (c.matrix.panel_count() - p + kGroupPanels - 1) / kGroupPanels;
          const uint32_t end =
              std::min(p + kGroupPanels * (1 + static_cast<uint32_t>(random.Below(groups))),
                       c.matrix.panel_count());
          RunPart(table(), c, row, rows, p, end, &output, stride);
          p = end;
        }
        row += rows;
      }
      ASSERT_TRUE(SameBits(output, whole));
    }
  }
}

TEST_P(Gemm, AViewOfPartOfKIsThatPart) {
  const uint32_t k = 512;
  const Case c = MakeCase(1, WeightType::kBF16, 3, 48, k, Data::kPlain);
  for (const auto& [start, count] : {std::pair{0u, 256u}, {256u, 256u}, {130u, 71u}}) {
    PackedMatrix part = c.matrix;
    part.k = count;
    part.groups += start / 2 * part.unit_stride_bytes();
    std::vector<float> output(3 * 48);
    GemmArgs args;
    args.weights = &part;
    args.panel_end = 3;
    args.input = {c.a16.data() + start, k * 2};
    args.rows = 3;
    args.output = output.data();
    args.output_stride = 48;
    table().gemm(args);
    std::vector<float> want;
    for (uint32_t m = 0; m < 3; ++m) {
      for (uint32_t n = 0; n < 48; ++n) {
        std::vector<uint16_t> row(k);
        std::memcpy(row.data(), c.data() + n * c.row_bytes, k * 2);
        want.push_back(oracle::ChainBf16(c.a16.data() + m * k + start, row.data() + start, count));
      }
    }
    EXPECT_TRUE(SameBits(output, want)) << start;
  }
}

// Rows times blocks of rows passes 2^32, with blocks of up to 6.
TEST_P(Gemm, ManyRowsAreTheChain) {
  for (WeightType type : {WeightType::kF32, WeightType::kQ8_0}) {
    const Case c = MakeCase(6, type, 170000, 1, type == WeightType::kF32 ? 1 : 32, Data::kPlain);
    EXPECT_TRUE(SameBits(RunWhole(c), Wanted(c))) << static_cast<int>(type);
  }
}

// The ends of what integers can be: no product, sum or sum of scaled sums leaves its type.
TEST_P(Gemm, LargestIntegersAreTheChain) {
  for (WeightType type :
       {WeightType::kQ8_0, WeightType::kQ4_0, WeightType::kQ4_K, WeightType::kQ6_K}) {
    for (uint8_t weight : {0x00, 0x7F, 0x80, 0xFF}) {
      for (uint8_t scale : {0x00, 0x7F, 0x80, 0xFF}) {
        for (int8_t a : {-128, -127, 127}) {
          const uint32_t rows = a == 127 ? 7 : 1;
          const Case c = MakeEvenCase(type, rows, weight, scale, a);
          ASSERT_TRUE(SameBits(RunWhole(c), Wanted(c)))
              << static_cast<int>(type) << " weight " << +weight << " scale " << +scale << " a "
              << +a;
        }
      }
    }
  }
}

TEST(PackedMatrix, PartsPackedSeparatelyMakeTheSameBytes) {
  for (WeightType type : kWeightTypes) {
    const Case c = MakeCase(3, type, 1, 77, KFor(type, 130), Data::kPlain);
    const GuardedBytes parts(PackedBytesNeeded(type, c.n, c.k));
    for (auto [first, rows] : {std::pair{0u, 5u}, {5u, 27u}, {32u, 45u}}) {
      PackRows(type, c.n, c.k, first, rows, c.data() + first * c.row_bytes, c.row_bytes,
               parts.data());
    }
    EXPECT_EQ(std::memcmp(parts.data(), c.storage.data(), parts.size()), 0);
  }
}

TEST(PackedMatrix, LayoutIsTheHeadersLayout) {
  // Sizes by hand: a group of 4 panels; k 33 is 34 in pairs and 64 in blocks.
  EXPECT_EQ(PackedBytesNeeded(WeightType::kF32, 17, 33), 4u * 33 * 64);
  EXPECT_EQ(PackedBytesNeeded(WeightType::kF16, 17, 33), 4u * 33 * 32);
  EXPECT_EQ(PackedBytesNeeded(WeightType::kBF16, 17, 33), 4u * 34 * 32);
  EXPECT_EQ(PackedBytesNeeded(WeightType::kQ8_0, 17, 33), 4u * (2 * 16 * 2 + 64 * 16));
  const Case c = MakeCase(4, WeightType::kQ8_0, 1, 20, 128, Data::kPlain);
  // Output 18, input 101: panel 1, lane 2; unit 1, block 1, quad 1, element 1; its block's scale.
  const std::byte* unit = c.matrix.Panel(1) + c.matrix.unit_stride_bytes();
  EXPECT_EQ(unit[64 + 512 + (1 * 16 + 2) * 4 + 1] ^ std::byte{0x80},
            c.data()[18 * c.row_bytes + 3 * 34 + 2 + 5]);
  EXPECT_EQ(std::memcmp(unit + 32 + 2 * 2, c.data() + 18 * c.row_bytes + 3 * 34, 2), 0);
}

}  // namespace
}  // namespace tessera::testing
