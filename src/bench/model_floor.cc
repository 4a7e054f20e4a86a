// SPDX-License-Identifier: Apache-2.0
#include "bench/model_floor.h"

#include "bench/gemm_operands.h"
#include "compute/model/for_each_matrix.h"
#include "compute/model/model_shape.h"

namespace tessera {

Floor WeightFloor(const Model& model, uint32_t rows) {
  Floor floor;
  ForEachMatrix(model, [&](const PackedMatrix& matrix) {
    floor.read_bytes += static_cast<double>(PackedBytesNeeded(matrix.type, matrix.n, matrix.k));
    floor.on(PipeOf(matrix.type)) += 2.0 * rows * matrix.n * matrix.k;
  });
  return floor;
}

Floor StepFloor(const Model& model, StateType state_type, uint32_t sequences,
                uint32_t context_tokens) {
  const ModelShape& shape = model.shape();
  const StateShape state = shape.state_shape(state_type);
  Floor one;
  one.update_bytes = static_cast<double>(state.planes() * state.image_bytes());
  one.read_bytes = static_cast<double>(uint64_t{context_tokens} * state.attention_layers *
                                       state.kv_bytes_per_token_layer());
  // Scores and values; of a state element one product and two fma.
  const double attention =
      2.0 * context_tokens * shape.heads * shape.head_dim * state.attention_layers;
  one.on(Pipe::kBf16) = attention;
  one.on(Pipe::kFma) = attention + 6.0 * static_cast<double>(state.ssm_rows_per_layer()) *
                                       state.ssm_state * state.recurrent_layers;
  return WeightFloor(model, sequences) + one * sequences;
}

}  // namespace tessera
