// SPDX-License-Identifier: Apache-2.0
#include "server/http_server.h"

#include <fmt/format.h>
#include <httplib.h>
#include <strings.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <optional>
#include <set>
#include <system_error>
#include <thread>
#include <utility>

#include "base/check.h"
#include "base/thread_annotations.h"
#include "server/connection_workers.h"
#include "server/http_connection.h"
#include "server/listening_socket.h"

namespace tessera {
namespace {

// Requests per connection; each client that keeps its connection gets to this before it must open
// another.
constexpr size_t kRequestsPerConnection = 10'000;
// Known paths are short. Longer ones are refused before the library's regular expressions, whose
// recursion is as deep as the path is long, see them.
constexpr size_t kPathBytesMax = 512;

HttpReply Refusal(int status, std::string code, std::string message) {
  ApiError error = InvalidField("", std::move(code), std::move(message));
  error.http_status = status;
  return HttpReply::Error(error);
}

HttpReply TooLarge(size_t limit) {
  return Refusal(413, "payload_too_large", fmt::format("the body: at most {} bytes", limit));
}

bool HasBody(const httplib::Request& request) {
  return request.has_header("Transfer-Encoding") ||
         (request.has_header("Content-Length") &&
          request.get_header_value("Content-Length") != "0");
}

HttpReply Loading() {
  HttpReply reply =
      HttpReply::Error(ServerError(503, "loading", "the model is being loaded: try again"));
  reply.headers.emplace_back("Retry-After", "1");
  return reply;
}

HttpReply Overloaded(std::string message) {
  HttpReply reply = HttpReply::Error(ServerError(503, "server_overloaded", std::move(message)));
  reply.headers.emplace_back("Retry-After", "1");
  return reply;
}

// Whether where the body ends can be read in one way only. The library takes the first of several
// lengths, reads "+5" and "5, 6" as 5, and a proxy in front may do otherwise: what the two disagree
// about would be a request of its own.
bool FramingIsClear(const httplib::Request& request) {
  const size_t lengths = request.get_header_value_count("Content-Length");
  const size_t encodings = request.get_header_value_count("Transfer-Encoding");
  if (lengths + encodings > 1) return false;
  if (encodings == 1) {
    return ::strcasecmp(request.get_header_value("Transfer-Encoding").c_str(), "chunked") == 0;
  }
  if (lengths == 0) return true;
  const std::string length = request.get_header_value("Content-Length");
  return !length.empty() && length.find_first_not_of("0123456789") == std::string::npos;
}

// The library takes the bytes of any other for the body itself.
bool EncodingIsKnown(const httplib::Request& request) {
  const std::string encoding = request.get_header_value("Content-Encoding");
  return encoding.empty() || encoding == "gzip" || encoding == "deflate" || encoding == "br" ||
         encoding == "identity";
}

HttpReply UnclearFraming() {
  return Refusal(400, "invalid_request",
                 "Content-Length, Transfer-Encoding: expected one length in digits, or chunked");
}

HttpRequest HeadOf(const httplib::Request& request) {
  return {request.method,
          request.path,
          request.get_header_value("Authorization"),
          "",
          HttpQuery(request.params.begin(), request.params.end()),
          request.get_header_value("If-None-Match")};
}

// The part of a common number of bytes that one body has taken.
class BytesInFlight {
 public:
  BytesInFlight(std::atomic<size_t>* taken, size_t limit) : taken_(taken), limit_(limit) {}
  ~BytesInFlight() { *taken_ -= mine_; }
  BytesInFlight(const BytesInFlight&) = delete;
  BytesInFlight& operator=(const BytesInFlight&) = delete;

  bool Take(size_t bytes) {
    mine_ += bytes;
    return taken_->fetch_add(bytes) + bytes <= limit_;
  }

 private:
  std::atomic<size_t>* const taken_;
  const size_t limit_;
  size_t mine_ = 0;
};

class ConnectionPeer final : public Peer {
 public:
  explicit ConnectionPeer(const HttpConnection* connection) : connection_(connection) {}
  bool Gone() override { return connection_->PeerGone(); }

 private:
  const HttpConnection* const connection_;
};

class SinkStream final : public PeerStream {
 public:
  explicit SinkStream(httplib::DataSink* sink) : sink_(sink) {}
  bool Gone() override { return !sink_->is_writable(); }
  bool Write(std::string_view bytes) override { return sink_->write(bytes.data(), bytes.size()); }

