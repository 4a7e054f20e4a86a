// SPDX-License-Identifier: Apache-2.0
//
// GgufWriter writes a GGUF v3 file, to disk or to memory: keys first, tensor declarations second,
// then the data of each tensor in declaration order, streamed, so that a model larger than memory
// can be made.
//
//   Declaring --BeginData--> Writing --(all declared bytes written) Finish--> Done
//
// W1  Offsets are the running sum of sizes padded to 32 bytes, in declaration order (what strict
//     readers demand).
// W2  The file appears at its path only at Finish: it is written beside it, without a name where
//     the file system has such files, and renamed. A writer that is destroyed earlier leaves
//     nothing.
//
// Failure: kIo names the path and errno's text (disk full included); calls out of order are bugs.
// Threads: one at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "compute/gguf/gguf_types.h"

namespace tessera {

class GgufWriter {
 public:
  static Result<GgufWriter> Create(const std::string& path);
  // Appends the file to `bytes`, which must outlive the writer, instead: no disk is touched.
  static GgufWriter InMemory(std::vector<std::byte>* bytes);
  GgufWriter(GgufWriter&&) noexcept;
  GgufWriter& operator=(GgufWriter&&) noexcept;
  ~GgufWriter();

  void AddU32(std::string_view key, uint32_t value);
  void AddF32(std::string_view key, float value);
  void AddBool(std::string_view key, bool value);
  void AddString(std::string_view key, std::string_view value);
  void AddStringArray(std::string_view key, std::span<const std::string> values);
  void AddI32Array(std::string_view key, std::span<const int32_t> values);
  void AddF32Array(std::string_view key, std::span<const float> values);

  // ne[0] must be a multiple of the type's block size.
  void DeclareTensor(std::string_view name, GgufTensorType type, std::span<const uint64_t> ne);

  Status BeginData();
  // The next bytes of the tensor data, in declaration order; pieces of any size, but a piece never
  // spans two tensors. Padding is the writer's affair.
  Status Write(std::span<const std::byte> bytes);
  Status Finish();

 private:
  struct State;
  explicit GgufWriter(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace tessera
