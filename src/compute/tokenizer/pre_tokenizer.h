// SPDX-License-Identifier: Apache-2.0
//
// PreTokenizer cuts text into the pieces inside which BPE merges. `tokenizer.ggml.pre` names a row
// of kPreTokenizers: one or more patterns, applied one after the other, each to every piece the
// previous ones left; what a pattern does not match stays as a piece of its own.
//
// The patterns are those llama.cpp runs, with three of its semantics spelled out because engines
// disagree on them:
//   \s            is Unicode White_Space: 9..D, 85 and category Z. (PCRE2's \s adds U+180E,
//                 JavaScript's adds U+FEFF and lacks U+0085.)
//   contractions  fold case over ASCII only. (Full folding would let U+017F stand for s.)
//   digits, letters, punctuation are the Unicode 14 categories of the PCRE2 in use; a code point
//                 assigned later counts as neither letter nor digit.
//
// P1  The pieces, in order, are the text: nothing is lost, added or empty. Any bytes are accepted;
//     a run of bytes that is not valid UTF-8 is one piece and ends the text before it.
// P2  Time is linear in the text: no pattern backtracks over more than the run of whitespace it is
//     in, and a run is visited a fixed number of times.
// P3  Split never fails: PCRE2's limits are lifted, and if it should still refuse (no memory) the
//     rest of the text is one piece.
//
// Threads: const after creation; match state is per call.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tessera {

struct PreTokenizerRow {
  std::span<const std::string_view> names;
  std::span<const std::string_view> patterns;
  bool ignore_merges = false;  // a piece that is a token is that token, whatever the merges say
  bool add_bos = false;        // when tokenizer.ggml.add_bos_token is absent
};

extern const std::span<const PreTokenizerRow> kPreTokenizers;

// What a file without tokenizer.ggml.pre gets, as in llama.cpp.
inline constexpr std::string_view kDefaultPreTokenizer = "default";

// nullptr when no row has the name.
const PreTokenizerRow* FindPreTokenizer(std::string_view name);

// "default, gpt-2, …" for messages.
std::string KnownPreTokenizers();

class PreTokenizer {
 public:
  explicit PreTokenizer(const PreTokenizerRow& row);
  PreTokenizer(PreTokenizer&&) noexcept;
  PreTokenizer& operator=(PreTokenizer&&) noexcept;
  ~PreTokenizer();

  // Appends the pieces of `text`; they point into it.
  void Split(std::string_view text, std::vector<std::string_view>* pieces) const;

 private:
  class Pattern;
  void SplitValid(std::string_view text, std::vector<std::string_view>* pieces) const;

  std::vector<Pattern> patterns_;
};

}  // namespace tessera
