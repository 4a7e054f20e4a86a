// SPDX-License-Identifier: Apache-2.0
#include "compute/model/shape_reader.h"

#include <fmt/format.h>

#include <filesystem>
#include <variant>

#include "compute/gguf/printable.h"

namespace tessera {

std::string ShapeReader::Key(std::string_view name) const {
  return fmt::format("{}.{}", prefix_, name);
}

Status ShapeReader::Refuse(std::string_view key, std::string_view expected,
                           std::string_view found) const {
  return BadFile(
      fmt::format("{}: key '{}': expected {}, found {}", file_.path(), key, expected, found));
}

Status ShapeReader::Read(std::string_view name, uint32_t min, uint32_t max, uint32_t* value) const {
  TESSERA_ASSIGN_OR_RETURN(*value, file_.GetU32(Key(name)));
  return InRange(name, *value, min, max);
}

Status ShapeReader::ReadOr(std::string_view name, uint32_t fallback, uint32_t min, uint32_t max,
                           uint32_t* value) const {
  TESSERA_ASSIGN_OR_RETURN(*value, file_.GetU32(Key(name), fallback));
  return InRange(name, *value, min, max);
}

Status ShapeReader::ReadPositive(std::string_view name, float fallback, float* value) const {
  TESSERA_ASSIGN_OR_RETURN(*value, file_.GetF32(Key(name), fallback));
  if (*value > 0) return Status::Ok();
  return Refuse(Key(name), "a number above 0", fmt::format("{}", *value));
}

Status ShapeReader::ReadPerLayer(std::string_view name, uint32_t layers, uint32_t max,
                                 std::vector<uint32_t>* values) const {
  const GgufValue* value = file_.FindValue(Key(name));
  const GgufArray* array = value == nullptr ? nullptr : std::get_if<GgufArray>(value);
  if (array == nullptr) {
    uint32_t for_all = 0;
    TESSERA_RETURN_IF_ERROR(Read(name, 0, max, &for_all));
    values->assign(layers, for_all);
    return Status::Ok();
  }
  if (array->count != layers) {
    return Refuse(Key(name), fmt::format("{} values, one for each block", layers),
                  fmt::format("{}", array->count));
  }
  values->clear();
  if (array->element_type == GgufValueType::kBool) {
    for (uint64_t i = 0; i < array->count; ++i) {
      values->push_back(array->data[i] == std::byte{0} ? 0 : 1);
    }
    return Status::Ok();
  }
  TESSERA_ASSIGN_OR_RETURN(const std::vector<int32_t> numbers, file_.GetI32Array(Key(name)));
  for (int32_t number : numbers) {
    if (number < 0 || static_cast<uint32_t>(number) > max) {
      return Refuse(Key(name), fmt::format("values from 0 to {}", max), fmt::format("{}", number));
    }
    values->push_back(static_cast<uint32_t>(number));
  }
  return Status::Ok();
}

Status ShapeReader::Divides(std::string_view name, uint32_t value, std::string_view whole_name,
                            uint32_t whole) const {
  if (whole % value == 0) return Status::Ok();
  return Refuse(Key(name), fmt::format("a divisor of {} = {}", Key(whole_name), whole),
                fmt::format("{}", value));
}

Status ShapeReader::FitsRow(std::string_view a_name, uint32_t a, std::string_view b_name,
                            uint32_t b) const {
  if (uint64_t{a} * b <= kRowMax) return Status::Ok();
  return Refuse(Key(a_name), fmt::format("at most {} / {} ({})", kRowMax, b, Key(b_name)),
                fmt::format("{}", a));
}

Status ShapeReader::InRange(std::string_view name, uint32_t value, uint32_t min,
                            uint32_t max) const {
  if (value >= min && value <= max) return Status::Ok();
  return Refuse(Key(name), fmt::format("{} to {}", min, max), fmt::format("{}", value));
}

std::string ModelName(const GgufFile& file) {
  constexpr size_t kNameBytesMax = 128;
  auto name = file.GetString("general.name", "");
  if (name && !name->empty()) return Printable(*name, kNameBytesMax);
  return Printable(std::filesystem::path(file.path()).stem().string(), kNameBytesMax);
}

}  // namespace tessera
