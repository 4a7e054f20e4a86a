// SPDX-License-Identifier: Apache-2.0
#include "compute/model/state_geometry.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <string>
#include <string_view>
#include <vector>

#include "compute/gguf/printable.h"
#include "compute/model/shape_reader.h"

namespace tessera {
namespace {

constexpr std::string_view kHeads = "attention.head_count";
constexpr std::string_view kKvHeads = "attention.head_count_kv";

// Which layers hold which state.
enum class Layers : uint8_t {
  kBothInEach,
  kRecurrent,
  kAttention,
  kByKvHeads,
  kByKvHeadsWithoutMlp,
  kByInterval
};
// A gated delta net's state has the sizes of Mamba-2's: v heads of head_v, N = head_k, G k heads.
enum class Recurrence : uint8_t { kNone, kMamba2, kMamba1, kShortConv };

struct ArchitectureRow {
  std::string_view name;
  Layers layers;
  Recurrence recurrence;
};

constexpr ArchitectureRow kArchitectures[] = {
    {"falcon-h1", Layers::kBothInEach, Recurrence::kMamba2},
    {"mamba2", Layers::kRecurrent, Recurrence::kMamba2},
    {"llama", Layers::kAttention, Recurrence::kNone},
    {"granitehybrid", Layers::kByKvHeads, Recurrence::kMamba2},
    {"jamba", Layers::kByKvHeads, Recurrence::kMamba1},
    {"lfm2", Layers::kByKvHeads, Recurrence::kShortConv},
    {"lfm2moe", Layers::kByKvHeads, Recurrence::kShortConv},
    {"nemotron_h", Layers::kByKvHeadsWithoutMlp, Recurrence::kMamba2},
    {"nemotron_h_moe", Layers::kByKvHeadsWithoutMlp, Recurrence::kMamba2},
    {"qwen3next", Layers::kByInterval, Recurrence::kMamba2},
};

Result<ArchitectureRow> FindArchitecture(const GgufFile& file) {
  TESSERA_ASSIGN_OR_RETURN(std::string_view name, file.GetString("general.architecture"));
  std::string known;
  for (const ArchitectureRow& architecture : kArchitectures) {
    if (architecture.name == name) return architecture;
    known += fmt::format("{}{}", known.empty() ? "" : ", ", architecture.name);
  }
  return BadFile(fmt::format("{}: key 'general.architecture': expected one of {}, found {}",
                             file.path(), known, Quoted(name)));
}

// What each block holds; blocks is block_count, of which the first `layers` run.
struct Blocks {
  uint32_t count = 0;
  uint32_t layers = 0;
  std::vector<bool> attention;
  std::vector<bool> recurrent;
  std::vector<uint32_t> kv_heads;  // of all blocks; empty when none is read
};

Status ReadBlockCount(const ShapeReader& reader, const ArchitectureRow& architecture,
                      Blocks* blocks) {
  TESSERA_RETURN_IF_ERROR(reader.Read("block_count", 1, kLayersMax, &blocks->count));
  blocks->layers = blocks->count;
  const bool may_predict = architecture.layers == Layers::kByInterval ||
                           architecture.layers == Layers::kByKvHeadsWithoutMlp;
  if (!may_predict) return Status::Ok();
  uint32_t predicting = 0;
  TESSERA_RETURN_IF_ERROR(
      reader.ReadOr("nextn_predict_layers", 0, 0, blocks->count - 1, &predicting));
  blocks->layers -= predicting;
  return Status::Ok();
}

Status ReadIntervals(const ShapeReader& reader, Blocks* blocks) {
  constexpr std::string_view kRecurrent = "attention.recurrent_layers";
  std::vector<uint32_t> recurrent(blocks->count);
  if (reader.Has(kRecurrent)) {
    TESSERA_RETURN_IF_ERROR(reader.ReadPerLayer(kRecurrent, blocks->count, 1, &recurrent));
  } else {
    uint32_t interval = 0;
    TESSERA_RETURN_IF_ERROR(reader.ReadOr("full_attention_interval", 4, 1, kLayersMax, &interval));
    for (uint32_t i = 0; i < blocks->count; ++i) recurrent[i] = (i + 1) % interval != 0;
  }
  for (uint32_t i = 0; i < blocks->layers; ++i) {
    blocks->recurrent[i] = recurrent[i] != 0;
    blocks->attention[i] = recurrent[i] == 0;
  }
  return Status::Ok();
}

Status ReadByKvHeads(const ShapeReader& reader, bool some_are_mlp, Blocks* blocks) {
  std::vector<uint32_t> mlp(blocks->count, 0);
  if (some_are_mlp) {
    TESSERA_RETURN_IF_ERROR(
        reader.ReadPerLayer("feed_forward_length", blocks->count, kRowMax, &mlp));
  }
  for (uint32_t i = 0; i < blocks->layers; ++i) {
    blocks->recurrent[i] = blocks->kv_heads[i] == 0 && mlp[i] == 0;
    blocks->attention[i] = blocks->kv_heads[i] > 0 && mlp[i] == 0;
  }
  return Status::Ok();
}

Result<Blocks> ReadBlocks(const ShapeReader& reader, const ArchitectureRow& architecture) {
  Blocks blocks;
  TESSERA_RETURN_IF_ERROR(ReadBlockCount(reader, architecture, &blocks));
  blocks.attention.assign(blocks.count, architecture.layers != Layers::kRecurrent);
  blocks.recurrent.assign(blocks.count, architecture.layers != Layers::kAttention);
  const bool by_kv_heads = architecture.layers == Layers::kByKvHeads ||
                           architecture.layers == Layers::kByKvHeadsWithoutMlp;
  if (architecture.layers != Layers::kRecurrent) {
    // As many as heads when the file does not say; where it says which layers, it must.
    const bool said = by_kv_heads || reader.Has(kKvHeads);
    TESSERA_RETURN_IF_ERROR(
        reader.ReadPerLayer(said ? kKvHeads : kHeads, blocks.count, kHeadsMax, &blocks.kv_heads));
  }
  if (architecture.layers == Layers::kByInterval) {
    TESSERA_RETURN_IF_ERROR(ReadIntervals(reader, &blocks));
  } else if (by_kv_heads) {
    const bool some_are_mlp = architecture.layers == Layers::kByKvHeadsWithoutMlp;
    TESSERA_RETURN_IF_ERROR(ReadByKvHeads(reader, some_are_mlp, &blocks));
  }
  return blocks;
}

// The one value that attention layers have; state is as large in each.
Status ReadHeads(const ShapeReader& reader, const Blocks& blocks, StateShape* shape,
                 uint32_t* heads) {
  std::vector<uint32_t> all_heads;
  TESSERA_RETURN_IF_ERROR(reader.ReadPerLayer(kHeads, blocks.count, kHeadsMax, &all_heads));
  for (uint32_t i = 0; i < blocks.layers; ++i) {
    if (!blocks.attention[i]) continue;
    if (shape->kv_heads == 0) {
      shape->kv_heads = blocks.kv_heads[i];
      *heads = all_heads[i];
    }
    if (blocks.kv_heads[i] == 0 || blocks.kv_heads[i] != shape->kv_heads) {
      return reader.Refuse(reader.Key(kKvHeads),
                           "as many KV heads, above 0, in each attention layer",
                           fmt::format("{} in layer {}", blocks.kv_heads[i], i));
    }
    if (all_heads[i] == 0 || all_heads[i] % shape->kv_heads != 0) {
      return reader.Refuse(
          reader.Key(kHeads),
          fmt::format("a positive multiple of {} = {}", reader.Key(kKvHeads), shape->kv_heads),
          fmt::format("{} in layer {}", all_heads[i], i));
    }
  }
  return Status::Ok();
}

Status ReadAttention(const ShapeReader& reader, const ArchitectureRow& architecture,
                     const Blocks& blocks, uint32_t width, StateShape* shape) {
  constexpr std::string_view kKey = "attention.key_length";
  constexpr std::string_view kValue = "attention.value_length";
  uint32_t heads = 0;
  TESSERA_RETURN_IF_ERROR(ReadHeads(reader, blocks, shape, &heads));
  // d / heads is wrong for Falcon-H1, whose files say.
  if (architecture.layers == Layers::kBothInEach || reader.Has(kKey)) {
    TESSERA_RETURN_IF_ERROR(reader.Read(kKey, 2, kHeadDimMax, &shape->head_dim));
  } else {
    TESSERA_RETURN_IF_ERROR(reader.Divides(kHeads, heads, "embedding_length", width));
    TESSERA_RETURN_IF_ERROR(reader.ReadOr(kKey, width / heads, 2, kHeadDimMax, &shape->head_dim));
  }
  if (shape->head_dim % 2 != 0) {
    return reader.Refuse(reader.Key(kKey), "an even number", fmt::format("{}", shape->head_dim));
  }
  uint32_t value_length = 0;
  TESSERA_RETURN_IF_ERROR(reader.ReadOr(kValue, shape->head_dim, 1, kHeadDimMax, &value_length));
  if (value_length == shape->head_dim) return Status::Ok();
  return reader.Refuse(reader.Key(kValue),
                       fmt::format("{} (as {})", shape->head_dim, reader.Key(kKey)),
                       fmt::format("{}", value_length));
}

Status ReadMamba(const ShapeReader& reader, bool has_heads, StateShape* shape) {
  constexpr std::string_view kInner = "ssm.inner_size";
  constexpr std::string_view kRank = "ssm.time_step_rank";
  constexpr std::string_view kState = "ssm.state_size";
  constexpr std::string_view kGroups = "ssm.group_count";
  uint32_t inner = 0;
  uint32_t kernel = 0;
  TESSERA_RETURN_IF_ERROR(reader.Read("ssm.conv_kernel", 2, kConvKernelMax, &kernel));
  TESSERA_RETURN_IF_ERROR(reader.Read(kInner, 1, kRowMax, &inner));
  TESSERA_RETURN_IF_ERROR(reader.Read(kState, 1, kSsmStateMax, &shape->ssm_state));
  shape->conv_taps = kernel - 1;
  shape->conv_channels = inner;
  if (!has_heads) {
    // Mamba-1: a row of N values for each channel. N = 16 in bf16 is half a vector, so as many
    // channels share a row as fill one.
    constexpr uint32_t kVectorValues = 32;
    const uint32_t channels = kVectorValues / std::gcd(kVectorValues, shape->ssm_state);
    const uint32_t shared = inner % channels == 0 ? channels : 1;
    shape->ssm_heads = inner / shared;
    shape->ssm_head_dim = 1;
    shape->ssm_state *= shared;
    return Status::Ok();
  }
  uint32_t groups = 0;
  TESSERA_RETURN_IF_ERROR(reader.Read(kRank, 1, kRowMax, &shape->ssm_heads));
  TESSERA_RETURN_IF_ERROR(reader.Read(kGroups, 1, kRowMax, &groups));
  TESSERA_RETURN_IF_ERROR(reader.Divides(kRank, shape->ssm_heads, kInner, inner));
  TESSERA_RETURN_IF_ERROR(reader.Divides(kGroups, groups, kRank, shape->ssm_heads));
  TESSERA_RETURN_IF_ERROR(reader.FitsRow(kGroups, groups, kState, shape->ssm_state));
  shape->ssm_head_dim = inner / shape->ssm_heads;
  shape->conv_channels = inner + 2 * groups * shape->ssm_state;
  return Status::Ok();
}

Status ReadRecurrence(const ShapeReader& reader, const ArchitectureRow& architecture,
                      uint32_t width, StateShape* shape) {
  if (architecture.recurrence != Recurrence::kShortConv) {
    return ReadMamba(reader, architecture.recurrence == Recurrence::kMamba2, shape);
  }
  uint32_t length = 0;
  TESSERA_RETURN_IF_ERROR(reader.Read("shortconv.l_cache", 2, kConvKernelMax, &length));
  shape->conv_channels = width;
  shape->conv_taps = length - 1;
  return Status::Ok();
}

}  // namespace

Result<StateGeometry> ReadStateGeometry(const GgufFile& file) {
  TESSERA_ASSIGN_OR_RETURN(const ArchitectureRow architecture, FindArchitecture(file));
  const ShapeReader reader(file, architecture.name);
  StateGeometry geometry;
  geometry.name = ModelName(file);
  TESSERA_RETURN_IF_ERROR(reader.Read("context_length", 1, kContextMax, &geometry.context_length));
  TESSERA_RETURN_IF_ERROR(reader.Read("embedding_length", 1, kRowMax, &geometry.width));
  TESSERA_ASSIGN_OR_RETURN(const Blocks blocks, ReadBlocks(reader, architecture));
  const auto count = [&](const std::vector<bool>& held) {
    return static_cast<uint32_t>(std::count(held.begin(), held.begin() + blocks.layers, true));
  };
  StateShape& shape = geometry.shape;
  shape.attention_layers = count(blocks.attention);
  shape.recurrent_layers = count(blocks.recurrent);
  if (shape.attention_layers > 0) {
    TESSERA_RETURN_IF_ERROR(ReadAttention(reader, architecture, blocks, geometry.width, &shape));
  }
  if (shape.recurrent_layers > 0) {
    TESSERA_RETURN_IF_ERROR(ReadRecurrence(reader, architecture, geometry.width, &shape));
  }
  const Status valid = shape.Validate();
  if (valid.ok()) return geometry;
  return BadFile(fmt::format("{}: {}.*: {}", file.path(), architecture.name, valid.message()));
}

}  // namespace tessera
