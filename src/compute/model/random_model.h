// SPDX-License-Identifier: Apache-2.0
//
// RandomModel writes GGUF files of seeded random weights in any shape the engine runs: models to
// measure speed with, and small ones to test with. Other engines load them too: keys, tensor names
// and types are those of the usual converters, and the vocabulary is a complete byte-level one
// (256 bytes, then one merge per token, one control token at the end; pre-tokenizer falcon-h1).
//
// The weights behave like a trained model's at start: matrices keep the size of what goes through
// them (variance about 1/k), norms are near 1, A is in [-16, -1] and the time steps' biases give Δ
// of 1e-3 to 1e-1.
//
// R1  The same options give the same bytes.
// R2  Write streams: beside the vocabulary its memory is about a megabyte, whatever the model.
//
// keys and tensors may be edited between Make and Write (tests make broken files that way); a
// tensor of a type that is not written otherwise is zeros. Failure: kInvalidArgument for a shape or
// type that cannot be written; kIo. Threads: one at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "base/status.h"
#include "compute/gguf/gguf_types.h"
#include "compute/model/model_shape.h"

namespace tessera {

class GgufWriter;

struct RandomModelOptions {
  ModelShape shape;
  // Of the matrices: any type a model may have (kMatrixTypes). A K type has blocks of 256; a matrix
  // whose rows are no multiple of it becomes Q8_0.
  GgufTensorType type = GgufTensorType::kBF16;
  // With Q4_K: Q6_K for the output head and, in every other layer, attn_v and ffn_down.
  bool larger_where_it_matters = false;
  bool ssm_norm = false;     // falcon-h1; mamba2 always has it
  bool tied_output = false;  // no output.weight
  uint64_t seed = 1;
};

class RandomModel {
 public:
  using Value = std::variant<uint32_t, float, bool, std::string, std::vector<std::string>,
                             std::vector<int32_t>>;
  struct Key {
    std::string name;
    Value value;
  };
  // Values are uniform in [low, high); in the types that are not rounded from such values (all
  // quantised ones but Q8_0) integers are uniform, with scales that give about that range.
  struct Tensor {
    std::string name;
    GgufTensorType type = GgufTensorType::kF32;
    std::vector<uint64_t> ne;
    float low = 0;
    float high = 0;
  };

  static Result<RandomModel> Make(const RandomModelOptions& options);
  // `progress`, when there is one, is told after each piece how many bytes of tensors are written,
  // and of how many.
  using Progress = std::function<void(uint64_t written, uint64_t of)>;
  Status Write(const std::string& path, const Progress& progress = {}) const;
  // The bytes of the same file, for GgufFile::Parse: no disk is touched.
  std::vector<std::byte> ToBytes() const;

  std::vector<Key> keys;
  std::vector<Tensor> tensors;

 private:
  explicit RandomModel(const RandomModelOptions& options) : options_(options) {}
  Status WriteTo(GgufWriter writer, const Progress& progress) const;
  void AddShapeKeys();
  void AddVocabulary();
  void AddTensors();
  void AddAttention(const std::string& layer);
  void AddSsm(const std::string& layer);
  void AddMlp(const std::string& layer);
  GgufTensorType TypeOfMatrix(const std::string& name, uint32_t k) const;
  void AddMatrix(std::string name, uint32_t n, uint32_t k);
  void AddSmall(std::string name, std::vector<uint64_t> ne, float low, float high);

  RandomModelOptions options_;
};

}  // namespace tessera
