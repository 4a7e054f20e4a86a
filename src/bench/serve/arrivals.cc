// SPDX-License-Identifier: Apache-2.0
#include "bench/serve/arrivals.h"

#include <cmath>
#include <numbers>

#include "base/check.h"
#include "base/random.h"

namespace tessera {
namespace {

// In (0, 1): a logarithm is taken of it.
double OpenUniform(Random* random) { return random->Uniform() + 0x1p-54; }

double Normal(Random* random) {
  const double radius = std::sqrt(-2 * std::log(OpenUniform(random)));
  return radius * std::cos(2 * std::numbers::pi * random->Uniform());
}

// Mean `shape`, variance `shape`: Marsaglia and Tsang, "A simple method for generating gamma
// variables", 2000. Below 1 a draw of shape + 1 is scaled by U^(1 / shape).
double Gamma(double shape, Random* random) {
  if (shape < 1) {
    const double boost = std::pow(OpenUniform(random), 1 / shape);
    return Gamma(shape + 1, random) * boost;
  }
  const double d = shape - 1.0 / 3;
  const double c = 1 / std::sqrt(9 * d);
  for (;;) {
    const double x = Normal(random);
    const double v = std::pow(1 + c * x, 3);
    if (v > 0 && std::log(OpenUniform(random)) < 0.5 * x * x + d * (1 - v + std::log(v))) {
      return d * v;
    }
  }
}

}  // namespace

std::vector<double> ArrivalTimes(size_t count, double rate, double burstiness, uint64_t seed) {
  TESSERA_CHECK(rate > 0 && burstiness > 0);
  std::vector<double> times(count, 0.0);
  if (std::isinf(rate) || count == 0) return times;
  Random random(seed);
  double sum = 0;
  for (double& time : times) {
    sum += std::isinf(burstiness) ? 1.0 : Gamma(burstiness, &random);
    time = sum;
  }
  const double seconds = static_cast<double>(count) / rate;
  // Shapes near 0 may give nothing but zeros: then all come at the end of the time.
  for (double& time : times) time = sum > 0 ? time * (seconds / sum) : seconds;
  return times;
}

}  // namespace tessera
