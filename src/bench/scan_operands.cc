// SPDX-License-Identifier: Apache-2.0
#include "bench/scan_operands.h"

#include <algorithm>

#include "base/random.h"

namespace tessera {

Floor ScanOperands::FloorOf(StateType type, uint32_t rows) {
  Floor floor;
  floor.update_bytes = static_cast<double>(ImageBytes(type));
  // Per state element: a product (Δx·B) and two fma (s·dA, s·C) issue.
  floor.on(Pipe::kFma) = 3.0 * 2 * rows * kHeads * kHeadDim * kState;
  return floor;
}

ScanOperands::ScanOperands(uint32_t rows_max)
    : inputs_(rows_max * kStride),
      delta_(size_t{rows_max} * kHeads),
      decay_(size_t{rows_max} * kHeads),
      d_(kHeads),
      y_(size_t{rows_max} * kHeads * kHeadDim) {
  Random random(3);
  for (float& x : inputs_) x = random.Uniform(-1.0f, 1.0f);
  std::fill(delta_.begin(), delta_.end(), 0.01f);
  std::fill(decay_.begin(), decay_.end(), 0.9f);
  std::fill(d_.begin(), d_.end(), 1.0f);
}

ScanArgs ScanOperands::Args(StateType type, uint32_t rows, const PagedBytes& state) {
  ScanArgs args;
  args.x = inputs_.data();
  args.b = args.x + size_t{kHeads} * kHeadDim;
  args.c = args.b + kState;
  args.stride = kStride;
  args.delta = delta_.data();
  args.decay = decay_.data();
  args.heads_stride = kHeads;
  args.d = d_.data();
  args.y = y_.data();
  args.y_stride = size_t{kHeads} * kHeadDim;
  args.rows = rows;
  args.head_end = kHeads;
  args.head_dim = kHeadDim;
  args.state = kState;
  args.heads_per_group = kHeads;
  args.state_type = type;
  args.source = args.destination = state;
  args.row_bytes = RowBytes(type);
  return args;
}

}  // namespace tessera
