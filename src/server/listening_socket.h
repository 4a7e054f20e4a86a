// SPDX-License-Identifier: Apache-2.0
//
// ListeningSocket is a bound TCP port. It binds before the model is loaded, so that a taken port is
// known at once, and listens when there is somebody to answer: until then clients are refused, not
// kept waiting.
//
//   Bind --> bound --Listen--> listening --Accept...--> --Close--> closed
//
// Failure: kIo with the address and the system's reason. SO_REUSEPORT is not set: two servers on
// one port would each get half the clients.
// Threads: one at a time.
#pragma once

#include <memory>
#include <string>

#include "base/status.h"

namespace tessera {

class ListeningSocket {
 public:
  // `port` 0: the system picks a free one.
  static Result<std::unique_ptr<ListeningSocket>> Bind(const std::string& host, int port);
  ~ListeningSocket();
  ListeningSocket(const ListeningSocket&) = delete;
  ListeningSocket& operator=(const ListeningSocket&) = delete;

  Status Listen();
  // The next connection, or -1 when `stop_fd` is readable. Passing failures (no descriptors left,
  // a client that gave up) are waited out.
  int Accept(int stop_fd);

  // From here on clients are refused; those not yet accepted are reset.
  void Close();

  int port() const { return port_; }               // the real one
  const std::string& url() const { return url_; }  // "http://127.0.0.1:8080"

 private:
  ListeningSocket(int fd, std::string host);

  int fd_;
  const std::string host_;
  int port_ = 0;
  std::string url_;
};

}  // namespace tessera
