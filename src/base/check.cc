// SPDX-License-Identifier: Apache-2.0
#include "base/check.h"

#include <cstdio>
#include <cstdlib>

namespace tessera {
namespace {

void PrintAndAbort(const char* file, int line, const char* condition) {
  std::fprintf(stderr, "%s:%d: check failed: %s\n", file, line, condition);
  std::abort();
}

CheckHandler g_handler = PrintAndAbort;

}  // namespace

CheckHandler SetCheckHandler(CheckHandler handler) {
  CheckHandler previous = g_handler;
  g_handler = handler;
  return previous;
}

void CheckFailed(const char* file, int line, const char* condition) {
  g_handler(file, line, condition);
  std::abort();
}

}  // namespace tessera
