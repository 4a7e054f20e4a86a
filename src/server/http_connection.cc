// SPDX-License-Identifier: Apache-2.0
#include "server/http_connection.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace tessera {
namespace {

using Milliseconds = std::chrono::milliseconds;

// Until one of the descriptors is ready or the deadline passed. What poll returned; EINTR is not
// an answer.
int PollUntil(pollfd* fds, nfds_t count, std::chrono::steady_clock::time_point deadline) {
  for (;;) {
    const auto left = std::chrono::ceil<Milliseconds>(deadline - std::chrono::steady_clock::now());
    const int timeout_ms = static_cast<int>(std::max<int64_t>(left.count(), 0));
    const int ready = ::poll(fds, count, timeout_ms);
    if (ready >= 0 || errno != EINTR) return ready;
  }
}

}  // namespace

HttpConnection::HttpConnection(int socket, int stop_fd, const ConnectionLimits& limits)
    : socket_(socket), stop_fd_(stop_fd), limits_(limits) {
  // A token is a small write: with Nagle's algorithm the second waits for the first one's ack,
  // which the client delays by 40 ms.
  const int on = 1;
  (void)::setsockopt(socket_, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
}

HttpConnection::~HttpConnection() {
  if (close_after_reply_) Linger();
  ::close(socket_);
}

bool HttpConnection::AwaitRequest() {
  if (buffer_begin_ == buffer_end_) {
    pollfd fds[] = {{socket_, POLLIN, 0}, {stop_fd_, POLLIN, 0}};
    const int ready = PollUntil(fds, 2, Clock::now() + limits_.idle_timeout);
    // A request that is already here is served, also while stopping.
    if (ready <= 0 || (fds[0].revents & POLLIN) == 0) return false;
  }
  deadline_ = Clock::now() + limits_.head_timeout;
  bytes_left_ = limits_.head_bytes_max;
  in_body_ = false;
  return true;
}

void HttpConnection::BeginBody() {
  deadline_ = Clock::now() + limits_.body_timeout;
  bytes_left_ = limits_.body_bytes_max;
  in_body_ = true;
}

HttpConnection::Clock::time_point HttpConnection::Deadline() const {
  if (!in_body_) return deadline_;
  const uint64_t arrived = limits_.body_bytes_max - bytes_left_;
  return deadline_ + Milliseconds(1000 * arrived / limits_.body_bytes_per_second);
}

bool HttpConnection::PeerGone() const {
  // What the client sent before it left may still be unread here or in the kernel (a line end after
  // the body, a pipelined request), and hides the end from recv: POLLRDHUP tells it all the same.
  pollfd fd = {socket_, POLLRDHUP, 0};
  return ::poll(&fd, 1, 0) > 0 && (fd.revents & (POLLRDHUP | POLLHUP | POLLERR | POLLNVAL)) != 0;
}

bool HttpConnection::is_readable() const {
  if (buffer_begin_ != buffer_end_) return true;
  pollfd fd = {socket_, POLLIN, 0};
  return PollUntil(&fd, 1, Deadline()) > 0;
}

ssize_t HttpConnection::Fill() {
  if (!is_readable()) return -1;
  buffer_begin_ = buffer_end_ = 0;
  ssize_t got = 0;
  do {
    got = ::recv(socket_, buffer_.data(), buffer_.size(), 0);
  } while (got < 0 && errno == EINTR);
  if (got > 0) buffer_end_ = static_cast<size_t>(got);
  return got;
}

ssize_t HttpConnection::read(char* to, size_t size) {
  if (bytes_left_ == 0) return -1;
  if (buffer_begin_ == buffer_end_) {
    if (const ssize_t got = Fill(); got <= 0) return got;
  }
  const size_t count = std::min({size, buffer_end_ - buffer_begin_, bytes_left_});
  std::memcpy(to, buffer_.data() + buffer_begin_, count);
  buffer_begin_ += count;
  bytes_left_ -= count;
  return static_cast<ssize_t>(count);
}

ssize_t HttpConnection::write(const char* from, size_t size) {
  size_t sent = 0;
  while (sent < size) {
    const ssize_t count = ::send(socket_, from + sent, size - sent, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (count >= 0) {
      sent += static_cast<size_t>(count);
      continue;
    }
    if (errno == EINTR) continue;
    if (errno != EAGAIN && errno != EWOULDBLOCK) return -1;
    pollfd fd = {socket_, POLLOUT, 0};
    if (PollUntil(&fd, 1, Clock::now() + limits_.write_timeout) <= 0) return -1;
  }
  return static_cast<ssize_t>(size);
}

// The addresses are for logs, which this server does not keep.
void HttpConnection::get_remote_ip_and_port(std::string& ip, int& port) const {
  ip.clear();
  port = 0;
}

void HttpConnection::get_local_ip_and_port(std::string& ip, int& port) const {
  ip.clear();
  port = 0;
}

// Closing a socket with unread bytes sends a reset, which can overtake the reply: so say that this
// is the end, and read what the client still had under way.
void HttpConnection::Linger() {
  if (::shutdown(socket_, SHUT_WR) != 0) return;
  const Clock::time_point end = Clock::now() + std::chrono::seconds(1);
  pollfd fd = {socket_, POLLIN, 0};
  while (PollUntil(&fd, 1, end) > 0) {
    const ssize_t got = ::recv(socket_, buffer_.data(), buffer_.size(), MSG_DONTWAIT);
    if (got == 0 || (got < 0 && errno != EAGAIN && errno != EINTR)) return;
    if (Clock::now() >= end) return;
  }
}

}  // namespace tessera
