// SPDX-License-Identifier: Apache-2.0
#include "bench/geometries.h"

#include <fmt/format.h>

#include <array>
#include <cmath>

namespace tessera {
namespace {

struct FalconH1Row {
  std::string_view name;
  uint32_t layers, width;
  uint32_t heads, kv_heads, head_dim;
  uint32_t feed_forward;
  uint32_t ssm_inner, ssm_heads, ssm_state;
  uint32_t vocab_size, context_length;
  bool ssm_norm, tied_output;
};

// config.json of the published models. Tiny's context length is not in the table they come from;
// 16,384 is 0.5B's.
constexpr FalconH1Row kFalconH1[] = {
    {"falcon-h1-tiny", 24, 512, 8, 2, 64, 768, 768, 24, 64, 32768, 16384, false, true},
    {"falcon-h1-0.5b", 36, 1024, 8, 2, 64, 2048, 1536, 24, 128, 32784, 16384, false, false},
    {"falcon-h1-1.5b", 24, 2048, 8, 2, 128, 4608, 3072, 48, 256, 65537, 131072, true, false},
    {"falcon-h1-7b", 44, 3072, 12, 2, 128, 12288, 3072, 24, 256, 130048, 262144, true, false},
};

ModelGeometry FalconH1(const FalconH1Row& row) {
  ModelGeometry geometry{
      .name = row.name, .ssm_norm = row.ssm_norm, .tied_output = row.tied_output};
  ModelShape& shape = geometry.shape;
  shape.architecture = Architecture::kFalconH1;
  shape.name = row.name;
  shape.layers = row.layers;
  shape.width = row.width;
  shape.vocab_size = row.vocab_size;
  shape.context_length = row.context_length;
  shape.rms_eps = 1e-5f;
  shape.heads = row.heads;
  shape.kv_heads = row.kv_heads;
  shape.head_dim = row.head_dim;
  shape.n_rot = row.head_dim;
  shape.rope_neox = true;
  shape.rope_base = 1e11f;  // rope_theta as the files hold it, in fp32
  shape.attention_scale = 1.0f / std::sqrt(static_cast<float>(row.head_dim));
  shape.ssm_inner = row.ssm_inner;
  shape.ssm_heads = row.ssm_heads;
  shape.ssm_state = row.ssm_state;
  shape.ssm_groups = 1;
  shape.conv_kernel = 4;
  shape.feed_forward = row.feed_forward;
  return geometry;
}

}  // namespace

std::span<const ModelGeometry> ModelGeometries() {
  static const auto geometries = [] {
    std::array<ModelGeometry, std::size(kFalconH1)> all;
    for (size_t i = 0; i < all.size(); ++i) all[i] = FalconH1(kFalconH1[i]);
    return all;
  }();
  return geometries;
}

Result<ModelGeometry> FindModelGeometry(std::string_view name) {
  std::string names;
  for (const ModelGeometry& geometry : ModelGeometries()) {
    if (geometry.name == name) return geometry;
    names += fmt::format("{}{}", names.empty() ? "" : ", ", geometry.name);
  }
  return InvalidArgument(fmt::format("--geometry: '{}' is unknown; there are {}", name, names));
}

}  // namespace tessera
