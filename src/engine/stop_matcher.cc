// SPDX-License-Identifier: Apache-2.0
#include "engine/stop_matcher.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace tessera {

StopMatcher::StopMatcher(std::vector<std::string> stops) : stops_(std::move(stops)) {
  size_t longest = 0;
  for (const std::string& stop : stops_) {
    TESSERA_CHECK(!stop.empty());
    longest = std::max(longest, stop.size());
  }
  held_.reserve(longest + 64);
}

size_t StopMatcher::MatchEndingAt(size_t end) const {
  size_t start = std::string::npos;
  const std::string_view before = std::string_view(held_).substr(0, end);
  for (const std::string& stop : stops_) {
    if (before.ends_with(stop)) start = std::min(start, end - stop.size());
  }
  return start;
}

size_t StopMatcher::HoldFrom() const {
  size_t from = held_.size();
  for (const std::string& stop : stops_) {
    for (size_t length = std::min(stop.size() - 1, held_.size()); length > 0; --length) {
      if (!std::string_view(held_).ends_with(std::string_view(stop).substr(0, length))) continue;
      from = std::min(from, held_.size() - length);
      break;
    }
  }
  return from;
}

std::string StopMatcher::Append(std::string piece) {
  if (matched_) return {};
  if (stops_.empty()) return piece;
  const size_t old_size = held_.size();
  held_ += piece;
  for (size_t end = old_size + 1; end <= held_.size(); ++end) {
    const size_t start = MatchEndingAt(end);
    if (start == std::string::npos) continue;
    matched_ = true;
    std::string text = held_.substr(0, start);
    held_.clear();
    return text;
  }
  const size_t from = HoldFrom();
  std::string text = held_.substr(0, from);
  held_.erase(0, from);
  return text;
}

std::string StopMatcher::Finish() {
  std::string text = std::move(held_);
  held_.clear();
  return text;
}

}  // namespace tessera
