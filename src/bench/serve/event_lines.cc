// SPDX-License-Identifier: Apache-2.0
#include "bench/serve/event_lines.h"

namespace tessera {

bool EventLines::Take(std::string_view bytes, FunctionRef<void(std::string_view data)> on_event) {
  while (!bytes.empty()) {
    const size_t end = bytes.find('\n');
    if (end == std::string_view::npos) {
      line_.append(bytes);
      break;
    }
    if (line_.empty()) {
      TakeLine(bytes.substr(0, end), on_event);
    } else {
      line_.append(bytes.substr(0, end));
      TakeLine(line_, on_event);
      line_.clear();
    }
    bytes.remove_prefix(end + 1);
  }
  return line_.size() + data_.size() <= kEventBytesMax;
}

void EventLines::TakeLine(std::string_view line,
                          FunctionRef<void(std::string_view data)> on_event) {
  if (line.ends_with('\r')) line.remove_suffix(1);
  if (line.empty()) {
    if (has_data_) on_event(data_);
    data_.clear();
    has_data_ = false;
    return;
  }
  constexpr std::string_view kField = "data:";
  if (!line.starts_with(kField)) return;
  line.remove_prefix(kField.size());
  if (line.starts_with(' ')) line.remove_prefix(1);
  if (has_data_) data_ += '\n';
  data_.append(line);
  has_data_ = true;
}

}  // namespace tessera
