// SPDX-License-Identifier: Apache-2.0
#include "bench/step_bench.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <utility>

#include "base/bytes.h"
#include "bench/ceilings.h"
#include "bench/decode_run.h"
#include "bench/model_floor.h"
#include "compute/gguf/gguf_file.h"
#include "compute/kernels/kernel_table.h"
#include "compute/model/model.h"
#include "port/cpu.h"
#include "port/float_environment.h"

namespace tessera {
namespace {

constexpr uint32_t kWarmSteps = 2;
// Ceilings need no more than what "from memory" takes.
constexpr uint64_t kCeilingStateBytes = 256 * kMiB;

std::vector<OrganisationSpec> DefaultOrganisations() {
  std::vector<OrganisationSpec> all;
  for (uint32_t tokens : {16u, 32u, 64u, 128u, 256u, 512u}) {
    OrganisationSpec s3;
    s3.page_tokens = tokens;
    all.push_back(s3);
  }
  using Kind = OrganisationSpec::Kind;
  for (Kind kind : {Kind::kS2, Kind::kS1, Kind::kD0, Kind::kS0}) {
    OrganisationSpec spec;
    spec.kind = kind;
    all.push_back(spec);
  }
  return all;
}

class StepBench {
 public:
  StepBench(const StepBenchOptions& options, const Model& model, const KernelTable& kernels,
            Crew& crew, const BenchMemory& memory, StepBenchReport* report)
      : options_(options),
        model_(model),
        crew_(crew),
        ceilings_(CeilingLoopsOf(kernels.isa), crew, memory),
        report_(report) {}

  Status MakeForward(const KernelTable& kernels);
  Status MeasureSpeeds();
  Status MeasureLayouts();

 private:
  void Say(const std::string& what) const {
    if (options_.progress) options_.progress(what);
  }
  DecodeRunOptions RunOptions(const OrganisationSpec& organisation, uint32_t sequences,
                              bool aged) const {
    return {organisation,
            options_.state_type,
            sequences,
            options_.context_tokens,
            options_.steps + kWarmSteps,
            aged};
  }
  Result<std::unique_ptr<DecodeRun>> Start(const DecodeRunOptions& run);
  double Step(DecodeRun* run) { return run->Step(&*forward_, crew_.threads()).seconds(); }
  Status CompareOnce(const OrganisationSpec& organisation, StepLayout* layout);

