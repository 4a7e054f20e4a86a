// SPDX-License-Identifier: Apache-2.0
#include "compute/model/weight_source.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <span>

#include "compute/gguf/printable.h"
#include "compute/model/tensor_values.h"

namespace tessera {
namespace {

bool HasShape(const GgufTensor& tensor, std::initializer_list<uint64_t> ne) {
  size_t dimension = 0;
  for (uint64_t size : ne) {
    if (tensor.ne[dimension++] != size) return false;
  }
  return std::all_of(tensor.ne + dimension, tensor.ne + 4, [](uint64_t size) { return size == 1; });
}

std::string ShapeText(std::span<const uint64_t> ne) {
  std::string text;
  for (uint64_t size : ne) text += (text.empty() ? "{" : ", ") + std::to_string(size);
  return text + "}";
}

uint64_t Elements(std::initializer_list<uint64_t> ne) {
  uint64_t count = 1;
  for (uint64_t size : ne) count *= size;
  return count;
}

}  // namespace

WeightSource::WeightSource(const GgufFile& file) : file_(file), used_(file.tensors().size()) {}

std::string WeightSource::FirstOf(std::initializer_list<std::string> names) const {
  for (const std::string& name : names) {
    if (Has(name)) return name;
  }
  return *names.begin();
}

Result<MatrixTensor> WeightSource::Matrix(const std::string& name, uint32_t n, uint32_t k) {
  const GgufTensor* tensor = file_.FindTensor(name);
  if (tensor == nullptr) return Missing(name);
  if (!HasShape(*tensor, {k, n})) return WrongShape(*tensor, {k, n});
  std::optional<WeightType> type = WeightTypeOf(tensor->type);
  if (!type) return WrongType(*tensor, kMatrixTypes);
  MarkUsed(tensor);
  return MatrixTensor{tensor, *type};
}

Result<const GgufTensor*> WeightSource::Small(const std::string& name,
                                              std::initializer_list<uint64_t> ne, bool flat_too) {
  const GgufTensor* tensor = file_.FindTensor(name);
  if (tensor == nullptr) return Missing(name);
  if (!HasShape(*tensor, ne) && !(flat_too && HasShape(*tensor, {Elements(ne)}))) {
    return WrongShape(*tensor, ne);
  }
  if (!IsSmallTensorType(tensor->type)) return WrongType(*tensor, kSmallTensorTypes);
  MarkUsed(tensor);
  return tensor;
}

void WeightSource::Ignore(const std::string& name) {
  if (const GgufTensor* tensor = file_.FindTensor(name)) MarkUsed(tensor);
}

Status WeightSource::RefuseLeftOver(std::string_view architecture) const {
  for (size_t i = 0; i < used_.size(); ++i) {
    if (used_[i]) continue;
    return BadFile(
        fmt::format("{}: tensor {}: expected only tensors of a {} model, found one that "
                    "its forward pass does not use",
                    file_.path(), Quoted(file_.tensors()[i].name), architecture));
  }
  return Status::Ok();
}

Status WeightSource::Missing(const std::string& name) const {
  return BadFile(fmt::format("{}: missing tensor '{}'", file_.path(), name));
}

Status WeightSource::WrongShape(const GgufTensor& tensor,
                                std::initializer_list<uint64_t> ne) const {
  return BadFile(fmt::format("{}: tensor {}: expected shape {}, found {}", file_.path(),
                             Quoted(tensor.name), ShapeText({ne.begin(), ne.size()}),
                             ShapeText({tensor.ne, tensor.n_dims})));
}

Status WeightSource::WrongType(const GgufTensor& tensor, std::string_view supported) const {
  return BadFile(fmt::format("{}: tensor {}: expected type {}, found {}", file_.path(),
                             Quoted(tensor.name), supported, TensorTypeName(tensor.type)));
}

void WeightSource::MarkUsed(const GgufTensor* tensor) {
  used_[static_cast<size_t>(tensor - file_.tensors().data())] = true;
}

}  // namespace tessera
