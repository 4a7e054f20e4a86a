// SPDX-License-Identifier: Apache-2.0
#include "server/openai_error.h"

#include <nlohmann/json.hpp>

namespace tessera {
namespace {

using Json = nlohmann::ordered_json;

Json TextOrNull(const std::string& text) { return text.empty() ? Json(nullptr) : Json(text); }

}  // namespace

ApiError InvalidField(std::string param, std::string code, std::string message) {
  ApiError error;
  error.code = std::move(code);
  error.param = std::move(param);
  error.message = std::move(message);
  return error;
}

ApiError ServerError(int http_status, std::string code, std::string message) {
  ApiError error;
  error.http_status = http_status;
  error.type = "server_error";
  error.code = std::move(code);
  error.message = std::move(message);
  return error;
}

ApiError ModelNotFound(const std::string& asked, const std::string& served) {
  ApiError error = InvalidField(
      "model", "model_not_found",
      "model: this server has \"" + served + "\", not \"" + asked.substr(0, 200) + "\"");
  error.http_status = 404;
  return error;
}

ApiError FromEngineStatus(const Status& status) {
  switch (status.code()) {
    case StatusCode::kInvalidArgument:
      return InvalidField("", "invalid_value", status.message());
    case StatusCode::kNoMemory:
      return InvalidField("", "budget_exceeded", status.message());
    case StatusCode::kCancelled:
    case StatusCode::kUnavailable:
      return ServerError(503, "shutting_down", "the server is shutting down");
    default:
      return ServerError(500, "engine_failure", status.message());
  }
}

std::string ErrorBody(const ApiError& error) {
  Json body;
  body["error"] = {{"message", error.message},
                   {"type", error.type},
                   {"param", TextOrNull(error.param)},
                   {"code", TextOrNull(error.code)}};
  return body.dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace tessera
