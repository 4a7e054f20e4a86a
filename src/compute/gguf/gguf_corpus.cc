// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <array>

#include "compute/gguf/gguf_test_files.h"
#include "compute/gguf/gguf_writer.h"

namespace tessera::testing {
namespace {

// `size_bytes` bytes that differ between tensors.
std::string Pattern(size_t size_bytes, uint8_t seed) {
  std::string out(size_bytes, '\0');
  for (size_t i = 0; i < size_bytes; ++i) out[i] = static_cast<char>(37 * i + seed);
  return out;
}

void WriteTensors(GgufWriter* writer, const std::vector<size_t>& sizes_bytes) {
  ASSERT_TRUE(writer->BeginData().ok());
  uint8_t seed = 0;
  for (size_t size_bytes : sizes_bytes) {
    ASSERT_TRUE(writer->Write(AsBytes(Pattern(size_bytes, ++seed))).ok());
  }
  Status finished = writer->Finish();
  ASSERT_TRUE(finished.ok()) << finished.message();
}

void Declare(GgufWriter* writer, std::string_view name, GgufTensorType type,
             std::vector<uint64_t> ne) {
  writer->DeclareTensor(name, type, ne);
}

std::string MakeEmpty(const std::string& path) {
  GgufWriter writer = GgufWriter::Create(path).value();
  WriteTensors(&writer, {});
  return ReadFile(path);
}

std::string MakeTensors(const std::string& path) {
  GgufWriter writer = GgufWriter::Create(path).value();
  writer.AddString("general.architecture", "toy");
  Declare(&writer, "f32", GgufTensorType::kF32, {3});
  Declare(&writer, "q8_0", GgufTensorType::kQ8_0, {32, 2});
  Declare(&writer, "q4_k", GgufTensorType::kQ4_K, {256, 1, 2});
  Declare(&writer, "i8", GgufTensorType::kI8, {1, 1, 1, 1});
  WriteTensors(&writer, {12, 68, 288, 1});
  return ReadFile(path);
}

// The keys of a hybrid model with its tokenizer, cut down.
std::string MakeHybrid(const std::string& path) {
  GgufWriter writer = GgufWriter::Create(path).value();
  writer.AddString("general.architecture", "falcon-h1");
  writer.AddU32("falcon-h1.block_count", 1);
  writer.AddF32("falcon-h1.rope.freq_base", 1e11f);
  writer.AddBool("tokenizer.ggml.add_bos_token", false);
  writer.AddStringArray("tokenizer.ggml.tokens", std::array<std::string, 3>{"a", "", "\xC4\xA0"});
  writer.AddI32Array("tokenizer.ggml.token_type", std::array<int32_t, 3>{1, 3, -1});
  writer.AddF32Array("tokenizer.ggml.scores", std::array<float, 3>{0, -1, 0.5f});
  Declare(&writer, "token_embd.weight", GgufTensorType::kF16, {8, 3});
  Declare(&writer, "blk.0.ssm_a", GgufTensorType::kF32, {1, 4});
  WriteTensors(&writer, {48, 16});
  return ReadFile(path);
}

}  // namespace

RawGguf AllValueTypes() {
  RawGguf raw;
  raw.version = 2;
  raw.Key("u8", GgufValueType::kU8, U8(200));
  raw.Key("i8", GgufValueType::kI8, U8(0xFE));
  raw.Key("u16", GgufValueType::kU16, U16(65535));
  raw.Key("i16", GgufValueType::kI16, Raw<int16_t>(-300));
  raw.Key("u32", GgufValueType::kU32, U32(4294967295u));
  raw.Key("i32", GgufValueType::kI32, Raw<int32_t>(-70000));
  raw.Key("u64", GgufValueType::kU64, U64(uint64_t{1} << 63));
  raw.Key("i64", GgufValueType::kI64, Raw<int64_t>(-(int64_t{1} << 40)));
  raw.Key("f32", GgufValueType::kF32, Raw(0.5f));
  raw.Key("f64", GgufValueType::kF64, Raw(-0.25));
  raw.Key("f64.big", GgufValueType::kF64, Raw(1e300));
  raw.Key("bool", GgufValueType::kBool, U8(1));
  raw.Key("string", GgufValueType::kString, Text("text"));
  raw.Key("a.u8", GgufValueType::kArray, Array(GgufValueType::kU8, 2, U8(1) + U8(255)));
  raw.Key("a.i16", GgufValueType::kArray, Array(GgufValueType::kI16, 1, Raw<int16_t>(-2)));
  raw.Key("a.u32", GgufValueType::kArray, Array(GgufValueType::kU32, 1, U32(1u << 31)));
  raw.Key("a.i64", GgufValueType::kArray, Array(GgufValueType::kI64, 1, Raw<int64_t>(-9)));
  raw.Key("a.bool", GgufValueType::kArray, Array(GgufValueType::kBool, 2, U8(0) + U8(1)));
  raw.Key("a.string", GgufValueType::kArray,
          Array(GgufValueType::kString, 2, Text("x") + Text("")));
  raw.Key("a.empty", GgufValueType::kArray, Array(GgufValueType::kI32, 0, ""));
  return raw;
}

std::map<std::string, std::string> MakeCorpus(const TempDir& dir) {
  return {
      {"all_value_types.gguf", AllValueTypes().Build()},
      {"empty.gguf", MakeEmpty(dir.File("empty"))},
      {"hybrid.gguf", MakeHybrid(dir.File("hybrid"))},
      {"tensors.gguf", MakeTensors(dir.File("tensors"))},
  };
}

}  // namespace tessera::testing
