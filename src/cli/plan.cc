// SPDX-License-Identifier: Apache-2.0
//
// tessera plan: the state memory of a model file or of a named geometry, from metadata alone. The
// plan goes to stdout as a table or as JSON.
#include "memory/plan/plan.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <memory>
#include <optional>

#include "base/bytes.h"
#include "cli/command_line.h"
#include "cli/plan_report.h"
#include "cli/verbs.h"
#include "compute/gguf/gguf_file.h"
#include "compute/model/model_shape.h"
#include "compute/model/state_geometry.h"

namespace tessera::cli {
namespace {

struct PlanFlags {
  std::string model;
  std::string geometry;
  std::string budget;
  std::string state;  // empty: fp32, with bf16 beside it
  std::vector<std::string> organisations = {"s0", "s1", "s2", "d0", "s3"};
  std::vector<uint64_t> set = {16, 4};
  uint32_t users = 16;
  std::optional<uint32_t> context;
  uint32_t grid = 1;
  bool json = false;
};

Status Named(const char* flag, const Status& status) {
  return {status.code(), fmt::format("{}: {}", flag, status.message())};
}

Result<StateGeometry> ReadFileGeometry(const std::string& path, PlanSource* source) {
  TESSERA_ASSIGN_OR_RETURN(const GgufFile file, GgufFile::Open(path));
  TESSERA_ASSIGN_OR_RETURN(StateGeometry geometry, ReadStateGeometry(file));
  source->architecture = std::string(file.GetString("general.architecture").value());
  const Result<ModelShape> shape = ReadModelShape(file);
  source->runs = shape.has_value();
  if (!shape.has_value()) source->why_not = shape.error().message();
  return geometry;
}

Result<StateGeometry> ReadGeometry(const PlanFlags& flags, PlanSource* source) {
  if (flags.model.empty() == flags.geometry.empty()) {
    return InvalidArgument("plan: expected either MODEL or --geometry NAME");
  }
  if (!flags.model.empty()) return ReadFileGeometry(flags.model, source);
  Result<StateGeometry> geometry = FindGeometry(flags.geometry);
  if (!geometry.has_value()) return Named("--geometry", geometry.error());
  return geometry;
}

Result<PlanOptions> ReadFlags(const PlanFlags& flags) {
  PlanOptions options;
  options.users = flags.users;
  if (flags.context == 0u) return InvalidArgument("--context: 0 tokens are no context");
  options.context_tokens = flags.context.value_or(0);
  options.checkpoint_grid = flags.grid;
  if (!flags.budget.empty()) {
    const Result<uint64_t> bytes = ParseBytes(flags.budget);
    if (!bytes) return Named("--budget", bytes.error());
    if (*bytes == 0) return InvalidArgument("--budget: 0 bytes hold no state");
    options.budget_bytes = *bytes;
  }
  for (const std::string& text : flags.organisations) {
    const Result<OrganisationSpec> spec = OrganisationSpec::Parse(text);
    if (!spec) return Named("--organisation", spec.error());
    options.organisations.push_back(*spec);
  }
  if (flags.set.size() != 2) {
    return InvalidArgument(
        fmt::format("--set: expected attention blocks and checkpoints, found {} number{}",
                    flags.set.size(), flags.set.size() == 1 ? "" : "s"));
  }
  options.set = {flags.set[0], flags.set[1]};
  return options;
}

// The state types to plan for, the one that is shown first.
Result<std::vector<StateType>> ReadStateTypes(const std::string& text) {
  if (text.empty()) return std::vector<StateType>{StateType::kF32, StateType::kBF16};
  const std::optional<StateType> type = ParseStateType(text);
  if (!type) return InvalidArgument(fmt::format("--state: '{}' is neither fp32 nor bf16", text));
  return std::vector<StateType>{*type};
}

Result<std::vector<Plan>> MakePlans(const PlanFlags& flags, PlanSource* source) {
  TESSERA_ASSIGN_OR_RETURN(PlanOptions options, ReadFlags(flags));
  TESSERA_ASSIGN_OR_RETURN(const std::vector<StateType> types, ReadStateTypes(flags.state));
  TESSERA_ASSIGN_OR_RETURN(options.geometry, ReadGeometry(flags, source));
  std::vector<Plan> plans;
  for (StateType type : types) {
    options.geometry.shape.state_type = type;
    TESSERA_ASSIGN_OR_RETURN(Plan plan, MakePlan(options));
    plans.push_back(std::move(plan));
  }
  return plans;
}

int RunPlan(const PlanFlags& flags) {
  PlanSource source;
  const Result<std::vector<Plan>> plans = MakePlans(flags, &source);
  if (!plans.has_value()) return ReportError(plans.error());
  // A budget that none of them can use is no plan.
  const Plan& shown = plans->front();
  Status none = shown.organisations.back().fits;
  for (const OrganisationPlan& planned : shown.organisations) {
    if (planned.fits.ok()) none = Status::Ok();
  }
  if (!none.ok()) return ReportError(none);
  return PrintResult(flags.json ? PlanJson(source, *plans) + '\n' : PlanText(source, *plans));
}

std::string GeometryNames() {
  std::string names;
  for (const StateGeometry& geometry : NamedGeometries()) {
    names += fmt::format("{}{}", names.empty() ? "" : ", ", geometry.name);
  }
  return names;
}

void AddLoadFlags(CLI::App& command, PlanFlags* flags) {
  const auto add = [&](const char* name, auto& value, const char* text, const std::string& help) {
    return command.add_option(name, value, help)->option_text(text)->group("Load");
  };
  add("--users", flags->users, "N", "Sequences together (default 16)");
  add("--context", flags->context, "L",
      "Tokens of each (default: 8192, or the model's context if that is shorter)");
  add("--set", flags->set, "A,R",
      "Reusable state held together, for comparing organisations: blocks of 512 tokens of "
      "attention, and checkpoints (default 16,4)")
      ->delimiter(',');
  add("--checkpoint-grid", flags->grid, "N", "Checkpoints at multiples of N tokens (default 1)");
}

void AddMemoryFlags(CLI::App& command, PlanFlags* flags) {
  const auto add = [&](const char* name, auto& value, const char* text, const std::string& help) {
    return command.add_option(name, value, help)->option_text(text)->group("Memory");
  };
  add("--budget", flags->budget, "BYTES",
      "Bytes of state (4GiB, 512MiB; default: what the users need in the last organisation)");
  add("--organisation", flags->organisations, "LIST",
      "How state memory is cut up: s3[:page=16], s2, s1, s0[:block=512] or d0[:split=0.5] "
      "(default s0,s1,s2,d0,s3)")
      ->delimiter(',');
  add("--state", flags->state, "TYPE",
      "Recurrent state: fp32 or bf16 (default: fp32, with what bf16 changes)");
}

}  // namespace

Action AddPlan(CLI::App& command) {
  auto flags = std::make_shared<PlanFlags>();
  command.add_option("MODEL", flags->model,
                     "A GGUF file, or the first shard of a split one; only its metadata is read, "
                     "also of architectures the engine does not run");
  command.add_option("--geometry", flags->geometry, "Instead of a file, one of " + GeometryNames())
      ->option_text("NAME")
      ->group("Load");
  AddLoadFlags(command, flags.get());
  AddMemoryFlags(command, flags.get());
  command.add_flag("--json", flags->json, "Print the plan as one JSON object")->group("Other");
  return [flags] { return RunPlan(*flags); };
}

}  // namespace tessera::cli
