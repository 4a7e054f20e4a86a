// SPDX-License-Identifier: Apache-2.0
#include "server/web_page.h"

#include <fmt/format.h>

#include <string>

namespace tessera {
namespace {

constexpr std::string_view kFolder = "/web/";
constexpr std::string_view kIndex = "index.html";
constexpr char kPolicy[] =
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

std::string ContentType(std::string_view name) {
  if (name.ends_with(".html")) return "text/html; charset=utf-8";
  if (name.ends_with(".css")) return "text/css; charset=utf-8";
  if (name.ends_with(".svg")) return "image/svg+xml";
  return "text/javascript; charset=utf-8";
}

}  // namespace

const WebFile* FindWebFile(std::string_view path) {
  std::string_view name = kIndex;
  if (path != "/") {
    if (!path.starts_with(kFolder)) return nullptr;
    name = path.substr(kFolder.size());
    if (name == kIndex) return nullptr;  // it has one address
  }
  for (const WebFile& file : kWebFiles) {
    if (file.name == name) return &file;
  }
  return nullptr;
}

HttpReply WebReply(const WebFile& file, std::string_view if_none_match) {
  HttpReply reply;
  const std::string tag = fmt::format("\"{}\"", file.sha256.substr(0, 32));
  reply.content_type = ContentType(file.name);
  reply.headers = {{"ETag", tag},
                   {"Cache-Control", "no-cache"},
                   {"Content-Security-Policy", kPolicy},
                   {"Referrer-Policy", "no-referrer"},
                   {"X-Content-Type-Options", "nosniff"}};
  if (if_none_match.find(tag) != std::string_view::npos) {
    reply.status = 304;
  } else {
    reply.body.assign(reinterpret_cast<const char*>(file.bytes), file.size);
  }
  return reply;
}

}  // namespace tessera
