// SPDX-License-Identifier: Apache-2.0
#include "compute/gguf/gguf_writer.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <bit>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <set>
#include <utility>

#include "base/bytes.h"
#include "base/check.h"

namespace tessera {
namespace {

static_assert(std::endian::native == std::endian::little, "numbers are copied as they lie");

constexpr uint32_t kVersion = 3;
constexpr uint64_t kAlignment = 32;  // the default of the format, so no key says it
constexpr size_t kTensorNameBytesEnd = 64;
constexpr size_t kDimsMax = 4;
// Rows of a small model are a few hundred bytes; the stream gathers them into writes of this size.
// It is ours because glibc takes no size without a buffer.
constexpr size_t kStreamBufferBytes = kMiB;

template <typename T>
void AppendNumber(std::string* out, T value) {
  char bytes[sizeof(T)];
  std::memcpy(bytes, &value, sizeof(T));
  out->append(bytes, sizeof(T));
}

void AppendText(std::string* out, std::string_view text) {
  AppendNumber<uint64_t>(out, text.size());
  out->append(text);
}

constexpr int kPartialNames = 100;

// A name beside `path`. It has the process in it, so that two writers of one path do not meet.
std::string PartialPath(const std::string& path, int attempt) {
  return fmt::format("{}.partial-{}-{}", path, ::getpid(), attempt);
}

// A new file in the folder of `path`: without a name where the file system has such files, so that
// nothing is left however the process ends, else named (a leftover with our number is stepped
// over).
int CreateBeside(const std::string& path, std::string* partial_path) {
  const size_t slash = path.rfind('/');
  const std::string folder = slash == std::string::npos ? "." : path.substr(0, slash + 1);
  int fd = ::open(folder.c_str(), O_WRONLY | O_TMPFILE | O_CLOEXEC, 0666);
  for (int attempt = 0; fd < 0 && attempt < kPartialNames; ++attempt) {
    *partial_path = PartialPath(path, attempt);
    fd = ::open(partial_path->c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (fd < 0 && errno != EEXIST) break;
  }
  return fd;
}

// Gives a nameless file a name, which can then replace another by rename.
bool NameBeside(int fd, const std::string& path, std::string* partial_path) {
  const std::string self = fmt::format("/proc/self/fd/{}", fd);
  for (int attempt = 0; attempt < kPartialNames; ++attempt) {
    std::string name = PartialPath(path, attempt);
    if (::linkat(AT_FDCWD, self.c_str(), AT_FDCWD, name.c_str(), AT_SYMLINK_FOLLOW) == 0) {
      *partial_path = std::move(name);
      return true;
    }
    if (errno != EEXIST) return false;
  }
  return false;
}

}  // namespace

struct GgufWriter::State {
  enum class Phase { kDeclaring, kWriting, kDone };

  ~State();
  void AppendKey(std::string_view key, GgufValueType type);
  void AppendArrayKey(std::string_view key, GgufValueType element_type, uint64_t count);
  Status Put(const void* bytes, size_t size_bytes);
  Status Pad();
  Status Error(std::string_view what);

