// SPDX-License-Identifier: Apache-2.0
//
// What a server says of its cache (server/cache_pages.h), as lines for people.
//
// R1  Text of prompts is printed with its control characters spelled out: what a client sent does
//     not move the cursor of whoever lists it.
//
// Failure: kIo, naming what is missing, for a body that is not such an answer.
// Threads: pure functions.
#pragma once

#include <string>
#include <string_view>

#include "base/status.h"
#include "engine/engine.h"

namespace tessera::cli {

// GET /cache → the ledger as --stats prints it, and the policies.
Result<std::string> DescribeLedger(std::string_view body);
// GET /cache/entries → a table.
Result<std::string> DescribeEntries(std::string_view body);
// DELETE /cache → one line.
Result<std::string> DescribeClearing(std::string_view body);

}  // namespace tessera::cli
