// SPDX-License-Identifier: Apache-2.0
//
// PageMemory answers a scheduler's questions in tests: one pool of pages of four tokens, a few pages
// of live state for each sequence, headroom, prefixes that others are computing, cuts. It plays the
// sequences, too: what each knows, has computed and sampled. Its answers are functions of the calls
// made and of the seed, so that two of them that are asked the same say the same. Every call is
// written down.
//
// M1  free + held + promised = total, always.
// M2  One that is admitted with nothing else there fits whatever it was told before: the state it
//     leaves for others after its prompt (one more page, which it keeps) goes when it is told that
//     it is in its own way.
//
// Threads: one at a time.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <map>
#include <tuple>
#include <vector>

#include "base/random.h"
#include "engine/scheduler.h"

namespace tessera::testing {

class PageMemory final : public SchedulerMemory {
 public:
  static constexpr uint32_t kPageTokens = 4;
  static constexpr uint32_t kImagePages = 2;
  static constexpr uint32_t kNoCut = std::numeric_limits<uint32_t>::max();

  struct Sequence {
    uint32_t prompt = 0;
    uint32_t outputs = 1;
    int32_t priority = 0;
    uint32_t sampled = 0;
    uint32_t computed = 0;
    uint32_t prefill_left = 0;  // known tokens to compute
    uint32_t image_pages = 0;
    uint32_t used_pages = 0;  // for computed tokens
    uint32_t promised_pages = 0;
    uint32_t given_back = 0;  // while pinned
    uint32_t admissions = 0;
    bool running = false;
    bool pinned = false;
    bool row_due = false;
    bool leaves_state = true;
    uint32_t left_pages = 0;
    SequenceId producer = {};  // whose prefill it waits for, until that has computed `until`
    uint32_t until = 0;

    uint32_t known() const { return prompt + sampled; }
    uint32_t most() const { return prompt + outputs - 1; }
    uint32_t pages() const { return image_pages + used_pages + promised_pages + left_pages; }
    bool decoding() const { return running && !row_due && prefill_left == 0; }
    bool prefilling() const { return running && prefill_left > 0; }
  };
  // What was called, with what came out.
  using Call = std::tuple<char, uint64_t, uint32_t, uint32_t>;

  PageMemory(uint64_t seed, uint32_t total_pages, uint32_t headroom_pages)
      : seed_(seed), total_(total_pages), headroom_(headroom_pages), free_(total_pages) {}

  static uint32_t Pages(uint32_t tokens) { return (tokens + kPageTokens - 1) / kPageTokens; }

  void Add(SequenceId id, uint32_t prompt, uint32_t outputs, int32_t priority) {
    sequences_[id] = {.prompt = prompt, .outputs = outputs, .priority = priority};
  }
  void Remove(SequenceId id) {
    Free(sequences_.at(id));
    sequences_.erase(id);
  }
  // Between steps: what answers depend on beyond the calls.
  void NextStep() { ++step_; }

  AdmitAnswer Admit(SequenceId id, const AdmitTerms& terms) override {
    Sequence& s = sequences_.at(id);
    EXPECT_FALSE(s.running);
    EXPECT_EQ(terms.pinned, s.pinned);
    AdmitAnswer answer = terms.pinned ? Resume(s, terms) : AdmitNew(id, s, terms);
    calls_.emplace_back('a', id.index(), answer.outcome, answer.cached_tokens);
    return answer;
  }

  uint32_t Grow(SequenceId id) override {
    Sequence& s = sequences_.at(id);
    EXPECT_TRUE(s.decoding());
    uint32_t lacking = 0;
    const uint32_t need = Pages(s.computed + 1);
    const uint32_t have = s.used_pages + s.promised_pages;
    if (need > have) {
      lacking = need - have - std::min(need - have, free_);
      if (lacking == 0) Promise(s, need - have);
    }
    calls_.emplace_back('g', id.index(), lacking, 0);
    return lacking;
  }

  PreemptCost CostOf(SequenceId id) override {
    const Sequence& s = sequences_.at(id);
    EXPECT_TRUE(s.running || s.pinned);
    return {
        .unused_pages = s.promised_pages, .all_pages = s.pages(), .lost_tokens = s.computed % 16};
  }

  uint32_t Preempt(SequenceId id, Preemption way) override {
    Sequence& s = sequences_.at(id);
    EXPECT_TRUE(s.running || (s.pinned && way == Preemption::kRecompute));
    EXPECT_FALSE(s.row_due);
    calls_.emplace_back('p', id.index(), static_cast<uint32_t>(way), 0);
    s.running = false;
    if (way == Preemption::kPin) {
      s.pinned = true;
      s.given_back = s.promised_pages;
      free_ += s.promised_pages;
      s.promised_pages = 0;
      return 0;
    }
    if (way == Preemption::kRecomputeAlone) {
      for (const auto& [other, o] : sequences_) EXPECT_FALSE(o.running || o.pinned);
      EXPECT_TRUE(s.leaves_state) << "it was told before";
      s.leaves_state = false;
    }
    Free(s);
    s.pinned = false;
    s.computed = s.prefill_left = 0;
    return s.known();
  }

