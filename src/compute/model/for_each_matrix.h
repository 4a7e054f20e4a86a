// SPDX-License-Identifier: Apache-2.0
//
// ForEachMatrix visits every packed matrix that a step multiplies by, in the order of the step: the
// layers' and the output head's. What a model does not have is left out. The embedding table, of
// which a step reads single rows, is none of them unless it is the head as well.
//
// Threads: pure.
#pragma once

#include "compute/model/model.h"

namespace tessera {

template <class Visit>
void ForEachMatrix(const Model& model, Visit visit) {
  const auto visit_present = [&](const PackedMatrix& matrix) {
    if (matrix.n > 0) visit(matrix);
  };
  for (uint32_t i = 0; i < model.shape().layers; ++i) {
    const LayerWeights& layer = model.layer(i);
    for (const PackedMatrix* matrix :
         {&layer.attn_q, &layer.attn_k, &layer.attn_v, &layer.attn_output, &layer.ssm_in,
          &layer.ssm_out, &layer.ffn_gate, &layer.ffn_up, &layer.ffn_down}) {
      visit_present(*matrix);
    }
  }
  visit_present(model.output());
}

}  // namespace tessera
