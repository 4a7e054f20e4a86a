// SPDX-License-Identifier: Apache-2.0
#include "server/listening_socket.h"

#include <fmt/format.h>
#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <system_error>
#include <thread>
#include <utility>

namespace tessera {
namespace {

// A burst of clients must not overflow it: the kernel drops their SYN, and they try again only
// after a second. (Capped by net.core.somaxconn, 4096 since Linux 5.4.)
constexpr int kBacklog = 1024;

std::string SystemReason(int error) { return std::generic_category().message(error); }

int PortOf(int fd) {
  sockaddr_storage address{};
  socklen_t size = sizeof(address);
  if (::getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size) != 0) return 0;
  if (address.ss_family == AF_INET6) {
    return ntohs(reinterpret_cast<const sockaddr_in6&>(address).sin6_port);
  }
  return ntohs(reinterpret_cast<const sockaddr_in&>(address).sin_port);
}

// A socket bound to `address`, or -1 with errno.
int BindTo(const addrinfo& address) {
  const int fd =
      ::socket(address.ai_family, address.ai_socktype | SOCK_CLOEXEC, address.ai_protocol);
  if (fd < 0) return -1;
  const int on = 1;  // a restart need not wait for TIME_WAIT
  (void)::setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
  if (::bind(fd, address.ai_addr, address.ai_addrlen) == 0) return fd;
  const int error = errno;
  ::close(fd);
  errno = error;
  return -1;
}

}  // namespace

ListeningSocket::ListeningSocket(int fd, std::string host)
    : fd_(fd), host_(std::move(host)), port_(PortOf(fd)) {
  const bool ipv6 = host_.find(':') != std::string::npos;
  url_ = ipv6 ? fmt::format("http://[{}]:{}", host_, port_)
              : fmt::format("http://{}:{}", host_, port_);
}

ListeningSocket::~ListeningSocket() { Close(); }

void ListeningSocket::Close() {
  if (fd_ >= 0) ::close(fd_);
  fd_ = -1;
}

Result<std::unique_ptr<ListeningSocket>> ListeningSocket::Bind(const std::string& host, int port) {
  if (port < 0 || port > 65535) {
    return InvalidArgument(fmt::format("port: expected 0 to 65535, got {}", port));
  }
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_PASSIVE | AI_NUMERICSERV;
  addrinfo* found = nullptr;
  const int failure = ::getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &found);
  if (failure != 0) {
    return IoError(fmt::format("cannot listen on {}:{}: {}", host, port, ::gai_strerror(failure)));
  }
  int fd = -1;
  int error = 0;
  for (const addrinfo* address = found; address != nullptr && fd < 0; address = address->ai_next) {
    fd = BindTo(*address);
    if (fd < 0) error = errno;
  }
  ::freeaddrinfo(found);
  if (fd < 0) {
    return IoError(fmt::format("cannot listen on {}:{}: {}", host, port, SystemReason(error)));
  }
  return std::unique_ptr<ListeningSocket>(new ListeningSocket(fd, host));
}

Status ListeningSocket::Listen() {
  if (::listen(fd_, kBacklog) == 0) return Status::Ok();
  return IoError(fmt::format("cannot listen on {}:{}: {}", host_, port_, SystemReason(errno)));
}

int ListeningSocket::Accept(int stop_fd) {
  for (;;) {
    pollfd fds[] = {{fd_, POLLIN, 0}, {stop_fd, POLLIN, 0}};
    if (::poll(fds, 2, -1) < 0) continue;  // EINTR
    if (fds[1].revents != 0) return -1;
    const int connection = ::accept4(fd_, nullptr, nullptr, SOCK_CLOEXEC);
    if (connection >= 0) return connection;
    if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) {
      // The client stays in the backlog until a connection ends.
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
  }
}

}  // namespace tessera
