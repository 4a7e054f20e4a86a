// SPDX-License-Identifier: Apache-2.0
//
// Convolution and scan against the formulas on flat arrays: any cut of the tokens, channels and
// heads, in place or from a checkpoint, in members of any size, gives the same outputs and state.
#include <functional>

#include "compute/kernels/oracle.h"
#include "compute/kernels/test_support.h"

namespace tessera::testing {
namespace {

template <class T>
std::vector<std::byte> AsBytes(const std::vector<T>& v) {
  std::vector<std::byte> bytes(v.size() * sizeof(T));
  std::memcpy(bytes.data(), v.data(), bytes.size());
  return bytes;
}

// ---- convolution

struct ConvCase {
  uint32_t channels, taps, rows;
  size_t stride;  // of input and output
  std::vector<float> input, weights, bias;
  std::vector<uint16_t> past;  // [taps][row elements], padding zero
  uint64_t start;

  uint64_t row_bytes() const { return (channels * 2 + 31) / 32 * 32; }
  uint64_t state_bytes() const { return start + taps * row_bytes(); }
};

ConvCase MakeConv(uint64_t seed, uint32_t channels, uint32_t taps, uint32_t rows, bool zero,
                  Data data) {
  Random random(seed);
  ConvCase c{channels, taps, rows, channels + 5u, {}, {}, {}, {}, 96};
  c.input = Floats(random, rows * c.stride, data);
  c.weights = Floats(random, (taps + 1) * c.stride, Data::kPlain);
  c.bias = Floats(random, channels, Data::kPlain);
  const size_t row_elements = c.row_bytes() / 2;
  c.past.assign(taps * row_elements, 0);
  for (uint32_t j = 0; j < taps && !zero; ++j) {
    for (uint32_t i = 0; i < channels; ++i) {
      c.past[j * row_elements + i] = FloatToBf16(AwkwardFloat(random, data));
    }
  }
  return c;
}

struct ConvResult {
  std::vector<float> output;
  std::vector<uint16_t> state;
};

ConvResult WantedConv(const ConvCase& c) {
  ConvResult r{std::vector<float>(c.rows * c.stride), c.past};
  const size_t row_elements = c.row_bytes() / 2;
  for (uint32_t ch = 0; ch < c.channels; ++ch) {
    std::vector<float> u;
    for (uint32_t j = 0; j < c.taps; ++j) u.push_back(Bf16ToFloat(c.past[j * row_elements + ch]));
    for (uint32_t t = 0; t < c.rows; ++t) {
      u.push_back(oracle::RoundBf16(c.input[t * c.stride + ch]));
    }
    for (uint32_t t = 0; t < c.rows; ++t) {
      float y = c.bias[ch];
      for (uint32_t j = 0; j <= c.taps; ++j)
        y = std::fma(c.weights[j * c.stride + ch], u[t + j], y);
      r.output[t * c.stride + ch] = oracle::Silu(y);
    }
    for (uint32_t j = 0; j < c.taps; ++j) {
      r.state[j * row_elements + ch] = FloatToBf16(u[c.rows + j]);
    }
  }
  return r;
}

ConvArgs ConvArgsOf(const ConvCase& c, uint32_t row, uint32_t rows, std::vector<float>* output) {
  ConvArgs a;
  a.input = c.input.data() + row * c.stride;
  a.input_stride = c.stride;
  a.weights = c.weights.data();
  a.weight_stride = c.stride;
  a.bias = c.bias.data();
  a.output = output->data() + row * c.stride;
  a.output_stride = c.stride;
  a.rows = rows;
  a.channel_end = c.channels;
  a.taps = c.taps;
  a.start = c.start;
  a.row_bytes = c.row_bytes();
  return a;
}

bool StateIs(const std::vector<std::byte>& linear, uint64_t start,
             const std::vector<std::byte>& want) {
  return std::equal(want.begin(), want.end(), linear.begin() + static_cast<ptrdiff_t>(start));
}

class ConvTest : public KernelTest {};
TESSERA_KERNEL_TEST_SUITE(ConvTest);

TEST_P(ConvTest, IsTheFormulaFromACheckpointInPlaceAndFromNothing) {
  for (Data data : {Data::kPlain, Data::kTiny}) {
    for (uint32_t taps : {1u, 2u, 3u, 4u, 6u}) {
      for (uint32_t channels : {1u, 16u, 19u, 64u, 90u}) {
        for (uint32_t rows : {1u, 2u, 3u, 5u, 37u}) {
          for (uint64_t unit : {32u, 96u, 4096u}) {
            for (int kind = 0; kind < 3; ++kind) {  // checkpoint, in place, nothing
              const ConvCase c = MakeConv(rows, channels, taps, rows, kind == 2, data);
              const ConvResult want = WantedConv(c);
              PagedState source(c.state_bytes(), unit, 1), other(c.state_bytes(), unit, 2);
              std::vector<std::byte> linear(c.start, std::byte{0xFF});
              const std::vector<std::byte> past = AsBytes(c.past);
              linear.insert(linear.end(), past.begin(), past.end());
              source.Write(linear);
              PagedState& destination = kind == 1 ? source : other;
              std::vector<float> output(c.rows * c.stride);
              ConvArgs args = ConvArgsOf(c, 0, rows, &output);
              if (kind != 2) args.source = source.bytes();
              args.destination = destination.bytes();
              table().conv(args);
              ASSERT_TRUE(SameBits(output, want.output)) << "taps " << taps << " rows " << rows;
              ASSERT_TRUE(StateIs(destination.Read(), c.start, AsBytes(want.state)))
                  << "taps " << taps << " rows " << rows << " channels " << channels;
              ASSERT_TRUE(source.PoisonIntact() && other.PoisonIntact());
              if (kind == 0) {
                ASSERT_EQ(source.Read(), linear);
              }
            }
          }
        }
      }
    }
  }
}

TEST_P(ConvTest, CuttingTokensAndChannelsDoesNotShow) {
  Random random(8);
  for (uint32_t taps : {3u, 5u}) {
    const ConvCase c = MakeConv(1, 150, taps, 37, false, Data::kPlain);
    const ConvResult want = WantedConv(c);
    for (int round = 0; round < 20; ++round) {
      PagedState source(c.state_bytes(), 64, 1), live(c.state_bytes(), 160, 2);
      std::vector<std::byte> linear(c.start);
      const std::vector<std::byte> past = AsBytes(c.past);
      linear.insert(linear.end(), past.begin(), past.end());
      source.Write(linear);
      std::vector<float> output(c.rows * c.stride);
      for (uint32_t row = 0; row < c.rows;) {
        const uint32_t rows = 1 + static_cast<uint32_t>(random.Below(c.rows - row));
        for (uint32_t begin = 0; begin < c.channels;) {
          ConvArgs args = ConvArgsOf(c, row, rows, &output);
          args.channel_begin = begin;
          args.channel_end = std::min<uint32_t>(
              c.channels, begin + 16 * (1 + static_cast<uint32_t>(random.Below(5))));
          args.source = row == 0 ? source.bytes() : live.bytes();
          args.destination = live.bytes();
          table().conv(args);
          begin = args.channel_end;
        }
        row += rows;
      }
      ASSERT_TRUE(SameBits(output, want.output));
      ASSERT_TRUE(StateIs(live.Read(), c.start, AsBytes(want.state)));
    }
  }
}

// ---- scan

struct ScanCase {
  StateType type;
  uint32_t heads, head_dim, state, heads_per_group, rows;
  size_t stride, y_stride;
  std::vector<float> xbc, delta, decay, d;
  std::vector<float> past;  // [heads·head_dim][row elements] of the type, padding zero
  uint64_t start;

