// SPDX-License-Identifier: Apache-2.0
//
// HttpServer carries an Api over TCP: accepts, parses with cpp-httplib, runs the route on a worker
// thread and sends the reply, whole or streamed.
//
//   Create --> bound --Listen--> loading --Start--> serving --BeginStop--> draining --> stopped
//
//   loading   every request gets 503 "loading" and Retry-After; Start may also follow Create
//   draining  no new connections; idle ones close at once, running replies go on to their end
//             (Api::CancelAll cuts them short, DropConnections those whose client is the slow one)
//
// H1  A sixteenth of the workers is kept from requests with a body, so that /health is answered
//     while all others generate: what is too much gets 503 "server_overloaded" and Retry-After.
// H2  Where a request ends is never guessed: two lengths, one that is not a number or one beside a
//     Transfer-Encoding are 400 and the end of the connection.
//
// What cpp-httplib 0.11 leaves to its user, with the reasons: a pool of workers (an idle keep-alive
// connection holds one: its 8 serve 64 streams in 26 s instead of .33 s), TCP_NODELAY (TTFT 52 →
// 14 ms), a backlog of 1024 (its 5 costs a burst a SYN retransmit, 1.1 s), many requests a
// connection, limits on what a client may send (it has none for chunked or compressed bodies), and
// an error instead of a shared port. So listening and the socket side of a connection are ours, and
// the library does the protocol.
//
// Threads: Listen and Start once each, by one thread; all others from any.
#pragma once

#include <chrono>
#include <memory>
#include <string>

#include "base/status.h"
#include "server/api.h"

namespace tessera {

struct HttpServerOptions {
  std::string host = "127.0.0.1";
  int port = 8080;                           // 0: any free one
  int workers = 256;                         // connections served at a time; more wait in line
  size_t body_bytes_max = size_t{32} << 20;  // after decompression
  std::chrono::milliseconds idle_timeout{5'000};
  std::chrono::milliseconds head_timeout{10'000};
  std::chrono::milliseconds body_timeout{10'000};  // and a second more for each 64 KiB that came
  // Of all requests whose bodies are held at a time.
  size_t bodies_bytes_max = size_t{64} << 20;
};

class HttpServer {
 public:
  // Binds the port. kIo when it cannot be had.
  static Result<std::unique_ptr<HttpServer>> Create(const HttpServerOptions& options);
  // Stops, waiting for running replies.
  ~HttpServer();

  // Answers, so far only that the model is loading. kIo when the system gives too few threads.
  Status Listen();
  // Serves `api`, which must outlive the server. Listens when that is still to do.
  Status Start(Api* api);
  void BeginStop();
  // Shuts the sockets down under whoever reads or writes them.
  void DropConnections();
  // True once the last reply is out.
  bool WaitStopped(std::chrono::milliseconds wait);

  int port() const;
  const std::string& url() const;

 private:
  struct Impl;
  explicit HttpServer(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace tessera
