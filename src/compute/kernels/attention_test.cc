// SPDX-License-Identifier: Apache-2.0
//
// Paged attention against the formula on flat arrays. Groups lie in shuffled order; groups nobody
// wrote, and every byte between tiles, are NaN.
#include "compute/kernels/oracle.h"
#include "compute/kernels/test_support.h"
#include "memory/geometry/state_shape.h"

namespace tessera::testing {
namespace {

constexpr uint32_t kTokensPerGroup = 16;

// K and V of one KV head for `tokens` tokens, and the paged plane they are stored in.
struct Cache {
  uint32_t head_dim;
  uint32_t tokens;
  std::vector<uint16_t> keys, values;  // [tokens][head_dim]
  std::vector<std::byte> plane;
  std::vector<uint64_t> offsets;
  static constexpr uint64_t kTileOffset = 128;

  uint64_t tile_bytes() const { return uint64_t{kTokensPerGroup} * head_dim * 2; }
  uint64_t group_bytes() const { return kTileOffset + 2 * tile_bytes(); }
};

Cache MakeCache(const KernelTable& table, uint64_t seed, uint32_t head_dim, uint32_t tokens,
                Data data) {
  Random random(seed);
  Cache c{};
  c.head_dim = head_dim;
  c.tokens = tokens;
  const uint32_t groups = (tokens + kTokensPerGroup - 1) / kTokensPerGroup;
  const uint64_t pitch = c.group_bytes() + 64;
  c.plane.assign((groups + 2) * pitch, std::byte{0xFF});
  for (uint32_t g = 0; g < groups + 1; ++g) c.offsets.push_back(64 + g * pitch);
  for (uint32_t g = groups; g > 1; --g) std::swap(c.offsets[g - 1], c.offsets[random.Below(g)]);
  for (uint32_t t = 0; t < tokens; ++t) {
    std::byte* tile = c.plane.data() + c.offsets[t / kTokensPerGroup] + Cache::kTileOffset;
    if (t % kTokensPerGroup == 0) table.zero_group(tile, 2 * c.tile_bytes());
    const std::vector<float> k = Floats(random, head_dim, data);
    const std::vector<float> v = Floats(random, head_dim, data);
    table.store_kv(k.data(), v.data(), head_dim, t % kTokensPerGroup, tile);
    for (float x : k) c.keys.push_back(FloatToBf16(x));
    for (float x : v) c.values.push_back(FloatToBf16(x));
  }
  return c;
}

struct Queries {
  uint32_t rows, heads, first_position;
  size_t head_stride, row_stride;
  std::vector<uint16_t> data;
};

Queries MakeQueries(uint64_t seed, uint32_t head_dim, uint32_t rows, uint32_t heads,
                    uint32_t first_position) {
  Random random(seed);
  Queries q{rows, heads, first_position, head_dim + 2, heads * (head_dim + 2) + 6, {}};
  for (size_t i = 0; i < rows * q.row_stride; ++i) {
    q.data.push_back(FloatToBf16(random.Uniform(-1.5f, 1.5f)));
  }
  return q;
}

constexpr float kUnwritten = -777.0f;

// One split's partial of one row and head: o (padded to 16), m, l.
std::vector<float> WantedPartial(const Cache& c, const uint16_t* q, uint32_t position,
                                 uint32_t split) {
  const uint32_t begin = split * kSplitTokens;
  const uint32_t end = std::min(begin + kSplitTokens, position + 1);
  const uint32_t padded = (c.head_dim + 15) / 16 * 16;
  std::vector<float> partial(AttentionPartialFloats(c.head_dim), kUnwritten);
  std::vector<float> p(kSplitTokens, 0.0f);
  float m = -std::numeric_limits<float>::infinity();
  for (uint32_t t = begin; t < end; ++t) {
    p[t - begin] = oracle::ChainBf16(q, c.keys.data() + size_t{t} * c.head_dim, c.head_dim);
    m = std::max(m, p[t - begin]);
  }
  std::vector<float> lanes(16, 0.0f);
  for (uint32_t t = begin; t < end; ++t) {
    p[t - begin] = oracle::Exp(p[t - begin] - m);
    lanes[(t - begin) % 16] += p[t - begin];
  }
  for (uint32_t d = 0; d < padded; ++d) {
    float o = 0;
    for (uint32_t t = begin; d < c.head_dim && t < end; ++t) {
      o = std::fma(p[t - begin], Bf16ToFloat(c.values[size_t{t} * c.head_dim + d]), o);
    }
    partial[d] = o + 0.0f;
  }
  partial[padded] = m;
  partial[padded + 1] = oracle::Tree(lanes);
  return partial;
}

std::vector<float> RunSplit(const KernelTable& table, const Cache& c, const Queries& q,
                            uint32_t row, uint32_t rows, uint32_t head, uint32_t heads,
                            uint32_t split) {
  AttentionSplitArgs args;
  args.plane = c.plane.data();
  args.group_offsets = c.offsets.data();
  args.key_tile_offset = Cache::kTileOffset;
  args.head_dim = c.head_dim;
  args.queries = q.data.data() + row * q.row_stride + head * q.head_stride;
  args.query_row_stride = q.row_stride;
  args.query_head_stride = q.head_stride;
  args.rows = rows;
  args.heads = heads;
  args.first_position = q.first_position + row;
  args.split = split;
  std::vector<float> partials(size_t{rows} * heads * AttentionPartialFloats(c.head_dim),
                              kUnwritten);
  args.partials = partials.data();
  table.attention_split(args);
  return partials;
}

std::vector<float> WantedPartials(const Cache& c, const Queries& q, uint32_t split) {
  std::vector<float> want;
  for (uint32_t row = 0; row < q.rows; ++row) {
    for (uint32_t head = 0; head < q.heads; ++head) {
      const uint32_t position = q.first_position + row;
      std::vector<float> partial(AttentionPartialFloats(c.head_dim), kUnwritten);
      if (position >= split * kSplitTokens) {
        partial = WantedPartial(c, q.data.data() + row * q.row_stride + head * q.head_stride,
                                position, split);
      }
      want.insert(want.end(), partial.begin(), partial.end());
    }
  }
  return want;
}

class Attention : public KernelTest {};
TESSERA_KERNEL_TEST_SUITE(Attention);

TEST_P(Attention, TilesAreTheGeometrysLayout) {
  const uint32_t head_dim = 6;
  Cache c = MakeCache(table(), 1, head_dim, 20, Data::kPlain);
  StateShape shape;
  shape.kv_heads = 1;
  shape.attention_layers = 1;
  shape.head_dim = head_dim;
  EXPECT_EQ(shape.tile_bytes(), c.tile_bytes());
  for (uint32_t t = 0; t < 32; ++t) {
    const std::byte* tile = c.plane.data() + c.offsets[t / 16] + Cache::kTileOffset;
    for (uint32_t d = 0; d < head_dim; ++d) {
      uint16_t k, v;
      std::memcpy(&k, tile + ((d / 2 * 16 + t % 16) * 2 + d % 2) * 2, 2);
      std::memcpy(&v, tile + c.tile_bytes() + (t % 16 * head_dim + d) * 2, 2);
      EXPECT_EQ(k, t < 20 ? c.keys[t * head_dim + d] : 0);
      EXPECT_EQ(v, t < 20 ? c.values[t * head_dim + d] : 0);
    }
  }
}

TEST_P(Attention, SplitsAreTheFormulaForEveryHeadDimAndLength) {
  for (uint32_t head_dim : {2u, 6u, 16u, 24u, 64u, 80u, 128u, 130u}) {
    const Cache c = MakeCache(table(), head_dim, head_dim, 300, Data::kPlain);
    for (uint32_t position : {0u, 1u, 14u, 15u, 16u, 40u, 254u, 255u, 256u, 257u, 299u}) {
      const Queries q = MakeQueries(position, head_dim, 1, 3, position);
      for (uint32_t split = 0; split <= position / kSplitTokens; ++split) {
        EXPECT_TRUE(
            SameBits(RunSplit(table(), c, q, 0, 1, 0, 3, split), WantedPartials(c, q, split)))
            << "head_dim " << head_dim << " position " << position;
      }
    }
  }
}

// Rows before, across and after a split's boundary, in one call; later rows' tokens are in the
// tiles of earlier ones and must not be seen.
TEST_P(Attention, RowsOfAPromptAreTheFormula) {
  for (uint32_t heads : {1u, 2u, 4u, 6u, 7u}) {
    const Cache c = MakeCache(table(), heads, 32, 330, Data::kPlain);
    for (auto [first, rows] : {std::pair{0u, 37u}, {250u, 30u}, {13u, 5u}, {256u, 74u}}) {
      const Queries q = MakeQueries(first, 32, rows, heads, first);
      for (uint32_t split = 0; split <= (first + rows - 1) / kSplitTokens; ++split) {
        EXPECT_TRUE(SameBits(RunSplit(table(), c, q, 0, rows, 0, heads, split),
                             WantedPartials(c, q, split)))
            << "heads " << heads << " first " << first << " split " << split;
      }
    }
  }
}

TEST_P(Attention, AwkwardKeysAndValuesAreTheFormula) {
  for (Data data : {Data::kNear, Data::kTiny}) {
    const Cache c = MakeCache(table(), 3, 48, 290, data);
    const Queries q = MakeQueries(1, 48, 40, 2, 250);
    for (uint32_t split : {0u, 1u}) {
      EXPECT_TRUE(
          SameBits(RunSplit(table(), c, q, 0, 40, 0, 2, split), WantedPartials(c, q, split)));
    }
  }
}

TEST_P(Attention, SplittingRowsAndHeadsDoesNotShow) {
  const Cache c = MakeCache(table(), 4, 64, 310, Data::kPlain);
  const Queries q = MakeQueries(2, 64, 60, 4, 250);
  const size_t floats = AttentionPartialFloats(64);
  for (uint32_t split : {0u, 1u}) {
    const std::vector<float> whole = RunSplit(table(), c, q, 0, 60, 0, 4, split);
    for (uint32_t row = 0; row < 60; ++row) {
      for (uint32_t head = 0; head < 4; ++head) {
        const std::vector<float> one = RunSplit(table(), c, q, row, 1, head, 1, split);
        const auto at = whole.begin() + static_cast<ptrdiff_t>((row * 4 + head) * floats);
        ASSERT_TRUE(SameBits(one, std::vector<float>(at, at + static_cast<ptrdiff_t>(floats))));
      }
    }
  }
}

// The rows of a group that nobody wrote must be zero, not anything: NaN there is multiplied by +0.
TEST_P(Attention, AnUnzeroedRowOfAGroupShows) {
  Cache c = MakeCache(table(), 5, 32, 20, Data::kPlain);
  const Queries q = MakeQueries(3, 32, 1, 1, 19);
  const std::vector<float> good = RunSplit(table(), c, q, 0, 1, 0, 1, 0);
  std::byte* tile = c.plane.data() + c.offsets[1] + Cache::kTileOffset;
  std::memset(tile + c.tile_bytes() + 9 * 64, 0xFF, 64);
  EXPECT_FALSE(SameBits(RunSplit(table(), c, q, 0, 1, 0, 1, 0), good));
}

// The last token of a tile has p = e^-20 and the smallest negative normal as its value: their
// product is flushed to -0, which must not be told from the +0 of a tile that took no part.
TEST_P(Attention, ANegativeUnderflowEndsAsPlusZero) {
  const float high[2] = {20, 0}, zero[2] = {0, 0}, tiny[2] = {-0x1p-126f, -0x1p-126f};
  std::vector<std::byte> group(2 * 64);
  for (uint32_t t = 0; t < 16; ++t) {
    table().store_kv(t == 0 ? high : zero, t == 15 ? tiny : zero, 2, t, group.data());
  }
  const uint16_t q[2] = {FloatToBf16(1), 0};
  const uint64_t offset = 0;
  std::vector<float> partial(AttentionPartialFloats(2));
  AttentionSplitArgs args;
  args.plane = group.data();
  args.group_offsets = &offset;
  args.head_dim = 2;
  args.queries = q;
  args.rows = args.heads = 1;
  args.first_position = 15;
  args.partials = partial.data();
  table().attention_split(args);
  EXPECT_EQ(BitsOf(partial[0]), 0u);
  EXPECT_EQ(BitsOf(partial[1]), 0u);
}

TEST_P(Attention, CombineIsALeftFoldAndFinishDivides) {
  Random random(6);
  for (uint32_t head_dim : {2u, 16u, 30u, 128u}) {
    const uint32_t floats = AttentionPartialFloats(head_dim);
    const uint32_t padded = floats - 16;
    const ptrdiff_t stride = floats * 3;
    std::vector<float> parts(5 * stride);
    for (size_t i = 0; i < 5; ++i) {
      for (uint32_t d = 0; d < padded; ++d) {
        parts[i * stride + d] = d < head_dim ? random.Uniform(-3.0f, 3.0f) : 0.0f;
      }
      parts[i * stride + padded] = random.Uniform(-60.0f, 60.0f);
      parts[i * stride + padded + 1] = random.Uniform(0.5f, 200.0f);
    }
    std::vector<float> want(parts.begin(), parts.begin() + padded + 2);
    for (size_t i = 1; i < 5; ++i) {
      const float* part = parts.data() + i * stride;
      const float m = std::max(want[padded], part[padded]);
      const float a = oracle::Exp(want[padded] - m);
      const float b = oracle::Exp(part[padded] - m);
      for (uint32_t d = 0; d < padded; ++d) want[d] = std::fma(want[d], a, part[d] * b);
      want[padded + 1] = std::fma(want[padded + 1], a, part[padded + 1] * b);
      want[padded] = m;
    }
    // All at once, and one by one.
    std::vector<float> got(padded + 2), stepwise(padded + 2);
    table().attention_combine({parts.data(), stride, 5, true, got.data(), head_dim});
    for (size_t i = 0; i < 5; ++i) {
      table().attention_combine(
          {parts.data() + i * stride, stride, 1, i == 0, stepwise.data(), head_dim});
    }
    EXPECT_TRUE(SameBits(got, want));
    EXPECT_TRUE(SameBits(stepwise, want));
    std::vector<float> out(head_dim + 1, kUnwritten), want_out(head_dim + 1, kUnwritten);
    for (uint32_t d = 0; d < head_dim; ++d) want_out[d] = want[d] / want[padded + 1];
    table().attention_finish(got.data(), head_dim, out.data());
    EXPECT_TRUE(SameBits(out, want_out));
  }
}

}  // namespace
}  // namespace tessera::testing
