// SPDX-License-Identifier: Apache-2.0
#include "bench/serve/answer_stream.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

namespace tessera {
namespace {

using Json = nlohmann::json;

constexpr size_t kRefusalBytesMax = 64 * 1024;
constexpr size_t kMessageBytesMax = 200;

std::string OneLine(std::string text) {
  std::replace_if(
      text.begin(), text.end(), [](char c) { return static_cast<unsigned char>(c) < ' '; }, ' ');
  if (text.size() > kMessageBytesMax) {
    size_t end = kMessageBytesMax;  // between characters
    while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xC0) == 0x80) --end;
    text.resize(end);
    text += "…";
  }
  return text;
}

const Json* Member(const Json& json, const char* name) {
  if (!json.is_object()) return nullptr;
  const auto found = json.find(name);
  return found == json.end() || found->is_null() ? nullptr : &*found;
}

std::string_view Text(const Json* json) {
  return json != nullptr && json->is_string() ? json->get_ref<const std::string&>()
                                              : std::string_view();
}

void ReadCount(const Json* json, uint64_t* value) {
  if (json != nullptr && json->is_number_unsigned()) *value = json->get<uint64_t>();
}

// {"error": {"message": …}}, or some servers' {"error": "…"} and {"message": …}.
std::string ErrorMessage(const Json& json) {
  const Json* error = Member(json, "error");
  const Json& holder = error != nullptr ? *error : json;
  if (holder.is_string()) return holder.get<std::string>();
  return std::string(Text(Member(holder, "message")));
}

void ReadUsage(const Json& usage, LoadRecord* record) {
  ReadCount(Member(usage, "prompt_tokens"), &record->prompt_tokens);
  ReadCount(Member(usage, "completion_tokens"), &record->output_tokens);
  const Json* details = Member(usage, "prompt_tokens_details");
  const Json* cached = details != nullptr ? Member(*details, "cached_tokens") : nullptr;
  if (cached != nullptr && cached->is_number_unsigned()) {
    record->cached_tokens = cached->get<uint64_t>();
  }
}

// The first choice's text: a completion's, or a chat's content or reasoning.
std::string_view TextOf(const Json& choice) {
  if (const Json* text = Member(choice, "text")) return Text(text);
  const Json* delta = Member(choice, "delta");
  if (delta == nullptr) return {};
  const std::string_view content = Text(Member(*delta, "content"));
  return content.empty() ? Text(Member(*delta, "reasoning_content")) : content;
}

}  // namespace

std::string_view LoadFailureName(LoadFailure failure) {
  constexpr std::string_view kNames[] = {"none",         "connect",   "timeout",     "status",
                                         "disconnected", "malformed", "server_error"};
  return kNames[static_cast<size_t>(failure)];
}

void AnswerStream::Fail(LoadFailure failure, std::string error) {
  record_->outcome = LoadOutcome::kFailed;
  record_->failure = failure;
  record_->error = OneLine(std::move(error));
}

bool AnswerStream::Take(std::string_view bytes, uint64_t at_ns) {
  const bool refused = record_->status != 0 && record_->status != 200;
  if (!refused) body_.clear();
  HttpReply::State state = reply_.Take(bytes, &body_);
  if (state == HttpReply::State::kBroken) {
    Fail(LoadFailure::kMalformed, reply_.broken());
    return false;
  }
  if (state == HttpReply::State::kHead) return true;
  record_->status = reply_.status();
  if (record_->status != 200) {
    if (state == HttpReply::State::kBody && body_.size() <= kRefusalBytesMax) return true;
    Refused();
    return false;
  }
  if (!reply_.content_type().starts_with("text/event-stream")) {
    Fail(LoadFailure::kMalformed,
         fmt::format("expected a reply of text/event-stream, found '{}'", reply_.content_type()));
    return false;
  }
  const bool short_enough =
      events_.Take(body_, [&](std::string_view data) { TakeEvent(data, at_ns); });
  if (!short_enough && !failed()) Fail(LoadFailure::kMalformed, "an event has no end");
  if (failed()) return false;
  return state != HttpReply::State::kDone || Finish();
}

void AnswerStream::PeerClosed(std::string_view why) {
  if (record_->status != 0 && record_->status != 200) {
    Refused();
    return;
  }
  // Bytes are missing unless the reply has no other end, or said it was done.
  if (why.empty() && reply_.PeerClosed() == HttpReply::State::kDone) {
    Finish();
  } else if (done_) {
    Finish();
  } else {
    Fail(LoadFailure::kDisconnected,
         fmt::format("the connection ended {} pieces into the answer{}{}", record_->pieces,
                     why.empty() ? "" : ": ", why));
  }
}

void AnswerStream::Refused() {
  const Json json = Json::parse(body_, nullptr, /*allow_exceptions=*/false);
  const std::string message = json.is_discarded() ? std::string() : ErrorMessage(json);
  Fail(LoadFailure::kStatus,
       fmt::format("HTTP {}{}{}", record_->status, message.empty() ? "" : ": ", message));
}

// Always false: the answer is over.
bool AnswerStream::Finish() {
  if (!done_ && record_->finish_reason.empty()) {
    Fail(LoadFailure::kMalformed, "the stream ended without a finish_reason and without [DONE]");
    return false;
  }
  if (record_->pieces == 0) {
    Fail(LoadFailure::kMalformed, "the stream ended without a choice");
    return false;
  }
  if (record_->output_tokens == 0) record_->output_tokens = record_->pieces;
  record_->outcome = LoadOutcome::kCompleted;
  return false;
}

void AnswerStream::TakeEvent(std::string_view data, uint64_t at_ns) {
  if (failed() || done_) return;
  if (data == "[DONE]") {
    done_ = true;
    return;
  }
  const Json json = Json::parse(data, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object()) {
    Fail(LoadFailure::kMalformed,
         fmt::format("expected an event of JSON, found '{}'", data.substr(0, 40)));
    return;
  }
  if (Member(json, "error") != nullptr) {
    Fail(LoadFailure::kServerError, ErrorMessage(json));
    return;
  }
  if (const Json* usage = Member(json, "usage")) ReadUsage(*usage, record_);
  const Json* choices = Member(json, "choices");
  if (choices == nullptr || !choices->is_array() || choices->empty()) return;
  const Json& choice = (*choices)[0];
  const std::string_view text = TextOf(choice);
  const std::string_view finish = Text(Member(choice, "finish_reason"));
  if (!text.empty() || (!finish.empty() && record_->pieces == 0)) TakePiece(text, at_ns);
  // As vLLM's client has it, the answer's last moment is that of its last choice.
  if (record_->pieces > 0) record_->last_ns = at_ns;
  if (!finish.empty()) record_->finish_reason = finish;
  if (const std::string_view receipt = Text(Member(choice, "receipt")); !receipt.empty()) {
    record_->receipt = receipt;
  }
}

void AnswerStream::TakePiece(std::string_view text, uint64_t at_ns) {
  if (record_->pieces == 0) {
    record_->first_ns = at_ns;
  } else {
    record_->gaps_ns.push_back(at_ns - last_piece_ns_);
  }
  last_piece_ns_ = at_ns;
  ++record_->pieces;
  record_->text.append(text);
}

}  // namespace tessera
