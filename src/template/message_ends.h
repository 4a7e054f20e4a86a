// SPDX-License-Identifier: Apache-2.0
//
// MessageEnds watches the loops of a rendering and says where in its text each message ends, by the
// rules B1 to B4 of template/chat_template.h.
//
// Threads: one.
#pragma once

#include <cstddef>
#include <optional>
#include <unordered_map>
#include <vector>

#include "template/interpreter.h"
#include "template/value.h"

namespace tessera::jinja {

class MessageEnds : public LoopObserver {
 public:
  // The messages must live as long as the rendering: they are known by address.
  void Watch(const std::vector<Value>& messages);

  void IterationEnded(const void* item_identity, size_t begin, size_t end) override;

  // One per message watched.
  std::vector<std::optional<size_t>> Ends() const;

 private:
  struct Part {
    bool written = false;
    size_t begin = 0;
    size_t end = 0;
  };

  std::unordered_map<const void*, size_t> indices_;
  std::vector<Part> parts_;
};

}  // namespace tessera::jinja
