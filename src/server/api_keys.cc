// SPDX-License-Identifier: Apache-2.0
#include "server/api_keys.h"

#include <fmt/format.h>
#include <openssl/crypto.h>
#include <openssl/sha.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <utility>

namespace tessera {
namespace {

constexpr std::string_view kLookUp = "tessera api key";
constexpr std::string_view kIsolation = "tessera isolation key";

void AppendPart(std::string_view part, std::string* to) {
  for (int shift = 0; shift < 64; shift += 8) {
    *to += static_cast<char>(static_cast<uint64_t>(part.size()) >> shift);
  }
  *to += part;
}

std::array<uint8_t, 32> Derive(std::string_view purpose, std::string_view key) {
  std::string text;
  AppendPart(purpose, &text);
  AppendPart(key, &text);
  std::array<uint8_t, SHA256_DIGEST_LENGTH> digest;
  SHA256(reinterpret_cast<const unsigned char*>(text.data()), text.size(), digest.data());
  OPENSSL_cleanse(text.data(), text.size());
  return digest;
}

Status CheckKey(std::string_view key, size_t number) {
  if (key.empty() || key.size() > kApiKeyBytesMax) {
    return InvalidArgument(fmt::format("API key {}: expected 1 to {} bytes, found {}", number + 1,
                                       kApiKeyBytesMax, key.size()));
  }
  // A header's value ends at white space and control characters.
  const bool printable =
      std::all_of(key.begin(), key.end(), [](char c) { return c > ' ' && c != '\x7f'; });
  if (printable) return Status::Ok();
  return InvalidArgument(fmt::format(
      "API key {}: expected printable ASCII without spaces, found another character", number + 1));
}

}  // namespace

Result<ApiKeys> ApiKeys::Create(const std::vector<std::string>& keys) {
  if (keys.size() > kApiKeysMax) {
    return InvalidArgument(
        fmt::format("{} API keys, at most {} are allowed", keys.size(), kApiKeysMax));
  }
  ApiKeys table;
  for (size_t i = 0; i < keys.size(); ++i) {
    TESSERA_RETURN_IF_ERROR(CheckKey(keys[i], i));
    const Digest digest = Derive(kLookUp, keys[i]);
    if (std::find(table.digests_.begin(), table.digests_.end(), digest) != table.digests_.end()) {
      continue;
    }
    table.digests_.push_back(digest);
    const Digest isolation = Derive(kIsolation, keys[i]);
    table.isolation_keys_.emplace_back(isolation.begin(), isolation.end());
  }
  return table;
}

std::optional<size_t> ApiKeys::Find(std::string_view authorization) const {
  constexpr std::string_view kBearer = "Bearer ";
  if (!authorization.starts_with(kBearer)) return std::nullopt;
  const Digest given = Derive(kLookUp, authorization.substr(kBearer.size()));
  std::optional<size_t> found;
  for (size_t i = 0; i < digests_.size(); ++i) {
    if (CRYPTO_memcmp(digests_[i].data(), given.data(), given.size()) == 0) found = i;
  }
  return found;
}

Result<std::vector<std::string>> ReadApiKeyFile(const std::string& path) {
  std::ifstream file(path);
  if (!file) return IoError(fmt::format("{}: cannot be read", path));
  std::vector<std::string> keys;
  std::string line;
  for (size_t number = 1; std::getline(file, line); ++number) {
    if (line.ends_with('\r')) line.pop_back();
    if (line.empty() || line.starts_with('#')) continue;
    if (const Status checked = CheckKey(line, keys.size()); !checked.ok()) {
      return InvalidArgument(fmt::format("{}:{}: {}", path, number, checked.message()));
    }
    keys.push_back(std::move(line));
  }
  if (file.bad()) return IoError(fmt::format("{}: reading it failed", path));
  if (keys.empty()) {
    return InvalidArgument(fmt::format("{}: expected a key on a line, found none", path));
  }
  return keys;
}

}  // namespace tessera
