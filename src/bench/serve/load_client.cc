// SPDX-License-Identifier: Apache-2.0
#include "bench/serve/load_client.h"

#include <fmt/format.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <memory>
#include <string_view>
#include <utility>

#include "base/check.h"
#include "bench/serve/answer_stream.h"
#include "port/clock.h"

namespace tessera {
namespace {

constexpr int kProbeMs = 5000;
constexpr int kTickMs = 100;
constexpr size_t kReadBytes = 64 * 1024;
constexpr int kEventsAtOnce = 256;
constexpr uint64_t kTimerEvent = UINT64_MAX;

class Fd {
 public:
  Fd() = default;
  explicit Fd(int fd) : fd_(fd) {}
  Fd(Fd&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Fd& operator=(Fd&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~Fd() {
    if (fd_ >= 0) ::close(fd_);
  }
  int get() const { return fd_; }

 private:
  int fd_ = -1;
};

struct Address {
  sockaddr_storage storage{};
  socklen_t length = 0;
  int family = AF_INET;
};

Fd StartConnecting(const Address& address) {
  Fd fd(::socket(address.family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (fd.get() < 0) return fd;
  const int one = 1;
  (void)::setsockopt(fd.get(), IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
  if (::connect(fd.get(), reinterpret_cast<const sockaddr*>(&address.storage), address.length) !=
          0 &&
      errno != EINPROGRESS) {
    return Fd();
  }
  return fd;
}

// 0, or why a connection did not come about.
int SocketError(int fd) {
  int error = 0;
  socklen_t length = sizeof(error);
  return ::getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &length) == 0 ? error : errno;
}

int Probe(const Address& address) {
  const Fd fd = StartConnecting(address);
  if (fd.get() < 0) return errno;
  pollfd waited = {fd.get(), POLLOUT, 0};
  if (::poll(&waited, 1, kProbeMs) <= 0) return ETIMEDOUT;
  return SocketError(fd.get());
}

// The first address of the host at which somebody answers: a name may have one of IPv6 where the
// server listens on IPv4 only.
Result<Address> FindServer(const HttpTarget& target) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* raw = nullptr;
  const int error = ::getaddrinfo(target.host.c_str(), target.port.c_str(), &hints, &raw);
  if (error != 0) {
    return IoError(fmt::format("http://{}: {}", target.host_header, ::gai_strerror(error)));
  }
  const std::unique_ptr<addrinfo, void (*)(addrinfo*)> list(raw, ::freeaddrinfo);
  int why = ECONNREFUSED;
  for (const addrinfo* each = raw; each != nullptr; each = each->ai_next) {
    Address address;
    std::memcpy(&address.storage, each->ai_addr, each->ai_addrlen);
    address.length = each->ai_addrlen;
    address.family = each->ai_family;
    why = Probe(address);
    if (why == 0) return address;
  }
  return IoError(
      fmt::format("http://{}: nobody answers: {}", target.host_header, std::strerror(why)));
}

// A connection for every request that runs, and room for the rest of the program.
void AllowManyConnections() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = limit.rlim_max;
  (void)::setrlimit(RLIMIT_NOFILE, &limit);
}

struct Stream {
  enum class State { kConnecting, kSending, kReading };

  Stream(size_t index, Fd connection, LoadRecord* seen)
      : request(index), fd(std::move(connection)), record(seen), answer(seen) {}

  size_t request;
  Fd fd;
  State state = State::kConnecting;
  std::string out;
  size_t sent = 0;
  uint64_t last_byte_ns = 0;
  LoadRecord* record;
  AnswerStream answer;
};

class Client {
 public:
  Client(const std::vector<PlannedRequest>& requests,
         const std::function<std::string(size_t)>& body, const LoadClientOptions& options,
         const Address& address)
      : requests_(requests), body_(body), options_(options), address_(address) {}

  Status Open();
  LoadRun Run();

 private:
  uint64_t Now() const { return NowNs() - start_ns_; }
  uint64_t Due(size_t i) const {
    return static_cast<uint64_t>(std::max(0.0, requests_[i].arrival_s) * 1e9);
  }
  bool MayRun() const {
    return options_.max_concurrency == 0 || running_ < options_.max_concurrency;
  }
  std::string Head(size_t body_bytes) const;
  void Begin(size_t i);
  void BeginDue();
  void ArmTimer();
  void Wait();
  void OnEvent(Stream* stream, uint32_t events);
  bool Send(Stream* stream);
  bool Receive(Stream* stream);
  void Watch(const Stream& stream, int operation, uint32_t events) const;
  void FailConnection(Stream* stream, int error) const;
  void End(Stream* stream);
  void Tick(uint64_t now);

  const std::vector<PlannedRequest>& requests_;
  const std::function<std::string(size_t)>& body_;
  const LoadClientOptions& options_;
  const Address address_;
  Fd epoll_;
  Fd timer_;
  uint64_t start_ns_ = 0;
  uint64_t idle_ns_ = 0;
  uint64_t next_tick_ns_ = 0;
  size_t next_ = 0;
  size_t running_ = 0;
  LoadProgress progress_;
  std::vector<std::unique_ptr<Stream>> streams_;  // by request; null: not running
  std::vector<char> buffer_ = std::vector<char>(kReadBytes);
  LoadRun run_;
};

Status Client::Open() {
  epoll_ = Fd(::epoll_create1(EPOLL_CLOEXEC));
  timer_ = Fd(::timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC));
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.u64 = kTimerEvent;
  if (epoll_.get() < 0 || timer_.get() < 0 ||
      ::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, timer_.get(), &event) != 0) {
    return IoError(fmt::format("cannot wait for connections: {}", std::strerror(errno)));
  }
  return Status::Ok();
}

LoadRun Client::Run() {
  run_.records.resize(requests_.size());
  streams_.resize(requests_.size());
  progress_.total = requests_.size();
  start_ns_ = NowNs();
  for (size_t i = 0; i < requests_.size(); ++i) {
    run_.records[i].arrival_ns = Due(i);
    run_.records[i].prompt_tokens = requests_[i].prompt_tokens;
  }
  while (progress_.ended < requests_.size()) {
    BeginDue();
    if (progress_.ended == requests_.size()) break;
    Wait();
    const uint64_t now = Now();
    if (now >= next_tick_ns_) Tick(now);
    if (options_.stop && options_.stop()) {
      run_.stopped = true;
      break;
    }
  }
  streams_.clear();  // what still ran is left unfinished
  run_.duration_ns = Now();
  run_.busy_share = 1 - static_cast<double>(idle_ns_) /
                            static_cast<double>(std::max<uint64_t>(run_.duration_ns, 1));
  return std::move(run_);
}

void Client::BeginDue() {
  while (next_ < requests_.size() && MayRun() && Due(next_) <= Now()) Begin(next_++);
  ArmTimer();
}

// At the next arrival, when there is room for it, and at the next tick.
void Client::ArmTimer() {
  const uint64_t now = Now();
  uint64_t at = std::max(next_tick_ns_, now + 1);
  if (next_ < requests_.size() && MayRun()) at = std::min(at, std::max(Due(next_), now + 1));
  const uint64_t absolute = start_ns_ + at;
  itimerspec when{};
  when.it_value.tv_sec = static_cast<time_t>(absolute / 1'000'000'000);
  when.it_value.tv_nsec = static_cast<long>(absolute % 1'000'000'000);
  (void)::timerfd_settime(timer_.get(), TFD_TIMER_ABSTIME, &when, nullptr);
}

void Client::Wait() {
  std::array<epoll_event, kEventsAtOnce> events;
  const uint64_t before = NowNs();
  const int count = ::epoll_wait(epoll_.get(), events.data(), kEventsAtOnce, kTickMs);
  idle_ns_ += NowNs() - before;
  for (int i = 0; i < count; ++i) {
    const epoll_event& event = events[static_cast<size_t>(i)];
    if (event.data.u64 == kTimerEvent) {
      uint64_t expirations = 0;
      (void)!::read(timer_.get(), &expirations, sizeof(expirations));
    } else if (Stream* stream = streams_[event.data.u64].get()) {
      OnEvent(stream, event.events);
    }
  }
}

std::string Client::Head(size_t body_bytes) const {
  std::string head = fmt::format(
      "POST {} HTTP/1.1\r\nHost: {}\r\nContent-Type: application/json\r\n"
      "Accept: text/event-stream\r\nConnection: close\r\nContent-Length: {}\r\n",
      options_.path, options_.target.host_header, body_bytes);
  if (!options_.api_key.empty()) {
    head += fmt::format("Authorization: Bearer {}\r\n", options_.api_key);
  }
  return head + "\r\n";
}

void Client::Begin(size_t i) {
  LoadRecord& record = run_.records[i];
  const std::string body = body_(i);
  record.started = true;
  record.start_ns = Now();
  streams_[i] = std::make_unique<Stream>(i, StartConnecting(address_), &record);
  ++running_;
  Stream* stream = streams_[i].get();
  stream->last_byte_ns = record.start_ns;
  if (stream->fd.get() < 0) {
    FailConnection(stream, errno);
    End(stream);
    return;
  }
  stream->out = Head(body.size()) + body;
  Watch(*stream, EPOLL_CTL_ADD, EPOLLIN | EPOLLOUT);
}

void Client::Watch(const Stream& stream, int operation, uint32_t events) const {
  epoll_event event{};
  event.events = events;
  event.data.u64 = stream.request;
  TESSERA_CHECK(::epoll_ctl(epoll_.get(), operation, stream.fd.get(), &event) == 0);
}

void Client::FailConnection(Stream* stream, int error) const {
  stream->answer.Fail(LoadFailure::kConnect, std::strerror(error));
}

void Client::OnEvent(Stream* stream, uint32_t events) {
  if (stream->state == Stream::State::kConnecting) {
    if (const int error = SocketError(stream->fd.get()); error != 0) {
      FailConnection(stream, error);
      End(stream);
      return;
    }
    stream->state = Stream::State::kSending;
  }
  // A server may answer, or hang up, before it has read everything.
  if ((events & (EPOLLIN | EPOLLHUP | EPOLLERR)) != 0 && !Receive(stream)) {
    End(stream);
  } else if (stream->state == Stream::State::kSending && !Send(stream)) {
    End(stream);
  }
}

// False when the request is over.
bool Client::Send(Stream* stream) {
  const std::string_view rest = std::string_view(stream->out).substr(stream->sent);
  const ssize_t count = ::send(stream->fd.get(), rest.data(), rest.size(), MSG_NOSIGNAL);
  if (count < 0) {
    if (errno == EAGAIN || errno == EINTR) return true;
    // Perhaps it said why before it hung up.
    const int error = errno;
    if (!Receive(stream)) return false;
    stream->answer.PeerClosed(std::strerror(error));
    return false;
  }
  stream->sent += static_cast<size_t>(count);
  if (stream->sent == stream->out.size()) {
    stream->state = Stream::State::kReading;
    stream->out = {};
    Watch(*stream, EPOLL_CTL_MOD, EPOLLIN);
  }
  return true;
}

bool Client::Receive(Stream* stream) {
  const ssize_t count = ::recv(stream->fd.get(), buffer_.data(), buffer_.size(), 0);
  const uint64_t now = Now();
  if (count < 0 && (errno == EAGAIN || errno == EINTR)) return true;
  if (count <= 0) {
    stream->answer.PeerClosed(count == 0 ? "" : std::strerror(errno));
    return false;
  }
  stream->last_byte_ns = now;
  LoadRecord& record = *stream->record;
  const uint32_t pieces_before = record.pieces;
  const bool open =
      stream->answer.Take({buffer_.data(), static_cast<size_t>(count)}, now - record.start_ns);
  progress_.pieces += record.pieces - pieces_before;
  const uint32_t limit = requests_[stream->request].cancel_after_pieces;
  if (open && limit > 0 && record.pieces >= limit) {
    record.outcome = LoadOutcome::kCancelled;
    record.output_tokens = record.pieces;
    return false;
  }
  return open;
}

// Closes the connection; its record stays.
void Client::End(Stream* stream) {
  if (stream->record->outcome == LoadOutcome::kFailed) ++progress_.failed;
  ++progress_.ended;
  --running_;
  streams_[stream->request].reset();
}

void Client::Tick(uint64_t now) {
  next_tick_ns_ = now + uint64_t{kTickMs} * 1'000'000;
  for (size_t i = 0; i < next_; ++i) {
    Stream* stream = streams_[i].get();
    if (stream == nullptr || now - stream->last_byte_ns < options_.silence_ns) continue;
    stream->answer.Fail(LoadFailure::kTimeout,
                        fmt::format("no byte for {:g} s", NsToMs(options_.silence_ns) / 1000));
    End(stream);
  }
  progress_.running = running_;
  progress_.seconds = static_cast<double>(now) * 1e-9;
  if (options_.progress) options_.progress(progress_);
}

}  // namespace

Result<LoadRun> RunLoad(const std::vector<PlannedRequest>& requests,
                        const std::function<std::string(size_t)>& body,
                        const LoadClientOptions& options) {
  AllowManyConnections();
  TESSERA_ASSIGN_OR_RETURN(const Address address, FindServer(options.target));
  Client client(requests, body, options, address);
  TESSERA_RETURN_IF_ERROR(client.Open());
  return client.Run();
}

}  // namespace tessera
