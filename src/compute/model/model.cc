// SPDX-License-Identifier: Apache-2.0
#include "compute/model/model.h"

#include <xxhash.h>

#include <bit>

#include "base/check.h"
#include "compute/kernels/kernel_table.h"
#include "compute/model/model_loader.h"
#include "compute/model/model_storage.h"
#include "port/float_environment.h"

namespace tessera {
namespace {

// Counts up when a rounding point, a reduction order or one of our own functions changes: states
// computed before are then never taken for states computed after.
constexpr uint64_t kNumericsVersion = 1;

}  // namespace

Model::~Model() = default;

Result<std::unique_ptr<Model>> Model::Load(const GgufFile& file, ThreadPool& threads) {
  const ScopedFloatEnvironment environment;
  return ModelLoader(file, threads).Load();
}

void Model::Embed(TokenId token, float* row) const {
  TESSERA_CHECK(token >= 0 && static_cast<uint32_t>(token) < shape_.vocab_size);
  storage_->embedding.Row(static_cast<uint32_t>(token), row);
}

uint64_t Model::contract_id(StateType type) const {
  const uint64_t words[] = {
      kNumericsVersion,
      weights_digest_,
      static_cast<uint64_t>(type),
      kSplitTokens,
      // What the metadata adds to the weights; dimensions are in the digest with the tensors.
      static_cast<uint64_t>(shape_.architecture),
      uint64_t{shape_.heads} << 32 | shape_.kv_heads,
      uint64_t{shape_.ssm_heads} << 32 | shape_.ssm_groups,
      uint64_t{shape_.n_rot} << 1 | (shape_.rope_neox ? 1 : 0),
      std::bit_cast<uint64_t>(shape_.rope_base),
      uint64_t{std::bit_cast<uint32_t>(shape_.rms_eps)} << 32 |
          std::bit_cast<uint32_t>(shape_.attention_scale),
  };
  return XXH3_64bits(words, sizeof(words));
}

}  // namespace tessera
