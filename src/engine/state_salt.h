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

// "" when all may share it; 'c' and the client's salt; 'r' and the request's id when each request
// is isolated, whatever the client sent.
std::string StateSalt(IsolateKind isolate, std::string_view cache_salt, RequestId id);

}  // namespace tessera
