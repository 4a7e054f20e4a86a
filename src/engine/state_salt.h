// SPDX-License-Identifier: Apache-2.0
//
// The salt under which the state of a request is kept. Its first byte says who chose the rest, so
// that what a client sends is never one that the engine made.
//
// Threads: pure functions.
#pragma once

#include <string>
#include <string_view>

#include "engine/engine.h"

namespace tessera {

struct SaltParts {
  std::string_view isolation_key;  // of the client, whoever vouches for it
  std::string_view cache_salt;     // as the client sent it
  RequestId id;
};

// "" when all may share it. Else 'c' and the client's salt; or 'k', the length of the key, ':', the
// key and the client's salt when each key is isolated, so that no key and salt spell another key's;
// or 'r' and the request's id when each request is isolated, whatever the client sent.
std::string StateSalt(IsolateKind isolate, const SaltParts& parts);

}  // namespace tessera
