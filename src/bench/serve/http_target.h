// SPDX-License-Identifier: Apache-2.0
//
// HttpTarget is where a load goes: http://HOST[:PORT], the host a name, an IPv4 address or an IPv6
// one in brackets. There is no TLS: what a load measures is the server, not a handshake.
//
// Failure: kInvalidArgument naming the address and what was expected.
// Threads: a value.
#pragma once

#include <string>

#include "base/status.h"

namespace tessera {

struct HttpTarget {
  std::string host;         // without brackets
  std::string port = "80";  // digits
  std::string host_header;  // as it was written
};

Result<HttpTarget> ParseHttpTarget(const std::string& url);

}  // namespace tessera
