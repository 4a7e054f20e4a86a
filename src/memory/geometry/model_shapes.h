// SPDX-License-Identifier: Apache-2.0
//
// State shapes of published models and of the bundled one, for tests. Sources: the models' own
// configurations, as tabled in the study of state-memory organisations.
#pragma once

#include "memory/geometry/state_shape.h"

namespace tessera::testing {

inline StateShape FalconH1_7B(StateType type) {
  return {.attention_layers = 44,
          .recurrent_layers = 44,
          .kv_heads = 2,
          .head_dim = 128,
          .ssm_heads = 24,
          .ssm_head_dim = 128,
          .ssm_state = 256,
          .conv_channels = 3584,
          .conv_taps = 3,
          .state_type = type};
}

inline StateShape FalconH1_05B(StateType type) {
  return {.attention_layers = 36,
          .recurrent_layers = 36,
          .kv_heads = 2,
          .head_dim = 64,
          .ssm_heads = 24,
          .ssm_head_dim = 64,
          .ssm_state = 128,
          .conv_channels = 1792,
          .conv_taps = 3,
          .state_type = type};
}

inline StateShape Granite4HTiny(StateType type) {
  return {.attention_layers = 4,
          .recurrent_layers = 36,
          .kv_heads = 4,
          .head_dim = 128,
          .ssm_heads = 48,
          .ssm_head_dim = 64,
          .ssm_state = 128,
          .conv_channels = 3328,
          .conv_taps = 3,
          .state_type = type};
}

inline StateShape Qwen3Next80B(StateType type) {
  return {.attention_layers = 12,
          .recurrent_layers = 36,
          .kv_heads = 2,
          .head_dim = 256,
          .ssm_heads = 32,
          .ssm_head_dim = 128,
          .ssm_state = 128,
          .conv_channels = 8192,
          .conv_taps = 3,
          .state_type = type};
}

inline StateShape Zamba2_27B(StateType type) {
  return {.attention_layers = 9,
          .recurrent_layers = 54,
          .kv_heads = 32,
          .head_dim = 160,
          .ssm_heads = 80,
          .ssm_head_dim = 64,
          .ssm_state = 64,
          .conv_channels = 5248,
          .conv_taps = 3,
          .state_type = type};
}

// Convolutions only: no SSM state at all.
inline StateShape Lfm2_12B() {
  return {.attention_layers = 6,
          .recurrent_layers = 10,
          .kv_heads = 8,
          .head_dim = 64,
          .conv_channels = 2048,
          .conv_taps = 2};
}

inline StateShape KimiLinear48B(StateType type) {
  return {.attention_layers = 7,
          .recurrent_layers = 20,
          .kv_heads = 1,
          .head_dim = 288,
          .ssm_heads = 32,
          .ssm_head_dim = 128,
          .ssm_state = 128,
          .conv_channels = 12288,
          .conv_taps = 3,
          .state_type = type};
}

inline StateShape Mamba2_130M(StateType type) {
  return {.attention_layers = 0,
          .recurrent_layers = 24,
          .ssm_heads = 24,
          .ssm_head_dim = 64,
          .ssm_state = 128,
          .conv_channels = 1792,
          .conv_taps = 3,
          .state_type = type};
}

inline StateShape Llama32_1B() {
  return {.attention_layers = 16, .recurrent_layers = 0, .kv_heads = 8, .head_dim = 64};
}

// The bundled model: small enough that pages are 4 KiB.
inline StateShape Harbour(StateType type) {
  return {.attention_layers = 5,
          .recurrent_layers = 5,
          .kv_heads = 2,
          .head_dim = 32,
          .ssm_heads = 8,
          .ssm_head_dim = 32,
          .ssm_state = 32,
          .conv_channels = 320,
          .conv_taps = 3,
          .state_type = type};
}

}  // namespace tessera::testing
