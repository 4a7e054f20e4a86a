// SPDX-License-Identifier: Apache-2.0
//
// What the routes say and the transport carries: no sockets, no library types.
#pragma once

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "server/openai_error.h"
#include "server/peer.h"

namespace tessera {

// Decoded; in the order of the names.
using HttpQuery = std::vector<std::pair<std::string, std::string>>;

struct HttpRequest {
  std::string method;
  std::string path;           // decoded, without the query
  std::string authorization;  // the header's value
  std::string body;
  HttpQuery query;
  std::string if_none_match;  // the header's value
};

struct HttpReply {
  int status = 200;
  std::string content_type = "application/json";
  std::vector<std::pair<std::string, std::string>> headers;
  std::string body;
  // When set, the body is what it writes, sent as it comes; it runs after the headers are out.
  std::function<void(PeerStream&)> stream;

  static HttpReply Json(std::string body) {
    HttpReply reply;
    reply.body = std::move(body);
    return reply;
  }
  static HttpReply Error(const ApiError& error) {
    HttpReply reply;
    reply.status = error.http_status;
    reply.body = ErrorBody(error);
    return reply;
  }
};

}  // namespace tessera
