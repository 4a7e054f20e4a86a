// SPDX-License-Identifier: Apache-2.0
//
// The bodies of /health, /version and /v1/models.
//
// Threads: pure functions of their arguments.
#pragma once

#include <cstdint>
#include <string>

#include "engine/engine.h"

namespace tessera {

struct ModelCard {
  std::string id;
  int64_t created = 0;         // when the server loaded it, seconds since 1970
  uint64_t max_model_len = 0;  // tokens: of the context, what the budget can hold
  ModelShape shape;
  uint64_t weight_bytes = 0;
};

std::string HealthBody();
std::string VersionBody();
std::string ModelBody(const ModelCard& card);
std::string ModelListBody(const ModelCard& card);

}  // namespace tessera