  std::string path;
  std::string partial_path;                  // empty while the file has no name
  std::vector<std::byte>* memory = nullptr;  // instead of a file
  std::vector<char> stream_buffer;           // of file
  std::FILE* file = nullptr;
  Phase phase = Phase::kDeclaring;
  Status failure;  // the first one; every later call returns it again
  std::set<std::string, std::less<>> keys;
  std::set<std::string, std::less<>> tensor_names;
  std::string key_bytes;
  std::string tensor_bytes;
  std::vector<uint64_t> tensor_sizes_bytes;
  uint64_t data_bytes = 0;     // declared, padded
  uint64_t written_bytes = 0;  // of the file
  size_t current = 0;          // tensor that the next byte belongs to
  uint64_t current_bytes = 0;  // of it, written
};

GgufWriter::State::~State() {
  if (file != nullptr) std::fclose(file);
  if (phase != Phase::kDone && !partial_path.empty()) ::unlink(partial_path.c_str());
}

Status GgufWriter::State::Error(std::string_view what) {
  failure = IoError(fmt::format("{}: {}: {}", path, what, std::strerror(errno)));
  return failure;
}

Status GgufWriter::State::Put(const void* bytes, size_t size_bytes) {
  if (!failure.ok()) return failure;
  if (memory != nullptr) {
    const auto* from = static_cast<const std::byte*>(bytes);
    memory->insert(memory->end(), from, from + size_bytes);
  } else if (std::fwrite(bytes, 1, size_bytes, file) != size_bytes) {
    return Error("cannot write");
  }
  written_bytes += size_bytes;
  return Status::Ok();
}

Status GgufWriter::State::Pad() {
  static constexpr char kZeros[kAlignment] = {};
  return Put(kZeros, RoundUp(written_bytes, kAlignment) - written_bytes);
}

void GgufWriter::State::AppendKey(std::string_view key, GgufValueType type) {
  TESSERA_CHECK(phase == Phase::kDeclaring);
  TESSERA_CHECK(!key.empty());
  TESSERA_CHECK(key != "general.alignment");  // the writer's affair
  TESSERA_CHECK(keys.emplace(key).second);
  AppendText(&key_bytes, key);
  AppendNumber(&key_bytes, static_cast<uint32_t>(type));
}

void GgufWriter::State::AppendArrayKey(std::string_view key, GgufValueType element_type,
                                       uint64_t count) {
  AppendKey(key, GgufValueType::kArray);
  AppendNumber(&key_bytes, static_cast<uint32_t>(element_type));
  AppendNumber(&key_bytes, count);
}

GgufWriter::GgufWriter(std::unique_ptr<State> state) : state_(std::move(state)) {}
GgufWriter::GgufWriter(GgufWriter&&) noexcept = default;
GgufWriter& GgufWriter::operator=(GgufWriter&&) noexcept = default;
GgufWriter::~GgufWriter() = default;

Result<GgufWriter> GgufWriter::Create(const std::string& path) {
  // Found now rather than by the rename after hours of writing.
  struct stat info = {};
  if (::stat(path.c_str(), &info) == 0 && !S_ISREG(info.st_mode)) {
    return IoError(fmt::format("{}: exists and is not a regular file", path));
  }
  auto state = std::make_unique<State>();
  state->path = path;
  int fd = CreateBeside(path, &state->partial_path);
  if (fd < 0) {
    state->partial_path.clear();
    return state->Error("cannot create");
  }
  state->file = ::fdopen(fd, "wb");
  if (state->file == nullptr) {
    Status error = state->Error("cannot create");
    ::close(fd);
    return error;
  }
  state->stream_buffer.resize(kStreamBufferBytes);
  std::setvbuf(state->file, state->stream_buffer.data(), _IOFBF, state->stream_buffer.size());
  return GgufWriter(std::move(state));
}

GgufWriter GgufWriter::InMemory(std::vector<std::byte>* bytes) {
  auto state = std::make_unique<State>();
  state->memory = bytes;
  return GgufWriter(std::move(state));
}

void GgufWriter::AddU32(std::string_view key, uint32_t value) {
  state_->AppendKey(key, GgufValueType::kU32);
  AppendNumber(&state_->key_bytes, value);
}

void GgufWriter::AddF32(std::string_view key, float value) {
  state_->AppendKey(key, GgufValueType::kF32);
  AppendNumber(&state_->key_bytes, value);
}

void GgufWriter::AddBool(std::string_view key, bool value) {
  state_->AppendKey(key, GgufValueType::kBool);
  AppendNumber<uint8_t>(&state_->key_bytes, value ? 1 : 0);
}

void GgufWriter::AddString(std::string_view key, std::string_view value) {
  state_->AppendKey(key, GgufValueType::kString);
  AppendText(&state_->key_bytes, value);
}

void GgufWriter::AddStringArray(std::string_view key, std::span<const std::string> values) {
  state_->AppendArrayKey(key, GgufValueType::kString, values.size());
  for (const std::string& value : values) AppendText(&state_->key_bytes, value);
}

void GgufWriter::AddI32Array(std::string_view key, std::span<const int32_t> values) {
  state_->AppendArrayKey(key, GgufValueType::kI32, values.size());
  for (int32_t value : values) AppendNumber(&state_->key_bytes, value);
}

void GgufWriter::AddF32Array(std::string_view key, std::span<const float> values) {
  state_->AppendArrayKey(key, GgufValueType::kF32, values.size());
  for (float value : values) AppendNumber(&state_->key_bytes, value);
}

void GgufWriter::DeclareTensor(std::string_view name, GgufTensorType type,
                               std::span<const uint64_t> ne) {
  State& state = *state_;
  TESSERA_CHECK(state.phase == State::Phase::kDeclaring);
  TESSERA_CHECK(!name.empty() && name.size() < kTensorNameBytesEnd);
  TESSERA_CHECK(state.tensor_names.emplace(name).second);
  TESSERA_CHECK(!ne.empty() && ne.size() <= kDimsMax);
  const GgufTensorTraits* traits = FindTensorTraits(static_cast<uint32_t>(type));
  TESSERA_CHECK(traits != nullptr && ne[0] % traits->block_elements == 0);
  uint64_t size_bytes = ne[0] / traits->block_elements * traits->block_bytes;
  AppendText(&state.tensor_bytes, name);
  AppendNumber(&state.tensor_bytes, static_cast<uint32_t>(ne.size()));
  AppendNumber(&state.tensor_bytes, ne[0]);
  for (uint64_t dimension : ne.subspan(1)) {
    size_bytes *= dimension;
    AppendNumber(&state.tensor_bytes, dimension);
  }
  TESSERA_CHECK(size_bytes > 0);
  AppendNumber(&state.tensor_bytes, static_cast<uint32_t>(type));
  AppendNumber(&state.tensor_bytes, state.data_bytes);
  state.tensor_sizes_bytes.push_back(size_bytes);
  state.data_bytes += RoundUp(size_bytes, kAlignment);
}

Status GgufWriter::BeginData() {
  State& state = *state_;
  TESSERA_CHECK(state.phase == State::Phase::kDeclaring);
  state.phase = State::Phase::kWriting;
  std::string header = "GGUF";
  AppendNumber(&header, kVersion);
  AppendNumber<uint64_t>(&header, state.tensor_sizes_bytes.size());
  AppendNumber<uint64_t>(&header, state.keys.size());
  TESSERA_RETURN_IF_ERROR(state.Put(header.data(), header.size()));
  TESSERA_RETURN_IF_ERROR(state.Put(state.key_bytes.data(), state.key_bytes.size()));
  TESSERA_RETURN_IF_ERROR(state.Put(state.tensor_bytes.data(), state.tensor_bytes.size()));
  return state.Pad();
}

Status GgufWriter::Write(std::span<const std::byte> bytes) {
  State& state = *state_;
  TESSERA_CHECK(state.phase == State::Phase::kWriting);
  if (bytes.empty()) return Status::Ok();
  TESSERA_CHECK(state.current < state.tensor_sizes_bytes.size());
  const uint64_t size_bytes = state.tensor_sizes_bytes[state.current];
  TESSERA_CHECK(bytes.size() <= size_bytes - state.current_bytes);
  TESSERA_RETURN_IF_ERROR(state.Put(bytes.data(), bytes.size()));
  state.current_bytes += bytes.size();
  if (state.current_bytes < size_bytes) return Status::Ok();
  ++state.current;
  state.current_bytes = 0;
  return state.Pad();
}

// Flushed and synced before the rename: an error the system reports late (a full disk, a remote
// file system) must not leave a short file at the path.
Status GgufWriter::Finish() {
  State& state = *state_;
  TESSERA_CHECK(state.phase == State::Phase::kWriting);
  if (!state.failure.ok()) return state.failure;
  TESSERA_CHECK(state.current == state.tensor_sizes_bytes.size());
  if (state.memory != nullptr) {
    state.phase = State::Phase::kDone;
    return Status::Ok();
  }
  if (std::fflush(state.file) != 0) return state.Error("cannot write");
  if (::fsync(::fileno(state.file)) != 0) return state.Error("cannot write");
  if (state.partial_path.empty() &&
      !NameBeside(::fileno(state.file), state.path, &state.partial_path)) {
    return state.Error("cannot name the finished file");
  }
  if (std::fclose(std::exchange(state.file, nullptr)) != 0) return state.Error("cannot close");
  if (::rename(state.partial_path.c_str(), state.path.c_str()) != 0) {
    return state.Error("cannot rename the finished file");
  }
  state.phase = State::Phase::kDone;
  return Status::Ok();
}

}  // namespace tessera
