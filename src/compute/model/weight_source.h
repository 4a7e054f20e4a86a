// SPDX-License-Identifier: Apache-2.0
//
// WeightSource looks a model's tensors up by name in a GGUF file, checks shape and type, and
// remembers which were asked for, so that what is left over can be refused.
//
// Failure: kBadFile, one line naming file and tensor with expected and actual.
// Threads: one at a time.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "compute/gguf/gguf_file.h"
#include "compute/kernels/packed_matrix.h"

namespace tessera {

struct MatrixTensor {
  const GgufTensor* tensor = nullptr;
  WeightType type = WeightType::kF32;
};

class WeightSource {
 public:
  explicit WeightSource(const GgufFile& file);

  bool Has(std::string_view name) const { return file_.FindTensor(name) != nullptr; }
  // The first of the names that the file has; the first when it has none.
  std::string FirstOf(std::initializer_list<std::string> names) const;

  // A matrix with `n` outputs of `k` inputs: ne = {k, n}.
  Result<MatrixTensor> Matrix(const std::string& name, uint32_t n, uint32_t k);
  // A small tensor whose ne is `ne` (dimensions of 1 at the end may be left out), or, when
  // `flat_too`, one dimension with the same number of elements.
  Result<const GgufTensor*> Small(const std::string& name, std::initializer_list<uint64_t> ne,
                                  bool flat_too = false);
  // A tensor that belongs to the model but that its forward pass does not use.
  void Ignore(const std::string& name);
  // Refuses a file with a tensor that was never asked for.
  Status RefuseLeftOver(std::string_view architecture) const;

 private:
  Status Missing(const std::string& name) const;
  Status WrongShape(const GgufTensor& tensor, std::initializer_list<uint64_t> ne) const;
  Status WrongType(const GgufTensor& tensor, std::string_view supported) const;
  void MarkUsed(const GgufTensor* tensor);

  const GgufFile& file_;
  std::vector<bool> used_;  // of file_.tensors()
};

}  // namespace tessera
