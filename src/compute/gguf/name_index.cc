// SPDX-License-Identifier: Apache-2.0
#include "compute/gguf/name_index.h"

#include <algorithm>

namespace tessera {

std::optional<std::string_view> NameIndex::Build(std::span<const std::string_view> names) {
  entries_.clear();
  entries_.reserve(names.size());
  for (size_t i = 0; i < names.size(); ++i) entries_.push_back({names[i], i});
  std::sort(entries_.begin(), entries_.end(),
            [](const Entry& a, const Entry& b) { return a.name < b.name; });
  for (size_t i = 1; i < entries_.size(); ++i) {
    if (entries_[i].name == entries_[i - 1].name) return entries_[i].name;
  }
  return std::nullopt;
}

std::optional<size_t> NameIndex::Find(std::string_view name) const {
  auto at = std::lower_bound(entries_.begin(), entries_.end(), name,
                             [](const Entry& e, std::string_view n) { return e.name < n; });
  if (at == entries_.end() || at->name != name) return std::nullopt;
  return at->position;
}

}  // namespace tessera
