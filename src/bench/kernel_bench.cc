// SPDX-License-Identifier: Apache-2.0
#include "bench/kernel_bench.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <utility>

#include "bench/kernel_cases.h"
#include "port/clock.h"
#include "port/cpu.h"
#include "port/float_environment.h"

namespace tessera {
namespace {

double SecondsSince(uint64_t start_ns) { return static_cast<double>(NowNs() - start_ns) * 1e-9; }

// "gemm" is the beginning of "gemm.bf16", not of "gemma".
bool Begins(const std::string& name, const std::string& part) {
  return name.starts_with(part) && (name.size() == part.size() || name[part.size()] == '.');
}

class Selection {
 public:
  explicit Selection(const std::vector<std::string>& only) : only_(only) {}

  bool Wants(const std::string& name) {
    known_.insert(name.substr(0, name.find('.')));
    bool wanted = only_.empty();
    for (const std::string& part : only_) {
      if (!Begins(name, part)) continue;
      used_.insert(part);
      wanted = true;
    }
    return wanted;
  }
  // Whether every part chose something.
  Status Check() const {
    for (const std::string& part : only_) {
      if (used_.count(part) > 0) continue;
      std::string names;
      for (const std::string& name : known_) names += (names.empty() ? "" : ", ") + name;
      return InvalidArgument(
          fmt::format("--only: nothing is called '{}'; there are {}", part, names));
    }
    return Status::Ok();
  }

 private:
  const std::vector<std::string>& only_;
  std::set<std::string> used_, known_;
};

// The cases that go through state, each a part of it of its own. The others leave room unused that
// takes a second to map and that a small machine may not have.
bool WantsScattered(const std::vector<std::string>& only) {
  const auto scatters = [](const std::string& part) {
    const std::string family = part.substr(0, part.find('.'));
    return family == "layout" || family == "scan" || family.starts_with("attention");
  };
  return only.empty() || std::any_of(only.begin(), only.end(), scatters);
}

template <class Case, class NameOf>
void KeepWanted(Selection* selection, std::vector<Case>* cases, NameOf name_of) {
  std::vector<Case> kept;
  for (Case& one : *cases) {
    if (selection->Wants(name_of(one))) kept.push_back(std::move(one));
  }
  *cases = std::move(kept);
}

Status MakeCrews(const KernelBenchOptions& options, KernelBenchReport* report) {
  if (options.threads.empty()) return InvalidArgument("--threads: no number of threads is given");
  for (int threads : options.threads) {
    for (const auto& crew : report->crews) {
      if (crew->threads() == threads) {
        return InvalidArgument(fmt::format("--threads: {} is given twice", threads));
      }
    }
    TESSERA_ASSIGN_OR_RETURN(auto crew, Crew::Create(threads));
    report->crews.push_back(std::move(crew));
  }
  return Status::Ok();
}

void MakeCases(const KernelTable& kernels, KernelBenchReport* report) {
  for (const auto& crew : report->crews) {
    report->ceilings.emplace_back(CeilingLoopsOf(kernels.isa), *crew, report->memory);
    const KernelBenchContext context{kernels, *crew, report->memory};
    AddGemmCases(context, &report->kernels);
    AddAttentionCases(context, &report->kernels);
    AddRecurrentCases(context, &report->kernels);
    AddRowCases(context, &report->kernels);
    for (LayoutCase& layout : MakeLayoutCases(kernels, *crew, report->memory)) {
      report->layouts.push_back(std::move(layout));
    }
    if (crew->threads() == 1) {
      report->invariance = MakeInvarianceCases(kernels, *crew, report->memory);
    }
  }
}

Status Choose(const std::vector<std::string>& only, KernelBenchReport* report) {
  Selection selection(only);
  KeepWanted(&selection, &report->kernels, [](const BenchCase& c) { return c.name; });
  KeepWanted(&selection, &report->layouts, [](const LayoutCase& c) { return c.pair.base.name; });
  KeepWanted(&selection, &report->invariance,
             [](const InvarianceCase& c) { return c.pair.base.name; });
  return selection.Check();
}

// False when it was stopped before its end.
bool Round(const std::function<bool()>& stop, KernelBenchReport* report) {
  const auto go_on = [&] { return !stop || !stop(); };
  for (Ceilings& ceilings : report->ceilings) {
    if (!go_on()) return false;
    ceilings.Round();
  }
  for (BenchCase& bench : report->kernels) {
    if (!go_on()) return false;
    Measure(&bench);
  }
  for (InvarianceCase& bench : report->invariance) {
    if (!go_on()) return false;
    Measure(&bench.pair);
  }
  for (LayoutCase& bench : report->layouts) {
    if (!go_on()) return false;
    Measure(&bench.pair);
  }
  return true;
}

Status MeasureRounds(const KernelBenchOptions& options, uint64_t start_ns,
                     KernelBenchReport* report) {
  do {
    report->stopped = !Round(options.stop, report);
    report->seconds = SecondsSince(start_ns);
    if (report->stopped) break;
    ++report->rounds;
    if (options.progress) options.progress(report->rounds, report->seconds);
  } while (report->seconds < options.seconds);
  if (report->rounds > 0) return Status::Ok();
  return {StatusCode::kCancelled, "interrupted before the first round was over"};
}

}  // namespace

MachineRates KernelBenchReport::RatesFor(int threads) const {
  for (const Ceilings& one : ceilings) {
    if (one.threads() == threads) return one.Rates();
  }
  TESSERA_CHECK(false && "a crew without ceilings");
  return {};
}

Result<KernelBenchReport> RunKernelBench(const KernelBenchOptions& options) {
  const uint64_t start_ns = NowNs();
  const KernelChoice choice = ChooseKernels(options.isa.c_str());
  if (choice.table == nullptr) {
    return InvalidArgument(fmt::format("--isa {}: {}", options.isa, choice.reason));
  }
  ScopedFloatEnvironment environment;
  KernelBenchReport report;
  report.cpu = CpuModelName();
  report.isa = choice.table->isa;
  TESSERA_RETURN_IF_ERROR(MakeCrews(options, &report));
  BenchMemoryOptions memory = options.memory;
  memory.scattered = memory.scattered && WantsScattered(options.only);
  TESSERA_ASSIGN_OR_RETURN(report.memory, BenchMemory::Map(memory));
  report.matrix_bytes = report.memory.matrix_bytes();
  MakeCases(*choice.table, &report);
  TESSERA_RETURN_IF_ERROR(Choose(options.only, &report));
  TESSERA_RETURN_IF_ERROR(MeasureRounds(options, start_ns, &report));
  return report;
}

}  // namespace tessera
