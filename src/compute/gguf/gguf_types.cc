// SPDX-License-Identifier: Apache-2.0
#include "compute/gguf/gguf_types.h"

#include <fmt/format.h>

#include "base/check.h"

namespace tessera {
namespace {

struct TypeRow {
  GgufTensorType type;
  GgufTensorTraits traits;
};

// name, elements per block, bytes per block. The K types pack 256 elements: Q6_K, for one, is
// 128 + 64 bytes of quants, 16 of scales and a half: 210.
constexpr TypeRow kTypes[] = {
    {GgufTensorType::kF32, {"F32", 1, 4}},       {GgufTensorType::kF16, {"F16", 1, 2}},
    {GgufTensorType::kQ4_0, {"Q4_0", 32, 18}},   {GgufTensorType::kQ4_1, {"Q4_1", 32, 20}},
    {GgufTensorType::kQ5_0, {"Q5_0", 32, 22}},   {GgufTensorType::kQ5_1, {"Q5_1", 32, 24}},
    {GgufTensorType::kQ8_0, {"Q8_0", 32, 34}},   {GgufTensorType::kQ8_1, {"Q8_1", 32, 36}},
    {GgufTensorType::kQ2_K, {"Q2_K", 256, 84}},  {GgufTensorType::kQ3_K, {"Q3_K", 256, 110}},
    {GgufTensorType::kQ4_K, {"Q4_K", 256, 144}}, {GgufTensorType::kQ5_K, {"Q5_K", 256, 176}},
    {GgufTensorType::kQ6_K, {"Q6_K", 256, 210}}, {GgufTensorType::kQ8_K, {"Q8_K", 256, 292}},
    {GgufTensorType::kI8, {"I8", 1, 1}},         {GgufTensorType::kI16, {"I16", 1, 2}},
    {GgufTensorType::kI32, {"I32", 1, 4}},       {GgufTensorType::kI64, {"I64", 1, 8}},
    {GgufTensorType::kF64, {"F64", 1, 8}},       {GgufTensorType::kBF16, {"BF16", 1, 2}},
};

// Types that exist or existed but that we do not read, so that the refusal can call them by name.
struct OtherType {
  uint32_t type;
  std::string_view name;
  bool removed;
};
constexpr OtherType kOtherTypes[] = {
    {4, "Q4_2", true},        {5, "Q4_3", true},        {16, "IQ2_XXS", false},
    {17, "IQ2_XS", false},    {18, "IQ3_XXS", false},   {19, "IQ1_S", false},
    {20, "IQ4_NL", false},    {21, "IQ3_S", false},     {22, "IQ2_S", false},
    {23, "IQ4_XS", false},    {29, "IQ1_M", false},     {31, "Q4_0_4_4", true},
    {32, "Q4_0_4_8", true},   {33, "Q4_0_8_8", true},   {34, "TQ1_0", false},
    {35, "TQ2_0", false},     {36, "IQ4_NL_4_4", true}, {37, "IQ4_NL_4_8", true},
    {38, "IQ4_NL_8_8", true}, {39, "MXFP4", false},     {40, "NVFP4", false},
    {41, "Q1_0", false},      {42, "Q2_0", false},
};

}  // namespace

const GgufTensorTraits* FindTensorTraits(uint32_t type) {
  for (const TypeRow& row : kTypes) {
    if (static_cast<uint32_t>(row.type) == type) return &row.traits;
  }
  return nullptr;
}

std::string_view TensorTypeName(GgufTensorType type) {
  const GgufTensorTraits* traits = FindTensorTraits(static_cast<uint32_t>(type));
  TESSERA_CHECK(traits != nullptr);
  return traits->name;
}

std::string DescribeTensorType(uint32_t type) {
  if (const GgufTensorTraits* traits = FindTensorTraits(type)) {
    return fmt::format("{} ({})", type, traits->name);
  }
  for (const OtherType& other : kOtherTypes) {
    if (other.type != type) continue;
    return fmt::format("{} ({}, {})", type, other.name,
                       other.removed ? "removed from the format" : "not supported");
  }
  return fmt::format("{} (unknown)", type);
}

std::string_view ValueTypeName(GgufValueType type) {
  switch (type) {
    case GgufValueType::kU8:
      return "u8";
    case GgufValueType::kI8:
      return "i8";
    case GgufValueType::kU16:
      return "u16";
    case GgufValueType::kI16:
      return "i16";
    case GgufValueType::kU32:
      return "u32";
    case GgufValueType::kI32:
      return "i32";
    case GgufValueType::kF32:
      return "f32";
    case GgufValueType::kBool:
      return "bool";
    case GgufValueType::kString:
      return "string";
    case GgufValueType::kArray:
      return "array";
    case GgufValueType::kU64:
      return "u64";
    case GgufValueType::kI64:
      return "i64";
    case GgufValueType::kF64:
      return "f64";
  }
  return "unknown";
}

}  // namespace tessera
