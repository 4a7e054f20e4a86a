// SPDX-License-Identifier: Apache-2.0
//
// Rows of the table of published models as tests write them: a shape with the state type in hand.
#pragma once

#include "memory/geometry/named_geometries.h"

namespace tessera::testing {

inline StateShape NamedShape(std::string_view name, StateType type) {
  StateShape shape = FindGeometry(name).value().shape;
  shape.state_type = type;
  return shape;
}

inline StateShape FalconH1_7B(StateType type) { return NamedShape("falcon-h1-7b", type); }
inline StateShape FalconH1_05B(StateType type) { return NamedShape("falcon-h1-0.5b", type); }
inline StateShape Granite4HTiny(StateType type) { return NamedShape("granite-4-h-tiny", type); }
inline StateShape Qwen3Next80B(StateType type) { return NamedShape("qwen3-next-80b-a3b", type); }
inline StateShape Zamba2_27B(StateType type) { return NamedShape("zamba2-2.7b", type); }
inline StateShape Lfm2_12B() { return NamedShape("lfm2-1.2b", StateType::kF32); }
inline StateShape KimiLinear48B(StateType type) { return NamedShape("kimi-linear-48b", type); }
inline StateShape Mamba2_130M(StateType type) { return NamedShape("mamba2-130m", type); }
inline StateShape Llama32_1B() { return NamedShape("llama-3.2-1b", StateType::kF32); }
// The bundled model: small enough that pages are 4 KiB.
inline StateShape Harbour(StateType type) { return NamedShape("harbour-2.8m", type); }

}  // namespace tessera::testing
