// SPDX-License-Identifier: Apache-2.0
//
// What both matrix products (gemm_inl.h, gemm_int8_inl.h) share: how rows are cut into blocks, and
// the output's columns, of which the last panels of a group may have fewer than 16 or none.
#pragma once

#include <cstddef>
#include <cstdint>

#include "compute/kernels/packed_matrix.h"
#include "compute/kernels/vec.h"

namespace tessera::kernels {

// Rows before block `block` of `blocks` as even as possible. In 64 bits: rows times blocks passes
// 2^32 from about 92,000 rows in blocks of 2 on.
TESSERA_INLINE size_t RowsBefore(uint32_t rows, uint32_t block, uint32_t blocks) {
  return size_t{rows} * block / blocks;
}

// Steps of k in a tile, at most `most`, so that tiles are as even as possible: the passes over a tile
// fetch as much of the next as they read, so behind a short one a long one came half from memory.
TESSERA_INLINE uint32_t EvenTile(uint32_t steps, uint32_t most) {
  const uint32_t tiles = steps <= most ? 1 : (steps + most - 1) / most;
  return (steps + tiles - 1) / tiles;
}

// 16 columns of a row of the output from panel `panel` on. `columns` is how many the row has from
// panel 0 on: no address is formed beyond them.
template <class V>
TESSERA_INLINE typename V::F LoadPanel(const float* row, uint32_t panel, uint32_t columns) {
  const uint32_t first = panel * kPanelColumns;
  if (columns >= first + kPanelColumns) return V::Load(row + first);
  return columns > first ? V::LoadN(row + first, columns - first) : V::Zero();
}
template <class V>
TESSERA_INLINE void StorePanel(float* row, uint32_t panel, uint32_t columns, typename V::F x) {
  const uint32_t first = panel * kPanelColumns;
  if (columns >= first + kPanelColumns) {
    V::Store(row + first, x);
  } else if (columns > first) {
    V::StoreN(row + first, x, columns - first);
  }
}

}  // namespace tessera::kernels
