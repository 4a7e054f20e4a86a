// SPDX-License-Identifier: Apache-2.0
//
// libFuzzer over all that stands between the bytes of a file and a model that runs: container,
// shape, state geometry, tokenizer, plan and packing of the weights. Each may refuse, with one
// line. Built again with TESSERA_FUZZ_CANARY it claims that no file loads, which is false: that
// build must crash, or the fuzzer does not reach the end.
#include <cstddef>
#include <cstdint>
#include <span>

#include "base/check.h"
#include "compute/gguf/gguf_file.h"
#include "compute/model/model.h"
#include "compute/model/model_shape.h"
#include "compute/model/state_geometry.h"
#include "compute/tokenizer/tokenizer.h"
#include "port/thread_pool.h"

namespace tessera {
namespace {

template <typename T>
bool Refused(const Result<T>& result) {
  if (result.has_value()) return false;
  TESSERA_CHECK(result.error().code() == StatusCode::kBadFile ||
                result.error().code() == StatusCode::kNoMemory);
  TESSERA_CHECK(!result.error().message().empty());
  TESSERA_CHECK(result.error().message().find('\n') == std::string::npos);
  return true;
}

void Load(std::span<const std::byte> bytes) {
  static ThreadPool threads(1);
  const auto file = GgufFile::Parse(bytes, "fuzz.gguf");
  if (Refused(file)) return;
  // Not one after the other as the engine does: each sees every container that parses.
  const auto tokenizer = Tokenizer::FromGguf(*file);
  if (!Refused(tokenizer)) {
    const auto tokens = tokenizer->Encode("The 12 kites'll fly.\n", {.parse_special = true});
    (void)tokenizer->Decode(tokens, true);
  }
  const auto geometry = ReadStateGeometry(*file);
  const auto shape = ReadModelShape(*file);
  if (!Refused(geometry)) TESSERA_CHECK(geometry->shape.Validate().ok());
  if (Refused(shape)) return;
  TESSERA_CHECK(geometry.has_value() &&
                geometry->shape == shape->state_shape(StateType::kF32));  // N1
  const auto model = Model::Load(*file, threads);
  if (Refused(model)) return;
#ifdef TESSERA_FUZZ_CANARY
  TESSERA_CHECK((*model)->weight_bytes() == 0);
#endif
}

}  // namespace
}  // namespace tessera

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size_bytes) {
  tessera::Load(std::as_bytes(std::span(data, size_bytes)));
  return 0;
}
