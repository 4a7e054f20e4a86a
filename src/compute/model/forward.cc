// SPDX-License-Identifier: Apache-2.0
#include "compute/model/forward.h"

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "base/check.h"
#include "compute/kernels/rope_angles.h"
#include "compute/model/activations.h"
#include "compute/model/attention_stage.h"
#include "compute/model/gemm_stage.h"
#include "compute/model/ssm_stage.h"
#include "compute/model/step_context.h"
#include "compute/model/step_plan.h"
#include "port/float_environment.h"
#include "port/thread_pool.h"

namespace tessera {
namespace {

// An exponential is worth about eight multiplications.
constexpr uint64_t kExpElements = 8;

// What the next norm adds to the residual first: the outputs of a layer's halves are added where
// the residual is read again, which saves a stage.
struct Addend {
  const Activations::Rows* a = nullptr;
  const Activations::Rows* b = nullptr;
  const float* bias = nullptr;  // of a

  void AddTo(const StepContext& context, uint32_t row) const {
    if (a == nullptr) return;
    const uint32_t d = context.shape.width;
    AddBias(bias, d, a->Row(row));
    context.kernels.add_residual(a->Row(row), b == nullptr ? nullptr : b->Row(row), d,
                                 context.at.residual.Row(row));
  }
};

void AddAndNorm(const StepContext& context, const Addend& addend, const float* weight,
                FormSet forms) {
  const uint32_t d = context.shape.width;
  context.ForRows(d * 3, [&](uint32_t row) {
    addend.AddTo(context, row);
    context.kernels.rms_norm(context.at.residual.Row(row), weight, d, context.shape.rms_eps,
                             context.at.normed.Row(row));
    context.at.normed.Prepare(context.kernels, forms, row);
  });
}

void ProjectIn(const StepContext& context, const LayerWeights& weights) {
  const Activations& at = context.at;
  Product products[kProductsMax];
  size_t count = 0;
  auto add = [&](const PackedMatrix& matrix, const Activations::Rows& rows) {
    products[count++] = {&matrix, &at.normed, rows.data, rows.stride};
  };
  if (context.shape.has_attention()) {
    add(weights.attn_q, at.query);
    add(weights.attn_k, at.key);
    add(weights.attn_v, at.value);
  }
  if (context.shape.has_ssm()) add(weights.ssm_in, at.projected);
  Multiply(context.kernels, context.threads, {products, count}, context.plan.rows());
}

// Keys, values and time steps by rows, and the convolution by channels: all need only the
// projections.
void StoreAndConvolve(const StepContext& context, const AttentionStage* attention,
                      const SsmStage* ssm) {
  const ModelShape& shape = context.shape;
  const uint32_t rows = context.plan.rows();
  const uint32_t per_task = context.plan.RowsPerTask(
      uint64_t{shape.heads + 2 * shape.kv_heads} * shape.head_dim + shape.ssm_heads * kExpElements);
  const auto row_tasks = static_cast<uint32_t>(DivideUp(rows, per_task));
  const auto ranges = context.plan.conv_ranges();
  context.threads.ParallelFor(row_tasks + static_cast<uint32_t>(ranges.size()),
                              [&](uint32_t task, int) {
                                if (task >= row_tasks)
                                  return ssm->Convolve(ranges[task - row_tasks]);
                                const uint32_t end = std::min(rows, (task + 1) * per_task);
                                for (uint32_t row = task * per_task; row < end; ++row) {
                                  if (attention != nullptr) attention->StoreRow(row);
                                  if (ssm != nullptr) ssm->DiscretizeRow(row);
                                }
                              });
}

void AttendAndScan(const StepContext& context, const AttentionStage* attention,
                   const SsmStage* ssm) {
  const auto ranges = context.plan.scan_ranges();
  const auto count = static_cast<uint32_t>(ranges.size());
  auto scan = [&](uint32_t task) { ssm->Scan(ranges[task]); };
  if (attention != nullptr) return attention->Attend(count, scan);
  context.threads.ParallelFor(count, [&](uint32_t task, int) { scan(task); });
}

// What the layer's two branches add to the residual.
Addend ProjectOut(const StepContext& context, const LayerWeights& weights, const SsmStage* ssm) {
  const ModelShape& shape = context.shape;
  const Activations& at = context.at;
  const FormSet forms = FormSet::Of({&weights.attn_output});
  context.ForRows(uint64_t{shape.ssm_inner} * kExpElements + shape.heads * shape.head_dim,
                  [&](uint32_t row) {
                    if (shape.has_attention()) at.attended.Prepare(context.kernels, forms, row);
                    if (ssm != nullptr) ssm->FinishRow(row);
                  });
  const Product attention = {&weights.attn_output, &at.attended, at.mixed.data, at.mixed.stride};
  const Product recurrent = {&weights.ssm_out, &at.scanned, at.ssm_mixed.data, at.ssm_mixed.stride};
  const Product both[] = {attention, recurrent};
  if (shape.has_attention() && shape.has_ssm()) {
    Multiply(context.kernels, context.threads, both, context.plan.rows());
    return {&at.mixed, &at.ssm_mixed, nullptr};
  }
  const bool attends = shape.has_attention();
  Multiply(context.kernels, context.threads, {&both[attends ? 0 : 1], 1}, context.plan.rows());
  return {attends ? &at.mixed : &at.ssm_mixed, nullptr, nullptr};
}

Addend RunMlp(const StepContext& context, const LayerWeights& weights, const Addend& addend) {
  const Activations& at = context.at;
  const uint32_t f = context.shape.feed_forward;
  AddAndNorm(context, addend, weights.ffn_norm, FormSet::Of({&weights.ffn_gate, &weights.ffn_up}));
  const Product in[] = {{&weights.ffn_gate, &at.normed, at.gate.f32, at.gate.f32_stride},
                        {&weights.ffn_up, &at.normed, at.up.data, at.up.stride}};
  Multiply(context.kernels, context.threads, in, context.plan.rows());
  const FormSet forms = FormSet::Of({&weights.ffn_down});
  context.ForRows(f * kExpElements, [&](uint32_t row) {
    float* gate = at.gate.Row(row);
    AddBias(weights.ffn_gate_bias, f, gate);
    AddBias(weights.ffn_up_bias, f, at.up.Row(row));
    context.kernels.silu_mul(gate, at.up.Row(row), f, gate);
    at.gate.Prepare(context.kernels, forms, row);
  });
  const Product down[] = {{&weights.ffn_down, &at.gate, at.mixed.data, at.mixed.stride}};
  Multiply(context.kernels, context.threads, down, context.plan.rows());
  return {&at.mixed, nullptr, weights.ffn_down_bias};
}

Addend RunLayer(const StepContext& context, uint32_t layer, const Addend& addend) {
  const LayerWeights& weights = context.model.layer(layer);
  std::optional<AttentionStage> attention;
  std::optional<SsmStage> ssm;
  FormSet forms;
  if (context.shape.has_attention()) {
    attention.emplace(context, layer);
    forms = FormSet::Of({&weights.attn_q, &weights.attn_k, &weights.attn_v});
  }
  if (context.shape.has_ssm()) {
    ssm.emplace(context, layer);
    forms = forms | FormSet::Of({&weights.ssm_in});
  }
  const AttentionStage* attends = attention ? &*attention : nullptr;
  const SsmStage* scans = ssm ? &*ssm : nullptr;
  AddAndNorm(context, addend, weights.attn_norm, forms);
  ProjectIn(context, weights);
  StoreAndConvolve(context, attends, scans);
  AttendAndScan(context, attends, scans);
  Addend mixed = ProjectOut(context, weights, scans);
  return context.shape.feed_forward > 0 ? RunMlp(context, weights, mixed) : mixed;
}

}  // namespace

struct Forward::Impl {
  Impl(const Model& model_in, StateType state_type, const KernelTable& kernels_in,
       ThreadPool& threads_in, const ForwardLimits& limits_in, Activations activations)
      : model(model_in),
        shape(model_in.shape()),
        state(shape.state_shape(state_type)),
        kernels(kernels_in),
        threads(threads_in),
        limits(limits_in),
        at(std::move(activations)),
        plan(shape, limits, threads.thread_count(), at.plan),
        context{model, shape, state, kernels, threads, at, plan},
        inverse_frequencies(shape.n_rot / 2) {
    if (shape.has_attention()) {
      RopeInverseFrequencies(shape.rope_base, shape.n_rot, model.rope_divisors(),
                             inverse_frequencies.data());
    }
  }

