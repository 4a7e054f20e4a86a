// SPDX-License-Identifier: Apache-2.0
#include "compute/model/random_model.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdio>
#include <cstring>
#include <map>
#include <span>
#include <string_view>

#include "base/bytes.h"
#include "base/function_ref.h"
#include "base/random.h"
#include "compute/gguf/gguf_writer.h"
#include "compute/model/tensor_values.h"
#include "compute/tensor/number_formats.h"
#include "compute/tokenizer/byte_alphabet.h"

namespace tessera {
namespace {

constexpr uint32_t kByteTokens = 256;
constexpr int32_t kNormalToken = 1;
constexpr int32_t kControlToken = 3;
constexpr uint64_t kBufferBytes = kMiB;
constexpr uint32_t kQ8Block = 32;

std::string_view ArchitectureName(Architecture architecture) {
  switch (architecture) {
    case Architecture::kFalconH1:
      return "falcon-h1";
    case Architecture::kMamba2:
      return "mamba2";
    case Architecture::kLlama:
      return "llama";
  }
  return "";
}

uint32_t FileType(const RandomModelOptions& options) {
  // As the usual quantiser numbers its recipes; of Q3_K and Q4_K the small and the medium one.
  const std::map<GgufTensorType, uint32_t> numbers = {
      {GgufTensorType::kF32, 0},   {GgufTensorType::kF16, 1},   {GgufTensorType::kQ4_0, 2},
      {GgufTensorType::kQ4_1, 3},  {GgufTensorType::kQ8_0, 7},  {GgufTensorType::kQ5_0, 8},
      {GgufTensorType::kQ5_1, 9},  {GgufTensorType::kQ2_K, 10}, {GgufTensorType::kQ3_K, 11},
      {GgufTensorType::kQ4_K, 14}, {GgufTensorType::kQ5_K, 16}, {GgufTensorType::kQ6_K, 18},
      {GgufTensorType::kBF16, 32}};
  constexpr uint32_t kQ4_K_M = 15;
  return options.larger_where_it_matters ? kQ4_K_M : numbers.at(options.type);
}

// Two values of 32 random bits from each 64.
class ValueStream {
 public:
  ValueStream(const RandomModel::Tensor& tensor, uint64_t seed) : tensor_(tensor), random_(seed) {}

  // The larger end of the range, within ±20 %.
  float Bound() {
    const float bound = std::max(std::fabs(tensor_.low), std::fabs(tensor_.high));
    return bound * (0.8f + 0.4f * static_cast<float>(random_.Next() >> 40) * 0x1p-24f);
  }
  void Fill(std::byte* bytes, size_t count) {
    for (size_t i = 0; i < count; i += 8) {
      const uint64_t bits = random_.Next();
      std::memcpy(bytes + i, &bits, std::min<size_t>(8, count - i));
    }
  }

  float Next() {
    if (half_ == 0) bits_ = random_.Next();
    const auto part = static_cast<uint32_t>(bits_ >> (32 * half_));
    half_ = 1 - half_;
    const float unit = static_cast<float>(part >> 8) * 0x1p-24f;
    return tensor_.low + (tensor_.high - tensor_.low) * unit;
  }

