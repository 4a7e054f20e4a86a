// SPDX-License-Identifier: Apache-2.0
//
// Walks the bytes of one sequence's state as its StateView addresses them, in pieces that are
// contiguous in memory, so that two states can be compared part by part whatever organisation each
// is stored in.
//
// Threads: pure functions over the caller's bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/function_ref.h"
#include "memory/geometry/state_shape.h"
#include "memory/geometry/state_view.h"
#include "verify/evidence.h"

namespace tessera {

struct StatePiece {
  uint32_t plane = 0;
  uint64_t offset = 0;  // in the part (SSM image, conv image, groups) of the plane
  std::byte* data = nullptr;
  uint64_t size = 0;
  uint32_t element_bits = 32;
};

using StatePieceVisitor = FunctionRef<void(const StatePiece&)>;

// The destination's SSM part, its conv part, or the groups of tokens [0, place.position), as
// place.kind says; plane after plane, ascending offsets.
void ForEachStatePiece(const EvidencePlace& place, const StateShape& shape, const StateView& view,
                       StatePieceVisitor visit);
// The source or destination image: SSM then conv of each plane, offsets counted within each. The
// source is not null.
void ForEachSourcePiece(const StateShape& shape, const StateView& view, StatePieceVisitor visit);
void ForEachDestinationPiece(const StateShape& shape, const StateView& view,
                             StatePieceVisitor visit);

// The bytes of the source image, in that order; zeros when it is null.
std::vector<std::byte> SourceBytes(const StateShape& shape, const StateView& view);

}  // namespace tessera
