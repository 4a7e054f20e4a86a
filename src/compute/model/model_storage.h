// SPDX-License-Identifier: Apache-2.0
//
// What a Model owns: the arena that every weight lies in, and the embedding rows in it.
#pragma once

#include "compute/model/embedding_table.h"
#include "compute/model/model.h"
#include "port/arena.h"

namespace tessera {

struct Model::Storage {
  Arena arena;
  EmbeddingTable embedding;
};

}  // namespace tessera
