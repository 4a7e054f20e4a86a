// SPDX-License-Identifier: Apache-2.0
#include "base/bytes.h"

#include <fmt/format.h>

#include <cctype>
#include <charconv>
#include <cmath>

namespace tessera {
namespace {

// The multiple a unit names, or 0 when it names none.
uint64_t UnitMultiple(std::string_view unit) {
  if (unit.empty() || unit == "b") return 1;
  uint64_t multiple = 0;
  switch (unit.front()) {
    case 'k':
      multiple = kKiB;
      break;
    case 'm':
      multiple = kMiB;
      break;
    case 'g':
      multiple = kGiB;
      break;
    case 't':
      multiple = 1024 * kGiB;
      break;
    default:
      return 0;
  }
  std::string_view rest = unit.substr(1);
  return (rest.empty() || rest == "b" || rest == "ib") ? multiple : 0;
}

}  // namespace

Result<uint64_t> ParseBytes(std::string_view text) {
  double number = 0;
  auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  std::string unit;
  for (const char* p = end; p != text.data() + text.size(); ++p) {
    if (*p != ' ') unit.push_back(static_cast<char>(std::tolower(static_cast<unsigned char>(*p))));
  }
  uint64_t multiple = UnitMultiple(unit);
  if (error != std::errc() || multiple == 0 || !std::isfinite(number) || number < 0) {
    return InvalidArgument(
        fmt::format("'{}' is not a number of bytes (like 4096, 512KiB or 1.5GiB)", text));
  }
  double bytes = number * static_cast<double>(multiple);
  if (bytes >= 9.2e18) return InvalidArgument(fmt::format("'{}' is more than 2^63 bytes", text));
  return static_cast<uint64_t>(bytes);
}

std::string FormatBytes(uint64_t bytes) {
  if (bytes < kKiB) return fmt::format("{} B", bytes);
  double value = static_cast<double>(bytes);
  const char* unit = "KiB";
  value /= 1024;
  for (const char* next : {"MiB", "GiB", "TiB"}) {
    if (value < 1024) break;
    value /= 1024;
    unit = next;
  }
  return fmt::format("{:.2f} {}", value, unit);
}

}  // namespace tessera
