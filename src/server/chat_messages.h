// SPDX-License-Identifier: Apache-2.0
//
// The messages and tools of a chat, from what clients send to what templates read
// (chat_request.h says how).
//
// Failure: ApiError with the place as in messages[3].content. Threads: pure functions.
#pragma once

#include <nlohmann/json.hpp>

#include "server/field_reader.h"

namespace tessera {

FieldError ReadMessages(const nlohmann::ordered_json& value, nlohmann::ordered_json* out);
FieldError ReadTools(const nlohmann::ordered_json& value, nlohmann::ordered_json* out);

}  // namespace tessera
