// SPDX-License-Identifier: Apache-2.0
#include "bench/floor.h"

#include <numeric>

namespace tessera {
namespace {

constexpr std::array<const char*, kPipes> kPipeNames = {"fma", "bf16", "int8"};

double TimeOf(double amount, double rate) { return amount > 0 && rate > 0 ? amount / rate : 0; }

}  // namespace

double Floor::total_operations() const {
  return std::accumulate(operations.begin(), operations.end(), 0.0);
}

Floor Floor::operator*(double n) const {
  Floor scaled{read_bytes * n, update_bytes * n, cache_bytes * n, operations};
  for (double& x : scaled.operations) x *= n;
  return scaled;
}

Floor Floor::operator+(const Floor& other) const {
  Floor sum{read_bytes + other.read_bytes, update_bytes + other.update_bytes,
            cache_bytes + other.cache_bytes, operations};
  for (size_t i = 0; i < kPipes; ++i) sum.operations[i] += other.operations[i];
  return sum;
}

Bound BoundOf(const Floor& floor, const MachineRates& rates) {
  const double memory =
      TimeOf(floor.read_bytes, rates.read) + TimeOf(floor.update_bytes, rates.update);
  const double cache = TimeOf(floor.cache_bytes, rates.cache);
  double products = 0, longest = 0;
  const char* pipe = "";
  for (size_t i = 0; i < kPipes; ++i) {
    const double time = TimeOf(floor.operations[i], rates.operations[i]);
    products += time;
    if (time > longest) {
      longest = time;
      pipe = kPipeNames[i];
    }
  }
  if (products > memory + cache) return {products, pipe};
  return {memory + cache, memory >= cache ? "memory" : "L2"};
}

}  // namespace tessera
