// SPDX-License-Identifier: Apache-2.0
//
// Asks a running server, for the verbs that look at one.
//
// Failure: kIo when nobody answers or the answer is no Tessera server's, kInvalidArgument for an
// address that is none, for a key that is missing or wrong, and for what the server refuses.
// Threads: any; a call waits for the answer, 10 s at most.
#pragma once

#include <string>
#include <string_view>

#include "base/status.h"

namespace tessera::cli {

struct ServerAddress {
  std::string url = "http://127.0.0.1:8080";
  std::string api_key;
};

// The body of a 200. `method` is GET or DELETE.
Result<std::string> AskServer(const ServerAddress& server, std::string_view method,
                              const std::string& path);

}  // namespace tessera::cli
