// SPDX-License-Identifier: Apache-2.0
#include "bench/time_text.h"

#include <fmt/format.h>

namespace tessera {

std::string TimeText(double seconds) {
  struct Unit {
    double seconds;
    const char* name;
  };
  for (const Unit& unit : {Unit{1, "s"}, Unit{1e-3, "ms"}, Unit{1e-6, "us"}}) {
    const double value = seconds / unit.seconds;
    if (value >= 100) return fmt::format("{:.1f} {}", value, unit.name);
    if (value >= 1) return fmt::format("{:.3f} {}", value, unit.name);
  }
  return fmt::format("{:.1f} ns", seconds * 1e9);
}

}  // namespace tessera