  size_t element_bytes() const { return type == StateType::kF32 ? 4 : 2; }
  uint64_t row_bytes() const { return (state * element_bytes() + 63) / 64 * 64; }
  size_t row_elements() const { return row_bytes() / element_bytes(); }
  // What is kept of a state element after a token.
  float Kept(float s) const { return type == StateType::kF32 ? s : oracle::RoundBf16(s); }
  uint32_t groups() const { return heads / heads_per_group; }
  size_t x_at() const { return 0; }
  size_t b_at() const { return size_t{heads} * head_dim; }
  size_t c_at() const { return b_at() + size_t{groups()} * state; }
  uint64_t state_bytes() const { return start + heads * head_dim * row_bytes(); }
};

ScanCase MakeScan(StateType type, uint64_t seed, uint32_t heads, uint32_t per_group,
                  uint32_t head_dim, uint32_t state, uint32_t rows, bool zero, Data data) {
  Random random(seed);
  ScanCase c{};
  c.type = type;
  c.heads = heads, c.head_dim = head_dim, c.state = state, c.heads_per_group = per_group;
  c.rows = rows;
  c.stride = c.c_at() + size_t{c.groups()} * state + 3;
  c.y_stride = heads * head_dim + 1u;
  c.xbc = Floats(random, rows * c.stride, data);
  c.delta = Floats(random, rows * heads, 0.001f, 0.1f);
  c.decay = Floats(random, rows * heads, 0.2f, 1.0f);
  c.d = Floats(random, heads, Data::kPlain);
  c.start = c.row_bytes();
  c.past.assign(heads * head_dim * c.row_elements(), 0.0f);
  for (size_t i = 0; i < c.past.size() && !zero; ++i) {
    if (i % c.row_elements() < state) c.past[i] = c.Kept(AwkwardFloat(random, data) + 0.0f);
  }
  return c;
}

struct ScanResult {
  std::vector<float> y, state;
};

// The state is rounded after each token, or, as the contract forbids, only after every `cadence`.
ScanResult WantedScan(const ScanCase& c, uint32_t cadence = 1) {
  ScanResult r{std::vector<float>(c.rows * c.y_stride), c.past};
  for (uint32_t h = 0; h < c.heads; ++h) {
    const size_t g = h / c.heads_per_group;
    for (uint32_t p = 0; p < c.head_dim; ++p) {
      float* s = r.state.data() + (size_t{h} * c.head_dim + p) * c.row_elements();
      for (uint32_t t = 0; t < c.rows; ++t) {
        const float* row = c.xbc.data() + t * c.stride;
        const float x = row[c.x_at() + h * c.head_dim + p];
        const float dx = c.delta[t * c.heads + h] * x;
        std::vector<std::vector<float>> chain(4, std::vector<float>(16, 0.0f));
        for (uint32_t n = 0; n < (c.state + 15) / 16 * 16; ++n) {
          const float b = n < c.state ? row[c.b_at() + g * c.state + n] : 0.0f;
          const float cc = n < c.state ? row[c.c_at() + g * c.state + n] : 0.0f;
          s[n] = n < c.state ? std::fma(s[n], c.decay[t * c.heads + h], dx * b) : 0.0f;
          float& acc = chain[n / 16 % 4][n % 16];
          acc = std::fma(s[n], cc, acc);
          if ((t + 1) % cadence == 0 || t + 1 == c.rows) s[n] = c.Kept(s[n]);
        }
        std::vector<float> lanes(16);
        for (size_t i = 0; i < 16; ++i) {
          lanes[i] = (chain[0][i] + chain[1][i]) + (chain[2][i] + chain[3][i]);
        }
        r.y[t * c.y_stride + h * c.head_dim + p] = std::fma(c.d[h], x, oracle::Tree(lanes));
      }
    }
  }
  return r;
}

ScanArgs ScanArgsOf(const ScanCase& c, uint32_t row, uint32_t rows, std::vector<float>* y) {
  ScanArgs a;
  const float* base = c.xbc.data() + row * c.stride;
  a.x = base + c.x_at();
  a.b = base + c.b_at();
  a.c = base + c.c_at();
  a.stride = c.stride;
  a.delta = c.delta.data() + row * c.heads;
  a.decay = c.decay.data() + row * c.heads;
  a.heads_stride = c.heads;
  a.d = c.d.data();
  a.y = y->data() + row * c.y_stride;
  a.y_stride = c.y_stride;
  a.rows = rows;
  a.head_end = c.heads;
  a.head_dim = c.head_dim;
  a.state = c.state;
  a.heads_per_group = c.heads_per_group;
  a.state_type = c.type;
  a.start = c.start;
  a.row_bytes = c.row_bytes();
  return a;
}

// The rows as they lie in memory.
std::vector<std::byte> StateBytes(const ScanCase& c, const std::vector<float>& rows) {
  if (c.type == StateType::kF32) return AsBytes(rows);
  std::vector<uint16_t> words;
  for (float s : rows) words.push_back(FloatToBf16(s));
  return AsBytes(words);
}

std::vector<std::byte> LinearState(const ScanCase& c) {
  std::vector<std::byte> linear(c.start, std::byte{0xFF});
  const std::vector<std::byte> past = StateBytes(c, c.past);
  linear.insert(linear.end(), past.begin(), past.end());
  return linear;
}

class ScanTest : public KernelTest {};
TESSERA_KERNEL_TEST_SUITE(ScanTest);

constexpr StateType kStateTypes[] = {StateType::kF32, StateType::kBF16};

std::string Named(const ScanCase& c) {
  return std::string(StateTypeName(c.type)) + " state " + std::to_string(c.state) + " rows " +
         std::to_string(c.rows);
}

// One call for all tokens: kind 0 from a checkpoint, 1 in place, 2 from nothing. Where rows are not
// whole lines of the cache (`skew`), they cannot go past it.
void ExpectFormula(const KernelTable& table, const ScanCase& c, uint64_t unit_rows, int kind,
                   uint64_t skew_bytes) {
  const ScanResult want = WantedScan(c);
  const uint64_t unit = unit_rows * c.row_bytes();
  PagedState source(c.state_bytes(), unit, 1, skew_bytes);
  PagedState other(c.state_bytes(), unit, 2, skew_bytes);
  source.Write(LinearState(c));
  PagedState& destination = kind == 1 ? source : other;
  std::vector<float> y(c.rows * c.y_stride);
  ScanArgs args = ScanArgsOf(c, 0, c.rows, &y);
  if (kind != 2) args.source = source.bytes();
  args.destination = destination.bytes();
  table.scan(args);
  ASSERT_TRUE(SameBits(y, want.y)) << Named(c);
  ASSERT_TRUE(StateIs(destination.Read(), c.start, StateBytes(c, want.state)))
      << Named(c) << " kind " << kind;
  ASSERT_TRUE(source.PoisonIntact() && other.PoisonIntact()) << Named(c);
  if (kind == 0) {
    ASSERT_EQ(source.Read(), LinearState(c));
  }
}

TEST_P(ScanTest, IsTheFormulaFromACheckpointInPlaceAndFromNothing) {
  for (StateType type : kStateTypes) {
    for (Data data : {Data::kPlain, Data::kNear, Data::kTiny}) {
      for (uint32_t state : {1u, 8u, 16u, 24u, 32u, 33u, 48u, 64u, 79u, 128u, 255u, 256u, 272u}) {
        for (uint32_t rows : {1u, 2u, 8u, 9u, 37u}) {
          for (uint64_t unit_rows : {1u, 3u, 64u}) {
            for (int kind = 0; kind < 3; ++kind) {
              const ScanCase c = MakeScan(type, state, 4, 2, 3, state, rows, kind == 2, data);
              const uint64_t skew = unit_rows == 3 ? 16 : 0;
              ASSERT_NO_FATAL_FAILURE(ExpectFormula(table(), c, unit_rows, kind, skew));
            }
          }
        }
      }
    }
  }
}

// Runs of `cuts` tokens (then of random lengths) and of random heads, the first from a checkpoint.
// `live` is where the state stays.
std::vector<float> ScanInPieces(const KernelTable& table, const ScanCase& c,
                                std::vector<uint32_t> cuts, Random* random, PagedState* live) {
  PagedState source(c.state_bytes(), 4 * c.row_bytes(), 1);
  source.Write(LinearState(c));
  std::vector<float> y(c.rows * c.y_stride);
  for (uint32_t row = 0, i = 0; row < c.rows; ++i) {
    const uint32_t left = c.rows - row;
    const uint32_t rows =
        std::min(left, i < cuts.size() ? cuts[i] : 1 + static_cast<uint32_t>(random->Below(left)));
    for (uint32_t head = 0; head < c.heads;) {
      ScanArgs args = ScanArgsOf(c, row, rows, &y);
      args.head_begin = head;
      args.head_end = head + 1 + static_cast<uint32_t>(random->Below(c.heads - head));
      args.source = row == 0 ? source.bytes() : live->bytes();
      args.destination = live->bytes();
      table.scan(args);
      head = args.head_end;
    }
    row += rows;
  }
  return y;
}

TEST_P(ScanTest, CuttingTokensAndHeadsDoesNotShow) {
  Random random(9);
  for (StateType type : kStateTypes) {
    for (uint32_t state : {16u, 40u, 64u, 256u}) {
      const ScanCase c = MakeScan(type, 1, 6, 3, 5, state, 37, false, Data::kPlain);
      const ScanResult want = WantedScan(c);
      std::vector<std::vector<uint32_t>> cuts = {{1, 15, 21}};
      for (uint32_t run : {1u, 2u, 7u, 8u, 16u, 17u}) cuts.emplace_back(c.rows, run);
      cuts.resize(cuts.size() + 8);  // the rest at random
      for (const std::vector<uint32_t>& cut : cuts) {
        PagedState live(c.state_bytes(), 3 * c.row_bytes(), 2);
        ASSERT_TRUE(SameBits(ScanInPieces(table(), c, cut, &random, &live), want.y)) << Named(c);
        ASSERT_TRUE(StateIs(live.Read(), c.start, StateBytes(c, want.state))) << Named(c);
      }
    }
  }
}

// That the cuts above do not show says something only if rounding at their ends instead of after
// every token would: what a state kept in fp32 and rounded when it is saved does.
TEST_P(ScanTest, RoundingOnlyWhereARunEndsWouldShow) {
  Random random(9);
  for (uint32_t state : {16u, 40u, 256u}) {
    const ScanCase c = MakeScan(StateType::kBF16, 1, 6, 3, 5, state, 37, false, Data::kPlain);
    PagedState live(c.state_bytes(), 3 * c.row_bytes(), 2);
    const std::vector<uint32_t> cuts(c.rows, 8);
    const std::vector<float> y = ScanInPieces(table(), c, cuts, &random, &live);
    for (uint32_t cadence : {8u, 37u}) {
      const ScanResult forbidden = WantedScan(c, cadence);
      EXPECT_FALSE(SameBits(y, forbidden.y));
      EXPECT_FALSE(StateIs(live.Read(), c.start, StateBytes(c, forbidden.state)));
    }
  }
}

// Without tokens the state moves from source to destination.
TEST_P(ScanTest, NoTokensCopyTheState) {
  for (StateType type : kStateTypes) {
    for (uint32_t state : {16u, 40u, 64u}) {
      const ScanCase c = MakeScan(type, 3, 2, 1, 4, state, 0, false, Data::kPlain);
      ASSERT_NO_FATAL_FAILURE(ExpectFormula(table(), c, 3, 0, 0));
    }
  }
}

// An infinite x makes its row's y NaN; the padding beyond N stays zero all the same.
TEST_P(ScanTest, PaddingStaysZeroWhateverXIs) {
  for (StateType type : kStateTypes) {
    ScanCase c = MakeScan(type, 2, 1, 1, 1, 20, 2, true, Data::kPlain);
    c.xbc[0] = std::numeric_limits<float>::infinity();
    PagedState live(c.state_bytes(), c.row_bytes(), 1);
    std::vector<float> y(c.rows * c.y_stride);
    ScanArgs args = ScanArgsOf(c, 0, 2, &y);
    args.destination = live.bytes();
    table().scan(args);
    const std::vector<std::byte> linear = live.Read();
    for (uint64_t x = c.start + 20 * c.element_bytes(); x < c.start + c.row_bytes(); ++x) {
      EXPECT_EQ(linear[x], std::byte{0});
    }
  }
}

}  // namespace
}  // namespace tessera::testing
