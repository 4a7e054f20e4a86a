// SPDX-License-Identifier: Apache-2.0
#include "cli/plan_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <nlohmann/json.hpp>
#include <sstream>

#include "base/bytes.h"

namespace tessera::cli {
namespace {

using nlohmann::json;

constexpr uint64_t kMany = std::numeric_limits<uint64_t>::max();
constexpr size_t kLineWidth = 96;
constexpr size_t kColumns = 5;  // organisations side by side
constexpr size_t kLabelWidth = 31;
constexpr size_t kColumnWidth = 13;

std::string TypeOf(const Plan& plan) {
  return std::string(StateTypeName(plan.geometry.shape.state_type));
}

// The words of `text` on lines, later ones under the first one's text.
std::string Wrapped(std::string_view mark, const std::string& text) {
  std::string lines;
  std::string line(mark);
  std::istringstream words(text);
  bool starts_line = true;
  for (std::string word; words >> word; starts_line = false) {
    if (!starts_line && line.size() + 1 + word.size() > kLineWidth) {
      lines += line + "\n";
      line = std::string(mark.size(), ' ');
      starts_line = true;
    }
    line += (starts_line ? "" : " ") + word;
  }
  return lines + line + "\n";
}

std::string HeadText(const PlanSource& source, const Plan& plan) {
  const StateGeometry& geometry = plan.geometry;
  const StateShape& shape = geometry.shape;
  std::string text = Wrapped(
      "model        ",
      fmt::format("{}: {} attention + {} recurrent layers in {} plane{}, width {}, context {}",
                  geometry.name, shape.attention_layers, shape.recurrent_layers, shape.planes(),
                  shape.planes() == 1 ? "" : "s", geometry.width, geometry.context_length));
  if (geometry.unchecked) {
    text += Wrapped("             ", "its dimensions are to be checked against the model's file");
  }
  if (source.architecture.empty()) return text;
  return text + Wrapped("             ",
                        source.runs ? fmt::format("{}; the engine runs it", source.architecture)
                                    : fmt::format("{}; the engine does not run it: {}",
                                                  source.architecture, source.why_not));
}

std::string BudgetText(const Plan& plan) {
  const std::string why = plan.budget_given
                              ? "as asked for"
                              : fmt::format("what {} user{} of {} tokens take in {}", plan.users,
                                            plan.users == 1 ? "" : "s", plan.context_tokens,
                                            plan.organisations.back().table.spec.ToString());
  std::string text = fmt::format("budget       {}, {}\n", FormatBytes(plan.budget_bytes), why);
  if (plan.rows.unit_bytes() > 0) {
    text += fmt::format("kept rows    {} of {}; {} for the pools\n", plan.kept_rows,
                        FormatBytes(plan.rows.unit_bytes()), FormatBytes(plan.pool_bytes));
  }
  return text;
}

std::string KindsText(const Plan& plan) {
  std::string text = fmt::format("{:<{}}{:>8}{:>14}{:>14}\n", "kind, state " + TypeOf(plan),
                                 kLabelWidth, "layers", "a layer", "the model");
  for (const KindPlan& kind : plan.kinds) {
    text += fmt::format("{:<{}}{:>8}{:>14}{:>14}\n",
                        fmt::format("{} of a {}", kind.name, kind.unit), kLabelWidth, kind.layers,
                        FormatBytes(kind.layer_bytes), FormatBytes(kind.model_bytes));
  }
  if (plan.checkpoint_price_tokens > 0) {
    text += fmt::format("a checkpoint takes as much as {:.0f} tokens of attention\n",
                        plan.checkpoint_price_tokens);
  }
  return text;
}

// A row of the table: what it is, and its cell for an organisation. "-" is "does not apply".
struct Row {
  std::string label;
  std::function<std::string(const OrganisationPlan&)> cell;
};

std::string Percent(const Taken& taken) { return fmt::format("{:.2f} %", taken.waste_percent()); }

std::string BytesOrNone(uint64_t bytes) { return bytes == kMany ? "none" : FormatBytes(bytes); }

// A count that needs the budget's pages.
std::string Count(const OrganisationPlan& planned, uint64_t count) {
  if (!planned.fits.ok()) return "-";
  return count == kMany ? "any" : fmt::format("{}", count);
}

const PoolTable* PoolOf(const OrganisationPlan& planned, int pool) {
  return pool < 0 ? nullptr : &planned.table.pools[static_cast<size_t>(pool)];
}

std::string UnitText(const PoolTable* pool) {
  return pool == nullptr ? "-" : FormatBytes(pool->unit_bytes);
}

std::string PagesText(const OrganisationPlan& planned) {
  if (!planned.fits.ok()) return "-";
  std::string text;
  for (const PoolTable& pool : planned.table.pools) {
    text += fmt::format("{}{}", text.empty() ? "" : "+", pool.page_count);
  }
  return text;
}

std::string SlotText(const Organisation& table) {
  return table.slot_bytes == 0 ? "-" : FormatBytes(table.slot_bytes);
}

void AddTaken(std::string label, Taken OrganisationPlan::*taken, std::vector<Row>* rows) {
  rows->push_back({std::move(label), [taken](const OrganisationPlan& planned) {
                     return FormatBytes((planned.*taken).bytes);
                   }});
  rows->push_back(
      {"  waste", [taken](const OrganisationPlan& planned) { return Percent(planned.*taken); }});
}

void AddPoolRows(std::vector<Row>* rows) {
  rows->push_back({"page of attention, a plane", [](const OrganisationPlan& planned) {
                     return UnitText(PoolOf(planned, planned.table.attention_pool));
                   }});
  rows->push_back({"page of state, a plane", [](const OrganisationPlan& planned) {
                     return UnitText(PoolOf(planned, planned.table.state_pool));
                   }});
  rows->push_back(
      {"slot, a plane", [](const OrganisationPlan& planned) { return SlotText(planned.table); }});
  rows->push_back({"pages in the budget", PagesText});
  rows->push_back({"arena", [](const OrganisationPlan& planned) {
                     return planned.fits.ok() ? FormatBytes(planned.arena_bytes) : "-";
                   }});
}

void AddObjectRows(const Plan& plan, std::vector<Row>* rows) {
  if (plan.geometry.shape.attention_layers > 0) {
    rows->push_back({"token of attention", [](const OrganisationPlan& planned) {
                       return FormatBytes(static_cast<uint64_t>(std::lround(planned.token_bytes)));
                     }});
    AddTaken(fmt::format("block of {} tokens", plan.set.block_tokens), &OrganisationPlan::block,
             rows);
  }
  if (plan.geometry.shape.recurrent_layers > 0) {
    AddTaken("checkpoint", &OrganisationPlan::checkpoint, rows);
  }
  AddTaken(fmt::format("sequence of {} tokens", plan.context_tokens), &OrganisationPlan::sequence,
           rows);
  AddTaken(fmt::format("set: {} blocks, {} checkpoints", plan.set.attention_blocks,
                       plan.set.checkpoints),
           &OrganisationPlan::set, rows);
}

void AddBudgetRows(const Plan& plan, std::vector<Row>* rows) {
  rows->push_back({"copies of the set in it",
                   [](const OrganisationPlan& planned) { return Count(planned, planned.copies); }});
  rows->push_back(
      {fmt::format("least prefix: {} token{}", plan.least_prefix_tokens,
                   plan.least_prefix_tokens == 1 ? "" : "s"),
       [](const OrganisationPlan& planned) { return FormatBytes(planned.least_prefix_bytes); }});
  rows->push_back(
      {fmt::format("longest context, {} users", plan.users),
       [](const OrganisationPlan& planned) { return Count(planned, planned.longest_context); }});
  rows->push_back({fmt::format("users of {} tokens", plan.context_tokens),
                   [](const OrganisationPlan& planned) { return Count(planned, planned.users); }});
  rows->push_back(
      {fmt::format("budget for {} users", plan.users), [](const OrganisationPlan& planned) {
         return BytesOrNone(planned.budget_for_users_bytes);
       }});
}

std::string TableText(const Plan& plan) {
  std::vector<Row> rows = {{"organisation", [](const OrganisationPlan& planned) {
                              return planned.table.spec.ToString();
                            }}};
  AddPoolRows(&rows);
  AddObjectRows(plan, &rows);
  AddBudgetRows(plan, &rows);
  std::string text;
  for (size_t first = 0; first < plan.organisations.size(); first += kColumns) {
    const size_t last = std::min(first + kColumns, plan.organisations.size());
    if (first > 0) text += "\n";
    for (const Row& row : rows) {
      text += fmt::format("{:<{}}", row.label, kLabelWidth);
      for (size_t i = first; i < last; ++i) {
        text += fmt::format(" {:>{}}", row.cell(plan.organisations[i]), kColumnWidth - 1);
      }
      text += "\n";
    }
  }
  for (const OrganisationPlan& planned : plan.organisations) {
    if (!planned.fits.ok()) text += Wrapped("", planned.fits.message());
  }
  return text;
}

// What another state type changes, in the last organisation. Nothing without recurrent layers.
std::string ComparedText(const Plan& plan) {
  if (plan.geometry.shape.recurrent_layers == 0) return {};
  const OrganisationPlan& planned = plan.organisations.back();
  return Wrapped(
      "", fmt::format(
              "With {} state in {}: a checkpoint of {}{}; {} users have contexts of up to {} "
              "tokens in {}, of {} tokens each they need {}.",
              TypeOf(plan), planned.table.spec.ToString(), FormatBytes(planned.checkpoint.bytes),
              plan.checkpoint_price_tokens > 0
                  ? fmt::format(", the price of {:.0f} tokens", plan.checkpoint_price_tokens)
                  : "",
              plan.users, Count(planned, planned.longest_context), FormatBytes(plan.budget_bytes),
              plan.context_tokens, BytesOrNone(planned.budget_for_users_bytes)));
}

json TakenJson(const Taken& taken) {
  return {{"bytes", taken.bytes},
          {"waste_bytes", taken.waste_bytes},
          {"waste_percent", taken.waste_percent()}};
}

// 2^64-1 stands for what no number says.
json CountJson(uint64_t count) { return count == kMany ? json() : json(count); }

json OrganisationJson(const OrganisationPlan& planned) {
  const Organisation& table = planned.table;
  json pools = json::array();
  for (size_t i = 0; i < table.pools.size(); ++i) {
    const uint64_t page_bytes = table.page_bytes_all_planes(static_cast<int>(i));
    pools.push_back({{"name", table.pools[i].name},
                     {"unit_bytes", table.pools[i].unit_bytes},
                     {"page_bytes", page_bytes},
                     {"pages", table.pools[i].page_count},
                     {"bytes", table.pools[i].page_count * page_bytes}});
  }
  return {{"organisation", table.spec.ToString()},
          {"error", planned.fits.ok() ? json() : json(planned.fits.message())},
          {"planes", table.planes},
          {"pools", pools},
          {"arena_bytes", planned.arena_bytes},
          {"state_pages", table.state_pages},
          {"slot_bytes", table.slot_bytes},
          {"slots_per_page", table.slots_per_page},
          {"token_bytes", planned.token_bytes},
          {"block", TakenJson(planned.block)},
          {"checkpoint", TakenJson(planned.checkpoint)},
          {"sequence", TakenJson(planned.sequence)},
          {"set", TakenJson(planned.set)},
          {"copies", CountJson(planned.copies)},
          {"least_prefix_bytes", CountJson(planned.least_prefix_bytes)},
          {"longest_context_tokens", planned.longest_context},
          {"users", planned.users},
          {"budget_for_users_bytes", CountJson(planned.budget_for_users_bytes)}};
}

json PagingJson(const PagingTrade& paging) {
  if (!paging.applies) return json();
  const double ratio = paging.switching_ratio();
  return {{"gain_per_block_bytes", paging.gain_per_block},
          {"loss_per_checkpoint_bytes", paging.loss_per_checkpoint},
          {"delta_bytes", paging.delta_bytes},
          {"switching_ratio", std::isfinite(ratio) ? json(ratio) : json()}};
}

json StateJson(const Plan& plan) {
  json kinds = json::array();
  for (const KindPlan& kind : plan.kinds) {
    kinds.push_back({{"kind", kind.name},
                     {"unit", kind.unit},
                     {"layers", kind.layers},
                     {"layer_bytes", kind.layer_bytes},
                     {"model_bytes", kind.model_bytes}});
  }
  json organisations = json::array();
  for (const OrganisationPlan& planned : plan.organisations) {
    organisations.push_back(OrganisationJson(planned));
  }
  json advice = json::array();
  for (const Advice& said : plan.advice) {
    advice.push_back({{"rule", said.rule}, {"text", said.text}});
  }
  return {{"kinds", kinds},
          {"checkpoint_price_tokens", plan.checkpoint_price_tokens},
          {"checkpoint_spacing_tokens", plan.checkpoint_spacing},
          {"budget_bytes", plan.budget_bytes},
          {"budget_given", plan.budget_given},
          {"kept_row_bytes", plan.rows.unit_bytes()},
          {"kept_rows", plan.kept_rows},
          {"pool_bytes", plan.pool_bytes},
          {"least_prefix_tokens", plan.least_prefix_tokens},
          {"unified_page_tokens", plan.unified_page_tokens},
          {"organisations", organisations},
          {"s0_minus_s1", PagingJson(plan.paging)},
          {"d0_best_split", plan.paging.applies ? json({{"split", plan.best_split.split},
                                                        {"copies", plan.best_split.copies}})
                                                : json()},
          {"s3_bound_bytes", plan.s3_bound_bytes},
          {"advice", advice}};
}

}  // namespace

std::string PlanText(const PlanSource& source, const std::vector<Plan>& plans) {
  const Plan& plan = plans.front();
  std::string text = HeadText(source, plan) + BudgetText(plan) + "\n" + KindsText(plan) + "\n" +
                     TableText(plan) + "\n";
  std::string compared;
  for (size_t i = 1; i < plans.size(); ++i) compared += ComparedText(plans[i]);
  if (!compared.empty()) text += compared + "\n";
  for (const Advice& said : plan.advice) text += Wrapped("- ", said.text);
  return text;
}

std::string PlanJson(const PlanSource& source, const std::vector<Plan>& plans) {
  const Plan& plan = plans.front();
  const StateGeometry& geometry = plan.geometry;
  json states = json::object();
  for (const Plan& each : plans) states[TypeOf(each)] = StateJson(each);
  const json report = {
      {"model",
       {{"name", geometry.name},
        {"architecture", source.architecture.empty() ? json() : json(source.architecture)},
        {"runs", source.architecture.empty() ? json() : json(source.runs)},
        {"why_not", source.why_not.empty() ? json() : json(source.why_not)},
        {"unchecked", geometry.unchecked},
        {"attention_layers", geometry.shape.attention_layers},
        {"recurrent_layers", geometry.shape.recurrent_layers},
        {"planes", geometry.shape.planes()},
        {"width", geometry.width},
        {"context_length", geometry.context_length}}},
      {"users", plan.users},
      {"context_tokens", plan.context_tokens},
      {"checkpoint_grid", plan.checkpoint_grid},
      {"set",
       {{"attention_blocks", plan.set.attention_blocks},
        {"checkpoints", plan.set.checkpoints},
        {"block_tokens", plan.set.block_tokens}}},
      {"states", states}};
  return report.dump(2, ' ', false, json::error_handler_t::replace);
}

}  // namespace tessera::cli
