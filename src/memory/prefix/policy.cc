// SPDX-License-Identifier: Apache-2.0
#include "memory/prefix/policy.h"

#include <fmt/format.h>

#include <charconv>

namespace tessera {
namespace {

// All of `text` as a number of at least 1.
bool ParseCount(std::string_view text, uint32_t* count) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), *count);
  return error == std::errc() && end == text.data() + text.size() && *count >= 1;
}

// All of `text` as a number in (0, 1].
bool ParseShare(std::string_view text, double* share) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), *share);
  return error == std::errc() && end == text.data() + text.size() && *share > 0 && *share <= 1;
}

Status Unknown(std::string_view what, std::string_view text, std::string_view expected) {
  return InvalidArgument(fmt::format("{} '{}': expected {}", what, text, expected));
}

}  // namespace

Result<PlacementSpec> PlacementSpec::Parse(std::string_view text) {
  using enum Kind;
  if (text == "default") return PlacementSpec{kDefault};
  if (text == "tail") return PlacementSpec{kTail};
  if (text == "tail+branch") return PlacementSpec{kTailBranch};
  PlacementSpec spec{kDense};
  constexpr std::string_view kPrefix = "dense:";
  if (text.starts_with(kPrefix) && ParseCount(text.substr(kPrefix.size()), &spec.dense_tokens)) {
    return spec;
  }
  return Unknown("placement", text, "default, tail, tail+branch or dense:N with N from 1 tokens");
}

std::string PlacementSpec::ToString() const {
  switch (kind) {
    case Kind::kDefault:
      return "default";
    case Kind::kTail:
      return "tail";
    case Kind::kTailBranch:
      return "tail+branch";
    case Kind::kDense:
      return fmt::format("dense:{}", dense_tokens);
  }
  return {};
}

Result<EvictionPolicy> ParseEvictionPolicy(std::string_view text) {
  for (EvictionPolicy policy :
       {EvictionPolicy::kValue, EvictionPolicy::kLru, EvictionPolicy::kFlop}) {
    if (text == EvictionPolicyName(policy)) return policy;
  }
  return Unknown("eviction", text, "value, lru or flop");
}

std::string_view EvictionPolicyName(EvictionPolicy policy) {
  switch (policy) {
    case EvictionPolicy::kValue:
      return "value";
    case EvictionPolicy::kLru:
      return "lru";
    case EvictionPolicy::kFlop:
      return "flop";
  }
  return "unknown";
}

Result<RetentionSpec> RetentionSpec::Parse(std::string_view text) {
  using enum Kind;
  constexpr std::string_view kExpected =
      "off, producer[:n], after[:n,share] or strict, with n from 1 and share in (0, 1]";
  if (text == "off") return RetentionSpec{kOff};
  if (text == "strict") return RetentionSpec{kStrict};
  const size_t colon = text.find(':');
  const std::string_view name = text.substr(0, colon);
  if (name != "producer" && name != "after") return Unknown("retention", text, kExpected);
  RetentionSpec spec{name == "after" ? kAfter : kProducer};
  if (colon == std::string_view::npos) return spec;
  std::string_view rest = text.substr(colon + 1);
  const size_t comma = rest.find(',');
  if (comma != std::string_view::npos) {
    if (spec.kind != kAfter || !ParseShare(rest.substr(comma + 1), &spec.share)) {
      return Unknown("retention", text, kExpected);
    }
    rest = rest.substr(0, comma);
  }
  if (!ParseCount(rest, &spec.wanted_by)) return Unknown("retention", text, kExpected);
  return spec;
}

std::string RetentionSpec::ToString() const {
  switch (kind) {
    case Kind::kOff:
      return "off";
    case Kind::kProducer:
      return fmt::format("producer:{}", wanted_by);
    case Kind::kAfter:
      return fmt::format("after:{},{}", wanted_by, share);
    case Kind::kStrict:
      return "strict";
  }
  return {};
}

}  // namespace tessera
