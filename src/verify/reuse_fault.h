// SPDX-License-Identifier: Apache-2.0
//
// ReuseFault breaks what a sequence starts from when it adopts a boundary, as a faulty state memory
// would: it changes bytes or addresses of the first step, and puts them right after it, so that
// only the adopter (kKindForgotten, kStaleImage) or only those who come after it (kSharedWritten)
// see the fault. The producer must not be in that step: it may read the same image.
//
// Threads: one at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <vector>

#include "memory/geometry/state_shape.h"
#include "memory/geometry/state_view.h"
#include "verify/faults.h"

namespace tessera {

class ReuseFault {
 public:
  ReuseFault(Fault fault, const StateShape& shape) : fault_(fault), shape_(shape) {}

  bool holds_producer() const {
    return fault_ == Fault::kSharedWritten || fault_ == Fault::kKindForgotten ||
           fault_ == Fault::kStaleImage;
  }
  // A step of the producer begins; it ends at boundary `at`, whose state is published.
  void ProducerBegins(const StateView& view);
  void ProducerPublishes(uint32_t at, const StateView& view);
  // The first step of a sequence that starts from `at` begins and ends; it has so many groups then.
  // The view must stay where it is.
  void AdopterBegins(uint32_t at, uint32_t groups, StateView* view);
  void AdopterEnds();

 private:
  void WriteSource(const std::vector<std::byte>& bytes) const;
  void WriteInPlace(uint32_t at, uint32_t groups);
  void GoOnInOwn();

  const Fault fault_;
  const StateShape shape_;
  std::vector<std::byte> before_;                     // image the producer's step reads
  std::map<uint32_t, std::vector<std::byte>> stale_;  // by boundary
  std::map<uint32_t, uint64_t> partial_groups_;       // by boundary: offset of the published one

  StateView* view_ = nullptr;  // of the adopter that is in a step
  StateView own_;              // as it was
  std::vector<std::byte> source_;
  std::vector<uint64_t> groups_;  // addresses with the shared group among them
  uint32_t shared_group_ = 0;
};

}  // namespace tessera
