// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <memory>

#include "base/bytes.h"
#include "bench/kernel_cases.h"
#include "bench/scan_operands.h"

namespace tessera {
namespace {

constexpr uint32_t kRowsMax = 256;

// One thread's: its inputs, and its share of the images one after another.
struct alignas(64) Member {
  ScanOperands inputs{kRowsMax};
  std::vector<uint64_t> offsets;  // of each image
  uint32_t turn = 0;
};

std::shared_ptr<std::vector<Member>> MakeMembers(const KernelBenchContext& context,
                                                 StateType type) {
  const auto members = static_cast<size_t>(context.crew.threads());
  const uint64_t image = ScanOperands::ImageBytes(type);
  const uint64_t all = std::max<uint64_t>(context.memory.cold_bytes() / image, 1);
  const uint64_t each = std::max<uint64_t>(all / members, 1);
  auto made = std::make_shared<std::vector<Member>>(members);
  for (uint64_t i = 0; i < each * members; ++i) {
    const uint64_t at = i * image;
    if (at + image <= context.memory.state_bytes()) (*made)[i / each].offsets.push_back(at);
  }
  for (Member& member : *made) {
    if (member.offsets.empty()) member.offsets.push_back(0);
  }
  return made;
}

void AddScan(const KernelBenchContext& context, StateType type, std::vector<BenchCase>* cases) {
  const auto members = MakeMembers(context, type);
  for (uint32_t rows : {1u, 4u, 16u, 256u}) {
    BenchCase bench;
    bench.name = fmt::format("scan.{}.{}tokens", StateTypeName(type), rows);
    bench.from = "memory";
    bench.crew = &context.crew;
    bench.floor = ScanOperands::FloorOf(type, rows) * context.crew.threads();
    bench.call = [=, kernel = context.kernels.scan, base = context.memory.state()](int member) {
      Member& mine = (*members)[static_cast<size_t>(member)];
      const uint64_t* offset = &mine.offsets[mine.turn++ % mine.offsets.size()];
      kernel(mine.inputs.Args(type, rows, {base, offset, ScanOperands::ImageBytes(type)}));
    };
    cases->push_back(std::move(bench));
  }
}

constexpr uint32_t kChannels = 3584;
constexpr uint32_t kTaps = 3;

struct alignas(64) ConvMember {
  explicit ConvMember(uint32_t rows)
      : input(size_t{rows} * kChannels),
        output(size_t{rows} * kChannels),
        weights(size_t{kTaps + 2} * kChannels),
        state(size_t{kTaps} * kChannels) {
    std::fill(input.begin(), input.end(), 0.5f);
    std::fill(weights.begin(), weights.end(), 0.25f);
  }
  AlignedBuffer<float> input, output;
  AlignedBuffer<float> weights;  // the taps, then the bias
  AlignedBuffer<uint16_t> state;
  uint64_t offset = 0;

  ConvArgs Args(uint32_t rows) {
    ConvArgs args;
    args.input = input.data();
    args.input_stride = kChannels;
    args.weights = weights.data();
    args.weight_stride = kChannels;
    args.bias = weights.data() + size_t{kTaps + 1} * kChannels;
    args.output = output.data();
    args.output_stride = kChannels;
    args.rows = rows;
    args.channel_end = kChannels;
    args.taps = kTaps;
    args.row_bytes = kChannels * 2;
    args.source = {reinterpret_cast<std::byte*>(state.data()), &offset, state.size_bytes()};
    args.destination = args.source;
    return args;
  }
};

// fp32 in and out, the taps and the bias, and the state read and written. silu's exponential is 9
// products, its other one is a division.
Floor ConvFloor(uint32_t rows) {
  Floor floor;
  floor.cache_bytes = double{kChannels} * (8.0 * rows + 4 * (kTaps + 2) + 4 * kTaps);
  floor.on(Pipe::kFma) = 2.0 * (kTaps + 1 + 9) * rows * kChannels;
  return floor;
}

void AddConv(const KernelBenchContext& context, uint32_t rows, std::vector<BenchCase>* cases) {
  auto members = std::make_shared<std::vector<ConvMember>>();
  for (int m = 0; m < context.crew.threads(); ++m) members->emplace_back(rows);
  BenchCase bench;
  bench.name = fmt::format("conv.{}tokens", rows);
  bench.from = "L2";
  bench.crew = &context.crew;
  bench.floor = ConvFloor(rows) * context.crew.threads();
  bench.call = [=, kernel = context.kernels.conv](int member) {
    kernel((*members)[static_cast<size_t>(member)].Args(rows));
  };
  cases->push_back(std::move(bench));
}

}  // namespace

void AddRecurrentCases(const KernelBenchContext& context, std::vector<BenchCase>* cases) {
  AddScan(context, StateType::kF32, cases);
  AddScan(context, StateType::kBF16, cases);
  for (uint32_t rows : {1u, 16u}) AddConv(context, rows, cases);
}

}  // namespace tessera
