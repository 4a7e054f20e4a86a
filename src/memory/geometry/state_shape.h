// SPDX-License-Identifier: Apache-2.0
//
// StateShape says how many bytes of state one sequence of a model has: the attention state of 16
// tokens (a group) and the recurrent state at one position (an image), per plane.
//
// A plane is one array of pages; there are P = gcd(A, R) of them (gcd(x, 0) = x), each holding A/P
// attention and R/P recurrent layers in layer order. Attention layer i (counted among attention
// layers) is in plane i / a, recurrent layer j in plane j / r.
//
//   group, per plane:  for each attention layer, for each KV head:
//                        K tile [hd/2][16 tokens][2] | V tile [16 tokens][hd]      bf16
//   image, per plane:  for each recurrent layer: SSM rows [heads·head_dim][row_bytes]   fp32 | bf16
//                      for each recurrent layer: conv rows [taps][row_bytes]            bf16
//
// An SSM row is one (head, p) with its N state elements, rounded up to 64 bytes so that a vector
// load never leaves the row; a conv row is one past input of all channels, oldest first, rounded up
// to 32 bytes. Both roundings are 0 for every published model. Padding bytes are always zero.
//
// Falcon-H1-7B: P = 44, group 16 KiB, image fp32 3,145,728 + 21,504 = 3,167,232 B.
#pragma once

#include <cstdint>
#include <numeric>
#include <optional>
#include <string_view>

#include "base/bytes.h"
#include "base/status.h"

namespace tessera {

inline constexpr uint32_t kGroupTokens = 16;

// What SSM rows are kept in from one token to the next; part of what a state is a state of.
enum class StateType : uint8_t { kF32, kBF16 };

// fp32, bf16: as on the command line.
std::string_view StateTypeName(StateType type);
std::optional<StateType> ParseStateType(std::string_view name);

struct StateShape {
  uint32_t attention_layers = 0;  // A
  uint32_t recurrent_layers = 0;  // R
  uint32_t kv_heads = 0;
  uint32_t head_dim = 0;       // hd, of K and of V; even
  uint32_t ssm_heads = 0;      // H_s
  uint32_t ssm_head_dim = 0;   // P_h
  uint32_t ssm_state = 0;      // N
  uint32_t conv_channels = 0;  // C = H_s·P_h + 2·G·N
  uint32_t conv_taps = 0;      // K - 1
  StateType state_type = StateType::kF32;

  bool operator==(const StateShape&) const = default;

  // kBadFile when it has no state at all, an odd head_dim, or sizes beyond 2^40 bytes.
  Status Validate() const;

  uint32_t planes() const { return std::gcd(attention_layers, recurrent_layers); }
  uint32_t attention_layers_per_plane() const {
    return planes() == 0 ? 0 : attention_layers / planes();
  }
  uint32_t recurrent_layers_per_plane() const {
    return planes() == 0 ? 0 : recurrent_layers / planes();
  }

  // Attention.
  uint64_t kv_bytes_per_token_layer() const { return uint64_t{2} * kv_heads * head_dim * 2; }
  uint64_t tile_bytes() const { return uint64_t{kGroupTokens} * head_dim * 2; }  // K or V, one head
  uint64_t group_bytes() const {                                                 // per plane
    return kGroupTokens * kv_bytes_per_token_layer() * attention_layers_per_plane();
  }
  // Byte in the group of the K tile; the V tile follows it.
  uint64_t key_tile_offset(uint32_t layer_in_plane, uint32_t kv_head) const {
    return (uint64_t{layer_in_plane} * kv_heads + kv_head) * 2 * tile_bytes();
  }

  // Recurrent.
  uint64_t ssm_row_bytes() const {
    return RoundUp(uint64_t{ssm_state} * (state_type == StateType::kF32 ? 4 : 2), 64);
  }
  uint64_t ssm_rows_per_layer() const { return uint64_t{ssm_heads} * ssm_head_dim; }
  uint64_t ssm_bytes_per_layer() const { return ssm_rows_per_layer() * ssm_row_bytes(); }
  uint64_t conv_row_bytes() const { return RoundUp(uint64_t{conv_channels} * 2, 32); }
  uint64_t conv_bytes_per_layer() const { return conv_taps * conv_row_bytes(); }
  uint64_t ssm_image_bytes() const { return recurrent_layers_per_plane() * ssm_bytes_per_layer(); }
  uint64_t conv_image_bytes() const {
    return recurrent_layers_per_plane() * conv_bytes_per_layer();
  }
  uint64_t image_bytes() const { return ssm_image_bytes() + conv_image_bytes(); }  // per plane
  uint64_t ssm_bytes() const { return planes() * ssm_image_bytes(); }              // all planes
  uint64_t conv_bytes() const { return planes() * conv_image_bytes(); }
};

}  // namespace tessera
