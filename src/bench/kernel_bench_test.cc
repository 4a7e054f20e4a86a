// SPDX-License-Identifier: Apache-2.0
#include "bench/kernel_bench.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <set>
#include <string>

#include "base/bytes.h"
#include "base/random.h"
#include "bench/gemm_variants.h"
#include "bench/kernel_report.h"
#include "bench/page_orders.h"
#include "compute/kernels/kernel_table.h"
#include "compute/tensor/aligned_buffer.h"
#include "compute/tensor/number_formats.h"

namespace tessera {
namespace {

// Small enough that every case runs in a moment; nothing is "from memory" then.
KernelBenchOptions Small(std::vector<std::string> only) {
  KernelBenchOptions options;
  options.only = std::move(only);
  options.seconds = 0;
  options.memory.weights_bytes = 1 * kMiB;
  options.memory.state_bytes = 32 * kMiB;
  return options;
}

TEST(KernelBench, EveryKernelOfTheTableIsMeasured) {
  const auto report = RunKernelBench(Small({}));
  ASSERT_TRUE(report.has_value()) << report.error().ToString();
  std::set<std::string> kernels;
  for (const BenchCase& bench : report->kernels) {
    kernels.insert(bench.name.substr(0, bench.name.find('.')));
    EXPECT_GT(bench.seconds.Median(), 0) << bench.name;
    const Bound bound = BoundOf(bench.floor, report->RatesFor(1));
    EXPECT_GT(bound.seconds, 0) << bench.name;
  }
  // A table is its name and one pointer per kernel.
  EXPECT_EQ(kernels.size(), sizeof(KernelTable) / sizeof(void*) - 1);
  for (WeightType type : kWeightTypes) {
    const std::string name = std::string("gemm.") + WeightTypeName(type) + ".memory.m96";
    const bool found = std::any_of(report->kernels.begin(), report->kernels.end(),
                                   [&](const BenchCase& bench) { return bench.name == name; });
    EXPECT_TRUE(found) << name;
  }
  EXPECT_FALSE(report->layouts.empty());
  EXPECT_EQ(report->invariance.empty(), Avx512Kernels() == nullptr);
}

TEST(KernelBench, TheJsonHasWhatTheTablesHave) {
  KernelBenchOptions options = Small({"rms_norm", "layout.attention"});
  options.threads = {1, 2};
  const auto report = RunKernelBench(options);
  ASSERT_TRUE(report.has_value()) << report.error().ToString();
  const auto json = nlohmann::json::parse(KernelBenchJson(*report));
  ASSERT_EQ(json["kernels"].size(), 2u);
  EXPECT_EQ(json["kernels"][1]["name"], "rms_norm.3072");
  EXPECT_EQ(json["kernels"][1]["threads"], 2);
  EXPECT_GT(json["kernels"][0]["reached"], 0);
  EXPECT_EQ(json["layout"].size(), report->layouts.size());
  bool has_read = false;
  for (const auto& ceiling : json["ceilings"]) {
    has_read |= ceiling["what"] == "read" && ceiling["best"] && ceiling["bytes_per_second"] > 0;
  }
  EXPECT_TRUE(has_read);
  EXPECT_NE(KernelBenchText(*report).find("rms_norm.3072"), std::string::npos);
}

TEST(KernelBench, RoomToScatterIsMappedOnlyForWhatIsScattered) {
  KernelBenchOptions options = Small({"rms_norm"});
  options.memory.state_bytes = 0;
  const auto rows = RunKernelBench(options);
  ASSERT_TRUE(rows.has_value()) << rows.error().ToString();
  EXPECT_EQ(rows->memory.state_bytes(), rows->memory.cold_bytes());
  const std::string text = KernelBenchText(*rows);
  const auto mapped = static_cast<double>(rows->memory.mapped_bytes()) * 1e-6;
  EXPECT_NE(text.find(fmt::format("{:.0f} MB mapped", mapped)), std::string::npos) << text;
}

TEST(KernelBench, StoppedItReportsTheRoundsThatWereWhole) {
  uint32_t rounds = 0;
  KernelBenchOptions options = Small({"rms_norm"});
  options.seconds = 3600;
  options.progress = [&](uint32_t done, double) { rounds = done; };
  options.stop = [&] { return rounds == 2; };
  const auto report = RunKernelBench(options);
  ASSERT_TRUE(report.has_value()) << report.error().ToString();
  EXPECT_EQ(report->rounds, 2u);
  EXPECT_TRUE(report->stopped);
  options.stop = [] { return true; };
  EXPECT_EQ(RunKernelBench(options).error().code(), StatusCode::kCancelled);
}

TEST(PairedCase, BothSidesAreWarmAndTakeTurnsInBeginning) {
  const auto crew = Crew::Create(1);
  ASSERT_TRUE(crew.has_value());
  std::string order;  // of base and candidate, each run of calls once
  const auto make = [&](char side) {
    BenchCase bench;
    bench.crew = crew->get();
    bench.call = [&order, side](int) {
      if (order.empty() || order.back() != side) order += side;
    };
    return bench;
  };
  PairedCase pair;
  pair.base = make('b');
  pair.candidate = make('c');
  Measure(&pair);
  EXPECT_EQ(order, "bcbc");  // warming up, then the first turn
  Measure(&pair);
  EXPECT_EQ(order, "bcbcb");
  Measure(&pair);
  EXPECT_EQ(order, "bcbcbc");
  EXPECT_EQ(pair.candidate.calls, pair.base.calls);
  EXPECT_EQ(pair.ratios.size(), 3u);
}

TEST(KernelBench, BadOptionsNameTheFlag) {
  KernelBenchOptions options = Small({"gem"});
  EXPECT_NE(RunKernelBench(options).error().message().find("--only: nothing is called 'gem'"),
            std::string::npos);
  options = Small({});
  options.isa = "mmx";
  EXPECT_NE(RunKernelBench(options).error().message().find("--isa mmx"), std::string::npos);
  options = Small({});
  options.threads = {2, 2};
  EXPECT_NE(RunKernelBench(options).error().message().find("--threads"), std::string::npos);
}

TEST(Floor, IsTheLongerOfBytesAndProducts) {
  MachineRates rates;
  rates.read = 10;
  rates.update = 5;
  rates.operations = {100, 200, 400};
  Floor floor;
  floor.read_bytes = 30;
  floor.update_bytes = 10;
  floor.on(Pipe::kFma) = 100;
  EXPECT_DOUBLE_EQ(BoundOf(floor, rates).seconds, 5);
  EXPECT_STREQ(BoundOf(floor, rates).by, "memory");
  floor.on(Pipe::kInt8) = 4000;  // products add up over pipes
  EXPECT_DOUBLE_EQ(BoundOf(floor, rates).seconds, 11);
  EXPECT_STREQ(BoundOf(floor, rates).by, "int8");
}

TEST(Samples, MedianAndQuartiles) {
  Samples samples;
  for (double x : {4.0, 1.0, 3.0, 2.0, 5.0}) samples.Add(x);
  EXPECT_DOUBLE_EQ(samples.Median(), 3);
  EXPECT_DOUBLE_EQ(samples.Low(), 1);
  EXPECT_DOUBLE_EQ(samples.High(), 5);
  EXPECT_DOUBLE_EQ(samples.Spread(), 2.0 / 3);
}

// No two objects share a byte, and every page is inside the memory.
void ExpectDisjoint(const PageOrderOptions& options, const PageOffsets& offsets) {
  std::set<uint64_t> seen;
  ASSERT_EQ(offsets.size(), options.objects);
  for (const auto& object : offsets) {
    EXPECT_EQ(object.size(), options.object_bytes / options.page_bytes);
    for (uint64_t at : object) {
      EXPECT_EQ(at % options.page_bytes, 0u);
      EXPECT_LE(at + options.page_bytes, options.memory_bytes);
      EXPECT_TRUE(seen.insert(at).second) << at;
    }
  }
}

TEST(PageOrders, RunsAreOfTheLengthAskedForAndNothingIsGivenTwice) {
  const PageOrderOptions options{64 * kMiB, 3 * kMiB, 64 * kKiB, 10};
  ExpectDisjoint(options, LayInOrder(options));
  const PageOffsets near = ScatterInBlocks(options, 1);
  ExpectDisjoint(options, near);
  for (uint64_t run : {1u, 4u, 32u, 48u}) {
    const PageOffsets offsets = ScatterRuns(options, run, 1);
    ExpectDisjoint(options, offsets);
    uint64_t breaks = 0;
    for (size_t i = 1; i < offsets[0].size(); ++i) {
      breaks += offsets[0][i] != offsets[0][i - 1] + options.page_bytes ? 1 : 0;
    }
    // Neighbouring runs may meet by chance, once or twice among 48.
    EXPECT_LE(breaks, DivideUp(48, run) - 1);
    EXPECT_GE(breaks + 3, DivideUp(48, run) - 1);
  }
}

// A variant that skipped work would make the kernel look slow.
TEST(GemmVariants, EachComputesTheProduct) {
  if (Avx512Kernels() == nullptr) GTEST_SKIP() << ChooseKernels("avx512").reason;
  constexpr uint32_t kN = 128, kK = 1056, kRows = 13;
  Random random(1);
  std::vector<uint16_t> w(size_t{kN} * kK), input(size_t{kRows} * kK);
  for (uint16_t& x : w) x = FloatToBf16(random.Uniform(-1, 1));
  for (uint16_t& x : input) x = FloatToBf16(random.Uniform(-1, 1));
  AlignedBuffer<uint16_t> panels(w.size() + 64 * 1024);  // room for what is fetched ahead
  for (uint32_t n = 0; n < kN; ++n) {
    for (uint32_t k = 0; k < kK; ++k) {
      panels[size_t{n / 64} * 64 * kK + (size_t{k / 2} * 64 + n % 64) * 2 + k % 2] =
          w[size_t{n} * kK + k];
    }
  }
  for (uint32_t count : {1u, 2u, 3u, 4u, 7u, 13u}) {
    for (const GemmVariant& variant : Avx512GemmVariants()) {
      std::vector<float> output(size_t{kRows} * kN, NAN);
      GemmVariantArgs args;
      args.panels = reinterpret_cast<const std::byte*>(panels.data());
      args.rows = reinterpret_cast<const std::byte*>(w.data());
      args.n = kN;
      args.k = kK;
      args.input = input.data();
      args.input_stride = kK;
      args.count = count;
      args.output = output.data();
      variant.run(args);
      for (uint32_t row = 0; row < count; ++row) {
        for (uint32_t n = 0; n < kN; ++n) {
          double want = 0;
          for (uint32_t k = 0; k < kK; ++k) {
            want += double{Bf16ToFloat(w[size_t{n} * kK + k])} *
                    Bf16ToFloat(input[size_t{row} * kK + k]);
          }
          ASSERT_NEAR(output[size_t{row} * kN + n], want, 1e-3)
              << variant.name << " rows " << count << " at " << row << ", " << n;
        }
      }
      for (size_t i = size_t{count} * kN; i < output.size(); ++i) {
        ASSERT_TRUE(std::isnan(output[i])) << variant.name << " wrote beyond its rows";
      }
    }
  }
}

}  // namespace
}  // namespace tessera
