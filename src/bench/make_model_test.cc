// SPDX-License-Identifier: Apache-2.0
#include "bench/make_model.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "bench/geometries.h"
#include "compute/gguf/gguf_file.h"
#include "compute/model/model.h"
#include "compute/tokenizer/tokenizer.h"
#include "port/thread_pool.h"

namespace tessera {
namespace {

class MakeModel : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string name = ::testing::TempDir() + "make_model_XXXXXX";
    ASSERT_NE(mkdtemp(name.data()), nullptr);
    folder_ = name;
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  std::string Path(const char* name) const { return folder_ / name; }
  size_t FileCount() const {
    return static_cast<size_t>(std::distance(std::filesystem::directory_iterator(folder_),
                                             std::filesystem::directory_iterator()));
  }

  std::filesystem::path folder_;
};

const MakeModelProgress kSilent = {};

std::string ReadAll(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream bytes;
  bytes << file.rdbuf();
  return bytes.str();
}

TEST_F(MakeModel, TheFileLoadsAndHasTheShapeOfTheGeometry) {
  for (const ModelGeometry& geometry : ModelGeometries()) {
    if (geometry.shape.width > 1024) continue;  // the large ones take seconds and gigabytes
    const MakeModelOptions options{
        .geometry = std::string(geometry.name), .type = "q8_0", .layers = 1};
    const std::string path = Path("model.gguf");
    ASSERT_TRUE(MakeModelFile(options, path, kSilent).ok());
    const auto file = GgufFile::Open(path);
    ASSERT_TRUE(file.has_value()) << file.error().ToString();
    ThreadPool threads(2);
    const auto model = Model::Load(*file, threads);
    ASSERT_TRUE(model.has_value()) << model.error().ToString();
    const ModelShape& shape = (*model)->shape();
    EXPECT_EQ(shape.layers, 1u);
    EXPECT_EQ(shape.name, geometry.name);
    EXPECT_EQ(shape.vocab_size, geometry.shape.vocab_size);
    EXPECT_EQ(shape.state_shape(StateType::kF32).image_bytes(),
              geometry.shape.state_shape(StateType::kF32).image_bytes());
    EXPECT_EQ(shape.rope_base, geometry.shape.rope_base);
    EXPECT_EQ(file->FindTensor("output.weight") == nullptr, geometry.tied_output);
  }
}

TEST_F(MakeModel, ItsVocabularyTurnsAnyTextIntoTokensAndBack) {
  const MakeModelOptions options{.geometry = "falcon-h1-tiny", .type = "q8_0", .layers = 1};
  ASSERT_TRUE(MakeModelFile(options, Path("model.gguf"), kSilent).ok());
  const auto file = GgufFile::Open(Path("model.gguf"));
  ASSERT_TRUE(file.has_value());
  const auto tokenizer = Tokenizer::FromGguf(*file);
  ASSERT_TRUE(tokenizer.has_value()) << tokenizer.error().ToString();
  const std::string text = "Ebb at 04:10, 港 \xF0\x9F\x9A\xA2\r\n";
  const auto tokens = tokenizer->Encode(text);
  EXPECT_LT(tokens.size(), text.size());  // merges apply
  std::string back;
  for (TokenId token : tokens) back += tokenizer->TokenBytes(token);
  EXPECT_EQ(back, text);
}

TEST_F(MakeModel, TheSeedDecidesTheBytes) {
  MakeModelOptions options{.geometry = "falcon-h1-tiny", .type = "bf16", .layers = 1, .seed = 7};
  ASSERT_TRUE(MakeModelFile(options, Path("a.gguf"), kSilent).ok());
  ASSERT_TRUE(MakeModelFile(options, Path("b.gguf"), kSilent).ok());
  options.seed = 8;
  ASSERT_TRUE(MakeModelFile(options, Path("c.gguf"), kSilent).ok());
  EXPECT_TRUE(ReadAll(Path("a.gguf")) == ReadAll(Path("b.gguf")));
  EXPECT_FALSE(ReadAll(Path("a.gguf")) == ReadAll(Path("c.gguf")));
}

TEST_F(MakeModel, ProgressEndsAtTheWhole) {
  uint64_t last = 0, total = 0, calls = 0;
  const MakeModelOptions options{.geometry = "falcon-h1-tiny", .type = "q8_0", .layers = 1};
  const auto progress = [&](uint64_t written, uint64_t of) {
    EXPECT_GT(written, last);
    last = written;
    total = of;
    ++calls;
  };
  ASSERT_TRUE(MakeModelFile(options, Path("model.gguf"), progress).ok());
  EXPECT_EQ(last, total);
  EXPECT_GT(calls, 10u);
  EXPECT_LT(total, std::filesystem::file_size(Path("model.gguf")));
}

TEST_F(MakeModel, UnknownNamesAreRefusedWithTheNamesThereAre) {
  const Status geometry = MakeModelFile({.geometry = "falcon"}, Path("model.gguf"), kSilent);
  EXPECT_EQ(geometry.code(), StatusCode::kInvalidArgument);
  EXPECT_NE(geometry.message().find("falcon-h1-0.5b"), std::string::npos);
  const Status type =
      MakeModelFile({.geometry = "falcon-h1-tiny", .type = "iq2_xs"}, Path("model.gguf"), kSilent);
  EXPECT_EQ(type.code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(FileCount(), 0u);
}

// A limit on file size fails like a full disk: in the middle of a write.
TEST_F(MakeModel, WhenTheDiskIsFullNothingIsLeft) {
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  const rlimit small{.rlim_cur = 5 << 20, .rlim_max = before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
  const Status status = MakeModelFile({.geometry = "falcon-h1-tiny"}, Path("model.gguf"), kSilent);
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &before), 0);
  std::signal(SIGXFSZ, handler);
  EXPECT_EQ(status.code(), StatusCode::kIo);
  EXPECT_NE(status.message().find("model.gguf"), std::string::npos) << status.message();
  EXPECT_EQ(FileCount(), 0u);
}

TEST_F(MakeModel, AFolderThatIsNotThereIsAnIoError) {
  const Status status =
      MakeModelFile({.geometry = "falcon-h1-tiny"}, Path("none/model.gguf"), kSilent);
  EXPECT_EQ(status.code(), StatusCode::kIo);
}

}  // namespace
}  // namespace tessera
