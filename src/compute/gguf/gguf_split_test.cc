// SPDX-License-Identifier: Apache-2.0
#include "compute/gguf/gguf_split.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "compute/gguf/gguf_test_files.h"
#include "compute/gguf/gguf_walk.h"
#include "compute/gguf/gguf_writer.h"

namespace tessera {
namespace {

using namespace testing;  // NOLINT

// One shard with one tensor of 32 bytes; the types of the keys are those of other writers.
RawGguf Shard(uint16_t index, uint16_t count, int32_t tensor_count, std::string_view tensor) {
  RawGguf raw;
  if (index == 0) raw.Key("general.architecture", GgufValueType::kString, Text("toy"));
  raw.Key("split.no", GgufValueType::kU16, U16(index));
  raw.Key("split.count", GgufValueType::kU16, U16(count));
  raw.Key("split.tensors.count", GgufValueType::kI32, Raw(tensor_count));
  raw.Tensor(tensor, {32}, 24, 0).Data(std::string(32, static_cast<char>('a' + index)));
  return raw;
}

std::string Name(int i) { return {'t', static_cast<char>('0' + i)}; }

struct Split : ::testing::Test {
  void SetUp() override {
    for (uint16_t i = 0; i < 3; ++i) {
      WriteFile(Path(i), Shard(i, 3, 3, Name(i)).Build());
    }
  }
  std::string Path(uint32_t index) {
    return *ShardPath(dir.File("m-00001-of-00003.gguf"), index, 3);
  }
  std::string Error(const std::string& path) {
    auto file = GgufFile::Open(path);
    return file ? "opened" : file.error().message();
  }
  TempDir dir;
};

TEST(ShardPath, ReplacesTheNumberOnly) {
  EXPECT_EQ(ShardPath("a/x-00001-of-00003.gguf", 2, 3), "a/x-00003-of-00003.gguf");
  EXPECT_EQ(ShardPath("x-00002-of-00003.gguf", 0, 3), "x-00001-of-00003.gguf");
  EXPECT_EQ(ShardPath("x-00001-of-00003.gguf", 0, 4), std::nullopt);
  EXPECT_EQ(ShardPath("x-0001-of-00003.gguf", 0, 3), std::nullopt);
  EXPECT_EQ(ShardPath("x-0000a-of-00003.gguf", 0, 3), std::nullopt);
  EXPECT_EQ(ShardPath("-of-00003.gguf", 0, 3), std::nullopt);
  EXPECT_EQ(ShardPath("", 0, 3), std::nullopt);
}

TEST_F(Split, TensorsOfAllShardsKeysOfTheFirst) {
  GgufFile file = GgufFile::Open(Path(0)).value();
  ASSERT_EQ(file.tensors().size(), 3u);
  for (int i = 0; i < 3; ++i) {
    const GgufTensor* tensor = file.FindTensor(Name(i));
    ASSERT_NE(tensor, nullptr);
    EXPECT_EQ(std::to_integer<char>(tensor->data[31]), 'a' + i);
  }
  EXPECT_EQ(file.GetString("general.architecture").value(), "toy");
  uint64_t bytes = 0;
  for (uint32_t i = 0; i < 3; ++i) bytes += std::filesystem::file_size(Path(i));
  EXPECT_EQ(file.file_bytes(), bytes);
  WalkEverything(file);
  file.ReleasePages();
  WalkEverything(file);
}

TEST_F(Split, ShardOtherThanTheFirstSaysWhichToOpen) {
  EXPECT_EQ(Error(Path(1)), Path(1) + ": this is shard 2 of 3: open the first, " + Path(0));
}

TEST_F(Split, FirstShardUnderAnotherNameSaysWhatItShouldBe) {
  std::filesystem::rename(Path(0), dir.File("other.gguf"));
  EXPECT_EQ(Error(dir.File("other.gguf")),
            dir.File("other.gguf") +
                ": shard 1 of 3 by its keys: expected a name that ends in -00001-of-00003.gguf");
  std::filesystem::copy(dir.File("other.gguf"), dir.File("m-00002-of-00003x.gguf"));
  EXPECT_NE(Error(dir.File("m-00002-of-00003x.gguf")), "opened");
}

TEST_F(Split, MissingShardIsNamed) {
  std::filesystem::remove(Path(2));
  auto file = GgufFile::Open(Path(0));
  ASSERT_FALSE(file);
  EXPECT_EQ(file.error().code(), StatusCode::kIo);
  EXPECT_EQ(file.error().message(), Path(2) + ": No such file or directory (shard 3 of 3)");
}

TEST_F(Split, ShardsInTheWrongPlaceAreRefused) {
  std::filesystem::copy_file(Path(2), Path(1), std::filesystem::copy_options::overwrite_existing);
  EXPECT_EQ(Error(Path(0)), Path(1) + ": expected shard 2 of 3, its keys say 3 of 3");
  WriteFile(Path(1), RawGguf().Build());
  EXPECT_EQ(Error(Path(0)), Path(1) + ": expected shard 2 of 3, its keys say 1 of 1");
}

TEST_F(Split, DamagedShardIsNamed) {
  std::filesystem::resize_file(Path(1), 100);
  EXPECT_TRUE(Error(Path(0)).starts_with(Path(1) + ": the file ends inside")) << Error(Path(0));
}

TEST_F(Split, TensorInTwoShardsIsRefused) {
  WriteFile(Path(1), Shard(1, 3, 3, "t0").Build());
  EXPECT_EQ(Error(Path(0)), Path(0) + ": tensor 't0' occurs twice");
}

TEST_F(Split, TensorCountOfAllShardsMustHold) {
  WriteFile(Path(0), Shard(0, 3, 4, "t0").Build());
  EXPECT_EQ(Error(Path(0)), Path(0) + ": key 'split.tensors.count' is 4, the 3 shards have 3");
}

TEST_F(Split, NumbersThatCannotBeAreRefused) {
  WriteFile(Path(0), Shard(3, 3, 3, "t0").Build());
  EXPECT_EQ(Error(Path(0)),
            Path(0) + ": key 'split.no': expected less than split.count 3, found 3");
  RawGguf raw;
  raw.Key("split.count", GgufValueType::kU32, U32(65536));
  WriteFile(Path(0), raw.Build());
  EXPECT_EQ(Error(Path(0)), Path(0) + ": key 'split.count': expected at most 65535, found 65536");
  RawGguf lone;
  lone.Key("split.count", GgufValueType::kU32, U32(2));
  WriteFile(Path(0), lone.Build());
  EXPECT_EQ(Error(Path(0)), Path(0) + ": missing key 'split.no'");
}

TEST_F(Split, OneShardIsAWholeModelUnderAnyName) {
  WriteFile(dir.File("whole.gguf"), Shard(0, 1, 1, "t").Build());
  EXPECT_EQ(Error(dir.File("whole.gguf")), "opened");
}

TEST(SplitInMemory, IsRefused) {
  const std::string bytes = Shard(0, 2, 2, "t").Build();
  EXPECT_EQ(ParseText(bytes).error().message(),
            "test.gguf: shard 1 of 2: a split model must be opened by its path");
}

TEST(SplitWriter, ShardsFromTheWriterOpenAsOne) {
  TempDir dir;
  for (uint32_t i = 0; i < 2; ++i) {
    GgufWriter writer =
        GgufWriter::Create(*ShardPath(dir.File("w-00001-of-00002.gguf"), i, 2)).value();
    writer.AddU32("split.no", i);
    writer.AddU32("split.count", 2);
    writer.AddU32("split.tensors.count", 2);
    const uint64_t ne[] = {4};
    writer.DeclareTensor(i == 0 ? "a" : "b", GgufTensorType::kI8, ne);
    ASSERT_TRUE(writer.BeginData().ok());
    ASSERT_TRUE(writer.Write(AsBytes(i == 0 ? "aaaa" : "bbbb")).ok());
    ASSERT_TRUE(writer.Finish().ok());
  }
  GgufFile file = GgufFile::Open(dir.File("w-00001-of-00002.gguf")).value();
  EXPECT_EQ(std::memcmp(file.FindTensor("a")->data, "aaaa", 4), 0);
  EXPECT_EQ(std::memcmp(file.FindTensor("b")->data, "bbbb", 4), 0);
}

}  // namespace
}  // namespace tessera
