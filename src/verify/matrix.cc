// SPDX-License-Identifier: Apache-2.0
#include "verify/matrix.h"

#include <fmt/format.h>

#include "base/check.h"

namespace tessera {
namespace {

// Blocks of 32 and 64 tokens instead of 512: prompts of a few hundred tokens then fill several, and
// images take several pages.
constexpr std::string_view kOrganisations[] = {"s0:block=32", "s1:block=64", "s2:block=64",
                                               "d0:split=0.5", "s3"};
constexpr uint32_t kCuts[] = {kCutNowhere, 1, 2, 7, 15, 16, 17, kCutRandomly};

std::string CutName(uint32_t cut) {
  if (cut == kCutNowhere) return "none";
  if (cut == kCutRandomly) return "random";
  return fmt::format("{}", cut);
}

}  // namespace

Matrix::Matrix(std::span<const KernelTable* const> kernels, std::span<const int> threads)
    : kernels_(kernels.begin(), kernels.end()), threads_(threads.begin(), threads.end()) {
  TESSERA_CHECK(!kernels_.empty() && !threads_.empty());
  dimensions_ = {{"organisation", {}},
                 {"cut", {}},
                 {"mix", {"alone", "others prefilling", "others decoding", "joining and leaving"}},
                 {"threads", {}},
                 {"kernels", {}},
                 {"state", {"in place", "forked"}},
                 {"pages", {"orderly", "hostile"}},
                 {"reuse", {"off", "hits everywhere", "hits at edges", "preempted", "evicted"}}};
  for (std::string_view text : kOrganisations) {
    organisations_.push_back(OrganisationSpec::Parse(text).value());
    dimensions_[kOrganisation].values.emplace_back(text);
  }
  for (uint32_t cut : kCuts) dimensions_[kCut].values.push_back(CutName(cut));
  for (int count : threads_) dimensions_[kThreads].values.push_back(fmt::format("{}", count));
  for (const KernelTable* table : kernels_) dimensions_[kKernels].values.emplace_back(table->isa);
}

std::vector<uint32_t> Matrix::sizes() const {
  std::vector<uint32_t> sizes;
  for (const Dimension& dimension : dimensions_) {
    sizes.push_back(static_cast<uint32_t>(dimension.values.size()));
  }
  return sizes;
}

CellSettings Matrix::At(const CellRow& row) const {
  TESSERA_CHECK(row.size() == kDimensions);
  return {.organisation = organisations_[row[kOrganisation]],
          .cut = kCuts[row[kCut]],
          .mix = static_cast<Mix>(row[kMix]),
          .threads = threads_[row[kThreads]],
          .kernels = kernels_[row[kKernels]],
          .fork = row[kState] == 1,
          .hostile = row[kPages] == 1,
          .reuse = static_cast<Reuse>(row[kReuse])};
}

std::string Matrix::Describe(const CellRow& row) const {
  const auto value = [&](Index dimension) -> const std::string& {
    return dimensions_[dimension].values[row[dimension]];
  };
  return fmt::format("{}, cut {}, {}, {} thread{}, {}, {}, {} pages, reuse {}",
                     value(kOrganisation), value(kCut), value(kMix), value(kThreads),
                     threads_[row[kThreads]] == 1 ? "" : "s", value(kKernels), value(kState),
                     value(kPages), value(kReuse));
}

}  // namespace tessera
