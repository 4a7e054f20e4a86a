// SPDX-License-Identifier: Apache-2.0
#include "memory/geometry/state_shape.h"

#include <fmt/format.h>

namespace tessera {
namespace {

// Far above any model (the largest published image is a few hundred MiB), and small enough that no
// product of a size with a page or token count the code forms can leave 64 bits unnoticed.
constexpr double kMaxBytes = 0x1p40;

Status CheckBytes(const char* what, double bytes) {
  if (bytes <= kMaxBytes) return Status::Ok();
  return BadFile(fmt::format("model shape: {} would be {:.0f} bytes; at most {:.0f} are supported",
                             what, bytes, kMaxBytes));
}

Status ValidateAttention(const StateShape& s) {
  if (s.kv_heads == 0 || s.head_dim == 0) {
    return BadFile(fmt::format(
        "model shape: {} attention layers need kv_heads and head_dim above 0; they are {} and {}",
        s.attention_layers, s.kv_heads, s.head_dim));
  }
  if (s.head_dim % 2 != 0) {
    return BadFile(fmt::format("model shape: head_dim must be even; it is {}", s.head_dim));
  }
  // In doubles: the integer products wrap at 2^64 for hostile metadata.
  return CheckBytes("the attention state of 16 tokens",
                    64.0 * s.kv_heads * s.head_dim * static_cast<double>(s.attention_layers));
}

Status ValidateRecurrent(const StateShape& s) {
  const int ssm_set = (s.ssm_heads > 0) + (s.ssm_head_dim > 0) + (s.ssm_state > 0);
  if (ssm_set != 0 && ssm_set != 3) {
    return BadFile(fmt::format(
        "model shape: ssm heads, head_dim and state must be all 0 or all above 0; they are {}, {} "
        "and {}",
        s.ssm_heads, s.ssm_head_dim, s.ssm_state));
  }
  if (s.conv_taps > 0 && s.conv_channels == 0) {
    return BadFile(
        fmt::format("model shape: {} convolution taps need channels above 0", s.conv_taps));
  }
  if (ssm_set == 0 && s.conv_taps == 0) {
    return BadFile(fmt::format("model shape: {} recurrent layers have neither SSM nor conv state",
                               s.recurrent_layers));
  }
  // Upper bounds of the rounded rows, in doubles for the same reason.
  const double ssm_row = ssm_set == 0 ? 0 : 4.0 * s.ssm_state + 64;
  const double conv_row = 2.0 * s.conv_channels + 32;
  const double layer =
      ssm_row * s.ssm_heads * static_cast<double>(s.ssm_head_dim) + conv_row * s.conv_taps;
  return CheckBytes("the recurrent state of one sequence", layer * s.recurrent_layers);
}

}  // namespace

std::string_view StateTypeName(StateType type) { return type == StateType::kF32 ? "fp32" : "bf16"; }

std::optional<StateType> ParseStateType(std::string_view name) {
  for (StateType type : {StateType::kF32, StateType::kBF16}) {
    if (name == StateTypeName(type)) return type;
  }
  return std::nullopt;
}

Status StateShape::Validate() const {
  if (attention_layers == 0 && recurrent_layers == 0) {
    return BadFile("model shape: no attention and no recurrent layers, so there is no state");
  }
  if (attention_layers > 0) TESSERA_RETURN_IF_ERROR(ValidateAttention(*this));
  if (recurrent_layers > 0) TESSERA_RETURN_IF_ERROR(ValidateRecurrent(*this));
  return Status::Ok();
}

}  // namespace tessera
