// SPDX-License-Identifier: Apache-2.0
#include "verify/faults.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "base/bytes.h"
#include "base/check.h"
#include "compute/tensor/number_formats.h"
#include "verify/hostile_float_environment.h"

namespace tessera {
namespace {

constexpr Fault kAllFaults[] = {
    Fault::kHalfKProducts,    Fault::kReversedCombine,    Fault::kCallersFloatMode,
    Fault::kUnwrittenRowsNaN, Fault::kStateRoundedAtSave, Fault::kStateRoundedAtEnd,
    Fault::kBatchScales,      Fault::kConvTailDropped,    Fault::kFreshStateNotZeroed,
    Fault::kLabelOffByOne,    Fault::kSharedWritten,      Fault::kKindForgotten,
    Fault::kStaleImage,       Fault::kSaltIgnored};

constexpr std::string_view kNoAttention = "no attention layers";
constexpr std::string_view kNoRecurrent = "no recurrent layers";

// How a row of activations is cut: at blocks, each with some words of sums.
struct InputBlock {
  uint32_t elements;
  uint32_t bytes;
  uint32_t sum_words;
};

InputBlock InputBlockOf(InputForm form) {
  switch (form) {
    case InputForm::kF32:
      return {1, 4, 0};
    case InputForm::kBF16:
      return {2, 4, 0};
    case InputForm::kInt8:
      return {32, 32, 1};
    case InputForm::kInt8K:
      return {256, 256, kKSumWords};
  }
  TESSERA_CHECK(false);
}

// The product over blocks [begin, end) of one row: the others are zeros, which leave an accumulator
// as it is.
void PartialGemm(const GemmArgs& args, uint32_t row, uint32_t begin, uint32_t end, float* output) {
  const InputBlock block = InputBlockOf(args.weights->input_form());
  const size_t blocks = DivideUp(args.weights->k, block.elements);
  thread_local std::vector<std::byte> data;
  data.assign(blocks * block.bytes, std::byte{0});
  const auto* row_data =
      static_cast<const std::byte*>(args.input.data) + row * args.input.row_stride_bytes;
  // Of the last block of an odd row of bf16 only half is there.
  const size_t row_bytes = block.elements == 2 ? args.weights->k * size_t{2} : data.size();
  const size_t from = size_t{begin} * block.bytes;
  std::memcpy(data.data() + from, row_data + from,
              std::min(size_t{end} * block.bytes, row_bytes) - from);
  thread_local std::vector<int32_t> sums;
  sums.assign(blocks * block.sum_words, 0);

  GemmArgs partial = args;
  partial.rows = 1;
  partial.output = output;
  partial.input.data = data.data();
  if (block.sum_words > 0) {
    const int32_t* row_sums = args.input.sums + row * args.input.sum_row_stride;
    std::copy(row_sums + begin * block.sum_words, row_sums + end * block.sum_words,
              sums.begin() + begin * block.sum_words);
    partial.input.sums = sums.data();
    partial.input.scales = args.input.scales + row * args.input.scale_row_stride;
  }
  ControlKernels().gemm(partial);
}

void HalfKGemm(const GemmArgs& args) {
  const PackedMatrix& weights = *args.weights;
  const auto blocks =
      static_cast<uint32_t>(DivideUp(weights.k, InputBlockOf(weights.input_form()).elements));
  if (blocks < 2) return ControlKernels().gemm(args);
  thread_local std::vector<float> second;
  second.resize(size_t{weights.panel_count()} * 16);
  const uint32_t end = args.panel_end * 16 < weights.n ? args.panel_end * 16 : weights.n;
  for (uint32_t row = 0; row < args.rows; ++row) {
    float* output = args.output + row * args.output_stride;
    PartialGemm(args, row, 0, blocks / 2, output);
    PartialGemm(args, row, blocks / 2, blocks, second.data());
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

// Row by row of (head, p): bf16 pages to contiguous fp32 rows, or back.
void CopyStateRows(const ScanArgs& args, const PagedBytes& pages, uint64_t float_row_bytes,
                   bool to_float, std::vector<std::byte>* floats) {
  const uint64_t end = uint64_t{args.head_end} * args.head_dim;
  for (uint64_t row = uint64_t{args.head_begin} * args.head_dim; row < end; ++row) {
    for (uint32_t n = 0; n < args.state; ++n) {
      std::byte* at = pages.At(args.start + row * args.row_bytes + n * sizeof(uint16_t));
      std::byte* as_float = floats->data() + row * float_row_bytes + n * sizeof(float);
      uint16_t half = 0;
      float value = 0;
      if (to_float) {
        std::memcpy(&half, at, sizeof half);
        value = Bf16ToFloat(half);
        std::memcpy(as_float, &value, sizeof value);
      } else {
        std::memcpy(&value, as_float, sizeof value);
        half = FloatToBf16(value);
        std::memcpy(at, &half, sizeof half);
      }
    }
  }
}

// The state in fp32 while a call's tokens last, rounded to bf16 when it is stored.
void ScanRoundingAtEnd(const ScanArgs& args) {
  if (args.state_type != StateType::kBF16) return ControlKernels().scan(args);
  constexpr uint64_t kNoOffset = 0;
  thread_local std::vector<std::byte> floats;
  ScanArgs in_float = args;
  in_float.state_type = StateType::kF32;
  in_float.start = 0;
  in_float.row_bytes = RoundUp(uint64_t{args.state} * sizeof(float), 64);
  floats.assign(in_float.row_bytes * args.head_end * args.head_dim, std::byte{0});
  in_float.destination = {floats.data(), &kNoOffset, floats.size()};
  if (!args.source.is_zero()) {
    CopyStateRows(args, args.source, in_float.row_bytes, /*to_float=*/true, &floats);
    in_float.source = in_float.destination;
  }
  ControlKernels().scan(in_float);
  CopyStateRows(args, args.destination, in_float.row_bytes, /*to_float=*/false, &floats);
}

// Activations rounded again, with the largest scale that a block has in any row of the product.
void BatchScalesGemm(const GemmArgs& args) {
  if (args.weights->input_form() != InputForm::kInt8) return ControlKernels().gemm(args);
  const size_t blocks = DivideUp(args.weights->k, 32);
  thread_local std::vector<int8_t> data;
  thread_local std::vector<float> scales;
  thread_local std::vector<int32_t> sums;
  data.resize(args.rows * args.input.row_stride_bytes);
  std::memcpy(data.data(), args.input.data,
              data.size() - args.input.row_stride_bytes + blocks * 32);
  scales.assign(blocks, 0.0f);
  sums.assign(args.rows * blocks, 0);
  for (size_t at = 0; at < args.rows * blocks; ++at) {
    const size_t row = at / blocks, block = at % blocks;
    scales[block] =
        std::max(scales[block], args.input.scales[row * args.input.scale_row_stride + block]);
  }
  for (size_t at = 0; at < args.rows * blocks; ++at) {
    const size_t row = at / blocks, block = at % blocks;
    const float scale = args.input.scales[row * args.input.scale_row_stride + block];
    const float factor = scales[block] == 0 ? 0.0f : scale / scales[block];
    int8_t* values = data.data() + row * args.input.row_stride_bytes + block * 32;
    for (int i = 0; i < 32; ++i) {
      values[i] = static_cast<int8_t>(std::nearbyint(static_cast<float>(values[i]) * factor));
      sums[at] -= values[i];
    }
  }
  GemmArgs batch = args;
  batch.input.data = data.data();
  batch.input.scales = scales.data();
  batch.input.scale_row_stride = 0;
  batch.input.sums = sums.data();
  batch.input.sum_row_stride = blocks;
  ControlKernels().gemm(batch);
}

bool HasInt8Inputs(const Model& model) {
  const LayerWeights& layer = model.layer(0);
  const PackedMatrix& matrix = model.shape().has_attention() ? layer.attn_q : layer.ssm_in;
  return matrix.input_form() == InputForm::kInt8;
}

void FillWithNaN(std::byte* group, size_t bytes) { std::memset(group, 0xFF, bytes); }

// A kernel of the table in the float mode of a hostile caller.
template <auto kKernel, class... Args>
void InCallersMode(Args... args) {
  const HostileFloatEnvironment hostile(&kTowardZero);
  (ControlKernels().*kKernel)(args...);
}

void LeaveCallersMode(KernelTable* table) {
  table->gemm = InCallersMode<&KernelTable::gemm, const GemmArgs&>;
  table->rms_norm =
      InCallersMode<&KernelTable::rms_norm, const float*, const float*, uint32_t, float, float*>;
}

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
    case Fault::kCallersFloatMode:
      return "products and norms as the caller rounds";
    case Fault::kUnwrittenRowsNaN:
      return "NaN in the unwritten rows of a group";
    case Fault::kStateRoundedAtSave:
      return "state rounded to bf16 at each cut";
    case Fault::kStateRoundedAtEnd:
      return "bf16 state rounded at a step's end only";
    case Fault::kBatchScales:
      return "int8 scales from all rows of a product";
    case Fault::kConvTailDropped:
      return "conv state dropped at each cut";
    case Fault::kFreshStateNotZeroed:
      return "fresh state not zeroed";
    case Fault::kLabelOffByOne:
      return "adopted state labelled one token off";
    case Fault::kSharedWritten:
      return "shared state appended to in place";
    case Fault::kKindForgotten:
      return "conv state missing where adopted";
    case Fault::kStaleImage:
      return "image published before its step ended";
    case Fault::kSaltIgnored:
      return "another salt's state adopted";
  }
  return "?";
}

bool IsReuseFault(Fault fault) { return fault >= Fault::kLabelOffByOne; }

std::string_view WhyFaultCannotShow(Fault fault, const Model& model, StateType state_type) {
  const ModelShape& shape = model.shape();
  switch (fault) {
    case Fault::kReversedCombine:
      if (!shape.has_attention()) return kNoAttention;
      if (model.layer(0).attn_output.input_form() == InputForm::kBF16) return "bf16 attn_output";
      if (model.layer(0).attn_output.input_form() == InputForm::kInt8K) return "int8 per 256";
      return shape.context_length < kReversedCombineTokens ? "context too short" : "";
    case Fault::kUnwrittenRowsNaN:
      return shape.has_attention() ? "" : kNoAttention;
    case Fault::kStateRoundedAtSave:
      if (!shape.has_ssm()) return kNoRecurrent;
      return state_type == StateType::kBF16 ? "bf16 state" : "";
    case Fault::kStateRoundedAtEnd:
      if (!shape.has_ssm()) return kNoRecurrent;
      return state_type == StateType::kF32 ? "fp32 state" : "";
    case Fault::kBatchScales:
      return HasInt8Inputs(model) ? "" : "no activations in blocks of 32";
    case Fault::kConvTailDropped:
    case Fault::kFreshStateNotZeroed:
    case Fault::kKindForgotten:
    case Fault::kStaleImage:
      return shape.has_ssm() ? "" : kNoRecurrent;
    case Fault::kLabelOffByOne:
    case Fault::kSharedWritten:
    case Fault::kSaltIgnored:
    case Fault::kNone:
    case Fault::kCallersFloatMode:
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
  if (fault == Fault::kCallersFloatMode) LeaveCallersMode(&table);
  if (fault == Fault::kStateRoundedAtEnd) table.scan = ScanRoundingAtEnd;
  if (fault == Fault::kBatchScales) table.gemm = BatchScalesGemm;
  if (fault == Fault::kUnwrittenRowsNaN) table.zero_group = FillWithNaN;
  return table;
}

}  // namespace tessera
