// SPDX-License-Identifier: Apache-2.0
//
// TESSERA_CHECK states what only a bug can break. It stays on in release builds, so keep it cheap;
// TESSERA_DCHECK is compiled only into builds without NDEBUG. Neither may be reachable from input:
// bad input is a Status.
//
// A failed check calls the handler, which must not return (the default prints to stderr and
// aborts; an embedding program sets its own).
//
// Threads: SetCheckHandler before other threads start; the rest from any thread.
#pragma once

namespace tessera {

using CheckHandler = void (*)(const char* file, int line, const char* condition);

// Returns the handler that was in force.
CheckHandler SetCheckHandler(CheckHandler handler);

[[noreturn]] void CheckFailed(const char* file, int line, const char* condition);

}  // namespace tessera

#define TESSERA_CHECK(condition)                              \
  do {                                                        \
    if (__builtin_expect(!(condition), 0)) {                  \
      ::tessera::CheckFailed(__FILE__, __LINE__, #condition); \
    }                                                         \
  } while (false)

#ifdef NDEBUG
#define TESSERA_DCHECK(condition) \
  do {                            \
  } while (false)
#else
#define TESSERA_DCHECK(condition) TESSERA_CHECK(condition)
#endif
