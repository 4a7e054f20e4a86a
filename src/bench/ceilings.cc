// SPDX-License-Identifier: Apache-2.0
#include "bench/ceilings.h"

#include <algorithm>
#include <utility>

#include "base/bytes.h"

namespace tessera {
namespace {

constexpr uint64_t kGranule = 16 * kKiB;      // what the loops want a multiple of
constexpr uint64_t kCacheBytes = 256 * kKiB;  // in every L2 there is, beyond every L1
constexpr uint64_t kProductRounds = uint64_t{1} << 14;

// Member's part of `bytes`, a multiple of kGranule.
uint64_t PartBytes(uint64_t bytes, int members) {
  const uint64_t part = bytes / static_cast<uint64_t>(members) / kGranule * kGranule;
  return std::max(part, kGranule);
}

}  // namespace

bool Ceilings::Line::is_bytes() const {
  return what.starts_with("read") || what == "update" || what == "copy";
}

Ceilings::Ceilings(const CeilingLoops& loops, Crew& crew, const BenchMemory& memory) : crew_(crew) {
  AddMemory(loops, memory);
  AddProducts(loops);
}

void Ceilings::AddLine(std::string what, std::string variant, double amount,
                       std::function<void(int)> call) {
  Line line;
  line.what = std::move(what);
  line.variant = std::move(variant);
  line.amount = amount;
  line.bench.name = "ceiling." + line.what;
  line.bench.crew = &crew_;
  line.bench.call = std::move(call);
  lines_.push_back(std::move(line));
}

void Ceilings::AddMemory(const CeilingLoops& loops, const BenchMemory& memory) {
  const int members = threads();
  const uint64_t part = PartBytes(memory.matrix_bytes(), members);
  const auto all = static_cast<double>(part * static_cast<uint64_t>(members));
  const std::byte* weights = memory.weights();
  for (const ReadLoop& loop : loops.reads) {
    AddLine("read", loop.variant, all, [=, run = loop.run](int member) {
      run(weights + static_cast<uint64_t>(member) * part, part);
    });
  }
  std::byte* state = memory.state();
  const uint64_t state_part = PartBytes(memory.cold_bytes(), members);
  const auto state_all = static_cast<double>(state_part * static_cast<uint64_t>(members));
  for (const UpdateLoop& loop : loops.updates) {
    AddLine("update", loop.variant, state_all, [=, run = loop.run](int member) {
      run(state + static_cast<uint64_t>(member) * state_part, state_part);
    });
  }
  const uint64_t half = PartBytes(state_part, 2);
  for (const CopyLoop& loop : loops.copies) {
    AddLine("copy", loop.variant, state_all / 2, [=, run = loop.run](int member) {
      std::byte* from = state + static_cast<uint64_t>(member) * state_part;
      run(from, from + half, half);
    });
  }
  // Each member its own, read again and again.
  const uint64_t cache = std::min(kCacheBytes, part);
  for (const ReadLoop& loop : loops.reads.first(1)) {
    AddLine("read.L2", "", static_cast<double>(cache) * members, [=, run = loop.run](int member) {
      run(weights + static_cast<uint64_t>(member) * part, cache);
    });
  }
}

void Ceilings::AddProducts(const CeilingLoops& loops) {
  const std::pair<const char*, const ProductLoop*> products[] = {
      {"fma", &loops.fma}, {"bf16", &loops.bf16}, {"int8", &loops.int8}};
  for (const auto& [what, loop] : products) {
    if (loop->run == nullptr) continue;
    const double operations =
        loop->operations_per_round * static_cast<double>(kProductRounds) * threads();
    AddLine(what, "", operations, [run = loop->run](int) { run(kProductRounds); });
  }
}

void Ceilings::Round() {
  for (Line& line : lines_) Measure(&line.bench);
  MarkBest();
}

void Ceilings::MarkBest() {
  for (Line& line : lines_) line.best = line.rate() >= BestRate(line.what);
}

double Ceilings::BestRate(const std::string& what) const {
  double best = 0;
  for (const Line& line : lines_) {
    if (line.what == what && !line.bench.seconds.empty()) best = std::max(best, line.rate());
  }
  return best;
}

MachineRates Ceilings::Rates() const {
  MachineRates rates;
  rates.read = BestRate("read");
  rates.update = BestRate("update");
  rates.cache = BestRate("read.L2");
  rates.operations = {BestRate("fma"), BestRate("bf16"), BestRate("int8")};
  // Without an instruction for bf16 a product of them is one of fp32.
  double& bf16 = rates.operations[static_cast<size_t>(Pipe::kBf16)];
  if (bf16 == 0) bf16 = rates.operations[static_cast<size_t>(Pipe::kFma)];
  return rates;
}

}  // namespace tessera
