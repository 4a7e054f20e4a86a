// SPDX-License-Identifier: Apache-2.0
#include "compute/model/input_rows.h"

#include "base/check.h"

namespace tessera {

void InputRows::Prepare(const KernelTable& kernels, FormSet forms, uint32_t row) const {
  if (forms.bf16) kernels.to_bf16(Row(row), k, bf16 + row * bf16_stride());
  if (forms.int8) {
    kernels.to_int8(Row(row), k, int8 + row * int8_stride(), scales + row * block_stride(),
                    sums + row * block_stride());
  }
  if (forms.int8_k) {
    TESSERA_DCHECK(super_blocks() > 0);
    kernels.to_int8_k(Row(row), k, int8_k + row * int8_stride(),
                      k_scales + row * super_block_stride(), k_sums + row * k_sum_stride());
  }
}

GemmInput InputRows::For(InputForm form) const {
  switch (form) {
    case InputForm::kBF16:
      return {bf16, bf16_stride() * sizeof(uint16_t)};
    case InputForm::kInt8:
      return {int8, int8_stride(), scales, block_stride(), sums, block_stride()};
    case InputForm::kInt8K:
      return {int8_k, int8_stride(), k_scales, super_block_stride(), k_sums, k_sum_stride()};
    case InputForm::kF32:
      break;
  }
  return {f32, f32_stride * sizeof(float)};
}

}  // namespace tessera
