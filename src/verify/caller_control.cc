// SPDX-License-Identifier: Apache-2.0
#include "verify/caller_control.h"

#include <unistd.h>

#include <bit>
#include <csignal>
#include <string_view>

#include "base/status.h"
#include "verify/product_case.h"
#include "verify/product_oracle.h"
#include "verify/table_product.h"

namespace tessera {
namespace {

constexpr ProductShape kShape{.n = 80, .k = 96};
constexpr uint32_t kRows = 7;

// Masks are the flags' bits, seven places up.
constexpr uint32_t kMaskAll = 0x1F80;
constexpr uint32_t kFlags = 0x3F;
uint32_t TrappingFlags(const FloatMode& mode) { return ~(mode.mxcsr >> 7) & kFlags; }

void AddCase(const KernelTable& kernels, const ProductCase& c, CallerControl* control) {
  const std::vector<float> wanted = ChainProduct(c, ProductForm::kContract);
  const PackedProduct packed(WeightType::kF32, c);
  FloatMode masked = *control->mode;
  masked.mxcsr |= kMaskAll;
  std::vector<float> found;
  {
    const HostileFloatEnvironment hostile(&masked);
    found = packed.Multiply(kernels, kRows, /*environment=*/false);
    control->would_trap |= (_mm_getcsr() & TrappingFlags(*control->mode)) != 0;
  }
  control->outputs += found.size();
  for (size_t i = 0; i < found.size(); ++i) {
    if (std::bit_cast<uint32_t>(found[i]) != std::bit_cast<uint32_t>(wanted[i])) {
      ++control->differing;
    }
  }
}

extern "C" void SayThatItTrapped(int) {
  constexpr std::string_view kMessage =
      "\ntessera verify: FAILED: a float exception trapped inside the library, which computes with "
      "all of them masked whatever its caller has set\n";
  [[maybe_unused]] const ssize_t written = write(STDERR_FILENO, kMessage.data(), kMessage.size());
  _exit(static_cast<int>(StatusCode::kFailed));
}

}  // namespace

std::vector<CallerControl> RunCallerControls(const KernelTable& kernels, uint64_t seed) {
  std::vector<CallerControl> controls;
  for (const FloatMode& mode : kFloatModes) {
    CallerControl control;
    control.mode = &mode;
    for (ProductValues values : {ProductValues::kPlain, ProductValues::kDenormal}) {
      AddCase(kernels, MakeProductCase(GgufTensorType::kF32, kShape, kRows, values, seed),
              &control);
    }
    controls.push_back(control);
  }
  return controls;
}

struct FloatTrapMessage::Saved {
  struct sigaction action;
};

FloatTrapMessage::FloatTrapMessage() : saved_(new Saved) {
  struct sigaction action = {};
  action.sa_handler = SayThatItTrapped;
  sigaction(SIGFPE, &action, &saved_->action);
}

FloatTrapMessage::~FloatTrapMessage() {
  sigaction(SIGFPE, &saved_->action, nullptr);
  delete saved_;
}

}  // namespace tessera
