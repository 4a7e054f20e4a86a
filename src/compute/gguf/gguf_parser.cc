// SPDX-License-Identifier: Apache-2.0
#include "compute/gguf/gguf_parser.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>
#include <string>
#include <utility>

#include "base/bytes.h"
#include "compute/gguf/printable.h"

namespace tessera {
namespace {

static_assert(std::endian::native == std::endian::little, "numbers are copied as they lie");

constexpr std::string_view kMagic = "GGUF";
constexpr std::string_view kAlignmentKey = "general.alignment";
constexpr uint64_t kHeaderBytes = 24;
constexpr uint64_t kStringBytesMax = uint64_t{1} << 30;
constexpr uint64_t kArrayElementsMax = uint64_t{1} << 30;
constexpr uint64_t kTensorNameBytesEnd = 64;  // 63 and a NUL in the reference reader
constexpr uint32_t kDimsMax = 4;
constexpr uint64_t kElementsEnd = uint64_t{1} << 63;
constexpr uint64_t kAlignmentDefault = 32;
constexpr uint64_t kAlignmentMin = 8;  // the format wants a multiple of 8
// The least a key (length, one character, type, one byte) and a tensor (length, one character,
// dimension count, one dimension, type, offset) take: what a count in the header must leave room
// for.
constexpr uint64_t kKeyBytesMin = 8 + 1 + 4 + 1;
constexpr uint64_t kTensorBytesMin = 8 + 1 + 4 + 8 + 4 + 8;

uint64_t SaturatingAdd(uint64_t a, uint64_t b) {
  uint64_t sum = 0;
  return __builtin_add_overflow(a, b, &sum) ? std::numeric_limits<uint64_t>::max() : sum;
}

uint64_t SaturatingMultiply(uint64_t a, uint64_t b) {
  uint64_t product = 0;
  return __builtin_mul_overflow(a, b, &product) ? std::numeric_limits<uint64_t>::max() : product;
}

// 0 for a string and for what is no element type.
uint64_t ElementBytes(GgufValueType type) {
  switch (type) {
    case GgufValueType::kU8:
    case GgufValueType::kI8:
    case GgufValueType::kBool:
      return 1;
    case GgufValueType::kU16:
    case GgufValueType::kI16:
      return 2;
    case GgufValueType::kU32:
    case GgufValueType::kI32:
    case GgufValueType::kF32:
      return 4;
    case GgufValueType::kU64:
    case GgufValueType::kI64:
    case GgufValueType::kF64:
      return 8;
    case GgufValueType::kString:
    case GgufValueType::kArray:
      break;
  }
  return 0;
}

// What is being read, for messages: "key 3 of 20" until its name is known, then "key 'name'".
struct Place {
  std::string_view kind;
  uint64_t number = 0;
  uint64_t count = 0;
  std::string_view name;

  std::string ToString() const {
    if (!name.empty()) return fmt::format("{} {}", kind, Quoted(name));
    if (count != 0) return fmt::format("{} {} of {}", kind, number, count);
    return std::string(kind);
  }
};

class Parser {
 public:
  Parser(std::span<const std::byte> bytes, std::string_view file)
      : bytes_(bytes), file_(file), shard_{GgufMetadata(file), {}} {}

  Result<GgufShard> Parse();

 private:
  Status ReadHeader();
  Status ReadKey(uint64_t number);
  Status ReadValue(GgufValueType type, GgufValue* value);
  Status ReadArray(GgufArray* array);
  Status ReadStringElements(GgufArray* array);
  Status TakeAlignment(GgufValueType type, const GgufValue& value);
  Status ReadTensor(uint64_t number);
  Status ReadDims(GgufTensor* tensor);
  Status SizeTensor(uint32_t type, GgufTensor* tensor);
  Status PlaceTensors();
  Status CheckOverlap(uint64_t data_start);

  // The primitives check that the bytes are there.
  Status Need(uint64_t size_bytes) const;
  template <typename T>
  Status Read(T* out);
  template <typename Wide, typename T>
  Status ReadAs(GgufValue* value);
  Status ReadBool(GgufValue* value);
  Status ReadString(std::string_view* out);
  Status Bad(std::string what) const;

