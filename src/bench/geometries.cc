// SPDX-License-Identifier: Apache-2.0
#include "bench/geometries.h"

#include <fmt/format.h>

#include <array>
#include <cmath>

#include "memory/geometry/named_geometries.h"

namespace tessera {
namespace {

// What the state of the geometry of that name does not say.
struct FalconH1Row {
  std::string_view name;
  uint32_t heads;
  uint32_t feed_forward;
  uint32_t vocab_size;
  bool ssm_norm, tied_output;
};

// config.json of the published models. Tiny's context length is not in the table they come from;
// 16,384 is 0.5B's.
constexpr FalconH1Row kFalconH1[] = {
    {"falcon-h1-tiny", 8, 768, 32768, false, true},
    {"falcon-h1-0.5b", 8, 2048, 32784, false, false},
    {"falcon-h1-1.5b", 8, 4608, 65537, true, false},
    {"falcon-h1-7b", 12, 12288, 130048, true, false},
};

ModelGeometry FalconH1(const FalconH1Row& row) {
  ModelGeometry geometry{
      .name = row.name, .ssm_norm = row.ssm_norm, .tied_output = row.tied_output};
  const Result<StateGeometry> found = FindGeometry(row.name);
  const StateShape& state = found.value().shape;
  ModelShape& shape = geometry.shape;
  shape.architecture = Architecture::kFalconH1;
  shape.name = row.name;
  shape.layers = state.attention_layers;
  shape.width = found->width;
  shape.vocab_size = row.vocab_size;
  shape.context_length = found->context_length;
  shape.rms_eps = 1e-5f;
  shape.heads = row.heads;
  shape.kv_heads = state.kv_heads;
  shape.head_dim = state.head_dim;
  shape.n_rot = state.head_dim;
  shape.rope_neox = true;
  shape.rope_base = 1e11f;  // rope_theta as the files hold it, in fp32
  shape.attention_scale = 1.0f / std::sqrt(static_cast<float>(state.head_dim));
  shape.ssm_inner = state.ssm_heads * state.ssm_head_dim;
  shape.ssm_heads = state.ssm_heads;
  shape.ssm_state = state.ssm_state;
  shape.ssm_groups = 1;
  shape.conv_kernel = state.conv_taps + 1;
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
