// SPDX-License-Identifier: Apache-2.0
#include "bench/serve/http_target.h"

#include <fmt/format.h>

#include <charconv>
#include <string_view>

namespace tessera {
namespace {

constexpr std::string_view kScheme = "http://";

bool IsPort(std::string_view text) {
  uint32_t port = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), port);
  return error == std::errc() && end == text.data() + text.size() && port >= 1 && port <= 65535;
}

}  // namespace

Result<HttpTarget> ParseHttpTarget(const std::string& url) {
  const auto refused = [&](std::string_view why) -> Status {
    return InvalidArgument(fmt::format("--url: '{}' is not http://HOST:PORT{}", url, why));
  };
  if (url.starts_with("https://")) return refused(": a load is sent without TLS");
  if (!url.starts_with(kScheme)) return refused("");
  std::string_view rest = std::string_view(url).substr(kScheme.size());
  if (rest.ends_with('/')) rest.remove_suffix(1);
  if (rest.empty() || rest.find_first_of("/?#@ \r\n") != std::string_view::npos) return refused("");
  HttpTarget target;
  target.host_header = rest;
  const size_t bracket = rest.starts_with('[') ? rest.find(']') : 0;
  if (bracket == std::string_view::npos) return refused("");
  const size_t colon = rest.find(':', bracket);
  target.host = rest.substr(0, colon);
  if (bracket > 0) target.host = rest.substr(1, bracket - 1);
  if (bracket > 0 && colon != bracket + 1 && bracket + 1 != rest.size()) return refused("");
  if (colon != std::string_view::npos) target.port = rest.substr(colon + 1);
  if (target.host.empty() || !IsPort(target.port)) return refused("");
  return target;
}

}  // namespace tessera
