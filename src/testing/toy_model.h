// SPDX-License-Identifier: Apache-2.0
//
// Small random models for tests: files that vanish with the test, opened and loaded.
//
// Threads: one.
#pragma once

#include <memory>
#include <string>

#include "compute/gguf/gguf_file.h"
#include "compute/model/model.h"
#include "compute/model/random_model.h"

namespace tessera {
class ThreadPool;
}

namespace tessera::testing {

// A file name of this process's own under the temporary directory; the file, if it comes to be, is
// removed with the object.
class TempFile {
 public:
  TempFile();
  ~TempFile();
  TempFile(const TempFile&) = delete;
  TempFile& operator=(const TempFile&) = delete;
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

// Two layers, d 64, 300 tokens, 4/2 heads of 16; SSM 6 heads of 16, state 24 (a row padded to 128
// bytes), 2 groups: every width is a multiple of 32 and few are of 64.
ModelShape ToyShape(Architecture architecture);
RandomModelOptions ToyOptions(Architecture architecture,
                              GgufTensorType type = GgufTensorType::kF32);

// Edits of a model before it is written. A key or tensor that is named must be there, except that
// SetKey adds what is missing.
void SetKey(RandomModel* model, const std::string& name, RandomModel::Value value);
void RemoveKey(RandomModel* model, const std::string& name);
RandomModel::Tensor* FindTensor(RandomModel* model, const std::string& name);
void RemoveTensor(RandomModel* model, const std::string& name);

// Writes the model and opens it again. The mapping outlives the file's name.
GgufFile WriteAndOpen(const RandomModel& model);

struct ToyModel {
  std::unique_ptr<Model> model;

  // Writes, opens and loads; a failure is a failed check.
  static ToyModel Make(const RandomModelOptions& options, ThreadPool& threads);
  static ToyModel Make(const RandomModel& random, ThreadPool& threads);
};

}  // namespace tessera::testing
