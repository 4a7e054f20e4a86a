// SPDX-License-Identifier: Apache-2.0
//
// The byte alphabet of byte-level BPE: every byte has a printable character, so that a vocabulary
// can be stored as text. Bytes 21..7E, A1..AC and AE..FF stand for themselves; the other 68 are
// U+0100, U+0101, … in byte order (space is U+0120 'Ġ', newline U+010A 'Ċ').
//
// The map is a bijection, hence two different texts over the alphabet are different bytes.
// Threads: pure functions.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace tessera {

// Bytes as a vocabulary stores them.
std::string AlphabetFromBytes(std::string_view bytes);

// The inverse; none when `text` has a character outside the alphabet.
std::optional<std::string> BytesFromAlphabet(std::string_view text);

}  // namespace tessera
