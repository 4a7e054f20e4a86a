// SPDX-License-Identifier: Apache-2.0
#include "compute/gguf/gguf_writer.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <array>
#include <csignal>
#include <optional>

#include "base/bytes.h"
#include "base/random.h"
#include "compute/gguf/gguf_test_files.h"

namespace tessera {
namespace {

using namespace testing;  // NOLINT

// Caps the size of the files this process may write, as a full disk would.
class FileSizeLimit {
 public:
  explicit FileSizeLimit(uint64_t size_bytes) {
    ::getrlimit(RLIMIT_FSIZE, &before_);
    handler_ = std::signal(SIGXFSZ, SIG_IGN);
    rlimit limit = before_;
    limit.rlim_cur = size_bytes;
    ::setrlimit(RLIMIT_FSIZE, &limit);
  }
  ~FileSizeLimit() {
    ::setrlimit(RLIMIT_FSIZE, &before_);
    std::signal(SIGXFSZ, handler_);
  }

 private:
  rlimit before_ = {};
  void (*handler_)(int) = nullptr;
};

void Declare(GgufWriter* writer, std::string_view name, GgufTensorType type,
             std::vector<uint64_t> ne) {
  writer->DeclareTensor(name, type, ne);
}

TEST(GgufWriter, FileIsThatOfAnotherLayoutByteForByte) {
  TempDir dir;
  GgufWriter writer = GgufWriter::Create(dir.File("w.gguf")).value();
  writer.AddU32("u", 7);
  writer.AddF32("f", 0.5f);
  writer.AddBool("b", true);
  writer.AddString("s", "text");
  writer.AddStringArray("ss", std::array<std::string, 2>{"x", ""});
  writer.AddI32Array("is", std::array<int32_t, 2>{-1, 2});
  writer.AddF32Array("fs", std::array<float, 1>{1.5f});
  Declare(&writer, "one", GgufTensorType::kI8, {5});
  Declare(&writer, "two", GgufTensorType::kQ8_0, {32, 1});
  ASSERT_TRUE(writer.BeginData().ok());
  ASSERT_TRUE(writer.Write(AsBytes("ab")).ok());  // pieces of any size
  ASSERT_TRUE(writer.Write({}).ok());
  ASSERT_TRUE(writer.Write(AsBytes("cde")).ok());
  ASSERT_TRUE(writer.Write(AsBytes(std::string(34, 'q'))).ok());
  ASSERT_TRUE(writer.Finish().ok());

  RawGguf raw;
  raw.Key("u", GgufValueType::kU32, U32(7));
  raw.Key("f", GgufValueType::kF32, Raw(0.5f));
  raw.Key("b", GgufValueType::kBool, U8(1));
  raw.Key("s", GgufValueType::kString, Text("text"));
  raw.Key("ss", GgufValueType::kArray, Array(GgufValueType::kString, 2, Text("x") + Text("")));
  raw.Key("is", GgufValueType::kArray,
          Array(GgufValueType::kI32, 2, Raw<int32_t>(-1) + Raw<int32_t>(2)));
  raw.Key("fs", GgufValueType::kArray, Array(GgufValueType::kF32, 1, Raw(1.5f)));
  raw.Tensor("one", {5}, 24, 0).Tensor("two", {32, 1}, 8, 32);
  raw.Data("abcde").PadData().Data(std::string(34, 'q')).PadData();
  EXPECT_EQ(ReadFile(dir.File("w.gguf")), raw.Build());
  EXPECT_LE(dir.FileCount(), 1u);  // none where files can be nameless
}

// Every type, random shapes and contents: what was written is what is read, and each tensor begins
// where the padded sizes before it add up to (W1).
TEST(GgufWriter, RandomFilesReadBackWithStrictOffsets) {
  constexpr GgufTensorType kTypes[] = {
      GgufTensorType::kF32,  GgufTensorType::kF16,  GgufTensorType::kBF16,
      GgufTensorType::kQ8_0, GgufTensorType::kQ4_0, GgufTensorType::kQ4_K,
      GgufTensorType::kQ6_K, GgufTensorType::kI8,   GgufTensorType::kI64};
  TempDir dir;
  for (uint64_t seed = 0; seed < 20; ++seed) {
    SCOPED_TRACE(seed);
    Random random(seed);
    const std::string path = dir.File("r.gguf");
    GgufWriter writer = GgufWriter::Create(path).value();
    writer.AddU32("seed", static_cast<uint32_t>(seed));
    std::vector<std::string> contents;
    for (GgufTensorType type : kTypes) {
      const GgufTensorTraits* traits = FindTensorTraits(static_cast<uint32_t>(type));
      std::vector<uint64_t> ne = {traits->block_elements * (1 + random.Below(3))};
      uint64_t size_bytes = ne[0] / traits->block_elements * traits->block_bytes;
      for (uint64_t i = random.Below(4); i > 0; --i) {
        ne.push_back(1 + random.Below(3));
        size_bytes *= ne.back();
      }
      Declare(&writer, TensorTypeName(type), type, ne);
      contents.emplace_back(size_bytes, '\0');
      for (char& byte : contents.back()) byte = static_cast<char>(random.Next());
    }
    ASSERT_TRUE(writer.BeginData().ok());
    for (std::string_view content : contents) {
      while (!content.empty()) {
        const size_t piece = 1 + random.Below(content.size());
        ASSERT_TRUE(writer.Write(AsBytes(content.substr(0, piece))).ok());
        content.remove_prefix(piece);
      }
    }
    ASSERT_TRUE(writer.Finish().ok());

    Result<GgufFile> file = GgufFile::Open(path);
    ASSERT_TRUE(file) << file.error().message();
    ASSERT_EQ(file->tensors().size(), contents.size());
    const std::byte* next = file->tensors()[0].data;
    for (size_t i = 0; i < contents.size(); ++i) {
      const GgufTensor& tensor = file->tensors()[i];
      ASSERT_EQ(tensor.size_bytes, contents[i].size());
      EXPECT_EQ(std::memcmp(tensor.data, contents[i].data(), tensor.size_bytes), 0);
      EXPECT_EQ(tensor.data, next);
      next += RoundUp(tensor.size_bytes, 32);
    }
    EXPECT_EQ(file->GetU32("seed").value(), seed);
  }
}

TEST(GgufWriter, NothingIsAtThePathBeforeFinishAndNothingLeftWithoutIt) {
  TempDir dir;
  {
    GgufWriter writer = GgufWriter::Create(dir.File("w.gguf")).value();
    Declare(&writer, "t", GgufTensorType::kI8, {4});
    ASSERT_TRUE(writer.BeginData().ok());
    ASSERT_TRUE(writer.Write(AsBytes("ab")).ok());
    EXPECT_FALSE(std::filesystem::exists(dir.File("w.gguf")));
    EXPECT_LE(dir.FileCount(), 1u);  // none where files can be nameless
  }
  EXPECT_EQ(dir.FileCount(), 0u);
}

TEST(GgufWriter, AbortLeavesTheFileThatWasThere) {
  TempDir dir;
  WriteFile(dir.File("w.gguf"), "before");
  { GgufWriter writer = GgufWriter::Create(dir.File("w.gguf")).value(); }
  EXPECT_EQ(ReadFile(dir.File("w.gguf")), "before");
  GgufWriter writer = GgufWriter::Create(dir.File("w.gguf")).value();
  ASSERT_TRUE(writer.BeginData().ok());
  ASSERT_TRUE(writer.Finish().ok());
  EXPECT_TRUE(GgufFile::Open(dir.File("w.gguf")));
}

TEST(GgufWriter, MoveKeepsOneOwnerOfTheUnfinishedFile) {
  TempDir dir;
  GgufWriter writer = GgufWriter::Create(dir.File("a.gguf")).value();
  writer = GgufWriter::Create(dir.File("b.gguf")).value();  // the first is aborted
  EXPECT_LE(dir.FileCount(), 1u);                           // none where files can be nameless
  GgufWriter moved = std::move(writer);
  ASSERT_TRUE(moved.BeginData().ok());
  ASSERT_TRUE(moved.Finish().ok());
  EXPECT_TRUE(std::filesystem::exists(dir.File("b.gguf")));
}

TEST(GgufWriter, FullDiskIsIoNamingThePathAndLeavesNothing) {
  TempDir dir;
  // Below and above the stream's buffer: the error comes at Finish, or already at Write.
  for (uint64_t size_bytes : {32 * kKiB, 4 * kMiB}) {
    GgufWriter writer = GgufWriter::Create(dir.File("w.gguf")).value();
    Declare(&writer, "t", GgufTensorType::kI8, {size_bytes});
    ASSERT_TRUE(writer.BeginData().ok());
    FileSizeLimit limit(16 * kKiB);
    Status written = writer.Write(AsBytes(std::string(size_bytes, 'x')));
    EXPECT_EQ(written.ok(), size_bytes < kMiB);
    Status finished = writer.Finish();  // says it again
    EXPECT_EQ(finished.code(), StatusCode::kIo);
    EXPECT_EQ(finished.message(), dir.File("w.gguf") + ": cannot write: File too large");
    if (!written.ok()) {
      EXPECT_EQ(written.message(), finished.message());
    }
  }
  EXPECT_EQ(dir.FileCount(), 0u);
}

TEST(GgufWriter, PathThatCannotBeWrittenIsRefusedAtOnce) {
  TempDir dir;
  auto missing = GgufWriter::Create(dir.File("no/w.gguf"));
  EXPECT_EQ(missing.error().code(), StatusCode::kIo);
  EXPECT_EQ(missing.error().message(),
            dir.File("no/w.gguf") + ": cannot create: No such file or directory");
  auto device = GgufWriter::Create("/dev/full");
  EXPECT_EQ(device.error().message(), "/dev/full: exists and is not a regular file");
}

TEST(GgufWriterDeathTest, MisuseIsABug) {
  TempDir dir;
  auto fresh = [&] { return GgufWriter::Create(dir.File("w.gguf")).value(); };
  auto declare = [](GgufWriter* writer, std::string_view name, uint64_t ne0) {
    Declare(writer, name, GgufTensorType::kQ8_0, {ne0});
  };
  GTEST_FLAG_SET(death_test_style, "fast");
  GgufWriter writer = fresh();
  EXPECT_DEATH(declare(&writer, "t", 33), "check failed");
  EXPECT_DEATH(declare(&writer, "t", 0), "check failed");
  EXPECT_DEATH(declare(&writer, std::string(64, 'n'), 32), "check failed");
  EXPECT_DEATH(writer.Write({}).ok(), "check failed");
  EXPECT_DEATH(writer.Finish().ok(), "check failed");
  EXPECT_DEATH(writer.AddU32("general.alignment", 64), "check failed");
  writer.AddU32("k", 1);
  EXPECT_DEATH(writer.AddU32("k", 1), "check failed");
  declare(&writer, "t", 32);
  EXPECT_DEATH(declare(&writer, "t", 32), "check failed");
  ASSERT_TRUE(writer.BeginData().ok());
  EXPECT_DEATH(writer.AddU32("late", 1), "check failed");
  EXPECT_DEATH(writer.Write(AsBytes(std::string(35, 'x'))).ok(), "check failed");
  EXPECT_DEATH(writer.Finish().ok(), "check failed");
}

}  // namespace
}  // namespace tessera