 private:
  httplib::DataSink* const sink_;
};

}  // namespace

struct HttpServer::Impl : public httplib::Server {
  Impl(const HttpServerOptions& server_options, std::unique_ptr<ListeningSocket> bound, int stop)
      : options(server_options), socket(std::move(bound)), stop_fd(stop) {
    limits.idle_timeout = options.idle_timeout;
    limits.head_timeout = options.head_timeout;
    limits.body_timeout = options.body_timeout;
    // As sent: room for the framing of chunks. What it grows to is held to the limit in ReadBody.
    limits.body_bytes_max = options.body_bytes_max + 1024 * 1024;
    // The library's streams end when its own socket is invalid; it has none of its own here.
    svr_sock_ = stop_fd;
    Install();
  }

  ~Impl() override {
    BeginStop();
    if (acceptor.joinable()) acceptor.join();
    ::close(stop_fd);
  }

  void Install();
  Status Listen();
  void BeginStop() {
    stopping = true;
    const uint64_t one = 1;
    // Never read, so it stays readable for everyone who polls it.
    (void)!::write(stop_fd, &one, sizeof(one));
  }

  void DropConnections() EXCLUDES(mutex);

  void AcceptLoop();
  // A whole connection. No exception leaves it.
  void Serve(int fd) EXCLUDES(mutex);
  void ServeRequests(HttpConnection& stream);
  // Among the sockets DropConnections shuts down, or false when it already has.
  bool Register(int fd) EXCLUDES(mutex);
  void Unregister(int fd) EXCLUDES(mutex);

  // Requests with bodies, from the first byte of the body to the last of the reply.
  int completions_max() const { return std::max(1, options.workers - options.workers / 16 - 1); }
  bool TakeCompletion();
  void ReturnCompletion();

  size_t BodyBytesMax() const {
    return std::min(options.body_bytes_max, api.load()->body_bytes_max());
  }

  HandlerResponse RefuseEarly(const httplib::Request& request, httplib::Response& response);
  void HandlePlain(const httplib::Request& request, httplib::Response& response);
  void HandleWithBody(const httplib::Request& request, httplib::Response& response,
                      const httplib::ContentReader& reader);
  // The body into `head`, or a refusal.
  std::optional<HttpReply> ReadBody(const httplib::Request& request,
                                    const httplib::ContentReader& reader, BytesInFlight& share,
                                    std::string* body);
  static void Send(HttpReply reply, httplib::Response& response);
  static void SendAndClose(HttpReply reply, httplib::Response& response);
  // The body of `request` is not read: the connection cannot carry another one.
  static void SendUnread(const httplib::Request& request, HttpReply reply,
                         httplib::Response& response);

  const HttpServerOptions options;
  const std::unique_ptr<ListeningSocket> socket;
  const int stop_fd;
  ConnectionLimits limits;
  std::atomic<Api*> api{nullptr};  // none while the model is loading
  std::unique_ptr<ConnectionWorkers> workers;
  std::thread acceptor;
  std::atomic<int> completions{0};
  std::atomic<size_t> bodies_bytes{0};
  Mutex mutex;
  CondVar stopped_changed;
  bool stopped GUARDED_BY(mutex) = false;
  bool dropped GUARDED_BY(mutex) = false;        // connections still in line close at once
  std::set<int> open_sockets GUARDED_BY(mutex);  // of the connections that are served
  std::atomic<bool> stopping{false};

