// SPDX-License-Identifier: Apache-2.0
//
// Activations is every byte a forward pass works in, one arena laid out once for given limits:
// buffers of rows, attention partials, and the lists of a step's tasks. Nothing else is allocated.
//
// A1  Bytes() is size_bytes() of what Make makes.
// A2  Row strides are multiples of 64 bytes, but those of norm_rows and logits, which callers read
//     as contiguous: two tasks that write different rows, or columns of different panels, write
//     different cache lines.
//
// Failure: kNoMemory with the bytes needed.
// Threads: the owner of a step hands disjoint parts to its tasks.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/bytes.h"
#include "base/status.h"
#include "compute/model/forward.h"
#include "compute/model/input_rows.h"
#include "compute/model/model_shape.h"
#include "compute/model/step_plan.h"
#include "port/arena.h"

namespace tessera {

class ActivationCarver;

struct Activations {
  // fp32 rows.
  struct Rows {
    float* data = nullptr;
    size_t stride = 0;
    float* Row(uint32_t row) const { return data + row * stride; }
  };

  // In one phase a thread works in a slot of its own. In two, the splits of all blocks share the
  // partial slots in waves, and each of fewer than 4·threads blocks has an accumulator.
  static uint64_t PartialSlots(int threads) { return uint64_t{8} * static_cast<uint64_t>(threads); }
  static uint64_t AccumulatorSlots(int threads) {
    return uint64_t{4} * static_cast<uint64_t>(threads);
  }

  static uint64_t Bytes(const ModelShape& shape, const ForwardLimits& limits, int threads);
  static Result<Activations> Make(const ModelShape& shape, const ForwardLimits& limits,
                                  int threads);
  uint64_t size_bytes() const { return arena.size_bytes(); }

  StepPlan::Storage plan;

  Rows residual;          // [d]
  InputRows normed;       // [d], input of q, k, v, ssm_in and of gate, up
  Rows mixed, ssm_mixed;  // [d], outputs of attn_output or ffn_down, and of ssm_out
  Rows norm_rows;         // [d], contiguous: final norms of the wanted rows

  Rows query, key, value;              // outputs of q, k, v
  Rows cosines, sines;                 // [n_rot / 2]
  uint16_t* scaled_queries = nullptr;  // bf16, [rows][heads·head_dim]
  size_t scaled_query_stride = 0;
  InputRows attended;  // [heads·head_dim]
  // Attention partials: slots of [rows of a block][query heads of a KV head][partial].
  float* partials = nullptr;
  float* accumulators = nullptr;
  size_t slot_floats = 0;

  Rows projected;     // [ssm_in rows]: z | x B C | dt
  Rows convolved;     // [conv channels]: x | B | C
  Rows delta, decay;  // [ssm heads]
  InputRows scanned;  // [d_ssm]: y, then gated and normed in place

  InputRows gate;  // [F]; silu(gate)·up replaces it
  Rows up;         // [F]

  InputRows head;           // [d], rows of one Head call
  float* logits = nullptr;  // [head_rows][vocab]

  Arena arena;

 private:
  void Lay(ActivationCarver* carver, const ModelShape& shape, const ForwardLimits& limits,
           int threads);
};

}  // namespace tessera
