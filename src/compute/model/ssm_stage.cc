// SPDX-License-Identifier: Apache-2.0
#include "compute/model/ssm_stage.h"

namespace tessera {

SsmStage::SsmStage(const StepContext& context, uint32_t layer)
    : context_(context), weights_(context.model.layer(layer)) {
  const StateShape& state = context.state;
  const uint32_t per_plane = state.recurrent_layers_per_plane();
  // A model with recurrent layers has at least one in every plane, which the analyser cannot see.
  plane_ = layer / per_plane;  // NOLINT(clang-analyzer-core.DivideZero)
  ssm_byte_ = layer % per_plane * state.ssm_bytes_per_layer();
  conv_byte_ = layer % per_plane * state.conv_bytes_per_layer();
}

void SsmStage::DiscretizeRow(uint32_t row) const {
  const ModelShape& shape = context_.shape;
  const float* dt = context_.at.projected.Row(row) + shape.ssm_inner + shape.conv_channels();
  context_.kernels.discretize(dt, weights_.dt_bias, weights_.ssm_a, shape.ssm_heads,
                              context_.at.delta.Row(row), context_.at.decay.Row(row));
}

void SsmStage::Convolve(const StepPlan::Range& range) const {
  const ModelShape& shape = context_.shape;
  const SequenceStep& step = context_.plan.steps()[range.sequence];
  const uint32_t first_row = context_.plan.first_row(range.sequence);
  ConvArgs args;
  args.input = context_.at.projected.Row(first_row) + shape.ssm_inner;
  args.input_stride = context_.at.projected.stride;
  args.weights = weights_.conv_weight;
  args.weight_stride = RoundUp(shape.conv_channels(), 16);
  args.bias = weights_.conv_bias;
  args.output = context_.at.convolved.Row(first_row);
  args.output_stride = context_.at.convolved.stride;
  args.rows = static_cast<uint32_t>(step.tokens.size());
  args.channel_begin = range.begin;
  args.channel_end = range.end;
  args.taps = shape.conv_kernel - 1;
  args.source = step.state.Source(plane_);
  args.destination = step.state.Destination(plane_);
  args.start = step.state.conv_start + conv_byte_;
  args.row_bytes = context_.state.conv_row_bytes();
  context_.kernels.conv(args);
}

void SsmStage::Scan(const StepPlan::Range& range) const {
  const ModelShape& shape = context_.shape;
  const SequenceStep& step = context_.plan.steps()[range.sequence];
  const uint32_t first_row = context_.plan.first_row(range.sequence);
  const Activations& at = context_.at;
  ScanArgs args;
  args.x = at.convolved.Row(first_row);
  args.b = args.x + shape.ssm_inner;
  args.c = args.b + size_t{shape.ssm_groups} * shape.ssm_state;
  args.stride = at.convolved.stride;
  args.delta = at.delta.Row(first_row);
  args.decay = at.decay.Row(first_row);
  args.heads_stride = at.delta.stride;
  args.d = weights_.ssm_d;
  args.y = at.scanned.Row(first_row);
  args.y_stride = at.scanned.f32_stride;
  args.rows = static_cast<uint32_t>(step.tokens.size());
  args.head_begin = range.begin;
  args.head_end = range.end;
  args.head_dim = shape.ssm_head_dim();
  args.state = shape.ssm_state;
  args.heads_per_group = shape.ssm_heads / shape.ssm_groups;
  args.state_type = context_.state.state_type;
  args.source = step.state.Source(plane_);
  args.destination = step.state.Destination(plane_);
  args.start = step.state.ssm_start + ssm_byte_;
  args.row_bytes = context_.state.ssm_row_bytes();
  context_.kernels.scan(args);
}

void SsmStage::FinishRow(uint32_t row) const {
  const ModelShape& shape = context_.shape;
  const KernelTable& kernels = context_.kernels;
  float* y = context_.at.scanned.Row(row);
  kernels.silu_mul(context_.at.projected.Row(row), y, shape.ssm_inner, y);
  if (weights_.ssm_norm != nullptr) {
    const uint32_t n = shape.ssm_inner / shape.ssm_groups;
    for (uint32_t group = 0; group < shape.ssm_groups; ++group) {
      kernels.rms_norm(y + group * n, weights_.ssm_norm + group * n, n, shape.rms_eps,
                       y + group * n);
    }
  }
  context_.at.scanned.Prepare(kernels, FormSet::Of({&weights_.ssm_out}), row);
}

}  // namespace tessera
