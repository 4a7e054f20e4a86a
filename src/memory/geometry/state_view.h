// SPDX-License-Identifier: Apache-2.0
//
// StateView gives the model the addresses of one sequence's state during one step. It is what the
// compute side sees of the state memory: no page ids, no pools, no organisation.
//
// V1  groups[g] for every group the step reads or writes is set; one offset serves all planes.
// V2  source and destination members cover the image. Equal tables mean an update in place;
//     different ones mean that the source becomes a checkpoint and must not be written. A null
//     source is the zero state of a fresh sequence.
//
// Threads: a value; valid while the step runs.
#pragma once

#include <cstdint>

#include "memory/geometry/paged_bytes.h"

namespace tessera {

struct StateView {
  // Attention: group g (tokens 16g .. 16g+15) in plane p starts at
  //   attention_base + p·attention_plane_stride + group_offsets[g].
  std::byte* attention_base = nullptr;
  uint64_t attention_plane_stride = 0;
  const uint64_t* group_offsets = nullptr;

  // Recurrent image: linear byte x (SSM from ssm_start, conv from conv_start) lies in member
  // x / unit_bytes at x % unit_bytes; member m in plane p starts at
  //   state_base + p·state_plane_stride + {source,destination}_offsets[m].
  std::byte* state_base = nullptr;
  uint64_t state_plane_stride = 0;
  const uint64_t* source_offsets = nullptr;  // null: zeros
  const uint64_t* destination_offsets = nullptr;
  uint64_t unit_bytes = 0;
  uint64_t ssm_start = 0;
  uint64_t conv_start = 0;

  std::byte* GroupAt(uint32_t plane, uint32_t group) const {
    return attention_base + plane * attention_plane_stride + group_offsets[group];
  }
  PagedBytes Source(uint32_t plane) const {
    if (source_offsets == nullptr) return {};
    return {state_base + plane * state_plane_stride, source_offsets, unit_bytes};
  }
  PagedBytes Destination(uint32_t plane) const {
    return {state_base + plane * state_plane_stride, destination_offsets, unit_bytes};
  }
};

}  // namespace tessera
