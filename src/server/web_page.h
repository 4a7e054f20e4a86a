// SPDX-License-Identifier: Apache-2.0
//
// The page at /: files of web/, as bytes in the program. They have no data in them; what they show
// they fetch from the other routes, with the key that the reader of the page gives.
//
// The browser is told to run and load nothing but these files, whatever text ends up in the page,
// to show the page in no other's frame, and to ask each time whether a file has changed (ETag).
//
// Threads: pure functions of their arguments.
#pragma once

#include <cstddef>
#include <span>
#include <string_view>

#include "server/http_reply.h"

namespace tessera {

struct WebFile {
  std::string_view name;
  const unsigned char* bytes = nullptr;
  size_t size = 0;
  std::string_view sha256;  // in hex
};

extern const std::span<const WebFile> kWebFiles;  // made at build time

// By path: / or /web/NAME. Null when there is no such file.
const WebFile* FindWebFile(std::string_view path);
// The file, or 304 when the client has it.
HttpReply WebReply(const WebFile& file, std::string_view if_none_match);

}  // namespace tessera
