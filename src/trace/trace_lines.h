// SPDX-License-Identifier: Apache-2.0
//
// The line formats of trace/request_trace.h, parsed.
//
// Failure: kBadFile naming name:line, the field, what was expected and what was found.
// Threads: none shared.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "base/status.h"
#include "trace/request_trace.h"

namespace tessera {

Result<RequestTrace> ParseTraceLines(std::string_view text, const std::string& name,
                                     std::optional<TraceFormat> format);

}  // namespace tessera
