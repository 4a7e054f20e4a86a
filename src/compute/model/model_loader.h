// SPDX-License-Identifier: Apache-2.0
//
// ModelLoader makes a Model from a GGUF file: it asks for every tensor the architecture has by the
// names converters give them, refuses what is missing, mis-shaped or left over before a weight is
// read, then packs.
//
//   Plan (names, shapes, types) --> Fill (WeightPacker) --> Model
//
// Names with a variant: `ffn_norm` of falcon-h1 comes without `.weight` from the converter and with
// it from some tools; q, k and v may be one fused `attn_qkv` (rows q, k, v); `output.weight` may be
// missing, and the head is then token_embd as stored.
//
// Failure: kBadFile naming the tensor; kNoMemory.
// Threads: one caller; packing uses the pool.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <memory>
#include <string>
#include <string_view>

#include "base/status.h"
#include "compute/model/model.h"
#include "compute/model/weight_packer.h"
#include "compute/model/weight_source.h"

namespace tessera {

class ModelLoader {
 public:
  ModelLoader(const GgufFile& file, ThreadPool& threads);
  Result<std::unique_ptr<Model>> Load();

 private:
  Status PlanTensors();
  Status PlanLayer(uint32_t index);
  Status PlanAttention(LayerWeights* layer);
  Status PlanFusedQkv(LayerWeights* layer);
  Status PlanSsm(LayerWeights* layer);
  Status PlanMlp(LayerWeights* layer);
  Status PlanOutput();
  Status CheckRopeDivisors() const;  // after Fill

  // Name of a tensor of the layer being planned.
  std::string InLayer(std::string_view name) const;
  Status AddMatrix(const std::string& name, uint32_t n, uint32_t k, PackedMatrix* target);
  Status AddValues(const std::string& name, std::initializer_list<uint64_t> ne,
                   const float** target, bool flat_too = false);
  Status AddValuesIfThere(const std::string& name, uint32_t n, const float** target);

  const GgufFile& file_;
  ThreadPool& threads_;
  WeightSource source_;
  WeightPacker packer_;
  std::unique_ptr<Model> model_;
  std::string layer_prefix_;  // "blk.7."
};

}  // namespace tessera
