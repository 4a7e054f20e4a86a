// SPDX-License-Identifier: Apache-2.0
//
// NameIndex finds the position of a name in a list. It is sorted rather than hashed because the
// names come from a file: crafted names make a hash table quadratic, and a sort does not care.
//
// The names must outlive the index. Threads: const after Build.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

namespace tessera {

class NameIndex {
 public:
  // Returns a name that occurs twice, if there is one (the index is then not usable).
  std::optional<std::string_view> Build(std::span<const std::string_view> names);
  std::optional<size_t> Find(std::string_view name) const;

 private:
  struct Entry {
    std::string_view name;
    size_t position;
  };
  std::vector<Entry> entries_;  // by name
};

}  // namespace tessera