 private:
  const RandomModel::Tensor& tensor_;
  Random random_;
  uint64_t bits_ = 0;
  int half_ = 0;
};

template <typename T>
void Append(std::vector<std::byte>* out, T value) {
  const size_t at = out->size();
  out->resize(at + sizeof(T));
  std::memcpy(out->data() + at, &value, sizeof(T));
}

// d = amax/127, stored as f16; q = x/d with the unrounded d, to the nearest.
void AppendQ8Block(std::vector<std::byte>* out, const float* values) {
  float amax = 0;
  for (uint32_t i = 0; i < kQ8Block; ++i) amax = std::max(amax, std::fabs(values[i]));
  const float d = amax / 127;
  Append(out, FloatToHalf(d));
  for (uint32_t i = 0; i < kQ8Block; ++i) {
    Append(out, static_cast<int8_t>(d == 0 ? 0 : std::nearbyint(values[i] / d)));
  }
}

// Where a block has its scales, and what they are for a largest weight of 1: integers are uniform
// and random scales near the middle of what they can be, so d is 1 / (largest integer · scale).
// Where there is a minimum or an offset, it makes the mean zero.
struct RandomBlock {
  size_t d;  // byte of the f16
  float d_value;
  size_t min;  // of dmin or m; 0: none
  float min_over_d;
};

RandomBlock RandomBlockOf(GgufTensorType type) {
  switch (type) {
    case GgufTensorType::kQ4_0:
      return {0, 1.0f / 8, 0, 0};
    case GgufTensorType::kQ4_1:
      return {0, 1.0f / 7.5f, 2, -7.5f};
    case GgufTensorType::kQ5_0:
      return {0, 1.0f / 16, 0, 0};
    case GgufTensorType::kQ5_1:
      return {0, 1.0f / 15.5f, 2, -15.5f};
    case GgufTensorType::kQ2_K:
      return {80, 1.0f / (1.5f * 13.5f), 82, 1.5f};
    case GgufTensorType::kQ3_K:
      return {108, 1.0f / (4 * 27.5f), 0, 0};
    case GgufTensorType::kQ4_K:
      return {0, 1.0f / (7.5f * 55.5f), 2, 7.5f};
    case GgufTensorType::kQ5_K:
      return {0, 1.0f / (15.5f * 55.5f), 2, 15.5f};
    case GgufTensorType::kQ6_K:
      return {208, 1.0f / (32 * 111.5f), 0, 0};
    default:
      return {};
  }
}

// Random bytes at `s` become 6-bit scales of 48..63 and equal minima (UnpackSixBits).
void EvenSixBits(std::byte* s) {
  for (size_t i = 0; i < 4; ++i) {
    const auto low = s[i] & std::byte{0x0F};
    const auto next = s[i + 8] & std::byte{0x0F};
    s[i] = s[i + 4] = std::byte{0xF0} | low;  // this scale, and the upper bits of the next four
    s[i + 8] = next | next << 4;
  }
}

// The sub-blocks' scales of a K type: near the largest, of either sign where they may be.
void EvenScales(GgufTensorType type, std::byte* block) {
  switch (type) {
    case GgufTensorType::kQ2_K:
      for (size_t i = 0; i < 16; ++i) {
        const auto scale = std::byte{0x0C} | (block[i] & std::byte{0x03});
        block[i] = scale | scale << 4;
      }
      return;
    case GgufTensorType::kQ3_K:  // 56..63 is 24..31, 0..7 is -32..-25
      for (size_t i = 0; i < 4; ++i) {
        std::byte* s = block + 96;
        for (size_t g = i; g < 16; g += 4) {
          std::byte& low = s[g % 8];
          const size_t shift = g < 8 ? 0 : 4;
          const bool negative = (s[8 + i] >> (g / 4 * 2) & std::byte{1}) == std::byte{0};
          low = (low & ~(std::byte{0x0F} << shift)) |
                (((low >> shift & std::byte{0x07}) | (negative ? std::byte{0x00} : std::byte{0x08}))
                 << shift);
          const auto pair = negative ? std::byte{0x00} : std::byte{0x03};
          s[8 + i] = (s[8 + i] & ~(std::byte{0x03} << (g / 4 * 2))) | pair << (g / 4 * 2);
        }
      }
      return;
    case GgufTensorType::kQ4_K:
    case GgufTensorType::kQ5_K:
      return EvenSixBits(block + 4);
    case GgufTensorType::kQ6_K:  // 96..127 and -97..-128
      for (size_t i = 192; i < 208; ++i) {
        const bool negative = (block[i] & std::byte{0x80}) != std::byte{0};
        const auto low = block[i] & std::byte{0x1F};
        block[i] = (negative ? std::byte{0x80} : std::byte{0x60}) | low;
      }
      return;
    default:
      return;
  }
}

void AppendRandomBlock(GgufTensorType type, ValueStream* values, std::vector<std::byte>* out) {
  const size_t bytes = FindTensorTraits(static_cast<uint32_t>(type))->block_bytes;
  const size_t at = out->size();
  out->resize(at + bytes);
  std::byte* block = out->data() + at;
  const RandomBlock parts = RandomBlockOf(type);
  values->Fill(block, bytes);
  EvenScales(type, block);
  const float d = parts.d_value * values->Bound();
  const uint16_t d_half = FloatToHalf(d);
  std::memcpy(block + parts.d, &d_half, 2);
  if (parts.min == 0) return;
  const uint16_t min_half = FloatToHalf(d * parts.min_over_d);
  std::memcpy(block + parts.min, &min_half, 2);
}

// The next block of a tensor (one element for the types without blocks).
void AppendBlock(GgufTensorType type, ValueStream* values, std::vector<std::byte>* out) {
  switch (type) {
    case GgufTensorType::kF32:
      return Append(out, values->Next());
    case GgufTensorType::kF16:
      return Append(out, FloatToHalf(values->Next()));
    case GgufTensorType::kBF16:
      return Append(out, FloatToBf16(values->Next()));
    case GgufTensorType::kQ8_0: {
      float block[kQ8Block];
      for (float& value : block) value = values->Next();
      return AppendQ8Block(out, block);
    }
    default:
      if (WeightTypeOf(type)) return AppendRandomBlock(type, values, out);
      // Only after an edit: zeros.
      out->resize(out->size() + FindTensorTraits(static_cast<uint32_t>(type))->block_bytes);
  }
}

uint64_t ElementCount(const RandomModel::Tensor& tensor) {
  uint64_t elements = 1;
  for (uint64_t size : tensor.ne) elements *= size;
  return elements;
}

uint64_t ByteCount(const RandomModel::Tensor& tensor) {
  const GgufTensorTraits* traits = FindTensorTraits(static_cast<uint32_t>(tensor.type));
  return ElementCount(tensor) / traits->block_elements * traits->block_bytes;
}

// `written` is called with the size of each piece.
Status WriteTensor(const RandomModel::Tensor& tensor, uint64_t seed, GgufWriter* writer,
                   FunctionRef<void(uint64_t)> written) {
  ValueStream values(tensor, seed);
  const uint64_t elements = ElementCount(tensor);
  const uint32_t block_elements =
      FindTensorTraits(static_cast<uint32_t>(tensor.type))->block_elements;
  std::vector<std::byte> buffer;
  const uint32_t block_bytes = FindTensorTraits(static_cast<uint32_t>(tensor.type))->block_bytes;
  buffer.reserve(kBufferBytes + block_bytes);
  for (uint64_t done = 0; done < elements; done += block_elements) {
    AppendBlock(tensor.type, &values, &buffer);
    if (buffer.size() < kBufferBytes && done + block_elements < elements) continue;
    TESSERA_RETURN_IF_ERROR(writer->Write(buffer));
    written(buffer.size());
    buffer.clear();
  }
  return Status::Ok();
}

struct KeyWriter {
  GgufWriter* writer;
  const std::string& name;
  void operator()(uint32_t value) const { writer->AddU32(name, value); }
  void operator()(float value) const { writer->AddF32(name, value); }
  void operator()(bool value) const { writer->AddBool(name, value); }
  void operator()(const std::string& value) const { writer->AddString(name, value); }
  void operator()(const std::vector<std::string>& v) const { writer->AddStringArray(name, v); }
  void operator()(const std::vector<int32_t>& v) const { writer->AddI32Array(name, v); }
};

Status CheckOptions(const RandomModelOptions& options) {
  if (!WeightTypeOf(options.type)) {
    return InvalidArgument(fmt::format("weight type: expected one of {}, found {}", kMatrixTypes,
                                       TensorTypeName(options.type)));
  }
  if (options.larger_where_it_matters && options.type != GgufTensorType::kQ4_K) {
    return InvalidArgument(
        fmt::format("weight type: expected Q4_K where some matrices are to be larger, found {}",
                    TensorTypeName(options.type)));
  }
  const ModelShape& shape = options.shape;
  // Every byte, a merge (files without one are refused) and the control token.
  if (shape.vocab_size < kByteTokens + 2) {
    return InvalidArgument(fmt::format("vocabulary: expected at least {} tokens, found {}",
                                       kByteTokens + 2, shape.vocab_size));
  }
  for (uint32_t k :
       {shape.width, shape.heads * shape.head_dim, shape.ssm_inner, shape.feed_forward}) {
    if (FindTensorTraits(static_cast<uint32_t>(options.type))->block_elements > 1 &&
        k % kQ8Block != 0) {
      return InvalidArgument(fmt::format("{}: expected rows of a multiple of {}, found {}",
                                         TensorTypeName(options.type), kQ8Block, k));
    }
  }
  return Status::Ok();
}

}  // namespace

Result<RandomModel> RandomModel::Make(const RandomModelOptions& options) {
  TESSERA_RETURN_IF_ERROR(CheckOptions(options));
  RandomModel model(options);
  model.AddShapeKeys();
  model.AddVocabulary();
  model.AddTensors();
  return model;
}

void RandomModel::AddShapeKeys() {
  const ModelShape& shape = options_.shape;
  const std::string prefix = std::string(ArchitectureName(shape.architecture)) + ".";
  auto add = [&](std::string_view name, auto value) {
    keys.push_back({prefix + std::string(name), value});
  };
  keys.push_back({"general.architecture", std::string(ArchitectureName(shape.architecture))});
  keys.push_back({"general.name", shape.name});
  keys.push_back({"general.file_type", FileType(options_)});
  add("block_count", shape.layers);
  add("context_length", shape.context_length);
  add("embedding_length", shape.width);
  add("feed_forward_length", shape.feed_forward);
  add("vocab_size", shape.vocab_size);
  add("attention.layer_norm_rms_epsilon", shape.rms_eps);
  add("attention.head_count", shape.heads);
  if (shape.has_attention()) {
    add("attention.head_count_kv", shape.kv_heads);
    add("attention.key_length", shape.head_dim);
    add("attention.value_length", shape.head_dim);
    add("rope.dimension_count", shape.n_rot);
    add("rope.freq_base", static_cast<float>(shape.rope_base));
  }
  if (shape.has_ssm()) {
    add("ssm.conv_kernel", shape.conv_kernel);
    add("ssm.inner_size", shape.ssm_inner);
    add("ssm.state_size", shape.ssm_state);
    add("ssm.time_step_rank", shape.ssm_heads);
    add("ssm.group_count", shape.ssm_groups);
  }
}

// Merge k joins token k / 256 and byte k mod 256, and makes token 256 + k: every pair of bytes
// first, then triples; no two are the same text.
void RandomModel::AddVocabulary() {
  const uint32_t size = options_.shape.vocab_size;
  std::vector<std::string> tokens;
  std::vector<std::string> merges;
  for (uint32_t byte = 0; byte < kByteTokens; ++byte) {
    tokens.push_back(AlphabetFromBytes(std::string(1, static_cast<char>(byte))));
  }
  for (uint32_t k = 0; kByteTokens + k + 1 < size; ++k) {
    const std::string left = tokens[k / kByteTokens];
    const std::string right = tokens[k % kByteTokens];
    merges.push_back(left + " " + right);
    tokens.push_back(left + right);
  }
  tokens.push_back("<|end_of_text|>");
  std::vector<int32_t> types(size, kNormalToken);
  types.back() = kControlToken;
  const uint32_t end_of_text = size - 1;
  keys.push_back({"tokenizer.ggml.model", std::string("gpt2")});
  keys.push_back({"tokenizer.ggml.pre", std::string("falcon-h1")});
  keys.push_back({"tokenizer.ggml.tokens", std::move(tokens)});
  keys.push_back({"tokenizer.ggml.token_type", std::move(types)});
  keys.push_back({"tokenizer.ggml.merges", std::move(merges)});
  keys.push_back({"tokenizer.ggml.bos_token_id", end_of_text});
  keys.push_back({"tokenizer.ggml.eos_token_id", end_of_text});
  keys.push_back({"tokenizer.ggml.padding_token_id", end_of_text});
  keys.push_back({"tokenizer.ggml.add_bos_token", false});
}

GgufTensorType RandomModel::TypeOfMatrix(const std::string& name, uint32_t k) const {
  GgufTensorType type = options_.type;
  if (FindTensorTraits(static_cast<uint32_t>(type))->block_elements == 256 && k % 256 != 0) {
    return GgufTensorType::kQ8_0;
  }
  if (!options_.larger_where_it_matters) return type;
  uint32_t layer = 0;
  const bool in_layer = std::sscanf(name.c_str(), "blk.%u.", &layer) == 1;
  const bool matters = in_layer ? layer % 2 == 0 && (name.ends_with("attn_v.weight") ||
                                                     name.ends_with("ffn_down.weight"))
                                : name == "output.weight" || options_.tied_output;
  return matters ? GgufTensorType::kQ6_K : type;
}

// Uniform in ±sqrt(3/k): variance 1/k.
void RandomModel::AddMatrix(std::string name, uint32_t n, uint32_t k) {
  const float bound = std::sqrt(3.0f / static_cast<float>(k));
  const GgufTensorType type = TypeOfMatrix(name, k);
  tensors.push_back({std::move(name), type, {k, n}, -bound, bound});
}

void RandomModel::AddSmall(std::string name, std::vector<uint64_t> ne, float low, float high) {
  tensors.push_back({std::move(name), GgufTensorType::kF32, std::move(ne), low, high});
}

void RandomModel::AddAttention(const std::string& layer) {
  const ModelShape& shape = options_.shape;
  const uint32_t q = shape.heads * shape.head_dim;
  const uint32_t kv = shape.kv_heads * shape.head_dim;
  AddMatrix(layer + "attn_q.weight", q, shape.width);
  AddMatrix(layer + "attn_k.weight", kv, shape.width);
  AddMatrix(layer + "attn_v.weight", kv, shape.width);
  AddMatrix(layer + "attn_output.weight", shape.width, q);
}

void RandomModel::AddSsm(const std::string& layer) {
  const ModelShape& shape = options_.shape;
  const uint64_t heads = shape.ssm_heads;
  const uint64_t channels = shape.conv_channels();
  AddMatrix(layer + "ssm_in.weight", shape.ssm_in_rows(), shape.width);
  AddSmall(layer + "ssm_conv1d.weight", {shape.conv_kernel, channels}, -0.6f, 0.6f);
  AddSmall(layer + "ssm_conv1d.bias", {channels}, -0.1f, 0.1f);
  // softplus of these is 1e-3 and 1e-1, and nearly log-uniform between them.
  AddSmall(layer + "ssm_dt.bias", {heads}, -6.9073f, -2.2522f);
  AddSmall(layer + "ssm_a", {1, heads}, -16.0f, -1.0f);
  AddSmall(layer + "ssm_d", {1, heads}, 0.5f, 1.5f);
  if (options_.ssm_norm || shape.architecture == Architecture::kMamba2) {
    AddSmall(layer + "ssm_norm.weight", {shape.ssm_inner / shape.ssm_groups, shape.ssm_groups},
             0.9f, 1.1f);
  }
  AddMatrix(layer + "ssm_out.weight", shape.width, shape.ssm_inner);
}

void RandomModel::AddMlp(const std::string& layer) {
  const ModelShape& shape = options_.shape;
  // The converter's name for falcon-h1 has no suffix.
  const bool bare = shape.architecture == Architecture::kFalconH1;
  AddSmall(layer + (bare ? "ffn_norm" : "ffn_norm.weight"), {shape.width}, 0.9f, 1.1f);
  AddMatrix(layer + "ffn_gate.weight", shape.feed_forward, shape.width);
  AddMatrix(layer + "ffn_up.weight", shape.feed_forward, shape.width);
  AddMatrix(layer + "ffn_down.weight", shape.width, shape.feed_forward);
}

void RandomModel::AddTensors() {
  const ModelShape& shape = options_.shape;
  // Embedding elements of variance 1, whatever d.
  const float embedding = std::sqrt(3.0f);
  const GgufTensorType embedding_type = TypeOfMatrix("token_embd.weight", shape.width);
  tensors.push_back({"token_embd.weight",
                     embedding_type,
                     {shape.width, shape.vocab_size},
                     -embedding,
                     embedding});
  if (!options_.tied_output) AddMatrix("output.weight", shape.vocab_size, shape.width);
  AddSmall("output_norm.weight", {shape.width}, 0.9f, 1.1f);
  for (uint32_t i = 0; i < shape.layers; ++i) {
    const std::string layer = fmt::format("blk.{}.", i);
    AddSmall(layer + "attn_norm.weight", {shape.width}, 0.9f, 1.1f);
    if (shape.has_attention()) AddAttention(layer);
    if (shape.has_ssm()) AddSsm(layer);
    if (shape.feed_forward > 0) AddMlp(layer);
  }
}

Status RandomModel::Write(const std::string& path, const Progress& progress) const {
  TESSERA_ASSIGN_OR_RETURN(GgufWriter writer, GgufWriter::Create(path));
  return WriteTo(std::move(writer), progress);
}

std::vector<std::byte> RandomModel::ToBytes() const {
  std::vector<std::byte> bytes;
  TESSERA_CHECK(WriteTo(GgufWriter::InMemory(&bytes), {}).ok());
  return bytes;
}

Status RandomModel::WriteTo(GgufWriter writer, const Progress& progress) const {
  for (const Key& key : keys) std::visit(KeyWriter{&writer, key.name}, key.value);
  for (const Tensor& tensor : tensors) writer.DeclareTensor(tensor.name, tensor.type, tensor.ne);
  TESSERA_RETURN_IF_ERROR(writer.BeginData());
  uint64_t total = 0;
  for (const Tensor& tensor : tensors) total += ByteCount(tensor);
  uint64_t done = 0;
  const auto written = [&](uint64_t bytes) {
    done += bytes;
    if (progress) progress(done, total);
  };
  for (size_t i = 0; i < tensors.size(); ++i) {
    const uint64_t seed = CounterRandom(options_.seed, i);
    TESSERA_RETURN_IF_ERROR(WriteTensor(tensors[i], seed, &writer, written));
  }
  return writer.Finish();
}

}  // namespace tessera
