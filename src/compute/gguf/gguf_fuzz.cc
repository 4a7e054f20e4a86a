// SPDX-License-Identifier: Apache-2.0
//
// libFuzzer over GgufFile::Parse and everything the result lets a caller read. Built again with
// TESSERA_FUZZ_CANARY it claims that no file with a tensor parses, which is false: that build must
// crash, or the fuzzer is not looking.
#include <cstddef>
#include <cstdint>
#include <span>

#include "base/check.h"
#include "compute/gguf/gguf_file.h"
#include "compute/gguf/gguf_walk.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size_bytes) {
  auto file = tessera::GgufFile::Parse(std::as_bytes(std::span(data, size_bytes)), "fuzz.gguf");
  if (!file) {
    TESSERA_CHECK(file.error().code() == tessera::StatusCode::kBadFile);
    TESSERA_CHECK(file.error().message().find('\n') == std::string::npos);
    return 0;
  }
#ifdef TESSERA_FUZZ_CANARY
  TESSERA_CHECK(file->tensors().empty());
#endif
  volatile uint64_t sum = tessera::testing::WalkEverything(*file);
  static_cast<void>(sum);
  return 0;
}
