// SPDX-License-Identifier: Apache-2.0
//
// ApiKeys are the keys a server answers to. Which of them a request came with is known by its
// number, never by its text: a key is in no message, list or log.
//
// K1  Comparing takes the same time whatever key is given and wherever it differs: digests are
//     compared, all of each, for every key.
// K2  The isolation key of an API key is SHA-256 over ‖ of parts, each after its length in 8 bytes,
//     little-endian: a name of the purpose, and the key. So who reads it from memory or a core file
//     does not have the key, no key and no other purpose make the same one, and it is the same after
//     a restart.
//
// Failure: kInvalidArgument for a key that is empty or has what a header cannot carry, kIo for a
// file that cannot be read, naming file and line. Threads: const after construction.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace tessera {

inline constexpr size_t kApiKeyBytesMax = 1024;
inline constexpr size_t kApiKeysMax = 4096;

class ApiKeys {
 public:
  // None: whoever reaches the port may ask.
  ApiKeys() = default;
  // Twice the same key is once.
  static Result<ApiKeys> Create(const std::vector<std::string>& keys);

  bool open() const { return digests_.empty(); }
  // The number of the key in `Authorization: Bearer KEY`.
  std::optional<size_t> Find(std::string_view authorization) const;
  // 32 bytes.
  const std::string& isolation_key(size_t key) const { return isolation_keys_[key]; }

 private:
  using Digest = std::array<uint8_t, 32>;
  std::vector<Digest> digests_;
  std::vector<std::string> isolation_keys_;
};

// One key a line; empty lines and lines that begin with # are none.
Result<std::vector<std::string>> ReadApiKeyFile(const std::string& path);

}  // namespace tessera