  std::span<const std::byte> bytes_;
  std::string_view file_;
  uint64_t position_ = 0;  // <= bytes_.size()
  Place place_{"the header", 0, 0, {}};
  uint64_t tensor_count_ = 0;
  uint64_t key_count_ = 0;
  uint64_t alignment_ = kAlignmentDefault;
  std::vector<uint64_t> offsets_;  // of shard_.tensors, from the start of the data
  GgufShard shard_;
};

Status Parser::Bad(std::string what) const {
  return BadFile(fmt::format("{}: {}: {}", file_, place_.ToString(), what));
}

Status Parser::Need(uint64_t size_bytes) const {
  if (size_bytes <= bytes_.size() - position_) return Status::Ok();
  return BadFile(fmt::format("{}: the file ends inside {}: expected at least {} bytes, actual {}",
                             file_, place_.ToString(), SaturatingAdd(position_, size_bytes),
                             bytes_.size()));
}

template <typename T>
Status Parser::Read(T* out) {
  TESSERA_RETURN_IF_ERROR(Need(sizeof(T)));
  std::memcpy(out, bytes_.data() + position_, sizeof(T));
  position_ += sizeof(T);
  return Status::Ok();
}

template <typename Wide, typename T>
Status Parser::ReadAs(GgufValue* value) {
  T narrow;
  TESSERA_RETURN_IF_ERROR(Read(&narrow));
  value->emplace<Wide>(narrow);
  return Status::Ok();
}

Status Parser::ReadBool(GgufValue* value) {
  uint8_t byte = 0;
  TESSERA_RETURN_IF_ERROR(Read(&byte));
  if (byte > 1) return Bad(fmt::format("bool is {}, expected 0 or 1", byte));
  value->emplace<bool>(byte == 1);
  return Status::Ok();
}

Status Parser::ReadString(std::string_view* out) {
  uint64_t size_bytes = 0;
  TESSERA_RETURN_IF_ERROR(Read(&size_bytes));
  if (size_bytes > kStringBytesMax) {
    return Bad(
        fmt::format("string of {} bytes, the format allows {}", size_bytes, kStringBytesMax));
  }
  TESSERA_RETURN_IF_ERROR(Need(size_bytes));
  *out = {reinterpret_cast<const char*>(bytes_.data() + position_), size_bytes};
  position_ += size_bytes;
  return Status::Ok();
}

Status Parser::ReadHeader() {
  const std::string_view start(reinterpret_cast<const char*>(bytes_.data()),
                               std::min(bytes_.size(), kMagic.size()));
  if (start != kMagic.substr(0, start.size())) {
    return BadFile(fmt::format("{}: not a GGUF file: it begins with {}, expected {}", file_,
                               Quoted(start), Quoted(kMagic)));
  }
  TESSERA_RETURN_IF_ERROR(Need(kHeaderBytes));
  position_ = kMagic.size();
  uint32_t version = 0;
  TESSERA_RETURN_IF_ERROR(Read(&version));
  if (version != 0 && (version & 0xFFFF) == 0) {
    return BadFile(
        fmt::format("{}: big-endian GGUF file (version bytes are {:#010x}): expected "
                    "little-endian",
                    file_, version));
  }
  if (version != 2 && version != 3) {
    return BadFile(fmt::format("{}: GGUF version {}, expected 2 or 3", file_, version));
  }
  TESSERA_RETURN_IF_ERROR(Read(&tensor_count_));
  TESSERA_RETURN_IF_ERROR(Read(&key_count_));
  const uint64_t least = SaturatingAdd(SaturatingMultiply(key_count_, kKeyBytesMin),
                                       SaturatingMultiply(tensor_count_, kTensorBytesMin));
  if (least <= bytes_.size() - position_) return Status::Ok();
  return BadFile(fmt::format(
      "{}: the file ends inside its {} keys and {} tensors: expected at least {} "
      "bytes, actual {}",
      file_, key_count_, tensor_count_, SaturatingAdd(position_, least), bytes_.size()));
}

Status Parser::ReadKey(uint64_t number) {
  place_ = {"key", number, key_count_, {}};
  std::string_view key;
  TESSERA_RETURN_IF_ERROR(ReadString(&key));
  if (key.empty()) return Bad("the name is empty");
  place_.name = key;
  uint32_t type_number = 0;
  TESSERA_RETURN_IF_ERROR(Read(&type_number));
  const auto type = static_cast<GgufValueType>(type_number);
  GgufValue value;
  TESSERA_RETURN_IF_ERROR(ReadValue(type, &value));
  if (key == kAlignmentKey) TESSERA_RETURN_IF_ERROR(TakeAlignment(type, value));
  shard_.metadata.Append(key, std::move(value));
  return Status::Ok();
}

Status Parser::ReadValue(GgufValueType type, GgufValue* value) {
  switch (type) {
    case GgufValueType::kU8:
      return ReadAs<uint64_t, uint8_t>(value);
    case GgufValueType::kI8:
      return ReadAs<int64_t, int8_t>(value);
    case GgufValueType::kU16:
      return ReadAs<uint64_t, uint16_t>(value);
    case GgufValueType::kI16:
      return ReadAs<int64_t, int16_t>(value);
    case GgufValueType::kU32:
      return ReadAs<uint64_t, uint32_t>(value);
    case GgufValueType::kI32:
      return ReadAs<int64_t, int32_t>(value);
    case GgufValueType::kU64:
      return ReadAs<uint64_t, uint64_t>(value);
    case GgufValueType::kI64:
      return ReadAs<int64_t, int64_t>(value);
    case GgufValueType::kF32:
      return ReadAs<double, float>(value);
    case GgufValueType::kF64:
      return ReadAs<double, double>(value);
    case GgufValueType::kBool:
      return ReadBool(value);
    case GgufValueType::kString:
      return ReadString(&value->emplace<std::string_view>());
    case GgufValueType::kArray:
      return ReadArray(&value->emplace<GgufArray>());
  }
  return Bad(fmt::format("value type {}, expected 0 to 12", static_cast<uint32_t>(type)));
}

Status Parser::ReadArray(GgufArray* array) {
  uint32_t type_number = 0;
  TESSERA_RETURN_IF_ERROR(Read(&type_number));
  TESSERA_RETURN_IF_ERROR(Read(&array->count));
  array->element_type = static_cast<GgufValueType>(type_number);
  if (array->element_type == GgufValueType::kArray) {
    return Bad("array of arrays, which is not supported");
  }
  if (array->count > kArrayElementsMax) {
    return Bad(
        fmt::format("array of {} elements, the format allows {}", array->count, kArrayElementsMax));
  }
  if (array->element_type == GgufValueType::kString) return ReadStringElements(array);
  const uint64_t element_bytes = ElementBytes(array->element_type);
  if (element_bytes == 0) {
    return Bad(fmt::format("array element type {}, expected 0 to 12", type_number));
  }
  const uint64_t size_bytes = array->count * element_bytes;  // at most 2^33
  TESSERA_RETURN_IF_ERROR(Need(size_bytes));
  array->data = bytes_.data() + position_;
  position_ += size_bytes;
  if (array->element_type != GgufValueType::kBool) return Status::Ok();
  for (uint64_t i = 0; i < array->count; ++i) {
    const auto byte = static_cast<uint8_t>(array->data[i]);
    if (byte > 1) return Bad(fmt::format("bool {} is {}, expected 0 or 1", i, byte));
  }
  return Status::Ok();
}

Status Parser::ReadStringElements(GgufArray* array) {
  TESSERA_RETURN_IF_ERROR(Need(array->count * sizeof(uint64_t)));  // their lengths alone
  array->strings.resize(array->count);
  for (std::string_view& element : array->strings) TESSERA_RETURN_IF_ERROR(ReadString(&element));
  return Status::Ok();
}

Status Parser::TakeAlignment(GgufValueType type, const GgufValue& value) {
  const auto* alignment = std::get_if<uint64_t>(&value);
  if (type != GgufValueType::kU32 || !std::has_single_bit(*alignment) ||
      *alignment < kAlignmentMin) {
    return Bad(fmt::format("expected a power of two of type u32 from {}, found {} of type {}",
                           kAlignmentMin, DescribeValue(value), ValueTypeName(type)));
  }
  alignment_ = *alignment;
  return Status::Ok();
}

Status Parser::ReadTensor(uint64_t number) {
  place_ = {"tensor", number, tensor_count_, {}};
  GgufTensor tensor;
  TESSERA_RETURN_IF_ERROR(ReadString(&tensor.name));
  if (tensor.name.empty()) return Bad("the name is empty");
  place_.name = tensor.name;
  if (tensor.name.size() >= kTensorNameBytesEnd) {
    return Bad(fmt::format("name of {} bytes, expected fewer than {}", tensor.name.size(),
                           kTensorNameBytesEnd));
  }
  TESSERA_RETURN_IF_ERROR(ReadDims(&tensor));
  uint32_t type = 0;
  TESSERA_RETURN_IF_ERROR(Read(&type));
  TESSERA_RETURN_IF_ERROR(SizeTensor(type, &tensor));
  uint64_t offset = 0;
  TESSERA_RETURN_IF_ERROR(Read(&offset));
  if (offset % alignment_ != 0) {
    return Bad(fmt::format("offset {}, expected a multiple of {}", offset, alignment_));
  }
  shard_.tensors.push_back(tensor);
  offsets_.push_back(offset);
  return Status::Ok();
}

Status Parser::ReadDims(GgufTensor* tensor) {
  TESSERA_RETURN_IF_ERROR(Read(&tensor->n_dims));
  if (tensor->n_dims < 1 || tensor->n_dims > kDimsMax) {
    return Bad(fmt::format("{} dimensions, expected 1 to {}", tensor->n_dims, kDimsMax));
  }
  uint64_t elements = 1;
  for (uint32_t i = 0; i < tensor->n_dims; ++i) {
    TESSERA_RETURN_IF_ERROR(Read(&tensor->ne[i]));
    if (tensor->ne[i] == 0) return Bad(fmt::format("dimension {} is 0", i));
    elements = SaturatingMultiply(elements, tensor->ne[i]);
  }
  if (elements >= kElementsEnd) {
    return Bad(fmt::format("{} x {} x {} x {} elements, expected fewer than 2^63", tensor->ne[0],
                           tensor->ne[1], tensor->ne[2], tensor->ne[3]));
  }
  return Status::Ok();
}

Status Parser::SizeTensor(uint32_t type, GgufTensor* tensor) {
  const GgufTensorTraits* traits = FindTensorTraits(type);
  if (traits == nullptr) return Bad(fmt::format("tensor type {}", DescribeTensorType(type)));
  tensor->type = static_cast<GgufTensorType>(type);
  if (tensor->ne[0] % traits->block_elements != 0) {
    return Bad(fmt::format("rows of {} elements, expected a multiple of {} for {}", tensor->ne[0],
                           traits->block_elements, traits->name));
  }
  tensor->size_bytes =
      SaturatingMultiply(tensor->element_count() / traits->block_elements, traits->block_bytes);
  return Status::Ok();  // a saturated size cannot be inside the file
}

// Finds the data of each tensor, now that the end of the declarations is known.
Status Parser::PlaceTensors() {
  if (shard_.tensors.empty()) return Status::Ok();
  const uint64_t data_start = RoundUp(position_, alignment_);
  uint64_t end = 0;
  for (size_t i = 0; i < offsets_.size(); ++i) {
    const uint64_t tensor_end =
        SaturatingAdd(SaturatingAdd(data_start, offsets_[i]), shard_.tensors[i].size_bytes);
    if (tensor_end <= end) continue;
    end = tensor_end;
    place_ = {"tensor", 0, 0, shard_.tensors[i].name};
  }
  if (end > bytes_.size()) {
    return BadFile(
        fmt::format("{}: the file ends before the data of {} does: expected at least {} "
                    "bytes, actual {}",
                    file_, place_.ToString(), end, bytes_.size()));
  }
  for (size_t i = 0; i < offsets_.size(); ++i) {
    shard_.tensors[i].data = bytes_.data() + data_start + offsets_[i];
  }
  return CheckOverlap(data_start);
}

Status Parser::CheckOverlap(uint64_t data_start) {
  std::vector<size_t> order(offsets_.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = i;
  std::sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    return std::pair(offsets_[a], a) < std::pair(offsets_[b], b);
  });
  for (size_t i = 1; i < order.size(); ++i) {
    const GgufTensor& before = shard_.tensors[order[i - 1]];
    const uint64_t before_end = offsets_[order[i - 1]] + before.size_bytes;
    if (offsets_[order[i]] >= before_end) continue;
    place_ = {"tensor", 0, 0, shard_.tensors[order[i]].name};
    return Bad(fmt::format("begins at byte {}, inside tensor {}, which ends at byte {}",
                           data_start + offsets_[order[i]], Quoted(before.name),
                           data_start + before_end));
  }
  return Status::Ok();
}

Result<GgufShard> Parser::Parse() {
  TESSERA_RETURN_IF_ERROR(ReadHeader());
  for (uint64_t i = 1; i <= key_count_; ++i) TESSERA_RETURN_IF_ERROR(ReadKey(i));
  TESSERA_RETURN_IF_ERROR(shard_.metadata.IndexKeys());
  shard_.tensors.reserve(tensor_count_);
  offsets_.reserve(tensor_count_);
  for (uint64_t i = 1; i <= tensor_count_; ++i) TESSERA_RETURN_IF_ERROR(ReadTensor(i));
  TESSERA_RETURN_IF_ERROR(PlaceTensors());
  return std::move(shard_);
}

}  // namespace

Result<GgufShard> ParseGguf(std::span<const std::byte> bytes, std::string_view file) {
  return Parser(bytes, file).Parse();
}

}  // namespace tessera
