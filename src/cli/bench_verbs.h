// SPDX-License-Identifier: Apache-2.0
//
// The commands of `tessera bench`, each in a file of its own: it adds itself to the verb's parser
// and returns what to do when it was the one that was named.
#pragma once

#include "cli/verbs.h"

namespace tessera::cli {

Action AddBenchKernels(CLI::App& bench);
Action AddBenchStep(CLI::App& bench);
Action AddBenchMemory(CLI::App& bench);
Action AddBenchReplay(CLI::App& bench);
Action AddBenchServe(CLI::App& bench);
Action AddBenchMakeModel(CLI::App& bench);

}  // namespace tessera::cli
