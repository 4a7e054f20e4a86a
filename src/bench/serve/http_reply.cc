// SPDX-License-Identifier: Apache-2.0
#include "bench/serve/http_reply.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <utility>

namespace tessera {
namespace {

constexpr size_t kHeadBytesMax = 64 * 1024;
constexpr size_t kLineBytesMax = 4 * 1024;  // of a chunk's size and of a trailer
constexpr size_t kShownBytes = 32;

std::string LowerCase(std::string_view text) {
  std::string lower(text);
  for (char& c : lower) c = static_cast<char>(c >= 'A' && c <= 'Z' ? c - 'A' + 'a' : c);
  return lower;
}

std::string_view Trim(std::string_view text) {
  while (!text.empty() && (text.front() == ' ' || text.front() == '\t')) text.remove_prefix(1);
  while (!text.empty() && (text.back() == ' ' || text.back() == '\t')) text.remove_suffix(1);
  return text;
}

// What a message may show of a reply: it came from anywhere.
std::string Shown(std::string_view bytes) {
  std::string shown;
  for (char c : bytes.substr(0, kShownBytes)) shown += c >= ' ' && c <= '~' ? c : '?';
  return shown;
}

bool ReadNumber(std::string_view text, int base, uint64_t* value) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), *value, base);
  return error == std::errc() && end == text.data() + text.size();
}

}  // namespace

HttpReply::State HttpReply::Break(std::string why) {
  broken_ = std::move(why);
  return state_ = State::kBroken;
}

HttpReply::State HttpReply::Take(std::string_view bytes, std::string* body) {
  while (state_ == State::kHead) {
    if (!TakeHead(&bytes)) return state_;
  }
  if (state_ == State::kBody) TakeBody(bytes, body);
  return state_;
}

HttpReply::State HttpReply::PeerClosed() {
  if (state_ == State::kBody && framing_ == Framing::kToEnd) state_ = State::kDone;
  return state_;
}

// True when a head was read, an interim one perhaps.
bool HttpReply::TakeHead(std::string_view* bytes) {
  const size_t had = pending_.size();
  pending_.append(*bytes);
  const size_t end = pending_.find("\r\n\r\n", had < 3 ? 0 : had - 3);
  if (end == std::string::npos) {
    if (pending_.size() > kHeadBytesMax) {
      Break(fmt::format("expected a head of at most {} bytes", kHeadBytesMax));
    }
    return false;
  }
  const std::string head = pending_.substr(0, end + 2);  // every line with its end
  bytes->remove_prefix(end + 4 - had);
  pending_.clear();
  return ReadHead(head);
}

bool HttpReply::ReadHead(std::string_view head) {
  const size_t line_end = head.find("\r\n");
  const std::string_view line = head.substr(0, line_end);
  uint64_t status = 0;
  if (!line.starts_with("HTTP/1.") || line.size() < 12 ||
      !ReadNumber(line.substr(9, 3), 10, &status) || status < 100) {
    Break(fmt::format("expected a reply that begins with HTTP/1.1, found '{}'", Shown(line)));
    return false;
  }
  if (status < 200) return true;
  for (head.remove_prefix(line_end + 2); !head.empty();) {
    const size_t end = head.find("\r\n");
    const std::string_view header = head.substr(0, end);
    head.remove_prefix(end + 2);
    const size_t colon = header.find(':');
    if (colon == std::string_view::npos) {
      Break(fmt::format("expected NAME: VALUE in the head, found '{}'", Shown(header)));
      return false;
    }
    if (!ReadHeader(LowerCase(header.substr(0, colon)), Trim(header.substr(colon + 1)))) {
      return false;
    }
  }
  status_ = static_cast<int>(status);
  const bool empty = framing_ == Framing::kLength && left_ == 0;
  state_ = empty || status == 204 || status == 304 ? State::kDone : State::kBody;
  return true;
}

bool HttpReply::ReadHeader(std::string_view name, std::string_view value) {
  if (name == "content-type") content_type_ = LowerCase(value);
  if (name == "transfer-encoding" && LowerCase(value).ends_with("chunked")) {
    framing_ = Framing::kChunked;
  }
  if (name == "content-length" && framing_ != Framing::kChunked) {
    framing_ = Framing::kLength;
    if (!ReadNumber(value, 10, &left_)) {
      Break(fmt::format("Content-Length: expected a number, found '{}'", Shown(value)));
      return false;
    }
  }
  return true;
}

void HttpReply::TakeBody(std::string_view bytes, std::string* body) {
  if (framing_ == Framing::kToEnd) {
    body->append(bytes);
    return;
  }
  while (state_ == State::kBody && !bytes.empty()) {
    if (framing_ == Framing::kChunked && chunk_ != Chunk::kData) {
      if (!TakeChunkLine(&bytes)) return;
      continue;
    }
    const auto count = static_cast<size_t>(std::min<uint64_t>(left_, bytes.size()));
    body->append(bytes.substr(0, count));
    bytes.remove_prefix(count);
    left_ -= count;
    if (left_ > 0) return;
    if (framing_ == Framing::kLength) state_ = State::kDone;
    chunk_ = Chunk::kDataEnd;
  }
}

// True when a whole line was taken and was right.
bool HttpReply::TakeChunkLine(std::string_view* bytes) {
  const size_t end = bytes->find('\n');
  pending_.append(bytes->substr(0, end));
  if (pending_.size() > kLineBytesMax) {
    Break(fmt::format("expected a line of at most {} bytes before a chunk", kLineBytesMax));
    return false;
  }
  if (end == std::string_view::npos) return false;
  bytes->remove_prefix(end + 1);
  std::string line = std::exchange(pending_, {});
  if (line.ends_with('\r')) line.pop_back();
  return ReadChunkLine(line);
}

bool HttpReply::ReadChunkLine(std::string_view line) {
  switch (chunk_) {
    case Chunk::kSize:
      if (!ReadNumber(Trim(line.substr(0, line.find(';'))), 16, &left_)) {
        Break(fmt::format("expected the size of a chunk, found '{}'", Shown(line)));
        return false;
      }
      chunk_ = left_ == 0 ? Chunk::kTrailer : Chunk::kData;
      return true;
    case Chunk::kDataEnd:
      if (!line.empty()) {
        Break(fmt::format("expected the end of a chunk, found '{}'", Shown(line)));
        return false;
      }
      chunk_ = Chunk::kSize;
      return true;
    case Chunk::kTrailer:
      if (line.empty()) state_ = State::kDone;
      return true;
    case Chunk::kData:
      break;
  }
  return true;
}

}  // namespace tessera
