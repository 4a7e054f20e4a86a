// SPDX-License-Identifier: Apache-2.0
//
// Result files appear whole or not at all: what is written lies beside the path until all of it is
// on the disk, and is renamed. A path that is there and no regular file (a pipe, a device) is
// written to as it is.
//
// Failure: kIo with the path and errno's text, disk full included; nothing is left beside the path.
// Threads: any, of different paths.
#pragma once

#include <string>
#include <string_view>

#include "base/status.h"

namespace tessera {

// Before a long run: whether a file can be made there at all.
Status CheckResultPath(const std::string& path);
Status WriteResultFile(const std::string& path, std::string_view text);

}  // namespace tessera
