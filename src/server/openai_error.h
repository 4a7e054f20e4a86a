// SPDX-License-Identifier: Apache-2.0
//
// ApiError is what a request is refused with: an HTTP status and the error object of OpenAI's
// schema, {"error": {"message", "type", "param", "code"}}, which every SDK turns into an exception.
//
//   4xx invalid_request_error   the request itself. One that can never fit the budget too: no retry
//                               can help
//   5xx server_error            the model or the server: failed, loading, overloaded, stopping
//
// docs/http.md has every code, with its status.
//
// Threads: values.
#pragma once

#include <string>
#include <utility>
#include <variant>

#include "base/status.h"

namespace tessera {

struct ApiError {
  int http_status = 400;
  std::string type = "invalid_request_error";
  std::string code;   // empty: null
  std::string param;  // the field at fault; empty: null
  std::string message;
};

// A value, or why there is none. std::get_if keeps the two apart at the call.
template <typename T>
using ApiResult = std::variant<T, ApiError>;

// A 400 that names the field.
ApiError InvalidField(std::string param, std::string code, std::string message);
// A 5xx.
ApiError ServerError(int http_status, std::string code, std::string message);
// The 404 of a model this server does not have.
ApiError ModelNotFound(const std::string& asked, const std::string& served);
// What Engine::Submit or a final event said.
ApiError FromEngineStatus(const Status& status);

// The JSON text of the body. Bytes of the message that are not UTF-8 become U+FFFD.
std::string ErrorBody(const ApiError& error);

}  // namespace tessera
