// SPDX-License-Identifier: Apache-2.0
#include "server/completion_request.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "server/json_body.h"

namespace tessera {
namespace {

using Json = nlohmann::json;
using FieldError = std::optional<ApiError>;

ApiError WrongType(std::string_view field, std::string_view expected, const Json& actual) {
  return InvalidField(
      std::string(field), "invalid_type",
      fmt::format("{}: expected {}, got {}", field, expected, DescribeJson(actual)));
}

ApiError WrongValue(std::string_view field, std::string_view expected, const Json& actual) {
  return InvalidField(
      std::string(field), "invalid_value",
      fmt::format("{}: expected {}, got {}", field, expected, DescribeJson(actual)));
}

// A name comes from outside and may be long: a message shows a short one, else its length.
std::string ShownName(const std::string& name) {
  return name.size() <= 64 ? name : DescribeJson(Json(name));
}

FieldError ReadBool(std::string_view field, const Json& value, bool* out) {
  if (!value.is_boolean()) return WrongType(field, "true or false", value);
  *out = value.get<bool>();
  return std::nullopt;
}

FieldError ReadNumber(std::string_view field, const Json& value, double low, double high,
                      float* out) {
  const auto expected = [&] { return fmt::format("a number from {} to {}", low, high); };
  if (!value.is_number()) return WrongType(field, expected(), value);
  const double number = value.get<double>();
  if (!(number >= low && number <= high)) return WrongValue(field, expected(), value);
  *out = static_cast<float>(number);
  return std::nullopt;
}

FieldError ReadInteger(std::string_view field, const Json& value, int64_t low, int64_t high,
                       int64_t* out) {
  const auto expected = [&] { return fmt::format("an integer from {} to {}", low, high); };
  if (!value.is_number_integer()) return WrongType(field, expected(), value);
  // An unsigned value beyond int64 must not wrap into the range.
  const bool too_large =
      value.is_number_unsigned() &&
      value.get<uint64_t>() > static_cast<uint64_t>(std::numeric_limits<int64_t>::max());
  if (too_large || value.get<int64_t>() < low || value.get<int64_t>() > high) {
    return WrongValue(field, expected(), value);
  }
  *out = value.get<int64_t>();
  return std::nullopt;
}

// ---- prompt

constexpr std::string_view kPromptTypes = "a string, an array of token ids, or an array of either";

FieldError ReadIds(std::string_view field, const Json& array, const ModelLimits& limits,
                   std::vector<TokenId>* out) {
  if (array.size() > limits.context_length) {
    return PromptTooLong(limits, fmt::format("{} has {}", field, array.size()));
  }
  const int64_t last = int64_t{limits.vocab_size} - 1;
  out->reserve(array.size());
  for (size_t i = 0; i < array.size(); ++i) {
    int64_t id = 0;
    if (ReadInteger(field, array[i], 0, last, &id)) {
      FieldError error = ReadInteger(fmt::format("{}[{}]", field, i), array[i], 0, last, &id);
      error->param = "prompt";
      return error;
    }
    out->push_back(static_cast<TokenId>(id));
  }
  return std::nullopt;
}

FieldError ReadOnePrompt(const std::string& field, const Json& value, const ModelLimits& limits,
                         std::vector<PromptInput>* out) {
  if (value.is_string()) {
    const std::string& text = value.get_ref<const std::string&>();
    const size_t tokens_min = text.size() / limits.token_bytes_max;
    if (tokens_min > limits.context_length) {
      return PromptTooLong(limits, fmt::format("{} has at least {}", field, tokens_min));
    }
    out->emplace_back(text);
    return std::nullopt;
  }
  if (!value.is_array() || value.empty()) {
    ApiError error = WrongType(field, "a string or an array of at least one token id", value);
    error.param = "prompt";
    return error;
  }
  std::vector<TokenId> ids;
  if (FieldError error = ReadIds(field, value, limits, &ids)) return error;
  out->emplace_back(std::move(ids));
  return std::nullopt;
}

FieldError ReadPrompt(const Json& value, const ModelLimits& limits, CompletionRequest& request) {
  if (value.is_string()) return ReadOnePrompt("prompt", value, limits, &request.prompts);
  if (!value.is_array()) return WrongType("prompt", kPromptTypes, value);
  if (value.empty()) return WrongValue("prompt", "at least one prompt or token id", value);
  if (value[0].is_number()) return ReadOnePrompt("prompt", value, limits, &request.prompts);
  if (value.size() > kPromptsMax) {
    return WrongValue("prompt", fmt::format("at most {} prompts", kPromptsMax), value);
  }
  for (size_t i = 0; i < value.size(); ++i) {
    if (FieldError error =
            ReadOnePrompt(fmt::format("prompt[{}]", i), value[i], limits, &request.prompts)) {
      return error;
    }
  }
  return std::nullopt;
}

// ---- the other fields

FieldError ReadModel(const Json& value, const ModelLimits&, CompletionRequest& request) {
  if (!value.is_string()) return WrongType("model", "a string", value);
  request.model = value.get<std::string>();
  return std::nullopt;
}

FieldError ReadMaxTokens(const Json& value, const ModelLimits&, CompletionRequest& request) {
  int64_t number = 0;
  FieldError error =
      ReadInteger("max_tokens", value, 0, std::numeric_limits<int32_t>::max(), &number);
  request.max_tokens = static_cast<uint32_t>(number);
  return error;
}

FieldError ReadTemperature(const Json& value, const ModelLimits&, CompletionRequest& request) {
  return ReadNumber("temperature", value, 0, 2, &request.sampling.temperature);
}

FieldError ReadTopP(const Json& value, const ModelLimits&, CompletionRequest& request) {
  FieldError error = ReadNumber("top_p", value, 0, 1, &request.sampling.top_p);
  if (error) return error;
  // As a float: 1e-50 is none of the probability, too.
  if (request.sampling.top_p > 0) return std::nullopt;
  return WrongValue("top_p", "a number above 0, at most 1", value);
}

FieldError ReadMinP(const Json& value, const ModelLimits&, CompletionRequest& request) {
  return ReadNumber("min_p", value, 0, 1, &request.sampling.min_p);
}

FieldError ReadTopK(const Json& value, const ModelLimits&, CompletionRequest& request) {
  int64_t number = 0;
  FieldError error = ReadInteger("top_k", value, -1, std::numeric_limits<int32_t>::max(), &number);
  request.sampling.top_k = number > 0 ? static_cast<uint32_t>(number) : 0;
  return error;
}

FieldError ReadSeed(const Json& value, const ModelLimits&, CompletionRequest& request) {
  if (!value.is_number_integer()) return WrongType("seed", "an integer of 64 bits", value);
  if (value.is_number_unsigned()) {
    request.seed = RequestSeed{value.get<uint64_t>(), false};
  } else {
    const int64_t number = value.get<int64_t>();
    request.seed = RequestSeed{static_cast<uint64_t>(number), number < 0};
  }
  return std::nullopt;
}

FieldError ReadLogprobs(const Json& value, const ModelLimits&, CompletionRequest& request) {
  int64_t number = 0;
  FieldError error = ReadInteger("logprobs", value, 0, kLogprobsMax, &number);
  request.logprobs = static_cast<int>(number);
  return error;
}

FieldError ReadOneStop(const Json& value, CompletionRequest& request) {
  const std::string expected = fmt::format("strings of 1 to {} bytes", kStopBytesMax);
  if (!value.is_string()) return WrongType("stop", expected, value);
  const std::string& text = value.get_ref<const std::string&>();
  if (text.empty() || text.size() > kStopBytesMax) return WrongValue("stop", expected, value);
  request.stop.push_back(text);
  return std::nullopt;
}

FieldError ReadStop(const Json& value, const ModelLimits&, CompletionRequest& request) {
  if (value.is_string()) return ReadOneStop(value, request);
  const std::string expected = fmt::format("a string or an array of up to {} strings", kStopsMax);
  if (!value.is_array()) return WrongType("stop", expected, value);
  if (value.size() > kStopsMax) return WrongValue("stop", expected, value);
  for (const Json& item : value) {
    if (FieldError error = ReadOneStop(item, request)) return error;
  }
  return std::nullopt;
}

FieldError ReadIgnoreEos(const Json& value, const ModelLimits&, CompletionRequest& request) {
  return ReadBool("ignore_eos", value, &request.ignore_eos);
}

FieldError ReadStream(const Json& value, const ModelLimits&, CompletionRequest& request) {
  return ReadBool("stream", value, &request.stream);
}

FieldError ReadStreamOptions(const Json& value, const ModelLimits&, CompletionRequest& request) {
  if (!value.is_object()) return WrongType("stream_options", "an object", value);
  for (const auto& [name, option] : value.items()) {
    if (name != "include_usage") {
      const std::string shown = "stream_options." + ShownName(name);
      return InvalidField(
          shown, "unknown_parameter",
          fmt::format("{}: not a field of this server, which reads include_usage", shown));
    }
    if (option.is_null()) continue;
    if (FieldError error =
            ReadBool("stream_options.include_usage", option, &request.include_usage)) {
      return error;
    }
  }
  return std::nullopt;
}

FieldError ReadCachePrompt(const Json& value, const ModelLimits&, CompletionRequest& request) {
  return ReadBool("cache_prompt", value, &request.cache_prompt);
}

FieldError ReadCacheSalt(const Json& value, const ModelLimits&, CompletionRequest& request) {
  const std::string expected = fmt::format("a string of at most {} bytes", kSaltBytesMax);
  // A salt keeps others out: what came in its place is not for a message.
  if (!value.is_string()) {
    return InvalidField(
        "cache_salt", "invalid_type",
        fmt::format("cache_salt: expected {}, got {}", expected, value.type_name()));
  }
  const std::string& salt = value.get_ref<const std::string&>();
  if (salt.size() > kSaltBytesMax) {
    return InvalidField(
        "cache_salt", "invalid_value",
        fmt::format("cache_salt: expected {}, got one of {} bytes", expected, salt.size()));
  }
  request.cache_salt = salt;
  return std::nullopt;
}

FieldError ReadOneCheckpoint(const std::string& field, const Json& value, const ModelLimits& limits,
                             CompletionRequest& request) {
  int64_t position = 0;
  FieldError error = ReadInteger(field, value, 1, limits.context_length, &position);
  if (error) error->param = "checkpoint_at";
  request.checkpoint_at.push_back(static_cast<uint32_t>(position));
  return error;
}

FieldError ReadCheckpointAt(const Json& value, const ModelLimits& limits,
                            CompletionRequest& request) {
  if (value.is_number()) return ReadOneCheckpoint("checkpoint_at", value, limits, request);
  const std::string expected =
      fmt::format("a token position or an array of up to {} of them", kCheckpointsMax);
  if (!value.is_array()) return WrongType("checkpoint_at", expected, value);
  if (value.size() > kCheckpointsMax) return WrongValue("checkpoint_at", expected, value);
  for (size_t i = 0; i < value.size(); ++i) {
    if (FieldError error =
            ReadOneCheckpoint(fmt::format("checkpoint_at[{}]", i), value[i], limits, request)) {
      return error;
    }
  }
  std::vector<uint32_t>& positions = request.checkpoint_at;
  std::sort(positions.begin(), positions.end());
  positions.erase(std::unique(positions.begin(), positions.end()), positions.end());
  return std::nullopt;
}

FieldError ReadPromptCacheKey(const Json& value, const ModelLimits&, CompletionRequest&) {
  if (!value.is_string()) return WrongType("prompt_cache_key", "a string", value);
  return std::nullopt;
}

struct Field {
  std::string_view name;
  FieldError (*read)(const Json&, const ModelLimits&, CompletionRequest&);
};

constexpr Field kFields[] = {
    {"model", ReadModel},
    {"prompt", ReadPrompt},
    {"max_tokens", ReadMaxTokens},
    {"temperature", ReadTemperature},
    {"top_p", ReadTopP},
    {"top_k", ReadTopK},
    {"min_p", ReadMinP},
    {"seed", ReadSeed},
    {"stop", ReadStop},
    {"ignore_eos", ReadIgnoreEos},
    {"logprobs", ReadLogprobs},
    {"stream", ReadStream},
    {"stream_options", ReadStreamOptions},
    {"cache_prompt", ReadCachePrompt},
    {"cache_salt", ReadCacheSalt},
    {"checkpoint_at", ReadCheckpointAt},
    {"prompt_cache_key", ReadPromptCacheKey},
};

const Field* FindField(std::string_view name) {
  for (const Field& field : kFields) {
    if (field.name == name) return &field;
  }
  return nullptr;
}

ApiError UnknownField(const std::string& name) {
  std::string known;
  for (const Field& field : kFields) {
    if (!known.empty()) known += ", ";
    known += field.name;
  }
  const std::string shown = ShownName(name);
  return InvalidField(shown, "unknown_parameter",
                      fmt::format("{}: not a field of this server, which reads {}", shown, known));
}

// What a body may have beside the ids of its prompts: fields, stop strings, a few unknown ones that
// deserve their own message.
constexpr size_t kOtherValuesMax = 1024;

// Commas outside of strings, which is one less than values at each level.
size_t CountValues(std::string_view text) {
  size_t commas = 0;
  bool in_string = false;
  for (size_t i = 0; i < text.size(); ++i) {
    if (in_string && text[i] == '\\') {
      ++i;
    } else if (text[i] == '"') {
      in_string = !in_string;
    } else if (text[i] == ',' && !in_string) {
      ++commas;
    }
  }
  return commas;
}

FieldError CheckTogether(const Json& root, const CompletionRequest& request) {
  if (request.prompts.empty()) {
    return InvalidField("prompt", "missing_required_parameter",
                        fmt::format("prompt: required: {}", kPromptTypes));
  }
  const auto options = root.find("stream_options");
  if (options != root.end() && !options->is_null() && !request.stream) {
    return InvalidField("stream_options", "invalid_value",
                        "stream_options: only allowed when stream is true");
  }
  return std::nullopt;
}

}  // namespace

ApiResult<CompletionRequest> ParseCompletionRequest(std::string_view body,
                                                    const ModelLimits& limits) {
  // A parsed value takes 16 bytes, its text may be 2.
  const size_t values_max = kPromptsMax * (size_t{limits.context_length} + 1) + kOtherValuesMax;
  if (std::count(body.begin(), body.end(), ',') > static_cast<int64_t>(values_max) &&
      CountValues(body) > values_max) {
    return PromptTooLong(limits, fmt::format("the body has more than {} values", values_max));
  }
  ApiResult<Json> parsed = ParseJsonBody(body);
  if (ApiError* error = std::get_if<ApiError>(&parsed)) return std::move(*error);
  const Json& root = std::get<Json>(parsed);
  if (!root.is_object()) {
    return InvalidField("", "invalid_type",
                        fmt::format("the body: expected an object, got {}", DescribeJson(root)));
  }
  CompletionRequest request;
  request.sampling.temperature = 1;  // OpenAI's default; the engine's own is greedy
  for (const auto& [name, value] : root.items()) {
    const Field* field = FindField(name);
    if (field == nullptr) return UnknownField(name);
    if (value.is_null()) continue;
    if (FieldError error = field->read(value, limits, request)) return std::move(*error);
  }
  if (FieldError error = CheckTogether(root, request)) return std::move(*error);
  return request;
}

}  // namespace tessera
