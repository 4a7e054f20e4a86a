// SPDX-License-Identifier: Apache-2.0
#include "server/generation_request.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <limits>
#include <utility>

namespace tessera {
namespace {

using Json = nlohmann::json;
using Request = GenerationRequest;

constexpr int64_t kTokensMax = std::numeric_limits<int32_t>::max();

FieldError ReadModel(const Json& value, const ModelLimits&, Request& request) {
  return ReadString("model", value, &request.model);
}

FieldError ReadCount(std::string_view field, const Json& value, std::optional<uint32_t>* out) {
  int64_t number = 0;
  FieldError error = ReadInteger(field, value, 0, kTokensMax, &number);
  *out = static_cast<uint32_t>(number);
  return error;
}

FieldError ReadMaxTokens(const Json& value, const ModelLimits&, Request& request) {
  return ReadCount("max_tokens", value, &request.max_tokens);
}

FieldError ReadMaxCompletionTokens(const Json& value, const ModelLimits&, Request& request) {
  return ReadCount("max_completion_tokens", value, &request.max_completion_tokens);
}

FieldError ReadMinTokens(const Json& value, const ModelLimits&, Request& request) {
  std::optional<uint32_t> count;
  FieldError error = ReadCount("min_tokens", value, &count);
  request.min_tokens = count.value_or(0);
  return error;
}

// ---- sampling

FieldError ReadTemperature(const Json& value, const ModelLimits&, Request& request) {
  return ReadNumber("temperature", value, 0, 2, &request.sampling.temperature);
}

// The lower end of the range is excluded, also once it is a float: 1e-50 is none, too.
FieldError ReadPositive(std::string_view field, const Json& value, double high, float* out) {
  if (FieldError error = ReadNumber(field, value, 0, high, out)) return error;
  if (*out > 0) return std::nullopt;
  return WrongValue(field, fmt::format("a number above 0, at most {}", high), value);
}

FieldError ReadTopP(const Json& value, const ModelLimits&, Request& request) {
  return ReadPositive("top_p", value, 1, &request.sampling.top_p);
}

FieldError ReadMinP(const Json& value, const ModelLimits&, Request& request) {
  return ReadNumber("min_p", value, 0, 1, &request.sampling.min_p);
}

FieldError ReadTopK(const Json& value, const ModelLimits&, Request& request) {
  int64_t number = 0;
  FieldError error = ReadInteger("top_k", value, -1, kTokensMax, &number);
  request.sampling.top_k = number > 0 ? static_cast<uint32_t>(number) : 0;
  return error;
}

FieldError ReadSeed(const Json& value, const ModelLimits&, Request& request) {
  if (!value.is_number_integer()) return WrongType("seed", "an integer of 64 bits", value);
  if (value.is_number_unsigned()) {
    request.seed = RequestSeed{value.get<uint64_t>(), false};
  } else {
    const int64_t number = value.get<int64_t>();
    request.seed = RequestSeed{static_cast<uint64_t>(number), number < 0};
  }
  return std::nullopt;
}

FieldError ReadPresencePenalty(const Json& value, const ModelLimits&, Request& request) {
  return ReadNumber("presence_penalty", value, -2, 2, &request.sampling.presence_penalty);
}

FieldError ReadFrequencyPenalty(const Json& value, const ModelLimits&, Request& request) {
  return ReadNumber("frequency_penalty", value, -2, 2, &request.sampling.frequency_penalty);
}

FieldError ReadRepetitionPenalty(const Json& value, const ModelLimits&, Request& request) {
  return ReadPositive("repetition_penalty", value, 10, &request.sampling.repetition_penalty);
}

// Ids as names of an object's members: "15043". The same id twice ("7" and "07") adds up.
FieldError ReadLogitBias(const Json& value, const ModelLimits& limits, Request& request) {
  if (!value.is_object()) {
    return WrongType("logit_bias", "an object of token ids and numbers", value);
  }
  if (value.size() > kMaxLogitBiases) {
    return InvalidField("logit_bias", "invalid_value",
                        fmt::format("logit_bias: expected at most {} tokens, got {}",
                                    kMaxLogitBiases, value.size()));
  }
  for (const auto& [name, bias] : value.items()) {
    LogitBias one;
    const char* const end = name.data() + name.size();
    const auto [at, error] = std::from_chars(name.data(), end, one.id);
    if (error != std::errc() || at != end || one.id < 0 ||
        static_cast<uint32_t>(one.id) >= limits.vocab_size) {
      return InvalidField("logit_bias", "invalid_value",
                          fmt::format("logit_bias: expected token ids from 0 to {}, got \"{}\"",
                                      limits.vocab_size - 1, ShownName(name)));
    }
    if (FieldError wrong =
            ReadNumber(fmt::format("logit_bias[\"{}\"]", name), bias, -100, 100, &one.bias)) {
      return In("logit_bias", std::move(wrong));
    }
    request.sampling.logit_bias.push_back(one);
  }
  return std::nullopt;
}

// ---- when to stop, how many

FieldError ReadOneStop(const Json& value, Request& request) {
  const std::string expected = fmt::format("strings of 1 to {} bytes", kMaxStopBytes);
  if (!value.is_string()) return WrongType("stop", expected, value);
  const std::string& text = value.get_ref<const std::string&>();
  if (text.empty() || text.size() > kMaxStopBytes) return WrongValue("stop", expected, value);
  request.stop.push_back(text);
  return std::nullopt;
}

FieldError ReadStop(const Json& value, const ModelLimits&, Request& request) {
  if (value.is_string()) return ReadOneStop(value, request);
  const std::string expected = fmt::format("a string or an array of up to {} strings", kStopsMax);
  if (!value.is_array()) return WrongType("stop", expected, value);
  if (value.size() > kStopsMax) return WrongValue("stop", expected, value);
  for (const Json& item : value) {
    if (FieldError error = ReadOneStop(item, request)) return error;
  }
  return std::nullopt;
}

FieldError ReadStopIds(const Json& value, const ModelLimits& limits, Request& request) {
  const std::string expected = fmt::format("an array of up to {} token ids", kMaxStopIds);
  if (!value.is_array()) return WrongType("stop_token_ids", expected, value);
  if (value.size() > kMaxStopIds) return WrongValue("stop_token_ids", expected, value);
  return In("stop_token_ids",
            ReadTokenIds("stop_token_ids", value, limits.vocab_size, &request.stop_ids));
}

FieldError ReadIgnoreEos(const Json& value, const ModelLimits&, Request& request) {
  return ReadBool("ignore_eos", value, &request.ignore_eos);
}

FieldError ReadPriority(const Json& value, const ModelLimits&, Request& request) {
  int64_t number = 0;
  FieldError error = ReadInteger("priority", value, std::numeric_limits<int32_t>::min(),
                                 std::numeric_limits<int32_t>::max(), &number);
  request.priority = static_cast<int32_t>(number);
  return error;
}

FieldError ReadChoices(const Json& value, const ModelLimits&, Request& request) {
  int64_t number = 0;
  FieldError error = ReadInteger("n", value, 1, kChoicesMax, &number);
  request.choices = static_cast<uint32_t>(number);
  return error;
}

// ---- how to answer

FieldError ReadStream(const Json& value, const ModelLimits&, Request& request) {
  return ReadBool("stream", value, &request.stream);
}

FieldError ReadStreamOptions(const Json& value, const ModelLimits&, Request& request) {
  if (!value.is_object()) return WrongType("stream_options", "an object", value);
  for (const auto& [name, option] : value.items()) {
    // include_obfuscation: false is what this server does.
    bool obfuscate = false;
    const bool usage = name == "include_usage";
    if (!usage && name != "include_obfuscation") {
      return UnknownField("stream_options." + ShownName(name), "include_usage");
    }
    if (option.is_null()) continue;
    if (FieldError error = ReadBool("stream_options." + name, option,
                                    usage ? &request.include_usage : &obfuscate)) {
      return error;
    }
    if (obfuscate) return WrongValue("stream_options." + name, "false", option);
  }
  return std::nullopt;
}

FieldError ReadReturnProgress(const Json& value, const ModelLimits&, Request& request) {
  return ReadBool("return_progress", value, &request.return_progress);
}

// ---- reuse

FieldError ReadCachePrompt(const Json& value, const ModelLimits&, Request& request) {
  return ReadBool("cache_prompt", value, &request.cache_prompt);
}

FieldError ReadOneCheckpoint(const std::string& field, const Json& value, const ModelLimits& limits,
                             Request& request) {
  int64_t position = 0;
  FieldError error = ReadInteger(field, value, 1, limits.context_length, &position);
  request.checkpoint_at.push_back(static_cast<uint32_t>(position));
  return In("checkpoint_at", std::move(error));
}

FieldError ReadCheckpointAt(const Json& value, const ModelLimits& limits, Request& request) {
  if (value.is_number()) return ReadOneCheckpoint("checkpoint_at", value, limits, request);
  const std::string expected =
      fmt::format("a token position or an array of up to {} of them", kMaxCheckpoints);
  if (!value.is_array()) return WrongType("checkpoint_at", expected, value);
  if (value.size() > kMaxCheckpoints) return WrongValue("checkpoint_at", expected, value);
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

FieldError ReadSaltField(const Json& value, const ModelLimits&, Request& request) {
  return ReadCacheSalt(value, &request.cache_salt);
}

FieldError ReadIsolateAfterField(const Json& value, const ModelLimits& limits, Request& request) {
  return ReadIsolateAfter(value, limits, &request.isolate_after);
}

// ---- labels

FieldError ReadPromptCacheKey(const Json& value, const ModelLimits&, Request&) {
  std::string unused;
  return ReadString("prompt_cache_key", value, &unused);
}

FieldError ReadUser(const Json& value, const ModelLimits&, Request&) {
  std::string unused;
  return ReadString("user", value, &unused);
}

FieldError ReadSafetyIdentifier(const Json& value, const ModelLimits&, Request&) {
  std::string unused;
  return ReadString("safety_identifier", value, &unused);
}

FieldError ReadMetadata(const Json& value, const ModelLimits&, Request&) {
  if (value.is_object()) return std::nullopt;
  return WrongType("metadata", "an object", value);
}

constexpr Field<Request> kFields[] = {
    {"model", ReadModel},
    {"max_tokens", ReadMaxTokens},
    {"max_completion_tokens", ReadMaxCompletionTokens},
    {"min_tokens", ReadMinTokens},
    {"temperature", ReadTemperature},
    {"top_p", ReadTopP},
    {"top_k", ReadTopK},
    {"min_p", ReadMinP},
    {"seed", ReadSeed},
    {"presence_penalty", ReadPresencePenalty},
    {"frequency_penalty", ReadFrequencyPenalty},
    {"repetition_penalty", ReadRepetitionPenalty},
    {"logit_bias", ReadLogitBias},
    {"n", ReadChoices},
    {"stop", ReadStop},
    {"stop_token_ids", ReadStopIds},
    {"ignore_eos", ReadIgnoreEos},
    {"priority", ReadPriority},
    {"stream", ReadStream},
    {"stream_options", ReadStreamOptions},
    {"return_progress", ReadReturnProgress},
    {"cache_prompt", ReadCachePrompt},
    {"cache_salt", ReadSaltField},
    {"isolate_after", ReadIsolateAfterField},
    {"checkpoint_at", ReadCheckpointAt},
    {"prompt_cache_key", ReadPromptCacheKey},
    {"user", ReadUser},
    {"safety_identifier", ReadSafetyIdentifier},
    {"metadata", ReadMetadata},
};

}  // namespace

FieldError ReadCacheSalt(const Json& value, std::string* out) {
  const std::string expected = fmt::format("a string of at most {} bytes", kMaxSaltBytes);
  // A salt keeps others out: what came in its place is not for a message.
  if (!value.is_string()) {
    return InvalidField(
        "cache_salt", "invalid_type",
        fmt::format("cache_salt: expected {}, got {}", expected, value.type_name()));
  }
  const std::string& salt = value.get_ref<const std::string&>();
  if (salt.size() > kMaxSaltBytes) {
    return InvalidField(
        "cache_salt", "invalid_value",
        fmt::format("cache_salt: expected {}, got one of {} bytes", expected, salt.size()));
  }
  *out = salt;
  return std::nullopt;
}

std::span<const Field<GenerationRequest>> GenerationFields() { return kFields; }

FieldError ReadIsolateAfter(const Json& value, const ModelLimits& limits, uint32_t* out) {
  int64_t tokens = 0;
  FieldError error = ReadInteger("isolate_after", value, 0, limits.context_length, &tokens);
  *out = static_cast<uint32_t>(tokens);
  return error;
}

FieldError CheckGeneration(const Json& root, GenerationRequest* request) {
  if (request->max_completion_tokens) {
    if (request->max_tokens && request->max_tokens != request->max_completion_tokens) {
      return InvalidField("max_completion_tokens", "invalid_value",
                          fmt::format("max_completion_tokens: expected to be max_tokens, {}, or to "
                                      "stand alone, got {}",
                                      *request->max_tokens, *request->max_completion_tokens));
    }
    request->max_tokens = request->max_completion_tokens;
  }
  if (request->max_tokens && request->min_tokens > *request->max_tokens) {
    return InvalidField("min_tokens", "invalid_value",
                        fmt::format("min_tokens: expected at most max_tokens, {}, got {}",
                                    *request->max_tokens, request->min_tokens));
  }
  if (request->stream) return std::nullopt;
  const auto options = root.find("stream_options");
  if (options != root.end() && !options->is_null()) {
    return InvalidField("stream_options", "invalid_value",
                        "stream_options: only allowed when stream is true");
  }
  if (request->return_progress) {
    return InvalidField("return_progress", "invalid_value",
                        "return_progress: only allowed when stream is true");
  }
  return std::nullopt;
}

}  // namespace tessera
