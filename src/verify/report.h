// SPDX-License-Identifier: Apache-2.0
//
// How a VerifyReport is shown: a table for people, JSON for programs. Both say what was compared,
// what each dimension was, and on a difference the first differing element with both bit patterns,
// the cell it was in and the simplest cell that still differs.
//
// Threads: pure functions.
#pragma once

#include <string>

#include "verify/verify.h"

namespace tessera {

std::string VerifyText(const VerifyReport& report);
std::string VerifyJson(const VerifyReport& report);  // one line

}  // namespace tessera
