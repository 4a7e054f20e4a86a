// SPDX-License-Identifier: Apache-2.0
#include "memory/geometry/organisation.h"

#include <fmt/format.h>

#include <array>
#include <charconv>
#include <cmath>

#include "memory/geometry/organisation_builders.h"

namespace tessera {
namespace {

using Kind = OrganisationSpec::Kind;

constexpr uint32_t kMaxBlockTokens = 1u << 20;

struct Builder {
  Kind kind;
  std::string_view name;
  std::string_view option;  // the one it takes: "block", "split" or "page"
  void (*build)(const StateShape&, const OrganisationSpec&, Organisation*);
};

constexpr std::array<Builder, 5> kBuilders = {{
    {Kind::kS0, "s0", "block", geometry::BuildS0},
    {Kind::kS1, "s1", "block", geometry::BuildS1},
    {Kind::kS2, "s2", "block", geometry::BuildS2},
    {Kind::kD0, "d0", "split", geometry::BuildD0},
    {Kind::kS3, "s3", "page", geometry::BuildS3},
}};

const Builder& BuilderOf(Kind kind) {
  for (const Builder& builder : kBuilders) {
    if (builder.kind == kind) return builder;
  }
  TESSERA_CHECK(false && "a kind without a builder");
  return kBuilders[0];
}

template <typename T>
bool ParseNumber(std::string_view text, T* value) {
  auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), *value);
  return error == std::errc() && end == text.data() + text.size();
}

Status ValidateTokens(std::string_view name, uint32_t tokens) {
  if (tokens > 0 && tokens % kGroupTokens == 0 && tokens <= kMaxBlockTokens) return Status::Ok();
  return InvalidArgument(
      fmt::format("organisation: {} must be a positive multiple of {} up to {}; it is {}", name,
                  kGroupTokens, kMaxBlockTokens, tokens));
}

Status ValidateSpec(const OrganisationSpec& spec) {
  TESSERA_RETURN_IF_ERROR(ValidateTokens("block", spec.block_tokens));
  TESSERA_RETURN_IF_ERROR(ValidateTokens("page", spec.page_tokens));
  const double share = std::round(spec.split * static_cast<double>(kShareScale));
  if (!(share >= 1 && share <= static_cast<double>(kShareScale - 1))) {
    return InvalidArgument(fmt::format(
        "organisation: split must lie between 0.000001 and 0.999999; it is {}", spec.split));
  }
  return Status::Ok();
}

Status ParseOption(const Builder& builder, std::string_view option, OrganisationSpec* spec) {
  const size_t equals = option.find('=');
  const std::string_view key = option.substr(0, equals);
  if (key != builder.option) {
    return InvalidArgument(fmt::format("organisation {}: unknown option '{}'; it takes '{}='",
                                       builder.name, key, builder.option));
  }
  const std::string_view value =
      equals == std::string_view::npos ? std::string_view() : option.substr(equals + 1);
  const bool parsed = key == "block"  ? ParseNumber(value, &spec->block_tokens)
                      : key == "page" ? ParseNumber(value, &spec->page_tokens)
                                      : ParseNumber(value, &spec->split);
  if (!parsed) {
    return InvalidArgument(
        fmt::format("organisation {}: '{}' is not a number for '{}'", builder.name, value, key));
  }
  return ValidateSpec(*spec);
}

// ⌊value · numerator / denominator⌋ without a 128-bit product; the parts of a budget stay exact.
uint64_t MultiplyDivide(uint64_t value, uint64_t numerator, uint64_t denominator) {
  return value / denominator * numerator + value % denominator * numerator / denominator;
}

uint64_t SaturatingMultiply(uint64_t a, uint64_t b) {
  uint64_t product = 0;
  return __builtin_mul_overflow(a, b, &product) ? std::numeric_limits<uint64_t>::max() : product;
}

// The least budget that gives `bytes` to a pool whose part is ⌊B·share/scale⌋, or, for the last
// pool beside one with `share`, B − ⌊B·share/scale⌋.
uint64_t BudgetForPool(uint64_t bytes, uint64_t share, bool takes_rest) {
  if (bytes == 0) return 0;
  const uint64_t part = takes_rest ? kShareScale - share : share;
  // ⌊B·p/s⌋ >= b  <=>  B >= ⌈b·s/p⌉;  ⌈B·p/s⌉ >= b  <=>  B >= ⌊(b-1)·s/p⌋ + 1.
  const uint64_t wanted = takes_rest ? bytes - 1 : bytes;
  if (wanted / part > std::numeric_limits<uint64_t>::max() / kShareScale - 1) {
    return std::numeric_limits<uint64_t>::max();
  }
  const uint64_t whole = wanted / part * kShareScale;
  const uint64_t rest = wanted % part * kShareScale;
  return takes_rest ? whole + rest / part + 1 : whole + DivideUp(rest, part);
}

