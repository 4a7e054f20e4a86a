// SPDX-License-Identifier: Apache-2.0
#include "verify/faults.h"

#include <cstring>
#include <vector>

#include "base/check.h"

namespace tessera {
namespace {

constexpr Fault kAllFaults[] = {Fault::kHalfKProducts,    Fault::kReversedCombine,
                                Fault::kUnwrittenRowsNaN, Fault::kStateRoundedAtSave,
                                Fault::kConvTailDropped,  Fault::kFreshStateNotZeroed};

constexpr std::string_view kNoAttention = "no attention layers";

struct PackedSteps {
  uint32_t k;            // inputs a packed step holds: where a panel may be cut
  uint32_t bytes;        // of one weight
  uint32_t input_bytes;  // of one activation
};

PackedSteps StepsOf(WeightType type) {
  switch (type) {
    case WeightType::kF32:
      return {1, 4, 4};
    case WeightType::kF16:
      return {1, 2, 4};
    case WeightType::kBF16:
      return {2, 2, 2};
    case WeightType::kQ8_0:
      return {32, 1, 1};
  }
  TESSERA_CHECK(false);
}

// The product over inputs [from, from + k) of one row.
void PartialGemm(const GemmArgs& args, uint32_t row, uint32_t from, uint32_t k, float* output) {
  const PackedSteps steps = StepsOf(args.weights->type);
  PackedMatrix part = *args.weights;
  part.k = k;
  part.panels += size_t{from} * 16 * steps.bytes;
  if (part.scales != nullptr) part.scales += size_t{from} / 32 * 16;

  GemmArgs partial = args;
  partial.weights = &part;
  partial.rows = 1;
  partial.output = output;
  partial.input.data = static_cast<const std::byte*>(args.input.data) +
                       row * args.input.row_stride_bytes + size_t{from} * steps.input_bytes;
  if (args.input.scales != nullptr) {
    partial.input.scales = args.input.scales + row * args.input.scale_row_stride + from / 32;
  }
  ControlKernels().gemm(partial);
}

void HalfKGemm(const GemmArgs& args) {
  const PackedMatrix& weights = *args.weights;
  const uint32_t step = StepsOf(weights.type).k;
  const uint32_t half = weights.k / 2 / step * step;
  if (half == 0) return ControlKernels().gemm(args);
  thread_local std::vector<float> second;
  second.resize(size_t{weights.panel_count()} * 16);
  const uint32_t end = args.panel_end * 16 < weights.n ? args.panel_end * 16 : weights.n;
  for (uint32_t row = 0; row < args.rows; ++row) {
    float* output = args.output + row * args.output_stride;
    PartialGemm(args, row, 0, half, output);
    PartialGemm(args, row, half, weights.k - half, second.data());
    for (uint32_t n = args.panel_begin * 16; n < end; ++n) output[n] += second[n];
  }
}

// The new partials from the last to the first, what was accumulated before them at the end.
void ReversedCombine(const AttentionCombineArgs& args) {
  if (args.count == 0) return;
  const size_t floats = AttentionPartialFloats(args.head_dim);
  thread_local std::vector<float> reversed;
  reversed.resize(floats);

  AttentionCombineArgs backwards = args;
  backwards.partials = args.partials + (args.count - 1) * args.stride;
  backwards.stride = -args.stride;
  backwards.first = true;
  backwards.accumulator = reversed.data();
  ControlKernels().attention_combine(backwards);
  if (!args.first) {
    AttentionCombineArgs before = args;
    before.partials = args.accumulator;
    before.count = 1;
    before.accumulator = reversed.data();
    ControlKernels().attention_combine(before);
  }
  std::memcpy(args.accumulator, reversed.data(), floats * sizeof(float));
}

void FillWithNaN(std::byte* group, size_t bytes) { std::memset(group, 0xFF, bytes); }

}  // namespace

std::span<const Fault> AllFaults() { return kAllFaults; }

std::string_view FaultName(Fault fault) {
  switch (fault) {
    case Fault::kNone:
      return "none";
    case Fault::kHalfKProducts:
      return "two half-K products added";
    case Fault::kReversedCombine:
      return "attention splits combined in reverse";
    case Fault::kUnwrittenRowsNaN:
      return "NaN in the unwritten rows of a group";
    case Fault::kStateRoundedAtSave:
      return "state rounded to bf16 at each cut";
    case Fault::kConvTailDropped:
      return "conv state dropped at each cut";
    case Fault::kFreshStateNotZeroed:
      return "fresh state not zeroed";
  }
  return "?";
}

std::string_view WhyFaultCannotShow(Fault fault, const Model& model) {
  const ModelShape& shape = model.shape();
  switch (fault) {
    case Fault::kReversedCombine:
      if (!shape.has_attention()) return kNoAttention;
      if (model.layer(0).attn_output.input_form() == InputForm::kBF16) return "bf16 attn_output";
      return shape.context_length < kReversedCombineTokens ? "context too short" : "";
    case Fault::kUnwrittenRowsNaN:
      return shape.has_attention() ? "" : kNoAttention;
    case Fault::kStateRoundedAtSave:
    case Fault::kConvTailDropped:
    case Fault::kFreshStateNotZeroed:
      return shape.has_ssm() ? "" : "no recurrent layers";
    case Fault::kNone:
    case Fault::kHalfKProducts:
      return "";
  }
  return "";
}

const KernelTable& ControlKernels() {
  static const KernelTable* const kernels = AvailableKernels().back();
  return *kernels;
}

KernelTable BrokenKernels(Fault fault) {
  KernelTable table = ControlKernels();
  if (fault == Fault::kHalfKProducts) table.gemm = HalfKGemm;
  if (fault == Fault::kReversedCombine) table.attention_combine = ReversedCombine;
  if (fault == Fault::kUnwrittenRowsNaN) table.zero_group = FillWithNaN;
  return table;
}

}  // namespace tessera
