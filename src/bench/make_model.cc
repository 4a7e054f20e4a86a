// SPDX-License-Identifier: Apache-2.0
#include "bench/make_model.h"

#include <fmt/format.h>

#include <string_view>
#include <utility>

#include "bench/geometries.h"
#include "compute/model/random_model.h"

namespace tessera {
namespace {

constexpr std::pair<std::string_view, GgufTensorType> kTypes[] = {
    {"f32", GgufTensorType::kF32},
    {"f16", GgufTensorType::kF16},
    {"bf16", GgufTensorType::kBF16},
    {"q8_0", GgufTensorType::kQ8_0},
};
// Far more than any model has; keeps a mistyped number from filling a disk's directory of tensors.
constexpr uint32_t kLayersMax = 1024;

Result<GgufTensorType> FindType(std::string_view name) {
  for (const auto& [known, type] : kTypes) {
    if (known == name) return type;
  }
  return InvalidArgument(fmt::format("--type: '{}' is none of f32, f16, bf16, q8_0", name));
}

}  // namespace

Status MakeModelFile(const MakeModelOptions& options, const std::string& path,
                     const MakeModelProgress& progress) {
  TESSERA_ASSIGN_OR_RETURN(const ModelGeometry geometry, FindModelGeometry(options.geometry));
  TESSERA_ASSIGN_OR_RETURN(const GgufTensorType type, FindType(options.type));
  if (options.layers > kLayersMax) {
    return InvalidArgument(
        fmt::format("--layers: expected at most {}, found {}", kLayersMax, options.layers));
  }
  RandomModelOptions random{.shape = geometry.shape,
                            .type = type,
                            .ssm_norm = geometry.ssm_norm,
                            .tied_output = geometry.tied_output,
                            .seed = options.seed};
  if (options.layers > 0) random.shape.layers = options.layers;
  TESSERA_ASSIGN_OR_RETURN(const RandomModel model, RandomModel::Make(random));
  return model.Write(path, progress);
}

}  // namespace tessera
