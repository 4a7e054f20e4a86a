// SPDX-License-Identifier: Apache-2.0
//
// StopMatcher finds stop strings in generated text as it comes and holds back what might still
// become one, so that no part of a stop string is ever shown.
//
// The text ends before the stop string whose last byte comes first; among those that end there,
// before the longest. So the result depends on the text only, never on how it was cut into pieces.
//
// T1  Appended pieces = what was returned + what is held, until a match; after it nothing is
//     returned.
// T2  Text goes in and comes out at UTF-8 boundaries: a stop string is valid UTF-8, so a held
//     suffix starts where a character does.
// T3  Held text is shorter than the longest stop string.
//
// Threads: one stream, one thread at a time.
#pragma once

#include <string>
#include <vector>

namespace tessera {

class StopMatcher {
 public:
  // `stops` are valid UTF-8 and not empty (the engine checks this of requests).
  explicit StopMatcher(std::vector<std::string> stops);

  // The text that became certain with this piece. Afterwards matched() says whether generation
  // ends.
  std::string Append(std::string piece);
  // What is still held, at the end of generation without a match.
  std::string Finish();
  bool matched() const { return matched_; }

 private:
  // Start of the longest stop string that ends at `end` of held_, or npos.
  size_t MatchEndingAt(size_t end) const;
  // Start of the longest suffix of held_ that a stop string begins with.
  size_t HoldFrom() const;

  std::vector<std::string> stops_;
  std::string held_;
  bool matched_ = false;
};

}  // namespace tessera
