// SPDX-License-Identifier: Apache-2.0
#include "bench/layout_bench.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <utility>

#include "base/bytes.h"
#include "bench/attention_operands.h"
#include "bench/page_orders.h"
#include "bench/scan_operands.h"

namespace tessera {
namespace {

constexpr uint32_t kTokens = 4096;
constexpr uint64_t kScanPages[] = {16 * kKiB,  32 * kKiB,  64 * kKiB,
                                   128 * kKiB, 256 * kKiB, 512 * kKiB};
constexpr uint64_t kSeed = 5;

// One thread's inputs, in a cache line of its own.
struct alignas(64) Member {
  ScanOperands scan{1};
  AttentionOperands::Scratch attention;
};

// Makes the call of a kernel over objects whose pages lie as `offsets` says.
using Caller = std::function<std::function<void(int)>(PageOffsets offsets, uint64_t page_bytes)>;

class LayoutCases {
 public:
  LayoutCases(const KernelTable& kernels, Crew& crew, const BenchMemory& memory)
      : kernels_(kernels),
        crew_(crew),
        memory_(memory),
        members_(std::make_shared<std::vector<Member>>(static_cast<size_t>(crew.threads()))) {}

  void AddScan();
  void AddAttention();
  std::vector<LayoutCase> Take() { return std::move(cases_); }

 private:
  // `objects` is cut down to what the memory holds when every object lies in a run of its own.
  uint32_t ObjectsOf(uint64_t object_bytes) const {
    return static_cast<uint32_t>(std::clamp<uint64_t>(memory_.cold_bytes() / object_bytes, 1,
                                                      memory_.state_bytes() / (2 * object_bytes)));
  }
  PageOrderOptions Options(uint64_t object_bytes, uint64_t page_bytes) const {
    return {memory_.state_bytes(), object_bytes, page_bytes, ObjectsOf(object_bytes)};
  }
  void AddPageSize(const std::string& kernel, uint64_t object_bytes, uint64_t page_bytes,
                   const Floor& floor, const Caller& caller);
  void Add(const std::string& kernel, const std::string& order, uint64_t run_pages,
           const PageOrderOptions& options, PageOffsets offsets, const Floor& floor,
           const Caller& caller);

  const KernelTable& kernels_;
  Crew& crew_;
  const BenchMemory& memory_;
  std::shared_ptr<std::vector<Member>> members_;
  std::vector<LayoutCase> cases_;
};

void LayoutCases::Add(const std::string& kernel, const std::string& order, uint64_t run_pages,
                      const PageOrderOptions& options, PageOffsets offsets, const Floor& floor,
                      const Caller& caller) {
  LayoutCase made;
  made.kernel = kernel;
  made.order = order;
  made.page_bytes = options.page_bytes;
  made.run_pages = run_pages;
  PageOrderOptions whole = options;
  whole.page_bytes = options.object_bytes;
  for (BenchCase* bench : {&made.pair.base, &made.pair.candidate}) {
    bench->name = fmt::format("layout.{}", kernel);
    bench->from = "memory";
    bench->crew = &crew_;
    bench->floor = floor * options.objects;
  }
  made.pair.base.call = caller(ScatterRuns(whole, 1, kSeed), options.object_bytes);
  made.pair.candidate.call = caller(std::move(offsets), options.page_bytes);
  cases_.push_back(std::move(made));
}

void LayoutCases::AddPageSize(const std::string& kernel, uint64_t object_bytes, uint64_t page_bytes,
                              const Floor& floor, const Caller& caller) {
  const PageOrderOptions options = Options(object_bytes, page_bytes);
  const uint64_t pages = object_bytes / page_bytes;
  Add(kernel, "fresh", pages, options, LayInOrder(options), floor, caller);
  for (uint64_t run = 1; run < 2 * pages; run *= 2) {
    const uint64_t length = std::min(run, pages);
    Add(kernel, "random", length, options, ScatterRuns(options, length, kSeed + run), floor,
        caller);
  }
  Add(kernel, "near", 1, options, ScatterInBlocks(options, kSeed), floor, caller);
}

void LayoutCases::AddScan() {
  const uint64_t image = ScanOperands::ImageBytes(StateType::kF32);
  if (image * 2 > memory_.state_bytes()) return;
  const Caller caller = [this](PageOffsets offsets, uint64_t page_bytes) {
    return [members = members_, kernel = kernels_.scan, base = memory_.state(),
            threads = static_cast<size_t>(crew_.threads()), page_bytes,
            images = std::make_shared<PageOffsets>(std::move(offsets))](int member) {
      Member& mine = (*members)[static_cast<size_t>(member)];
      for (auto i = static_cast<size_t>(member); i < images->size(); i += threads) {
        kernel(mine.scan.Args(StateType::kF32, 1, {base, (*images)[i].data(), page_bytes}));
      }
    };
  };
  for (uint64_t page_bytes : kScanPages) {
    AddPageSize("scan", image, page_bytes, ScanOperands::FloorOf(StateType::kF32, 1), caller);
  }
}

void LayoutCases::AddAttention() {
  const uint64_t bytes = AttentionOperands::BytesOf(kTokens);
  if (bytes * 2 > memory_.state_bytes()) return;
  const Caller caller = [this](const PageOffsets& offsets, uint64_t page_bytes) {
    auto sequences = std::make_shared<std::vector<AttentionOperands>>();
    for (const std::vector<uint64_t>& pages : offsets) {
      std::vector<uint64_t> groups;  // kernels see groups, whatever the page
      for (uint64_t x = 0; x < AttentionOperands::BytesOf(kTokens);
           x += AttentionOperands::kGroupBytes) {
        groups.push_back(pages[x / page_bytes] + x % page_bytes);
      }
      sequences->emplace_back(memory_.state(), std::move(groups));
    }
    return [members = members_, kernel = kernels_.attention_split, sequences,
            threads = static_cast<size_t>(crew_.threads())](int member) {
      Member& mine = (*members)[static_cast<size_t>(member)];
      for (auto i = static_cast<size_t>(member); i < sequences->size(); i += threads) {
        for (uint32_t split = 0; split < kTokens / kSplitTokens; ++split) {
          for (uint32_t head = 0; head < AttentionOperands::kKvHeads; ++head) {
            kernel((*sequences)[i].Decode(kTokens - 1, split, head, &mine.attention));
          }
        }
      }
    };
  };
  AddPageSize("attention", bytes, AttentionOperands::kGroupBytes,
              AttentionOperands::FloorOf(kTokens, 1, true), caller);
}

}  // namespace

std::vector<LayoutCase> MakeLayoutCases(const KernelTable& kernels, Crew& crew,
                                        const BenchMemory& memory) {
  LayoutCases cases(kernels, crew, memory);
  cases.AddScan();
  cases.AddAttention();
  return cases.Take();
}

}  // namespace tessera