Status SetPageCount(uint64_t pool_bytes, const Organisation& table, size_t index, PoolTable* pool) {
  const uint64_t page_bytes = pool->unit_bytes * table.planes;
  const uint64_t pages = pool_bytes / page_bytes;
  if (pages == 0) {
    std::array<uint64_t, 2> one_each = {1, 1};
    return NoMemory(fmt::format(
        "organisation {}: one page of pool '{}' takes {} bytes ({} planes of {}), its share of the "
        "budget is {}; the budget must be at least {} bytes",
        table.spec.ToString(), pool->name, page_bytes, table.planes, pool->unit_bytes, pool_bytes,
        BudgetForPages(table, std::span(one_each).first(table.pools.size()))));
  }
  const bool slots = static_cast<int>(index) == table.state_pool && table.slots_per_page > 0;
  const uint64_t most = kMaxPoolIndices / (slots ? table.slots_per_page : 1);
  if (pages > most) {
    return InvalidArgument(fmt::format(
        "organisation {}: the budget would cut pool '{}' into {} pages of {} bytes; at most {} are "
        "supported",
        table.spec.ToString(), pool->name, pages, page_bytes, most));
  }
  pool->page_count = static_cast<uint32_t>(pages);
  return Status::Ok();
}

}  // namespace

Result<OrganisationSpec> OrganisationSpec::Parse(std::string_view text) {
  const size_t colon = text.find(':');
  const std::string_view name = text.substr(0, colon);
  for (const Builder& builder : kBuilders) {
    if (builder.name != name) continue;
    OrganisationSpec spec;
    spec.kind = builder.kind;
    if (colon != std::string_view::npos) {
      TESSERA_RETURN_IF_ERROR(ParseOption(builder, text.substr(colon + 1), &spec));
    }
    return spec;
  }
  return InvalidArgument(fmt::format("organisation '{}' is not one of s0, s1, s2, d0, s3", name));
}

std::string OrganisationSpec::ToString() const {
  const Builder& builder = BuilderOf(kind);
  const OrganisationSpec defaults;
  std::string text(builder.name);
  if (builder.option == "block" && block_tokens != defaults.block_tokens) {
    text += fmt::format(":block={}", block_tokens);
  }
  if (builder.option == "page" && page_tokens != defaults.page_tokens) {
    text += fmt::format(":page={}", page_tokens);
  }
  if (builder.option == "split" && split != defaults.split) text += fmt::format(":split={}", split);
  return text;
}

Result<Organisation> DescribeOrganisation(const OrganisationSpec& spec, const StateShape& shape) {
  TESSERA_RETURN_IF_ERROR(shape.Validate());
  TESSERA_RETURN_IF_ERROR(ValidateSpec(spec));
  Organisation table;
  table.spec = spec;
  table.planes = shape.planes();
  BuilderOf(spec.kind).build(shape, spec, &table);
  return table;
}

Result<Organisation> MakeOrganisation(const OrganisationSpec& spec, const StateShape& shape,
                                      uint64_t budget_bytes) {
  TESSERA_ASSIGN_OR_RETURN(Organisation table, DescribeOrganisation(spec, shape));
  const std::vector<uint64_t> bytes = PoolBytes(table, budget_bytes);
  for (size_t i = 0; i < table.pools.size(); ++i) {
    TESSERA_RETURN_IF_ERROR(SetPageCount(bytes[i], table, i, &table.pools[i]));
  }
  return table;
}

std::vector<uint64_t> PoolBytes(const Organisation& table, uint64_t budget_bytes) {
  std::vector<uint64_t> bytes;
  uint64_t left_bytes = budget_bytes;
  for (size_t i = 0; i < table.pools.size(); ++i) {
    const bool last = i + 1 == table.pools.size();
    bytes.push_back(last ? left_bytes
                         : MultiplyDivide(budget_bytes, table.pools[i].share, kShareScale));
    left_bytes -= bytes.back();
  }
  return bytes;
}

uint64_t BudgetForPages(const Organisation& table, std::span<const uint64_t> pages) {
  TESSERA_CHECK(pages.size() == table.pools.size() && pages.size() <= 2);
  uint64_t budget_bytes = 0;
  for (size_t i = 0; i < pages.size(); ++i) {
    const bool last = i + 1 == pages.size();
    const uint64_t share = last ? (i == 0 ? 0 : table.pools[0].share) : table.pools[i].share;
    const uint64_t bytes =
        SaturatingMultiply(pages[i], table.page_bytes_all_planes(static_cast<int>(i)));
    budget_bytes = std::max(budget_bytes, BudgetForPool(bytes, share, last));
  }
  return budget_bytes;
}

uint64_t StateSetBytes(const Organisation& table, uint64_t attention_blocks, uint32_t block_tokens,
                       uint64_t checkpoints) {
  uint64_t bytes = 0;
  if (table.attention_pool >= 0) {
    bytes += attention_blocks * table.AttentionPages(block_tokens) *
             table.page_bytes_all_planes(table.attention_pool);
  }
  if (table.state_pool >= 0) {
    uint64_t pages = checkpoints * table.state_pages;
    if (table.slots_per_page > 0) pages += DivideUp(checkpoints, table.slots_per_page);
    bytes += pages * table.page_bytes_all_planes(table.state_pool);
  }
  return bytes;
}

}  // namespace tessera
