// SPDX-License-Identifier: Apache-2.0
#include "compute/gguf/gguf_metadata.h"

#include <fmt/format.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <utility>

#include "compute/gguf/printable.h"

namespace tessera {
namespace {

// The conversions give nullopt for a value of another type or outside the range.
std::optional<int64_t> AsInteger(const GgufValue& value) {
  if (const auto* u = std::get_if<uint64_t>(&value)) {
    if (std::in_range<int64_t>(*u)) return static_cast<int64_t>(*u);
  } else if (const auto* i = std::get_if<int64_t>(&value)) {
    return *i;
  }
  return std::nullopt;
}

std::optional<float> AsFloat(const GgufValue& value) {
  const auto* number = std::get_if<double>(&value);
  if (number == nullptr || !(std::fabs(*number) <= std::numeric_limits<float>::max())) {
    return std::nullopt;
  }
  return static_cast<float>(*number);
}

template <typename T>
bool NarrowElements(const GgufArray& array, std::vector<int32_t>* out, std::string* bad) {
  out->reserve(array.count);
  for (uint64_t i = 0; i < array.count; ++i) {
    T element;
    std::memcpy(&element, array.data + i * sizeof(T), sizeof(T));
    if (!std::in_range<int32_t>(element)) {
      *bad = fmt::format("{} at index {}", element, i);
      return false;
    }
    out->push_back(static_cast<int32_t>(element));
  }
  return true;
}

}  // namespace

std::string DescribeValue(const GgufValue& value) {
  if (const auto* u = std::get_if<uint64_t>(&value)) return fmt::format("integer {}", *u);
  if (const auto* i = std::get_if<int64_t>(&value)) return fmt::format("integer {}", *i);
  if (const auto* d = std::get_if<double>(&value)) return fmt::format("number {}", *d);
  if (const auto* b = std::get_if<bool>(&value)) return *b ? "bool true" : "bool false";
  if (const auto* s = std::get_if<std::string_view>(&value)) return "string " + Quoted(*s);
  const auto& array = std::get<GgufArray>(value);
  return fmt::format("array of {} {}", array.count, ValueTypeName(array.element_type));
}

void GgufMetadata::Append(std::string_view key, GgufValue value) {
  keys_.push_back(key);
  values_.push_back(std::move(value));
}

Status GgufMetadata::IndexKeys() {
  if (std::optional<std::string_view> twice = index_.Build(keys_)) {
    return BadFile(fmt::format("{}: key {} occurs twice", file_, Quoted(*twice)));
  }
  return Status::Ok();
}

const GgufValue* GgufMetadata::Find(std::string_view key) const {
  std::optional<size_t> position = index_.Find(key);
  return position ? &values_[*position] : nullptr;
}

Status GgufMetadata::Missing(std::string_view key) const {
  return BadFile(fmt::format("{}: missing key {}", file_, Quoted(key)));
}

Status GgufMetadata::Unexpected(std::string_view key, std::string_view expected,
                                std::string found) const {
  return BadFile(
      fmt::format("{}: key {}: expected {}, found {}", file_, Quoted(key), expected, found));
}

Result<uint32_t> GgufMetadata::GetU32(std::string_view key) const {
  const GgufValue* value = Find(key);
  if (value == nullptr) return Missing(key);
  std::optional<int64_t> integer = AsInteger(*value);
  if (!integer || !std::in_range<uint32_t>(*integer)) {
    return Unexpected(key, "u32", DescribeValue(*value));
  }
  return static_cast<uint32_t>(*integer);
}

Result<uint32_t> GgufMetadata::GetU32(std::string_view key, uint32_t fallback) const {
  return Find(key) == nullptr ? Result<uint32_t>(fallback) : GetU32(key);
}

Result<float> GgufMetadata::GetF32(std::string_view key) const {
  const GgufValue* value = Find(key);
  if (value == nullptr) return Missing(key);
  std::optional<float> number = AsFloat(*value);
  if (!number) return Unexpected(key, "finite f32", DescribeValue(*value));
  return *number;
}

Result<float> GgufMetadata::GetF32(std::string_view key, float fallback) const {
  return Find(key) == nullptr ? Result<float>(fallback) : GetF32(key);
}

Result<bool> GgufMetadata::GetBool(std::string_view key, bool fallback) const {
  const GgufValue* value = Find(key);
  if (value == nullptr) return fallback;
  const bool* flag = std::get_if<bool>(value);
  if (flag == nullptr) return Unexpected(key, "bool", DescribeValue(*value));
  return *flag;
}

Result<std::string_view> GgufMetadata::GetString(std::string_view key) const {
  const GgufValue* value = Find(key);
  if (value == nullptr) return Missing(key);
  const auto* text = std::get_if<std::string_view>(value);
  if (text == nullptr) return Unexpected(key, "string", DescribeValue(*value));
  return *text;
}

Result<std::string_view> GgufMetadata::GetString(std::string_view key,
                                                 std::string_view fallback) const {
  return Find(key) == nullptr ? Result<std::string_view>(fallback) : GetString(key);
}

Result<std::span<const std::string_view>> GgufMetadata::GetStringArray(std::string_view key) const {
  const GgufValue* value = Find(key);
  if (value == nullptr) return Missing(key);
  const auto* array = std::get_if<GgufArray>(value);
  if (array == nullptr || array->element_type != GgufValueType::kString) {
    return Unexpected(key, "array of string", DescribeValue(*value));
  }
  return std::span<const std::string_view>(array->strings);
}

Result<std::vector<int32_t>> GgufMetadata::GetI32Array(std::string_view key) const {
  const GgufValue* value = Find(key);
  if (value == nullptr) return Missing(key);
  const auto* array = std::get_if<GgufArray>(value);
  if (array == nullptr) return Unexpected(key, "array of i32", DescribeValue(*value));
  std::vector<int32_t> out;
  std::string bad = DescribeValue(*value);
  bool fits = false;
  switch (array->element_type) {
    case GgufValueType::kU8:
      fits = NarrowElements<uint8_t>(*array, &out, &bad);
      break;
    case GgufValueType::kI8:
      fits = NarrowElements<int8_t>(*array, &out, &bad);
      break;
    case GgufValueType::kU16:
      fits = NarrowElements<uint16_t>(*array, &out, &bad);
      break;
    case GgufValueType::kI16:
      fits = NarrowElements<int16_t>(*array, &out, &bad);
      break;
    case GgufValueType::kU32:
      fits = NarrowElements<uint32_t>(*array, &out, &bad);
      break;
    case GgufValueType::kI32:
      fits = NarrowElements<int32_t>(*array, &out, &bad);
      break;
    case GgufValueType::kU64:
      fits = NarrowElements<uint64_t>(*array, &out, &bad);
      break;
    case GgufValueType::kI64:
      fits = NarrowElements<int64_t>(*array, &out, &bad);
      break;
    default:
      break;
  }
  if (!fits) return Unexpected(key, "array of i32", std::move(bad));
  return out;
}

}  // namespace tessera
