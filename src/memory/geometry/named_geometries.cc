// SPDX-License-Identifier: Apache-2.0
#include "memory/geometry/named_geometries.h"

#include <fmt/format.h>

#include <iterator>
#include <vector>

namespace tessera {
namespace {

struct Row {
  const char* name;
  uint32_t attention_layers, recurrent_layers;
  uint32_t kv_heads, head_dim;
  uint32_t ssm_heads, ssm_head_dim, ssm_state;
  uint32_t conv_channels, conv_taps;
  uint32_t width, context_length;
  bool unchecked = false;
};

// Mamba-2: conv channels = heads·head_dim + 2·groups·state. Gated delta nets (Qwen3-Next, Kimi):
// the same table with value heads, (2·k_heads + v_heads)·128 channels. Kimi's attention keeps one
// latent row of 576 values per token: K and V of 288. Jamba's Mamba-1 has one row of 16 values for
// each of 8,192 channels, two of them to a row of 64 bytes here. LFM2 has convolutions only.
constexpr Row kRows[] = {
    {"falcon-h1-tiny", 24, 24, 2, 64, 24, 32, 64, 896, 3, 512, 16384},
    {"falcon-h1-0.5b", 36, 36, 2, 64, 24, 64, 128, 1792, 3, 1024, 16384},
    {"falcon-h1-1.5b", 24, 24, 2, 128, 48, 64, 256, 3584, 3, 2048, 131072},
    {"falcon-h1-3b", 32, 32, 2, 128, 32, 128, 256, 4608, 3, 2560, 131072},
    {"falcon-h1-7b", 44, 44, 2, 128, 24, 128, 256, 3584, 3, 3072, 262144},
    {"qwen3-next-80b-a3b", 12, 36, 2, 256, 32, 128, 128, 8192, 3, 2048, 262144},
    {"nemotron-h-8b", 4, 24, 8, 128, 128, 64, 128, 10240, 3, 4096, 8192, true},
    {"granite-4-h-small", 4, 36, 8, 128, 128, 64, 128, 8448, 3, 4096, 131072, true},
    {"granite-4-h-micro", 4, 36, 8, 64, 64, 64, 128, 4352, 3, 2048, 131072, true},
    {"granite-4-h-tiny", 4, 36, 4, 128, 48, 64, 128, 3328, 3, 1536, 131072},
    {"jamba-mini", 4, 28, 8, 128, 4096, 1, 32, 8192, 3, 4096, 262144},
    {"zamba2-2.7b", 9, 54, 32, 160, 80, 64, 64, 5248, 3, 2560, 4096},
    {"kimi-linear-48b", 7, 20, 1, 288, 32, 128, 128, 12288, 3, 2304, 1048576, true},
    {"lfm2-1.2b", 6, 10, 8, 64, 0, 0, 0, 2048, 2, 2048, 128000},
    {"mamba2-130m", 0, 24, 0, 0, 24, 64, 128, 1792, 3, 768, 1048576},
    {"llama-3.2-1b", 16, 0, 8, 64, 0, 0, 0, 0, 0, 2048, 131072},
    {"harbour-2.8m", 5, 5, 2, 32, 8, 32, 32, 320, 3, 192, 8192},
};

StateGeometry GeometryOf(const Row& row) {
  return {.name = row.name,
          .shape = {.attention_layers = row.attention_layers,
                    .recurrent_layers = row.recurrent_layers,
                    .kv_heads = row.kv_heads,
                    .head_dim = row.head_dim,
                    .ssm_heads = row.ssm_heads,
                    .ssm_head_dim = row.ssm_head_dim,
                    .ssm_state = row.ssm_state,
                    .conv_channels = row.conv_channels,
                    .conv_taps = row.conv_taps},
          .width = row.width,
          .context_length = row.context_length,
          .unchecked = row.unchecked};
}

}  // namespace

std::span<const StateGeometry> NamedGeometries() {
  static const auto geometries = [] {
    std::vector<StateGeometry> all;
    for (const Row& row : kRows) all.push_back(GeometryOf(row));
    return all;
  }();
  return geometries;
}

Result<StateGeometry> FindGeometry(std::string_view name) {
  std::string names;
  for (const StateGeometry& geometry : NamedGeometries()) {
    if (geometry.name == name) return geometry;
    names += fmt::format("{}{}", names.empty() ? "" : ", ", geometry.name);
  }
  return InvalidArgument(fmt::format("geometry '{}' is unknown; there are {}", name, names));
}

}  // namespace tessera
