// SPDX-License-Identifier: Apache-2.0
//
// The rules for choosing an organisation, applied to a plan: which object is small against which
// page, when S1 takes less than S0, what a wrong split costs D0, what S3 takes at most. Each is one
// sentence for people with the numbers that decided, under a word for machines.
//
// Private to memory/plan. Failure: as DescribeOrganisation. Threads: a pure function.
#pragma once

#include <vector>

#include "memory/plan/plan.h"

namespace tessera {

// Of a plan that is complete but for its advice.
Result<std::vector<Advice>> AdviseOn(const Plan& plan);

}  // namespace tessera