  uint32_t TokensToCut(SequenceId id) override {
    const Sequence& s = sequences_.at(id);
    EXPECT_TRUE(s.prefilling());
    const uint64_t every = Draw(id, 1, 20);
    return every < 10 ? kNoCut : static_cast<uint32_t>(every - s.computed % every);
  }

  // The planned tokens are computed. True when the sequence has finished.
  bool Execute(const PlanItem& item) {
    Sequence& s = sequences_.at(item.id);
    for (uint32_t i = 0; i < item.tokens; ++i) {
      if (Pages(++s.computed) <= s.used_pages) continue;
      EXPECT_GT(s.promised_pages, 0u) << "a page without a promise";
      ++s.used_pages;
      --s.promised_pages;
    }
    s.row_due = false;
    s.prefill_left -= std::min(s.prefill_left, item.tokens);
    if (!item.completes_row) return false;
    ++s.sampled;
    if (s.sampled == 1 && s.leaves_state && free_ > 0 && s.left_pages == 0) {
      s.left_pages = 1;
      --free_;
    }
    return s.sampled == s.outputs;
  }

  const std::map<SequenceId, Sequence>& sequences() const { return sequences_; }
  std::vector<Call>& calls() { return calls_; }
  uint32_t total() const { return total_; }
  void Check() const {
    uint32_t sum = free_;
    for (const auto& [id, s] : sequences_) {
      sum += s.pages();
      EXPECT_TRUE(s.running || s.pinned || s.pages() == 0);
      EXPECT_TRUE(!s.pinned || s.promised_pages == 0);
    }
    EXPECT_EQ(sum, total_);
  }

 private:
  // The same for the same sequence and step, whoever asks first.
  uint64_t Draw(SequenceId id, uint64_t what, uint64_t below) const {
    return CounterRandom(seed_ + what * 0x9E37u + id.index() * 0x1F123BB5u, step_) % below;
  }
  void Promise(Sequence& s, uint32_t pages) {
    free_ -= pages;
    s.promised_pages += pages;
  }
  void Free(Sequence& s) {
    free_ += s.pages();
    s.image_pages = s.used_pages = s.promised_pages = s.left_pages = 0;
    s.running = false;
  }

  AdmitAnswer AdmitNew(SequenceId id, Sequence& s, const AdmitTerms& terms) {
    if (Pages(s.most()) + kImagePages > total_) return {.outcome = AdmitAnswer::kNeverFits};
    if (WaitsForPrefix(id, s)) return {.outcome = AdmitAnswer::kWaitsForPrefix};
    const uint32_t need = Pages(std::min(s.most(), s.known() + kPageTokens)) + kImagePages;
    if (need + (terms.waives_headroom ? 0 : headroom_) > free_) return {};
    Promise(s, need);
    s.promised_pages -= kImagePages;
    s.image_pages = kImagePages;
    s.running = true;
    ++s.admissions;
    const uint64_t draw = Draw(id, 2, 4);
    uint32_t cached = draw == 0 ? s.known() : static_cast<uint32_t>(Draw(id, 3, s.known()));
    if (draw == 1) cached = 0;
    s.computed = cached;
    s.prefill_left = s.known() - cached;
    s.used_pages = Pages(cached);
    s.promised_pages -= s.used_pages;
    s.row_due = cached == s.known();
    return {.outcome = AdmitAnswer::kAdmitted, .cached_tokens = cached, .from_row = s.row_due};
  }

  AdmitAnswer Resume(Sequence& s, const AdmitTerms& terms) {
    const uint32_t have = s.used_pages + s.given_back;
    const uint32_t grows = Pages(s.computed + 1) - std::min(Pages(s.computed + 1), have);
    const uint32_t need = s.given_back + grows;
    if (need + (terms.waives_headroom ? 0 : headroom_) > free_) return {};
    Promise(s, need);
    s.running = true;
    s.pinned = false;
    return {.outcome = AdmitAnswer::kAdmitted};
  }

  bool WaitsForPrefix(SequenceId id, Sequence& s) {
    if (s.producer.valid()) {
      const auto producer = sequences_.find(s.producer);
      if (producer != sequences_.end() && producer->second.prefilling() &&
          producer->second.computed < s.until) {
        return true;
      }
      s.producer = SequenceId();
    }
    if (s.admissions > 0 || Draw(id, 4, 3) != 0) return false;
    for (const auto& [other, o] : sequences_) {
      if (other == id) return false;
      if (!o.prefilling() || o.computed >= o.known()) continue;
      s.producer = other;
      s.until = o.computed + 1 + static_cast<uint32_t>(Draw(id, 5, o.known() - o.computed));
      return true;
    }
    return false;
  }

  const uint64_t seed_;
  const uint32_t total_;
  const uint32_t headroom_;
  uint32_t free_;
  uint64_t step_ = 0;
  std::map<SequenceId, Sequence> sequences_;  // in order of arrival
  std::vector<Call> calls_;
};

}  // namespace tessera::testing
