// SPDX-License-Identifier: Apache-2.0
//
// ShapeReader reads the metadata keys of one architecture within bounds: what a model's shape and
// its state geometry are read with.
//
// Failure: kBadFile, one line naming file and key with expected and found. Threads: const.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "compute/gguf/gguf_file.h"

namespace tessera {

// Far above every published model (Falcon-H1-34B: 72 layers, rows of 21,504), so low that no
// product of two of them times an element size leaves 64 bits and no row count leaves 32.
inline constexpr uint32_t kLayersMax = 1u << 12;
inline constexpr uint32_t kRowMax = 1u << 20;  // d, F, heads·head_dim, d_ssm, G·N
inline constexpr uint32_t kHeadsMax = 1u << 12;
inline constexpr uint32_t kHeadDimMax = 1u << 10;
inline constexpr uint32_t kSsmStateMax = 1u << 12;
inline constexpr uint32_t kConvKernelMax = 16;
inline constexpr uint32_t kContextMax = 1u << 30;

class ShapeReader {
 public:
  // Both must outlive the reader; `prefix` is the architecture's name.
  ShapeReader(const GgufFile& file, std::string_view prefix) : file_(file), prefix_(prefix) {}

  std::string Key(std::string_view name) const;
  bool Has(std::string_view name) const { return file_.FindValue(Key(name)) != nullptr; }

  Status Refuse(std::string_view key, std::string_view expected, std::string_view found) const;

  // A value in [min, max].
  Status Read(std::string_view name, uint32_t min, uint32_t max, uint32_t* value) const;
  Status ReadOr(std::string_view name, uint32_t fallback, uint32_t min, uint32_t max,
                uint32_t* value) const;
  // A finite value greater than zero.
  Status ReadPositive(std::string_view name, float fallback, float* value) const;
  // A value in [0, max] for each of `layers`: an array of as many integers or bools, or one number
  // for all.
  Status ReadPerLayer(std::string_view name, uint32_t layers, uint32_t max,
                      std::vector<uint32_t>* values) const;
  // `whole` must be a multiple of the key's value.
  Status Divides(std::string_view name, uint32_t value, std::string_view whole_name,
                 uint32_t whole) const;
  // a·b, computed from two keys, must fit a row.
  Status FitsRow(std::string_view a_name, uint32_t a, std::string_view b_name, uint32_t b) const;

 private:
  Status InRange(std::string_view name, uint32_t value, uint32_t min, uint32_t max) const;

  const GgufFile& file_;
  std::string_view prefix_;
};

// general.name, or the file's stem; printable.
std::string ModelName(const GgufFile& file);

}  // namespace tessera
