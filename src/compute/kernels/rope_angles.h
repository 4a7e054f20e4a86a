// SPDX-License-Identifier: Apache-2.0
//
// The cosines and sines of rotary position embedding (Su et al. 2021, eq. 15), computed without
// libm, whose results vary by CPU and version: inverse frequency base^(-2j/n_rot) and the angle in
// double by our own exp and log, reduced mod 2π in double, each value rounded once to fp32.
//
// Threads: pure.
#pragma once

#include <cstdint>

namespace tessera {

// inverse_frequencies[j] for j < n_rot/2. `divisors` (n_rot/2 values, or null) divide them
// (rope_freqs.weight of Llama-3 files).
void RopeInverseFrequencies(double base, uint32_t n_rot, const float* divisors,
                            double* inverse_frequencies);
// cos and sin of position·inverse_frequencies[j], n = n_rot/2 values each.
void RopeAngles(uint32_t position, const double* inverse_frequencies, uint32_t n, float* cos,
                float* sin);

}  // namespace tessera
