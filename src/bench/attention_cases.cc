// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <memory>

#include "bench/attention_operands.h"
#include "bench/kernel_cases.h"
#include "compute/tensor/aligned_buffer.h"

namespace tessera {
namespace {

constexpr uint32_t kHeadDim = AttentionOperands::kHeadDim;
constexpr uint32_t kKvHeads = AttentionOperands::kKvHeads;

// The calls of a case go through the sequences, every member in step.
struct alignas(64) Member {
  uint32_t turn = 0;
  AttentionOperands::Scratch scratch;
};

void AddDecode(const KernelBenchContext& context, uint32_t tokens, std::vector<BenchCase>* cases) {
  const int members = context.crew.threads();
  const uint64_t bytes = AttentionOperands::BytesOf(tokens);
  const auto sequences =
      static_cast<uint32_t>(std::clamp<uint64_t>(context.memory.cold_bytes() / bytes, 1, 1024));
  if (bytes > context.memory.state_bytes()) return;  // tests have little memory
  auto operands = std::make_shared<std::vector<AttentionOperands>>();
  for (uint32_t s = 0; s < sequences; ++s) {
    operands->push_back(AttentionOperands::Contiguous(context.memory.state() + s * bytes, tokens));
  }
  auto own = std::make_shared<std::vector<Member>>(static_cast<size_t>(members));
  BenchCase bench;
  bench.name = fmt::format("attention_split.decode.{}k", tokens / 1024);
  bench.from = "memory";
  bench.crew = &context.crew;
  bench.floor = AttentionOperands::FloorOf(tokens, 1, true);
  bench.call = [=, kernel = context.kernels.attention_split](int member) {
    Member& mine = (*own)[static_cast<size_t>(member)];
    const AttentionOperands& sequence = (*operands)[mine.turn++ % sequences];
    const uint32_t splits = tokens / kSplitTokens;
    for (auto split = static_cast<uint32_t>(member); split < splits;
         split += static_cast<uint32_t>(members)) {
      for (uint32_t head = 0; head < kKvHeads; ++head) {
        kernel(sequence.Decode(tokens - 1, split, head, &mine.scratch));
      }
    }
  };
  cases->push_back(std::move(bench));
}

void AddPrefill(const KernelBenchContext& context, std::vector<BenchCase>* cases) {
  constexpr uint32_t kRows = 16;
  const int members = context.crew.threads();
  const uint64_t bytes = AttentionOperands::BytesOf(kSplitTokens);
  auto operands = std::make_shared<std::vector<AttentionOperands>>();
  for (int m = 0; m < members; ++m) {
    operands->push_back(AttentionOperands::Contiguous(
        context.memory.state() + static_cast<uint64_t>(m) * bytes, kSplitTokens));
  }
  auto own = std::make_shared<std::vector<Member>>(static_cast<size_t>(members));
  BenchCase bench;
  bench.name = fmt::format("attention_split.prefill.{}rows", kRows);
  bench.from = "L2";
  bench.crew = &context.crew;
  bench.floor = AttentionOperands::FloorOf(kSplitTokens, kRows, false) * members;
  bench.call = [=, kernel = context.kernels.attention_split](int member) {
    const auto i = static_cast<size_t>(member);
    for (uint32_t head = 0; head < kKvHeads; ++head) {
      kernel((*operands)[i].Prefill(kSplitTokens, kRows, head, &(*own)[i].scratch));
    }
  };
  cases->push_back(std::move(bench));
}

// What one row does after the splits of `kSplits` · 256 tokens: fold, then divide.
void AddFold(const KernelBenchContext& context, std::vector<BenchCase>* cases) {
  constexpr uint32_t kSplits = 16;
  constexpr size_t kFloats = AttentionPartialFloats(kHeadDim);
  const int members = context.crew.threads();
  auto partials = std::make_shared<AlignedBuffer<float>>(size_t(members) * (kSplits + 2) * kFloats);
  std::fill(partials->begin(), partials->end(), 0.5f);
  const auto mine = [=](int member) {
    return partials->data() + size_t(member) * (kSplits + 2) * kFloats;
  };
  BenchCase combine;
  combine.name = fmt::format("attention_combine.{}splits", kSplits);
  combine.from = "L2";
  combine.crew = &context.crew;
  combine.floor.cache_bytes = double{kSplits * kFloats * 4} * members;
  combine.floor.on(Pipe::kFma) = double{kSplits * kFloats * 4} * members;  // a product and an fma
  combine.call = [=, kernel = context.kernels.attention_combine](int member) {
    kernel({.partials = mine(member),
            .stride = kFloats,
            .count = kSplits,
            .accumulator = mine(member) + kSplits * kFloats,
            .head_dim = kHeadDim});
  };
  BenchCase finish;
  finish.name = "attention_finish";
  finish.from = "L2";
  finish.crew = &context.crew;
  finish.floor.cache_bytes = double{2 * kHeadDim * 4} * members;
  finish.call = [=, kernel = context.kernels.attention_finish](int member) {
    float* out = mine(member) + (kSplits + 1) * kFloats;
    kernel(mine(member), kHeadDim, out);
  };
  cases->push_back(std::move(combine));
  cases->push_back(std::move(finish));
}

// K and V of 16 tokens of all heads into a group, and its zeroing before that.
void AddGroups(const KernelBenchContext& context, std::vector<BenchCase>* cases) {
  const int members = context.crew.threads();
  const auto bytes = static_cast<double>(AttentionOperands::kGroupBytes);
  std::byte* groups = context.memory.state();
  auto rows = std::make_shared<AlignedBuffer<float>>(2 * kHeadDim);
  std::fill(rows->begin(), rows->end(), 0.25f);
  BenchCase store;
  store.name = fmt::format("store_kv.{}tokens", kGroupTokens);
  store.from = "L2";
  store.crew = &context.crew;
  store.floor.cache_bytes = 3 * bytes * members;  // fp32 in, bf16 out
  store.call = [=, kernel = context.kernels.store_kv](int member) {
    std::byte* group = groups + static_cast<uint64_t>(member) * AttentionOperands::kGroupBytes;
    for (uint32_t head = 0; head < kKvHeads; ++head) {
      for (uint32_t token = 0; token < kGroupTokens; ++token) {
        kernel(rows->data(), rows->data() + kHeadDim, kHeadDim, token,
               group + AttentionOperands::KeyTileOffset(head));
      }
    }
  };
  BenchCase zero;
  zero.name = "zero_group";
  zero.from = "L2";
  zero.crew = &context.crew;
  zero.floor.cache_bytes = bytes * members;
  zero.call = [=, kernel = context.kernels.zero_group](int member) {
    kernel(groups + static_cast<uint64_t>(member) * AttentionOperands::kGroupBytes,
           AttentionOperands::kGroupBytes);
  };
  cases->push_back(std::move(store));
  cases->push_back(std::move(zero));
}

}  // namespace

void AddAttentionCases(const KernelBenchContext& context, std::vector<BenchCase>* cases) {
  for (uint32_t tokens : {1024u, 16u * 1024, 64u * 1024}) AddDecode(context, tokens, cases);
  AddPrefill(context, cases);
  AddFold(context, cases);
  AddGroups(context, cases);
}

}  // namespace tessera