  const StepBenchOptions& options_;
  const Model& model_;
  Crew& crew_;
  Ceilings ceilings_;
  std::optional<Forward> forward_;
  StepBenchReport* report_;
};

Status StepBench::MakeForward(const KernelTable& kernels) {
  uint32_t most = options_.compared_sequences;
  for (uint32_t sequences : options_.sequences) most = std::max(most, sequences);
  ForwardLimits limits;
  limits.rows = limits.sequences = limits.head_rows = most;
  limits.context_length = options_.context_tokens + options_.steps + kWarmSteps;
  TESSERA_ASSIGN_OR_RETURN(
      forward_, Forward::Create(model_, options_.state_type, kernels, crew_.pool(), limits));
  return Status::Ok();
}

// The first steps touch what was never touched, and are not kept.
Result<std::unique_ptr<DecodeRun>> StepBench::Start(const DecodeRunOptions& options) {
  TESSERA_ASSIGN_OR_RETURN(auto run, DecodeRun::Create(model_.shape(), options));
  for (uint32_t i = 0; i < kWarmSteps; ++i) Step(run.get());
  return run;
}

Status StepBench::MeasureSpeeds() {
  for (uint32_t sequences : options_.sequences) {
    StepSpeed speed;
    speed.sequences = sequences;
    speed.floor = StepFloor(model_, options_.state_type, sequences, options_.context_tokens);
    report_->speeds.push_back(std::move(speed));
  }
  for (uint32_t round = 0; round < options_.rounds; ++round) {
    ceilings_.Round();
    for (StepSpeed& speed : report_->speeds) {
      Say(fmt::format("round {} of {}: {} sequences", round + 1, options_.rounds, speed.sequences));
      TESSERA_ASSIGN_OR_RETURN(auto run,
                               Start(RunOptions(OrganisationSpec(), speed.sequences, false)));
      for (uint32_t i = 0; i < options_.steps; ++i) speed.seconds.Add(Step(run.get()));
    }
  }
  report_->rates = ceilings_.Rates();
  return Status::Ok();
}

Status StepBench::CompareOnce(const OrganisationSpec& organisation, StepLayout* layout) {
  OrganisationSpec s0;
  s0.kind = OrganisationSpec::Kind::kS0;
  const uint32_t sequences = options_.compared_sequences;
  TESSERA_ASSIGN_OR_RETURN(auto base, Start(RunOptions(s0, sequences, false)));
  TESSERA_ASSIGN_OR_RETURN(auto paged, Start(RunOptions(organisation, sequences, layout->aged)));
  Samples base_seconds, seconds;
  for (uint32_t i = 0; i < options_.steps; ++i) {
    base_seconds.Add(Step(base.get()));
    seconds.Add(Step(paged.get()));
  }
  layout->base_seconds.Add(base_seconds.Median());
  layout->seconds.Add(seconds.Median());
  layout->ratios.Add(seconds.Median() / base_seconds.Median());
  const Organisation& table = paged->store().organisation();
  if (table.state_pool >= 0) layout->unit_bytes = table.state_unit_bytes;
  const StoreStats stats = paged->store().Stats();
  layout->mean_run_bytes = stats.mean_run_bytes;
  layout->arena_bytes = stats.arena_bytes;
  return Status::Ok();
}

Status StepBench::MeasureLayouts() {
  if (options_.compared_sequences == 0) return Status::Ok();
  const std::vector<OrganisationSpec> organisations =
      options_.organisations.empty() ? DefaultOrganisations() : options_.organisations;
  for (const OrganisationSpec& organisation : organisations) {
    for (bool aged : {false, true}) {
      StepLayout layout;
      layout.organisation = organisation.ToString();
      layout.aged = aged;
      report_->layouts.push_back(std::move(layout));
    }
  }
  for (uint32_t round = 0; round < options_.rounds; ++round) {
    for (size_t i = 0; i < report_->layouts.size(); ++i) {
      StepLayout& layout = report_->layouts[i];
      Say(fmt::format("round {} of {}: {} {}", round + 1, options_.rounds, layout.organisation,
                      layout.aged ? "aged" : "fresh"));
      TESSERA_RETURN_IF_ERROR(CompareOnce(organisations[i / 2], &layout));
    }
  }
  return Status::Ok();
}

Status CheckOptions(const ModelShape& shape, const StepBenchOptions& options) {
  const uint64_t tokens = uint64_t{options.context_tokens} + options.steps + kWarmSteps;
  if (tokens > shape.context_length) {
    return InvalidArgument(fmt::format(
        "--context {} and {} steps are {} tokens; the model's context length is {}",
        options.context_tokens, options.steps + kWarmSteps, tokens, shape.context_length));
  }
  return Status::Ok();
}

}  // namespace

Result<StepBenchReport> RunStepBench(const std::string& model_path,
                                     const StepBenchOptions& options) {
  const KernelChoice choice = ChooseKernels(options.isa.c_str());
  if (choice.table == nullptr) {
    return InvalidArgument(fmt::format("--isa {}: {}", options.isa, choice.reason));
  }
  ScopedFloatEnvironment environment;
  StepBenchReport report;
  report.threads = options.threads > 0 ? options.threads : UsableCpuCount();
  TESSERA_ASSIGN_OR_RETURN(const auto crew, Crew::Create(report.threads));
  TESSERA_ASSIGN_OR_RETURN(const GgufFile file, GgufFile::Open(model_path));
  TESSERA_ASSIGN_OR_RETURN(const auto model, Model::Load(file, crew->pool()));
  TESSERA_RETURN_IF_ERROR(CheckOptions(model->shape(), options));
  TESSERA_ASSIGN_OR_RETURN(const BenchMemory memory,
                           BenchMemory::Map({.state_bytes = kCeilingStateBytes}));
  report.model = model->shape().name;
  report.cpu = CpuModelName();
  report.isa = choice.table->isa;
  report.context_tokens = options.context_tokens;
  report.compared_sequences = options.compared_sequences;
  report.state_type = options.state_type;
  report.weight_bytes = static_cast<uint64_t>(WeightFloor(*model, 1).read_bytes);
  report.last_level_bytes = LastLevelCacheBytes();
  report.has_recurrent_state = model->shape().has_ssm();
  StepBench bench(options, *model, *choice.table, *crew, memory, &report);
  TESSERA_RETURN_IF_ERROR(bench.MakeForward(*choice.table));
  TESSERA_RETURN_IF_ERROR(bench.MeasureSpeeds());
  TESSERA_RETURN_IF_ERROR(bench.MeasureLayouts());
  return report;
}

}  // namespace tessera
