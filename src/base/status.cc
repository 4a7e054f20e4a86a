// SPDX-License-Identifier: Apache-2.0
#include "base/status.h"

namespace tessera {

std::string_view StatusCodeName(StatusCode code) {
  switch (code) {
    case StatusCode::kOk:
      return "ok";
    case StatusCode::kFailed:
      return "failed";
    case StatusCode::kInvalidArgument:
      return "invalid argument";
    case StatusCode::kBadFile:
      return "bad file";
    case StatusCode::kNoMemory:
      return "no memory in the budget";
    case StatusCode::kIo:
      return "i/o error";
    case StatusCode::kCancelled:
      return "cancelled";
    case StatusCode::kUnavailable:
      return "unavailable";
  }
  return "unknown";
}

std::string Status::ToString() const {
  if (ok()) return "ok";
  return std::string(StatusCodeName(code_)) + ": " + message_;
}

}  // namespace tessera
