// SPDX-License-Identifier: Apache-2.0
#include "cli/server_client.h"

#include <fmt/format.h>
#include <httplib.h>

#include <nlohmann/json.hpp>

namespace tessera::cli {
namespace {

constexpr time_t kConnectSeconds = 5;
constexpr time_t kReadSeconds = 10;

// http://HOST[:PORT], as the library wants it: a path would be taken for a part of the host.
Result<std::string> Origin(std::string url) {
  const size_t host = url.starts_with("http://") ? 7 : url.starts_with("https://") ? 8 : 0;
  if (url.ends_with('/')) url.pop_back();
  if (host == 0 || url.size() <= host || url.find_first_of("/?# ", host) != std::string::npos) {
    return InvalidArgument(
        fmt::format("--url: '{}' is not http://HOST:PORT or https://HOST:PORT", url));
  }
  return url;
}

// What the server says of its refusal, if it says something.
std::string ErrorMessage(const std::string& body) {
  const auto json = nlohmann::json::parse(body, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object() || !json.contains("error") || !json["error"].is_object()) return {};
  const auto& message = json["error"]["message"];
  return message.is_string() ? message.get<std::string>() : std::string();
}

Status Refused(const std::string& url, const httplib::Response& response) {
  if (response.status == 401) {
    return InvalidArgument(fmt::format("{} wants its API key: --api-key K", url));
  }
  const std::string message = ErrorMessage(response.body);
  return {response.status == 400 ? StatusCode::kInvalidArgument : StatusCode::kIo,
          fmt::format("{} answers with HTTP {}{}", url, response.status,
                      message.empty() ? "" : ": " + message)};
}

std::string WhyNoAnswer(httplib::Error error) {
  switch (error) {
    case httplib::Error::Connection:
      return "nobody answers; is tessera serve running there?";
    case httplib::Error::ConnectionTimeout:
      return fmt::format("no connection within {} s", kConnectSeconds);
    case httplib::Error::Read:
      return fmt::format("no whole answer within {} s", kReadSeconds);
    default:
      return httplib::to_string(error);
  }
}

}  // namespace

Result<std::string> AskServer(const ServerAddress& server, std::string_view method,
                              const std::string& path) {
  TESSERA_ASSIGN_OR_RETURN(const std::string url, Origin(server.url));
  try {
    httplib::Client client(url);
    client.set_connection_timeout(kConnectSeconds);
    client.set_read_timeout(kReadSeconds);
    httplib::Headers headers;
    if (!server.api_key.empty()) headers.emplace("Authorization", "Bearer " + server.api_key);
    const httplib::Result result =
        method == "DELETE" ? client.Delete(path, headers) : client.Get(path, headers);
    if (!result) return IoError(fmt::format("{}: {}", url, WhyNoAnswer(result.error())));
    if (result->status != 200) return Refused(url, *result);
    return result->body;
  } catch (const std::exception& error) {  // the library's only way to refuse a scheme
    return InvalidArgument(fmt::format("--url: {}", error.what()));
  }
}

}  // namespace tessera::cli
