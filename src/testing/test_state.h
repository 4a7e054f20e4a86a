// SPDX-License-Identifier: Apache-2.0
//
// TestState is the state memory of one sequence for tests of the compute side, without pools or a
// ledger: plain buffers, filled with 0xFF (a NaN in bf16 and fp32) before use.
//
//   contiguous  groups one after another, the image in one member
//   scattered   groups and members in random order with gaps between them
//
// There are two images: Fork makes the next step read one and write the other, as when the one read
// has become a checkpoint.
//
// Threads: one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "memory/geometry/state_shape.h"
#include "memory/geometry/state_view.h"

namespace tessera::testing {

struct TestStateOptions {
  bool scattered = false;
  uint32_t rows_per_member = 3;  // scattered: a member is so many SSM rows
  uint64_t seed = 1;
};

class TestState {
 public:
  TestState(const StateShape& shape, uint32_t tokens_max, const TestStateOptions& options = {});

  StateView View() const;
  // The next step writes the other image.
  void Fork() { forked_ = true; }
  // A step that used View() is over.
  void StepDone();

  // All that the sequence is: the rows of `tokens` tokens in their groups (the rest of the last
  // group included, which must be zero), then the image. Layouts do not show.
  std::vector<std::byte> Bytes(uint32_t tokens) const;
  // The image a fork left behind.
  std::vector<std::byte> OtherImage() const { return Image(1 - current_); }
  // Whether every byte outside the groups of `tokens` tokens and the images is as it was at first.
  bool OutsideIsUntouched(uint32_t tokens) const;

 private:
  std::vector<std::byte> Image(int which) const;
  void MarkImage(int which, std::vector<bool>* inside) const;

  StateShape shape_;
  std::vector<std::byte> attention_;
  uint64_t attention_plane_bytes_ = 0;
  std::vector<uint64_t> group_offsets_;
  std::vector<std::byte> images_;
  uint64_t image_plane_bytes_ = 0;
  uint64_t unit_bytes_ = 0;
  uint64_t conv_start_ = 0;
  std::vector<uint64_t> member_offsets_[2];
  int current_ = 0;
  bool fresh_ = true;
  bool forked_ = false;
};

}  // namespace tessera::testing
