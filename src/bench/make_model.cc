// SPDX-License-Identifier: Apache-2.0
#include "bench/make_model.h"

#include <fmt/format.h>

#include <string>
#include <string_view>

#include "bench/geometries.h"
#include "compute/model/random_model.h"

namespace tessera {
namespace {

struct NamedType {
  std::string_view name;
  GgufTensorType type;
  bool larger_where_it_matters = false;
};
constexpr NamedType kTypes[] = {
    {"f32", GgufTensorType::kF32},           {"f16", GgufTensorType::kF16},
    {"bf16", GgufTensorType::kBF16},         {"q8_0", GgufTensorType::kQ8_0},
    {"q4_0", GgufTensorType::kQ4_0},         {"q4_k", GgufTensorType::kQ4_K},
    {"q4_k_m", GgufTensorType::kQ4_K, true}, {"q6_k", GgufTensorType::kQ6_K},
};
// Far more than any model has; keeps a mistyped number from filling a disk's directory of tensors.
constexpr uint32_t kLayersMax = 1024;

Result<NamedType> FindType(std::string_view name) {
  std::string names;
  for (const NamedType& known : kTypes) {
    if (known.name == name) return known;
    names += (names.empty() ? "" : ", ") + std::string(known.name);
  }
  return InvalidArgument(fmt::format("--type: '{}' is none of {}", name, names));
}

}  // namespace

Status MakeModelFile(const MakeModelOptions& options, const std::string& path,
                     const MakeModelProgress& progress) {
  TESSERA_ASSIGN_OR_RETURN(const ModelGeometry geometry, FindModelGeometry(options.geometry));
  TESSERA_ASSIGN_OR_RETURN(const NamedType type, FindType(options.type));
  if (options.layers > kLayersMax) {
    return InvalidArgument(
        fmt::format("--layers: expected at most {}, found {}", kLayersMax, options.layers));
  }
  RandomModelOptions random{.shape = geometry.shape,
                            .type = type.type,
                            .larger_where_it_matters = type.larger_where_it_matters,
                            .ssm_norm = geometry.ssm_norm,
                            .tied_output = geometry.tied_output,
                            .seed = options.seed};
  if (options.layers > 0) random.shape.layers = options.layers;
  TESSERA_ASSIGN_OR_RETURN(const RandomModel model, RandomModel::Make(random));
  return model.Write(path, progress);
}

}  // namespace tessera
