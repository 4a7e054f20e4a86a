// SPDX-License-Identifier: Apache-2.0
//
// A duration for people: three or four digits and the unit that fits.
#pragma once

#include <string>

namespace tessera {

std::string TimeText(double seconds);  // "1.234 ms", "56.7 us", "890 ns"

}  // namespace tessera
