// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <memory>

#include "base/random.h"
#include "bench/kernel_cases.h"
#include "compute/tensor/aligned_buffer.h"

namespace tessera {
namespace {

constexpr uint32_t kWidth = 3072;
constexpr uint32_t kFeedForward = 12288;
constexpr uint32_t kHeadDim = 128;
constexpr uint32_t kHeads = 24;  // 12 of attention's, 24 of the recurrence: rows of the same length

// One thread's rows: three in, one out, and what a rounding of one row may take.
struct alignas(64) RowBuffers {
  RowBuffers() : a(kFeedForward), b(kFeedForward), c(kFeedForward), out(kFeedForward) {
    Random random(4);
    for (AlignedBuffer<float>* row : {&a, &b, &c}) {
      for (float& x : *row) x = random.Uniform(-1.0f, 1.0f);
    }
  }
  AlignedBuffer<float> a, b, c, out;
  AlignedBuffer<uint16_t> bf16{kFeedForward};
  AlignedBuffer<int8_t> int8{kFeedForward};
  AlignedBuffer<float> scales{kFeedForward / 32};
  AlignedBuffer<int32_t> sums{kFeedForward / 8};
};

// Per element of a row.
struct RowCost {
  double bytes = 0;
  double products = 0;  // fma and multiplications that issue
};

class RowCases {
 public:
  RowCases(const KernelBenchContext& context, std::vector<BenchCase>* cases)
      : context_(context),
        cases_(cases),
        members_(std::make_shared<std::vector<RowBuffers>>(
            static_cast<size_t>(context.crew.threads()))) {}

  template <class Call>
  void Add(const std::string& name, uint32_t elements, RowCost cost, Call call) {
    BenchCase bench;
    bench.name = fmt::format("{}.{}", name, elements);
    bench.from = "L2";
    bench.crew = &context_.crew;
    bench.floor.cache_bytes = cost.bytes * elements * context_.crew.threads();
    bench.floor.on(Pipe::kFma) = 2 * cost.products * elements * context_.crew.threads();
    bench.call = [members = members_, call](int member) {
      call((*members)[static_cast<size_t>(member)]);
    };
    cases_->push_back(std::move(bench));
  }

 private:
  const KernelBenchContext& context_;
  std::vector<BenchCase>* cases_;
  std::shared_ptr<std::vector<RowBuffers>> members_;
};

// An exponential is 9 products (math_inl.h).
constexpr double kExpProducts = 9;

void AddRoundings(const KernelTable& kernels, RowCases* rows) {
  rows->Add("to_bf16", kWidth, {6, 0},
            [k = kernels.to_bf16](RowBuffers& r) { k(r.a.data(), kWidth, r.bf16.data()); });
  rows->Add("to_int8", kWidth, {5 + 8.0 / 32, 1}, [k = kernels.to_int8](RowBuffers& r) {
    k(r.a.data(), kWidth, r.int8.data(), r.scales.data(), r.sums.data());
  });
  rows->Add("to_int8_k", kWidth, {5 + (1 + kKSumWords) * 4.0 / 256, 1},
            [k = kernels.to_int8_k](RowBuffers& r) {
              k(r.a.data(), kWidth, r.int8.data(), r.scales.data(), r.sums.data());
            });
  rows->Add("scale_to_bf16", kWidth, {6, 1}, [k = kernels.scale_to_bf16](RowBuffers& r) {
    k(r.a.data(), 0.125f, kWidth, r.bf16.data());
  });
}

}  // namespace

void AddRowCases(const KernelBenchContext& context, std::vector<BenchCase>* cases) {
  const KernelTable& kernels = context.kernels;
  RowCases rows(context, cases);
  rows.Add("rms_norm", kWidth, {12, 3}, [k = kernels.rms_norm](RowBuffers& r) {
    k(r.a.data(), r.b.data(), kWidth, 1e-5f, r.out.data());
  });
  AddRoundings(kernels, &rows);
  rows.Add("silu_mul", kFeedForward, {12, kExpProducts + 1}, [k = kernels.silu_mul](RowBuffers& r) {
    k(r.a.data(), r.b.data(), kFeedForward, r.out.data());
  });
  rows.Add("add_residual", kWidth, {16, 0}, [k = kernels.add_residual](RowBuffers& r) {
    k(r.a.data(), r.b.data(), kWidth, r.c.data());
  });
  // Turning in place by an angle of 0.6, a row of heads.
  rows.Add("rope", kHeads * kHeadDim, {8, 2}, [k = kernels.rope](RowBuffers& r) {
    alignas(64) float cosines[kHeadDim / 2], sines[kHeadDim / 2];
    std::fill_n(cosines, kHeadDim / 2, 0.8f);
    std::fill_n(sines, kHeadDim / 2, 0.6f);
    for (uint32_t head = 0; head < kHeads; ++head) {
      k(r.out.data() + head * kHeadDim, kHeadDim, true, cosines, sines);
    }
  });
  // Two exponentials and a logarithm of 9 products.
  rows.Add("discretize", kHeads, {20, 2 * kExpProducts + 9},
           [k = kernels.discretize](RowBuffers& r) {
             k(r.a.data(), r.b.data(), r.c.data(), kHeads, r.out.data(), r.out.data() + kHeads);
           });
}

}  // namespace tessera
