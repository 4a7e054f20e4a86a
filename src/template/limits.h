// SPDX-License-Identifier: Apache-2.0
//
// What one template and one rendering of it may use. Templates come from model files and messages
// from clients, and neither is trusted: every loop, copy and recursion is charged to one of these.
//
// Real templates are 1 to 20 KiB, nest 10 deep, and take 50 to 300 steps and 5 to 20 copies of the
// text per message. A conversation of 1,000 messages and 500 KiB, the text of a context of 128k
// tokens, so needs about 300,000 steps and 10 MiB.
#pragma once

#include <cstddef>
#include <cstdint>

namespace tessera::jinja {

inline constexpr size_t kTemplateBytesMax = 256 * 1024;

// Levels of statements and expressions in the text of a template.
inline constexpr int kNestingMax = 128;

// Of one call. map('map', …) recurses once per argument.
inline constexpr size_t kArgumentsMax = 64;

// Nested evaluations at run time: one per level of the syntax, so a macro that calls itself from
// within a loop and a condition takes about six a call. 1,000 fit in 1 MiB of stack, with
// AddressSanitizer in the 8 MiB that a thread has.
inline constexpr int kEvaluationDepthMax = 1000;

// Lists within lists.
inline constexpr int kValueDepthMax = 64;

// A step is a node evaluated, an item looked at, or kBytesPerStep bytes read or written; it takes
// 50 to 300 ns, so a rendering ends after at most about a second.
inline constexpr uint64_t kStepsMax = 4'000'000;
inline constexpr uint64_t kBytesPerStep = 32;

// All strings and lists made during a rendering, together, also those already gone.
inline constexpr uint64_t kBytesMadeMax = 128ull * 1024 * 1024;

// The two that decide how long a rendering may take; a fuzzer's instrumented code wants less.
struct Limits {
  uint64_t steps_max = kStepsMax;
  uint64_t bytes_made_max = kBytesMadeMax;
};

inline constexpr size_t kPromptBytesMax = 32 * 1024 * 1024;

inline constexpr int64_t kRangeMax = 100'000;  // as Jinja's sandbox

}  // namespace tessera::jinja