  void EmbedRow(uint32_t row) const;
  void ZeroNewGroups() const;
  uint32_t NormWantedRows(const Addend& addend) const;
  uint32_t Run(std::span<const SequenceStep> steps);
  const float* Head(const float* rows, uint32_t count) const;

  const Model& model;
  const ModelShape& shape;
  const StateShape state;
  const KernelTable& kernels;
  ThreadPool& threads;
  const ForwardLimits limits;
  const Activations at;
  StepPlan plan;
  const StepContext context;
  std::vector<double> inverse_frequencies;
};

void Forward::Impl::EmbedRow(uint32_t row) const {
  const SequenceStep& step = plan.steps()[plan.sequence_of(row)];
  model.Embed(step.tokens[row - plan.first_row(plan.sequence_of(row))], at.residual.Row(row));
  if (!shape.has_attention()) return;
  RopeAngles(plan.position_of(row), inverse_frequencies.data(), shape.n_rot / 2,
             at.cosines.Row(row), at.sines.Row(row));
}

// One token in 16 of a decode, so not worth a place in a parallel job; a prefill's groups are
// about to be written anyway and come through the cache once more.
void Forward::Impl::ZeroNewGroups() const {
  if (!shape.has_attention()) return;
  const uint32_t planes = state.planes();
  for (const SequenceStep& step : plan.steps()) {
    const uint32_t groups = step.last_new_group - step.first_new_group;
    threads.ParallelFor(groups > 1 ? planes : 1, [&](uint32_t task, int) {
      const uint32_t first = groups > 1 ? task : 0;
      const uint32_t last = groups > 1 ? task + 1 : planes;
      for (uint32_t plane = first; plane < last; ++plane) {
        for (uint32_t group = step.first_new_group; group < step.last_new_group; ++group) {
          kernels.zero_group(step.state.GroupAt(plane, group), state.group_bytes());
        }
      }
    });
  }
}

uint32_t Forward::Impl::NormWantedRows(const Addend& addend) const {
  uint32_t wanted = 0;
  for (uint32_t sequence = 0; sequence < plan.steps().size(); ++sequence) {
    const SequenceStep& step = plan.steps()[sequence];
    if (step.wanted == WantedRows::kNone) continue;
    const auto tokens = static_cast<uint32_t>(step.tokens.size());
    const uint32_t count = step.wanted == WantedRows::kLast ? 1 : tokens;
    const uint32_t first = plan.first_row(sequence) + tokens - count;
    const uint32_t per_task = plan.RowsPerTask(uint64_t{shape.width} * 3);
    threads.ParallelFor(static_cast<uint32_t>(DivideUp(count, per_task)), [&](uint32_t task, int) {
      const uint32_t end = std::min(count, (task + 1) * per_task);
      for (uint32_t i = task * per_task; i < end; ++i) {
        addend.AddTo(context, first + i);
        kernels.rms_norm(at.residual.Row(first + i), model.output_norm(), shape.width,
                         shape.rms_eps, at.norm_rows.Row(wanted + i));
      }
    });
    wanted += count;
  }
  return wanted;
}

uint32_t Forward::Impl::Run(std::span<const SequenceStep> steps) {
  const ScopedFloatEnvironment environment;
  plan.Build(steps);
  ZeroNewGroups();
  context.ForRows(uint64_t{shape.width} + shape.n_rot * kExpElements,
                  [&](uint32_t row) { EmbedRow(row); });
  Addend addend;
  for (uint32_t layer = 0; layer < shape.layers; ++layer) {
    addend = RunLayer(context, layer, addend);
  }
  return NormWantedRows(addend);
}

const float* Forward::Impl::Head(const float* rows, uint32_t count) const {
  TESSERA_CHECK(count <= limits.head_rows);
  const ScopedFloatEnvironment environment;
  const FormSet forms = FormSet::Of({&model.output()});
  for (uint32_t row = 0; row < count; ++row) {
    std::copy_n(rows + size_t{row} * shape.width, shape.width, at.head.Row(row));
    at.head.Prepare(kernels, forms, row);
  }
  const Product product[] = {{&model.output(), &at.head, at.logits, shape.vocab_size}};
  Multiply(kernels, threads, product, count);
  return at.logits;
}

Forward::Forward(const Model& model, StateType state_type, const KernelTable& kernels,
                 ThreadPool& threads, const ForwardLimits& limits) {
  auto made = Create(model, state_type, kernels, threads, limits);
  TESSERA_CHECK(made.has_value());
  impl_ = std::move(made->impl_);
}

Result<Forward> Forward::Create(const Model& model, StateType state_type,
                                const KernelTable& kernels, ThreadPool& threads,
                                const ForwardLimits& limits) {
  TESSERA_ASSIGN_OR_RETURN(Activations activations,
                           Activations::Make(model.shape(), limits, threads.thread_count()));
  Forward forward;
  forward.impl_ =
      std::make_unique<Impl>(model, state_type, kernels, threads, limits, std::move(activations));
  return forward;
}

Forward::Forward(Forward&&) noexcept = default;
Forward& Forward::operator=(Forward&&) noexcept = default;
Forward::~Forward() = default;

uint64_t Forward::ActivationBytes(const ModelShape& shape, const ForwardLimits& limits,
                                  int threads) {
  return Activations::Bytes(shape, limits, threads);
}

uint64_t Forward::activation_bytes() const { return impl_->at.size_bytes(); }

uint32_t Forward::Run(std::span<const SequenceStep> steps) { return impl_->Run(steps); }

const float* Forward::norm_rows() const { return impl_->at.norm_rows.data; }

const float* Forward::Head(const float* rows, uint32_t count) { return impl_->Head(rows, count); }

}  // namespace tessera
