// SPDX-License-Identifier: Apache-2.0
//
// Parses one verb's command line: flags, their environment twins (TESSERA_ and the flag's long name
// in capitals; the flag wins), --help, and errors as one line that says what to type instead.
//
// Threads: main only, before others start.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "cli/verbs.h"

namespace tessera::cli {

// `arguments` are what follows the verb's name. Returns the exit code.
int RunVerb(const Verb& verb, int argument_count, const char* const* arguments);

// Writes `text` to stderr. That stderr is closed or full is nobody's error: fmt::print would throw.
void PrintNote(std::string_view text);

// Returns to the beginning of a terminal's line and clears it.
inline constexpr const char* kClearLine = "\r\033[K";

// Writes `text` to stdout, all of it or an error that says why not.
Status WriteResult(std::string_view text);
// The same, with the error reported; returns the exit code.
int PrintResult(std::string_view text);

// Prints "tessera: message" on stderr and returns the exit code of the status.
int ReportError(const Status& status);

// The candidate that begins with `word`, else the nearest one within a slip of the keys for every
// three letters of `word`, leading dashes not counted, else one of four letters or more that `word`
// begins with; otherwise "".
std::string NearestWord(std::string_view word, const std::vector<std::string>& candidates);

}  // namespace tessera::cli
