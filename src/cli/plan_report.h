// SPDX-License-Identifier: Apache-2.0
//
// A plan of state memory as a table for people, at most 100 columns wide, and as JSON with every
// figure.
//
// Threads: pure functions.
#pragma once

#include <string>
#include <vector>

#include "memory/plan/plan.h"

namespace tessera::cli {

// Where the geometry came from.
struct PlanSource {
  std::string architecture;  // of a file; empty for a named geometry
  bool runs = false;         // the engine runs the file
  std::string why_not;       // when it does not
};

// The first plan is the one that is shown; the others, of other state types, are compared with it.
std::string PlanText(const PlanSource& source, const std::vector<Plan>& plans);
std::string PlanJson(const PlanSource& source, const std::vector<Plan>& plans);

}  // namespace tessera::cli
