// SPDX-License-Identifier: Apache-2.0
#include "template/message_ends.h"

#include <algorithm>
#include <limits>

namespace tessera::jinja {

void MessageEnds::Watch(const std::vector<Value>& messages) {
  parts_.resize(messages.size());
  for (size_t i = 0; i < messages.size(); ++i) {
    indices_.emplace(messages[i].identity(), i);
  }
}

void MessageEnds::IterationEnded(const void* item_identity, size_t begin, size_t end) {
  const auto found = indices_.find(item_identity);
  if (found == indices_.end() || begin == end) {
    return;
  }
  parts_[found->second] = {.written = true, .begin = begin, .end = end};
}

std::vector<std::optional<size_t>> MessageEnds::Ends() const {
  std::vector<std::optional<size_t>> ends(parts_.size());
  // Where the first part of a later message begins: an end beyond it would tell of that one.
  size_t later = std::numeric_limits<size_t>::max();
  for (size_t i = parts_.size(); i-- > 0;) {
    if (parts_[i].written && parts_[i].end <= later) {
      ends[i] = parts_[i].end;
    } else if (!parts_[i].written && i + 1 < parts_.size() && parts_[i + 1].written &&
               parts_[i + 1].begin <= later) {
      ends[i] = parts_[i + 1].begin;
    }
    if (parts_[i].written) {
      later = std::min(later, parts_[i].begin);
    }
  }
  return ends;
}

}  // namespace tessera::jinja
