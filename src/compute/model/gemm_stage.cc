// SPDX-License-Identifier: Apache-2.0
#include "compute/model/gemm_stage.h"

#include <algorithm>

#include "base/bytes.h"
#include "base/check.h"
#include "port/thread_pool.h"

namespace tessera {

void Multiply(const KernelTable& kernels, ThreadPool& threads, std::span<const Product> products,
              uint32_t rows) {
  TESSERA_DCHECK(products.size() <= kProductsMax);
  uint32_t first_task[kProductsMax + 1] = {};
  for (size_t i = 0; i < products.size(); ++i) {
    const uint64_t groups = DivideUp(products[i].weights->panel_count(), kGroupPanels);
    first_task[i + 1] = first_task[i] + static_cast<uint32_t>(groups);
  }
  threads.ParallelFor(first_task[products.size()], [&](uint32_t task, int) {
    size_t i = 0;
    while (task >= first_task[i + 1]) ++i;
    const Product& product = products[i];
    GemmArgs args;
    args.weights = product.weights;
    args.panel_begin = (task - first_task[i]) * kGroupPanels;
    args.panel_end = std::min(args.panel_begin + kGroupPanels, product.weights->panel_count());
    args.input = product.input->For(product.weights->input_form());
    args.rows = rows;
    args.output = product.output;
    args.output_stride = product.output_stride;
    kernels.gemm(args);
  });
}

}  // namespace tessera
