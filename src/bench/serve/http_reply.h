// SPDX-License-Identifier: Apache-2.0
//
// HttpReply reads one HTTP/1.1 reply as its bytes arrive and gives out the body without its
// framing: chunked, of a stated length, or to the end of the connection.
//
//   Head --(blank line)--> Body --(end)--> Done
//     any --(not HTTP)--> Broken       broken() says what was expected
//
// Interim replies (1xx) are skipped. A connection that closes ends a body that has no other end;
// in any other state that is for the caller to judge, by state().
//
// Threads: one at a time.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace tessera {

class HttpReply {
 public:
  enum class State { kHead, kBody, kDone, kBroken };

  // Appends what `bytes` hold of the body. Bytes after the end are ignored.
  State Take(std::string_view bytes, std::string* body);
  State PeerClosed();

  State state() const { return state_; }
  int status() const { return status_; }                             // 0 before the body
  const std::string& content_type() const { return content_type_; }  // lower case
  const std::string& broken() const { return broken_; }

 private:
  enum class Framing { kToEnd, kLength, kChunked };
  enum class Chunk { kSize, kData, kDataEnd, kTrailer };

  State Break(std::string why);
  bool TakeHead(std::string_view* bytes);
  bool ReadHead(std::string_view head);
  bool ReadHeader(std::string_view name, std::string_view value);
  void TakeBody(std::string_view bytes, std::string* body);
  bool TakeChunkLine(std::string_view* bytes);
  bool ReadChunkLine(std::string_view line);

  State state_ = State::kHead;
  int status_ = 0;
  std::string content_type_;
  std::string broken_;
  Framing framing_ = Framing::kToEnd;
  Chunk chunk_ = Chunk::kSize;
  uint64_t left_ = 0;    // of the body or the chunk
  std::string pending_;  // of the head or a chunk's line
};

}  // namespace tessera
