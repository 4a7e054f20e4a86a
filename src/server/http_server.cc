// SPDX-License-Identifier: Apache-2.0
#include "server/http_server.h"

#include <fmt/format.h>
#include <httplib.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <optional>
#include <set>
#include <system_error>
#include <thread>
#include <utility>

#include "base/thread_annotations.h"
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

HttpRequest HeadOf(const httplib::Request& request) {
  return {request.method, request.path, request.get_header_value("Authorization"), ""};
}

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
  Status Start(Api* routes);
  void BeginStop() {
    stopping = true;
    const uint64_t one = 1;
    // Never read, so it stays readable for everyone who polls it.
    (void)!::write(stop_fd, &one, sizeof(one));
  }

  void DropConnections() EXCLUDES(mutex);

  void AcceptLoop();
  void Serve(int fd);

  HandlerResponse RefuseEarly(const httplib::Request& request, httplib::Response& response);
  void HandlePlain(const httplib::Request& request, httplib::Response& response);
  void HandleWithBody(const httplib::Request& request, httplib::Response& response,
                      const httplib::ContentReader& reader);
  // The body into `head`, or a refusal.
  std::optional<HttpReply> ReadBody(const httplib::Request& request,
                                    const httplib::ContentReader& reader, std::string* body);
  static void Send(HttpReply reply, httplib::Response& response);
  // The body of `request` is not read: the connection cannot carry another one.
  static void SendUnread(const httplib::Request& request, HttpReply reply,
                         httplib::Response& response);

  const HttpServerOptions options;
  const std::unique_ptr<ListeningSocket> socket;
  const int stop_fd;
  ConnectionLimits limits;
  Api* api = nullptr;
  std::thread acceptor;
  Mutex mutex;
  CondVar stopped_changed;
  bool stopped GUARDED_BY(mutex) = false;
  std::set<int> open_sockets GUARDED_BY(mutex);  // of the connections that are served
  std::atomic<bool> stopping{false};

  // The connection this worker serves: the library hands its routes no way to the socket.
  static thread_local HttpConnection* connection;
};

thread_local HttpConnection* HttpServer::Impl::connection = nullptr;

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
        if (request.get_header_value<uint64_t>("Content-Length") <= options.body_bytes_max) {
          return 100;
        }
        SendUnread(request, TooLarge(options.body_bytes_max), response);
        return response.status;
      });
}

Status HttpServer::Impl::Start(Api* routes) {
  api = routes;
  TESSERA_RETURN_IF_ERROR(socket->Listen());
  acceptor = std::thread([this] { AcceptLoop(); });
  return Status::Ok();
}

void HttpServer::Impl::AcceptLoop() {
  httplib::ThreadPool pool(static_cast<size_t>(options.workers));
  for (int fd = socket->Accept(stop_fd); fd >= 0; fd = socket->Accept(stop_fd)) {
    pool.enqueue([this, fd] { Serve(fd); });
  }
  socket->Close();
  pool.shutdown();  // joins: connections that are served end first
  {
    MutexLock lock(mutex);
    stopped = true;
  }
  stopped_changed.notify_all();
}

void HttpServer::Impl::Serve(int fd) {
  {
    MutexLock lock(mutex);
    open_sockets.insert(fd);
  }
  HttpConnection stream(fd, stop_fd, limits);
  connection = &stream;
  for (size_t left = kRequestsPerConnection; left > 0 && stream.AwaitRequest(); --left) {
    bool closed_by_client = false;
    bool parsed = false;
    const bool last = left == 1 || stopping;
    const bool ok = process_request(stream, /*close_connection=*/last, closed_by_client,
                                    [&](httplib::Request&) {
                                      parsed = true;
                                      stream.BeginBody();
                                    });
    // After a head that does not parse nobody knows where the next request begins.
    if (!parsed) stream.CloseAfterReply();
    if (!ok || last || closed_by_client || stream.closes_after_reply()) break;
  }
  connection = nullptr;
  MutexLock lock(mutex);
  open_sockets.erase(fd);  // before the number can belong to another connection
}

void HttpServer::Impl::DropConnections() {
  MutexLock lock(mutex);
  for (int fd : open_sockets) (void)::shutdown(fd, SHUT_RDWR);
}

// What must not reach the library's own handling: it reads bodies without a limit for methods
// nobody registered, and matches paths with std::regex.
httplib::Server::HandlerResponse HttpServer::Impl::RefuseEarly(const httplib::Request& request,
                                                               httplib::Response& response) {
  if (request.path.size() > kPathBytesMax) {
    SendUnread(
        request,
        Refusal(404, "not_found", fmt::format("no such path: {} bytes long", request.path.size())),
        response);
    return HandlerResponse::Handled;
  }
  if (std::optional<HttpReply> refused = api->Refuse(HeadOf(request))) {
    SendUnread(request, std::move(*refused), response);
    return HandlerResponse::Handled;
  }
  return HandlerResponse::Unhandled;
}

void HttpServer::Impl::HandlePlain(const httplib::Request& request, httplib::Response& response) {
  ConnectionPeer peer(connection);
  HttpReply reply = api->Handle(HeadOf(request), peer);
  if (HasBody(request)) {  // a GET with a body: the library leaves it in the socket
    SendUnread(request, std::move(reply), response);
  } else {
    Send(std::move(reply), response);
  }
}

void HttpServer::Impl::HandleWithBody(const httplib::Request& request, httplib::Response& response,
                                      const httplib::ContentReader& reader) {
  HttpRequest full = HeadOf(request);
  if (std::optional<HttpReply> refused = ReadBody(request, reader, &full.body)) {
    SendUnread(request, std::move(*refused), response);
    return;
  }
  ConnectionPeer peer(connection);
  Send(api->Handle(full, peer), response);
}

std::optional<HttpReply> HttpServer::Impl::ReadBody(const httplib::Request& request,
                                                    const httplib::ContentReader& reader,
                                                    std::string* body) {
  // Without a length there is none; the library would read to the end of the connection.
  if (!HasBody(request)) return std::nullopt;
  if (request.is_multipart_form_data()) {
    return Refusal(415, "unsupported_media_type", "Content-Type: expected application/json");
  }
  if (request.get_header_value<uint64_t>("Content-Length") > options.body_bytes_max) {
    return TooLarge(options.body_bytes_max);
  }
  bool too_large = false;
  const bool complete = reader([&](const char* data, size_t size) {
    too_large = body->size() + size > options.body_bytes_max;
    if (!too_large) body->append(data, size);
    return !too_large;
  });
  if (too_large) return TooLarge(options.body_bytes_max);
  if (complete) return std::nullopt;
  return Refusal(408, "incomplete_body",
                 fmt::format("the body ended, or took too long, after {} bytes", body->size()));
}

void HttpServer::Impl::SendUnread(const httplib::Request& request, HttpReply reply,
                                  httplib::Response& response) {
  if (HasBody(request)) {
    connection->CloseAfterReply();
    reply.headers.emplace_back("Connection", "close");
  }
  Send(std::move(reply), response);
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
        SinkStream out(&sink);
        stream(out);
        sink.done();
        return true;
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

Status HttpServer::Start(Api* api) { return impl_->Start(api); }

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