  // The connection this worker serves: the library hands its routes no way to the socket.
  static thread_local HttpConnection* connection;
  static thread_local bool holds_completion;
};

thread_local HttpConnection* HttpServer::Impl::connection = nullptr;
thread_local bool HttpServer::Impl::holds_completion = false;

void HttpServer::Impl::Install() {
  set_keep_alive_max_count(kRequestsPerConnection);
  set_keep_alive_timeout(std::max<time_t>(1, options.idle_timeout.count() / 1000));
  set_pre_routing_handler([this](const httplib::Request& request, httplib::Response& response) {
    return RefuseEarly(request, response);
  });
  const std::string any = "[\\s\\S]*";
  const Handler plain = [this](const httplib::Request& request, httplib::Response& response) {
    HandlePlain(request, response);
  };
  const HandlerWithContentReader with_body =
      [this](const httplib::Request& request, httplib::Response& response,
             const httplib::ContentReader& reader) { HandleWithBody(request, response, reader); };
  Get(any, plain);
  Options(any, plain);
  Post(any, with_body);
  Put(any, with_body);
  Patch(any, with_body);
  Delete(any, with_body);
  // What the library refuses by itself: a malformed request line, an unknown encoding.
  const HandlerWithResponse on_error = [](const httplib::Request&, httplib::Response& response) {
    if (!response.body.empty()) return HandlerResponse::Unhandled;
    response.set_content(
        Refusal(response.status, "invalid_request",
                fmt::format("not a request this server understands (HTTP {})", response.status))
            .body,
        "application/json");
    return HandlerResponse::Handled;
  };
  set_error_handler(on_error);
  set_expect_100_continue_handler(
      [this](const httplib::Request& request, httplib::Response& response) {
        if (!FramingIsClear(request)) {
          SendAndClose(UnclearFraming(), response);
          return response.status;
        }
        if (api == nullptr) {
          SendUnread(request, Loading(), response);
          return response.status;
        }
        if (request.get_header_value<uint64_t>("Content-Length") <= BodyBytesMax()) return 100;
        SendUnread(request, TooLarge(BodyBytesMax()), response);
        return response.status;
      });
}

Status HttpServer::Impl::Listen() {
  TESSERA_ASSIGN_OR_RETURN(workers, ConnectionWorkers::Create(static_cast<size_t>(options.workers),
                                                              [this](int fd) { Serve(fd); }));
  TESSERA_RETURN_IF_ERROR(socket->Listen());
  try {
    acceptor = std::thread([this] { AcceptLoop(); });
  } catch (const std::system_error& error) {
    return IoError(std::string("cannot start a thread that accepts connections: ") + error.what());
  }
  return Status::Ok();
}

void HttpServer::Impl::AcceptLoop() {
  for (int fd = socket->Accept(stop_fd); fd >= 0; fd = socket->Accept(stop_fd)) workers->Add(fd);
  socket->Close();
  workers->Finish();  // connections that are served end first
  {
    MutexLock lock(mutex);
    stopped = true;
  }
  stopped_changed.notify_all();
}

bool HttpServer::Impl::Register(int fd) {
  MutexLock lock(mutex);
  return !dropped && open_sockets.insert(fd).second;
}

void HttpServer::Impl::Unregister(int fd) {
  MutexLock lock(mutex);
  open_sockets.erase(fd);
}

void HttpServer::Impl::Serve(int fd) {
  HttpConnection stream(fd, stop_fd, limits);
  connection = &stream;
  try {
    if (Register(fd)) ServeRequests(stream);
  } catch (const std::exception&) {
    // No memory where the library does not answer with a 500: the connection ends.
  }
  ReturnCompletion();
  connection = nullptr;
  Unregister(fd);  // before the number can belong to another connection
}

void HttpServer::Impl::ServeRequests(HttpConnection& stream) {
  for (size_t left = kRequestsPerConnection; left > 0 && stream.AwaitRequest(); --left) {
    bool closed_by_client = false;
    bool parsed = false;
    const bool last = left == 1 || stopping;
    const bool ok = process_request(stream, /*close_connection=*/last, closed_by_client,
                                    [&](httplib::Request&) {
                                      parsed = true;
                                      stream.BeginBody();
                                    });
    ReturnCompletion();
    // After a head that does not parse nobody knows where the next request begins.
    if (!parsed) stream.CloseAfterReply();
    if (!ok || last || closed_by_client || stream.closes_after_reply()) break;
  }
}

bool HttpServer::Impl::TakeCompletion() {
  holds_completion = ++completions <= completions_max();
  if (!holds_completion) --completions;
  return holds_completion;
}

void HttpServer::Impl::ReturnCompletion() {
  if (holds_completion) --completions;
  holds_completion = false;
}

void HttpServer::Impl::DropConnections() {
  MutexLock lock(mutex);
  dropped = true;
  for (int fd : open_sockets) (void)::shutdown(fd, SHUT_RDWR);
}

// What must not reach the library's own handling: it reads bodies without a limit for methods
// nobody registered, and matches paths with std::regex.
httplib::Server::HandlerResponse HttpServer::Impl::RefuseEarly(const httplib::Request& request,
                                                               httplib::Response& response) {
  // The whole is a right answer to who asks for a part; the library would cut ours and say 200.
  const_cast<httplib::Request&>(request).ranges.clear();
  if (!FramingIsClear(request)) {
    SendAndClose(UnclearFraming(), response);
    return HandlerResponse::Handled;
  }
  if (request.path.size() > kPathBytesMax) {
    SendUnread(
        request,
        Refusal(404, "not_found", fmt::format("no such path: {} bytes long", request.path.size())),
        response);
    return HandlerResponse::Handled;
  }
  const Api* routes = api;
  if (routes == nullptr) {
    SendUnread(request, Loading(), response);
    return HandlerResponse::Handled;
  }
  if (std::optional<HttpReply> refused = routes->Refuse(HeadOf(request))) {
    SendUnread(request, std::move(*refused), response);
    return HandlerResponse::Handled;
  }
  return HandlerResponse::Unhandled;
}

void HttpServer::Impl::HandlePlain(const httplib::Request& request, httplib::Response& response) {
  ConnectionPeer peer(connection);
  HttpReply reply = api.load()->Handle(HeadOf(request), peer);
  if (HasBody(request)) {  // a GET with a body: the library leaves it in the socket
    SendUnread(request, std::move(reply), response);
  } else {
    Send(std::move(reply), response);
  }
}

void HttpServer::Impl::HandleWithBody(const httplib::Request& request, httplib::Response& response,
                                      const httplib::ContentReader& reader) {
  if (!HasBody(request)) {  // the library would read to the end of the connection
    HandlePlain(request, response);
    return;
  }
  if (!TakeCompletion()) {
    SendUnread(request,
               Overloaded(fmt::format("{} completions are running, which is as many as this "
                                      "server takes at a time",
                                      completions_max())),
               response);
    return;
  }
  HttpRequest full = HeadOf(request);
  BytesInFlight share(&bodies_bytes, options.bodies_bytes_max);
  if (std::optional<HttpReply> refused = ReadBody(request, reader, share, &full.body)) {
    SendUnread(request, std::move(*refused), response);
    return;
  }
  ConnectionPeer peer(connection);
  Send(api.load()->Handle(full, peer), response);
}

std::optional<HttpReply> HttpServer::Impl::ReadBody(const httplib::Request& request,
                                                    const httplib::ContentReader& reader,
                                                    BytesInFlight& share, std::string* body) {
  if (request.is_multipart_form_data()) {
    return Refusal(415, "unsupported_media_type", "Content-Type: expected application/json");
  }
  if (!EncodingIsKnown(request)) {
    return Refusal(415, "unsupported_media_type",
                   "Content-Encoding: expected gzip, deflate, br or identity");
  }
  const size_t limit = BodyBytesMax();
  if (request.get_header_value<uint64_t>("Content-Length") > limit) return TooLarge(limit);
  bool too_large = false;
  bool too_many = false;
  const bool complete = reader([&](const char* data, size_t size) {
    too_large = body->size() + size > limit;
    too_many = !too_large && !share.Take(size);
    if (too_large || too_many) return false;
    body->append(data, size);
    return true;
  });
  if (too_large) return TooLarge(limit);
  if (too_many) return Overloaded("too many bytes of requests are held at a time");
  if (complete) return std::nullopt;
  return Refusal(408, "incomplete_body",
                 fmt::format("the body ended, or took too long, after {} bytes", body->size()));
}

void HttpServer::Impl::SendAndClose(HttpReply reply, httplib::Response& response) {
  connection->CloseAfterReply();
  reply.headers.emplace_back("Connection", "close");
  Send(std::move(reply), response);
}

void HttpServer::Impl::SendUnread(const httplib::Request& request, HttpReply reply,
                                  httplib::Response& response) {
  if (HasBody(request)) {
    SendAndClose(std::move(reply), response);
  } else {
    Send(std::move(reply), response);
  }
}

void HttpServer::Impl::Send(HttpReply reply, httplib::Response& response) {
  response.status = reply.status;
  for (const auto& [name, value] : reply.headers) response.set_header(name, value);
  if (!reply.stream) {
    response.set_content(reply.body, reply.content_type);
    return;
  }
  // The whole stream is one call of the provider: the library checks nothing in between.
  response.set_chunked_content_provider(
      reply.content_type, [stream = std::move(reply.stream)](size_t, httplib::DataSink& sink) {
        try {
          SinkStream out(&sink);
          stream(out);
          sink.done();
          return true;
        } catch (const std::exception&) {  // no memory; the library would not catch it
          return false;
        }
      });
}

HttpServer::HttpServer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

HttpServer::~HttpServer() = default;

Result<std::unique_ptr<HttpServer>> HttpServer::Create(const HttpServerOptions& options) {
  TESSERA_ASSIGN_OR_RETURN(auto socket, ListeningSocket::Bind(options.host, options.port));
  const int stop_fd = ::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  if (stop_fd < 0) {
    return IoError("cannot make an eventfd: " + std::generic_category().message(errno));
  }
  return std::unique_ptr<HttpServer>(
      new HttpServer(std::make_unique<Impl>(options, std::move(socket), stop_fd)));
}

Status HttpServer::Listen() { return impl_->Listen(); }

Status HttpServer::Start(Api* api) {
  TESSERA_CHECK(impl_->api == nullptr);
  impl_->api = api;
  return impl_->acceptor.joinable() ? Status::Ok() : impl_->Listen();
}

void HttpServer::DropConnections() { impl_->DropConnections(); }

void HttpServer::BeginStop() { impl_->BeginStop(); }

bool HttpServer::WaitStopped(std::chrono::milliseconds wait) {
  const auto deadline = std::chrono::steady_clock::now() + wait;
  MutexLock lock(impl_->mutex);
  while (!impl_->stopped) {
    if (impl_->stopped_changed.wait_until(impl_->mutex, deadline) == std::cv_status::timeout) break;
  }
  return impl_->stopped;
}

int HttpServer::port() const { return impl_->socket->port(); }

const std::string& HttpServer::url() const { return impl_->socket->url(); }

}  // namespace tessera
