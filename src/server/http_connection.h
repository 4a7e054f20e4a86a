// SPDX-License-Identifier: Apache-2.0
//
// HttpConnection is one accepted socket as cpp-httplib's parser sees it, with the limits the
// library lacks: a client that sends or reads slowly, or never ends its headers, loses the
// connection instead of holding a worker.
//
//   Idle --first byte--> Head --headers parsed--> Body --handled--> Idle
//
//   Idle   closes after idle_timeout, and at once when the server stops
//   Head   at most head_bytes_max bytes and head_timeout
//   Body   at most body_bytes_max bytes as sent (before decompression) and body_timeout,
//          which what arrives extends
//
// H1  No read or write waits longer than its limit; a broken limit reads as an error, then EOF.
// H2  The destructor closes the socket. When a request was refused with its body unread it lingers
//     up to a second, so that the refusal is not lost to a reset.
//
// Threads: one, the worker that serves it.
#pragma once

#include <httplib.h>

#include <array>
#include <chrono>
#include <string_view>

namespace tessera {

struct ConnectionLimits {
  std::chrono::milliseconds idle_timeout{5'000};
  std::chrono::milliseconds head_timeout{10'000};
  // More for a body that comes: what arrived at body_bytes_per_second is not counted against it.
  std::chrono::milliseconds body_timeout{10'000};
  size_t body_bytes_per_second = 64 * 1024;
  std::chrono::milliseconds write_timeout{30'000};  // without a byte taken
  size_t head_bytes_max = 64 * 1024;
  size_t body_bytes_max = 33 * 1024 * 1024;
};

class HttpConnection final : public httplib::Stream {
 public:
  // `stop_fd` becomes readable, and stays so, when the server stops. Takes the socket.
  HttpConnection(int socket, int stop_fd, const ConnectionLimits& limits);
  ~HttpConnection() override;
  HttpConnection(const HttpConnection&) = delete;
  HttpConnection& operator=(const HttpConnection&) = delete;

  // Idle → Head. False: the connection is over.
  bool AwaitRequest();
  // Head → Body.
  void BeginBody();

  // The client closed its side or the connection broke. A client that only shuts down its sending
  // half is taken for gone, as most servers do.
  bool PeerGone() const;

  // After the running request: no further one.
  void CloseAfterReply() { close_after_reply_ = true; }
  bool closes_after_reply() const { return close_after_reply_; }

  bool is_readable() const override;
  bool is_writable() const override { return !PeerGone(); }
  ssize_t read(char* to, size_t size) override;
  ssize_t write(const char* from, size_t size) override;
  void get_remote_ip_and_port(std::string& ip, int& port) const override;
  void get_local_ip_and_port(std::string& ip, int& port) const override;
  socket_t socket() const override { return socket_; }

 private:
  using Clock = std::chrono::steady_clock;

  // Of the running part, extended by what arrived of a body.
  Clock::time_point Deadline() const;
  // Refills the buffer within the deadline. Bytes, 0 at EOF, -1.
  ssize_t Fill();
  void Linger();

  const int socket_;
  const int stop_fd_;
  const ConnectionLimits limits_;
  std::array<char, 8192> buffer_;
  size_t buffer_begin_ = 0;
  size_t buffer_end_ = 0;
  Clock::time_point deadline_{};
  size_t bytes_left_ = 0;  // of the running part's limit
  bool in_body_ = false;
  bool close_after_reply_ = false;
};

}  // namespace tessera
