// SPDX-License-Identifier: Apache-2.0
//
// EventLines takes a stream of server-sent events apart as its bytes arrive: the `data:` lines of
// one event, joined by line ends, are given out at the blank line after it. Comments and other
// fields are passed over. Lines end in LF or CRLF.
//
// Failure: Take says false once an event is longer than kEventBytesMax.
// Threads: one at a time.
#pragma once

#include <string>
#include <string_view>

#include "base/function_ref.h"

namespace tessera {

class EventLines {
 public:
  static constexpr size_t kEventBytesMax = 16 * 1024 * 1024;

  bool Take(std::string_view bytes, FunctionRef<void(std::string_view data)> on_event);

 private:
  void TakeLine(std::string_view line, FunctionRef<void(std::string_view data)> on_event);

  std::string line_;  // not whole yet
  std::string data_;
  bool has_data_ = false;
};

}  // namespace tessera
