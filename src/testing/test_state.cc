// SPDX-License-Identifier: Apache-2.0
#include "testing/test_state.h"

#include <algorithm>
#include <utility>

#include "base/bytes.h"
#include "base/random.h"

namespace tessera::testing {
namespace {

constexpr std::byte kPoison{0xFF};
constexpr uint64_t kGapBytes = 192;

// `count` offsets of parts of `bytes` each; returns the bytes they take together.
uint64_t Place(uint64_t count, uint64_t bytes, bool scattered, Random* random, uint64_t begin,
               std::vector<uint64_t>* offsets) {
  const uint64_t stride = RoundUp(bytes, 64) + (scattered ? kGapBytes : 0);
  for (uint64_t i = 0; i < count; ++i) offsets->push_back(begin + i * stride);
  for (uint64_t i = count; scattered && i > 1; --i) {
    std::swap((*offsets)[i - 1], (*offsets)[random->Below(i)]);
  }
  return count * stride;
}

}  // namespace

TestState::TestState(const StateShape& shape, uint32_t tokens_max, const TestStateOptions& options)
    : shape_(shape) {
  Random random(options.seed);
  const uint32_t planes = shape.planes();
  if (shape.attention_layers > 0) {
    attention_plane_bytes_ = Place(DivideUp(tokens_max, kGroupTokens), shape.group_bytes(),
                                   options.scattered, &random, 0, &group_offsets_);
    attention_.assign(planes * attention_plane_bytes_, kPoison);
  }
  if (shape.recurrent_layers > 0) {
    // The convolution's part starts a member of its own.
    const uint64_t member = shape.ssm_row_bytes() * options.rows_per_member;
    unit_bytes_ = options.scattered ? member : RoundUp(shape.image_bytes(), 64);
    conv_start_ =
        options.scattered ? RoundUp(shape.ssm_image_bytes(), unit_bytes_) : shape.ssm_image_bytes();
    const uint64_t count = DivideUp(conv_start_ + shape.conv_image_bytes(), unit_bytes_);
    for (auto& offsets : member_offsets_) {
      image_plane_bytes_ +=
          Place(count, unit_bytes_, options.scattered, &random, image_plane_bytes_, &offsets);
    }
    images_.assign(planes * image_plane_bytes_, kPoison);
  }
}

StateView TestState::View() const {
  StateView view;
  view.attention_base = const_cast<std::byte*>(attention_.data());
  view.attention_plane_stride = attention_plane_bytes_;
  view.group_offsets = group_offsets_.data();
  view.state_base = const_cast<std::byte*>(images_.data());
  view.state_plane_stride = image_plane_bytes_;
  view.source_offsets = fresh_ ? nullptr : member_offsets_[current_].data();
  view.destination_offsets = member_offsets_[forked_ ? 1 - current_ : current_].data();
  view.unit_bytes = unit_bytes_;
  view.ssm_start = 0;
  view.conv_start = conv_start_;
  return view;
}

void TestState::StepDone() {
  if (forked_) current_ = 1 - current_;
  forked_ = false;
  fresh_ = false;
}

std::vector<std::byte> TestState::Image(int which) const {
  std::vector<std::byte> image;
  if (unit_bytes_ == 0) return image;
  for (uint32_t plane = 0; plane < shape_.planes(); ++plane) {
    const PagedBytes bytes{const_cast<std::byte*>(images_.data()) + plane * image_plane_bytes_,
                           member_offsets_[which].data(), unit_bytes_};
    for (uint64_t x = 0; x < shape_.ssm_image_bytes(); ++x) image.push_back(*bytes.At(x));
    for (uint64_t x = 0; x < shape_.conv_image_bytes(); ++x) {
      image.push_back(*bytes.At(conv_start_ + x));
    }
  }
  return image;
}

std::vector<std::byte> TestState::Bytes(uint32_t tokens) const {
  std::vector<std::byte> all = Image(current_);
  if (group_offsets_.empty()) return all;
  for (uint32_t plane = 0; plane < shape_.planes(); ++plane) {
    for (uint64_t group = 0; group < DivideUp(tokens, kGroupTokens); ++group) {
      const auto begin =
          attention_.begin() +
          static_cast<ptrdiff_t>(plane * attention_plane_bytes_ + group_offsets_[group]);
      all.insert(all.end(), begin, begin + static_cast<ptrdiff_t>(shape_.group_bytes()));
    }
  }
  return all;
}

void TestState::MarkImage(int which, std::vector<bool>* inside) const {
  for (uint32_t plane = 0; plane < shape_.planes(); ++plane) {
    auto mark = [&](uint64_t first, uint64_t bytes) {
      for (uint64_t x = first; x < first + bytes; ++x) {
        (*inside)[plane * image_plane_bytes_ + member_offsets_[which][x / unit_bytes_] +
                  x % unit_bytes_] = true;
      }
    };
    mark(0, shape_.ssm_image_bytes());
    mark(conv_start_, shape_.conv_image_bytes());
  }
}

bool TestState::OutsideIsUntouched(uint32_t tokens) const {
  std::vector<bool> inside(images_.size());
  for (int which = 0; unit_bytes_ > 0 && which < 2; ++which) MarkImage(which, &inside);
  for (size_t i = 0; i < images_.size(); ++i) {
    if (!inside[i] && images_[i] != kPoison) return false;
  }
  std::vector<bool> in_group(attention_.size());
  for (uint32_t plane = 0; !attention_.empty() && plane < shape_.planes(); ++plane) {
    for (uint64_t group = 0; group < DivideUp(tokens, kGroupTokens); ++group) {
      const uint64_t first = plane * attention_plane_bytes_ + group_offsets_[group];
      std::fill_n(in_group.begin() + static_cast<ptrdiff_t>(first), shape_.group_bytes(), true);
    }
  }
  for (size_t i = 0; i < attention_.size(); ++i) {
    if (!in_group[i] && attention_[i] != kPoison) return false;
  }
  return true;
}

}  // namespace tessera::testing
