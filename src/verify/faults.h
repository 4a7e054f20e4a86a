// SPDX-License-Identifier: Apache-2.0
//
// Faults are the negative controls of the matrix: each puts back one way in which engines lose
// exactness, and the comparison must notice. A matrix whose controls pass proves nothing.
//
// Some are kernel tables composed from the default one; the others act on state between steps,
// where a run asks for them (Lab).
//
//   kHalfKProducts        GEMM as the sum of two half-K products       (split-K, K blocks summed)
//   kReversedCombine      attention splits combined last to first      (arrival order)
//   kCallersFloatMode     kernels round as the caller had set it       (entry without its own mode)
//   kUnwrittenRowsNaN     a fresh group holds NaN instead of zeros     (0 × NaN in masked lanes)
//   kStateRoundedAtSave   SSM state rounded to bf16 at each cut        (lossy checkpoints)
//   kStateRoundedAtEnd    bf16 state rounded at a step's end only      (the same, for a bf16 state)
//   kBatchScales          int8 scales from all rows of a product       (dynamic quantisation)
//   kConvTailDropped      conv state zeroed at each cut                (a side member not saved)
//   kFreshStateNotZeroed  a fresh sequence starts from another's bytes
//
// and these where a sequence starts from what another left (ReuseFault, Lab):
//
//   kLabelOffByOne        who adopts goes on one token further than the state is of
//   kSharedWritten        who adopts writes to the image and the block it shares with others
//   kKindForgotten        who adopts finds no conv state            (a mover that knows one kind)
//   kStaleImage           the image is that of before the step      (published too early)
//   kSaltIgnored          a request of another salt finds it
//
// Threads: the composed kernels are pure like those they call.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "compute/kernels/kernel_table.h"
#include "compute/model/model.h"

namespace tessera {

enum class Fault : uint8_t {
  kNone,
  kHalfKProducts,
  kReversedCombine,
  kCallersFloatMode,
  kUnwrittenRowsNaN,
  kStateRoundedAtSave,
  kStateRoundedAtEnd,
  kBatchScales,
  kConvTailDropped,
  kFreshStateNotZeroed,
  kLabelOffByOne,
  kSharedWritten,
  kKindForgotten,
  kStaleImage,
  kSaltIgnored,
};

std::span<const Fault> AllFaults();
std::string_view FaultName(Fault fault);
// It acts on what is reused: its control runs where subjects are started from.
bool IsReuseFault(Fault fault);
// A reversed combine shows in sequences of at least this many tokens: sixteen rows see two splits.
inline constexpr uint32_t kReversedCombineTokens = kSplitTokens + 16;

// Why the fault cannot show in any run of the model; empty when it can. That is when the model has
// nothing the fault could touch, or for the reversed combine, when its context is one split, or
// when attn_output is bf16: two orders differ in the last bit of an fp32 sum, and its input's
// rounding to bf16 hides all but one in 65,536 of those; int8 with one scale for 256 hides more.
std::string_view WhyFaultCannotShow(Fault fault, const Model& model, StateType state_type);

// The table the controls run on: the fastest this CPU has.
const KernelTable& ControlKernels();
// ControlKernels with the fault composed in; unchanged for faults that act on state.
KernelTable BrokenKernels(Fault fault);

}  // namespace tessera
