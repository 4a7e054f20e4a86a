// SPDX-License-Identifier: Apache-2.0
#include "compute/gguf/gguf_file.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <limits>

#include "compute/gguf/gguf_test_files.h"
#include "compute/gguf/gguf_walk.h"
#include "compute/gguf/printable.h"

namespace tessera {
namespace {

using namespace testing;  // NOLINT: the builders read like the format's own words

constexpr auto kArray = GgufValueType::kArray;
constexpr auto kU8 = GgufValueType::kU8;
constexpr auto kU32 = GgufValueType::kU32;
constexpr auto kString = GgufValueType::kString;

std::string ErrorOf(const RawGguf& raw) {
  auto file = ParseText(raw.Build());
  if (file) return "parsed";
  EXPECT_EQ(file.error().code(), StatusCode::kBadFile);
  return file.error().message();
}

template <typename T>
std::string ErrorOf(const Result<T>& result) {
  return result ? "has a value" : result.error().message();
}

// ---- types

TEST(GgufTypes, BlockSizesAreThoseOfTheFormat) {
  struct Expected {
    uint32_t number, elements, bytes;
  };
  constexpr Expected kExpected[] = {
      {0, 1, 4},      {1, 1, 2},      {2, 32, 18},    {3, 32, 20},    {6, 32, 22},
      {7, 32, 24},    {8, 32, 34},    {9, 32, 36},    {10, 256, 84},  {11, 256, 110},
      {12, 256, 144}, {13, 256, 176}, {14, 256, 210}, {15, 256, 292}, {24, 1, 1},
      {25, 1, 2},     {26, 1, 4},     {27, 1, 8},     {28, 1, 8},     {30, 1, 2},
  };
  size_t known = 0;
  for (uint32_t number = 0; number < 100; ++number) {
    if (FindTensorTraits(number) != nullptr) ++known;
  }
  EXPECT_EQ(known, std::size(kExpected));
  for (const Expected& expected : kExpected) {
    const GgufTensorTraits* traits = FindTensorTraits(expected.number);
    ASSERT_NE(traits, nullptr) << expected.number;
    EXPECT_EQ(traits->block_elements, expected.elements) << traits->name;
    EXPECT_EQ(traits->block_bytes, expected.bytes) << traits->name;
  }
  EXPECT_EQ(TensorTypeName(GgufTensorType::kQ6_K), "Q6_K");
}

// ---- reading

TEST(GgufFile, EveryValueTypeReadsBackWidened) {
  const std::string bytes = AllValueTypes().Build();
  GgufFile file = ParseText(bytes).value();
  auto value = [&](std::string_view key) { return *file.FindValue(key); };
  EXPECT_EQ(std::get<uint64_t>(value("u8")), 200u);
  EXPECT_EQ(std::get<int64_t>(value("i8")), -2);
  EXPECT_EQ(std::get<uint64_t>(value("u16")), 65535u);
  EXPECT_EQ(std::get<int64_t>(value("i16")), -300);
  EXPECT_EQ(std::get<uint64_t>(value("u32")), 4294967295u);
  EXPECT_EQ(std::get<int64_t>(value("i32")), -70000);
  EXPECT_EQ(std::get<uint64_t>(value("u64")), uint64_t{1} << 63);
  EXPECT_EQ(std::get<int64_t>(value("i64")), -(int64_t{1} << 40));
  EXPECT_EQ(std::get<double>(value("f32")), 0.5);
  EXPECT_EQ(std::get<double>(value("f64")), -0.25);
  EXPECT_EQ(std::get<bool>(value("bool")), true);
  EXPECT_EQ(std::get<std::string_view>(value("string")), "text");
  EXPECT_EQ(std::get<GgufArray>(value("a.empty")).count, 0u);
  EXPECT_EQ(file.GetI32Array("a.u8").value(), (std::vector<int32_t>{1, 255}));
  EXPECT_EQ(file.GetI32Array("a.i16").value(), std::vector<int32_t>{-2});
  EXPECT_EQ(file.GetI32Array("a.i64").value(), std::vector<int32_t>{-9});
  EXPECT_TRUE(file.GetI32Array("a.empty").value().empty());
  ASSERT_EQ(file.GetStringArray("a.string").value().size(), 2u);
  EXPECT_EQ(file.GetStringArray("a.string").value()[0], "x");
  EXPECT_EQ(file.keys().front(), "u8");
  EXPECT_EQ(file.keys().back(), "a.empty");
  EXPECT_EQ(file.keys().size(), 20u);
  EXPECT_EQ(file.FindValue("absent"), nullptr);
}

TEST(GgufFile, TypedReadsNameKeyExpectedAndFound) {
  const std::string bytes = AllValueTypes().Build();
  GgufFile file = ParseText(bytes).value();
  EXPECT_EQ(file.GetU32("u32").value(), 4294967295u);
  EXPECT_EQ(file.GetF32("f64").value(), -0.25f);
  EXPECT_EQ(file.GetBool("bool", false).value(), true);
  EXPECT_EQ(file.GetU32("absent", 7).value(), 7u);
  EXPECT_EQ(file.GetF32("absent", 0.5f).value(), 0.5f);
  EXPECT_EQ(file.GetBool("absent", true).value(), true);
  EXPECT_EQ(file.GetString("absent", "x").value(), "x");

  EXPECT_EQ(ErrorOf(file.GetU32("absent")), "test.gguf: missing key 'absent'");
  EXPECT_EQ(ErrorOf(file.GetF32("absent")), "test.gguf: missing key 'absent'");
  EXPECT_EQ(ErrorOf(file.GetString("absent")), "test.gguf: missing key 'absent'");
  EXPECT_EQ(ErrorOf(file.GetStringArray("absent")), "test.gguf: missing key 'absent'");
  EXPECT_EQ(ErrorOf(file.GetI32Array("absent")), "test.gguf: missing key 'absent'");

  EXPECT_EQ(ErrorOf(file.GetU32("i8")), "test.gguf: key 'i8': expected u32, found integer -2");
  EXPECT_EQ(ErrorOf(file.GetU32("u64", 1)),
            "test.gguf: key 'u64': expected u32, found integer 9223372036854775808");
  EXPECT_EQ(ErrorOf(file.GetU32("bool")), "test.gguf: key 'bool': expected u32, found bool true");
  EXPECT_EQ(ErrorOf(file.GetF32("u8", 1)),
            "test.gguf: key 'u8': expected finite f32, found integer 200");
  EXPECT_EQ(ErrorOf(file.GetF32("f64.big")),
            "test.gguf: key 'f64.big': expected finite f32, found number 1e+300");
  EXPECT_EQ(ErrorOf(file.GetBool("u8", true)),
            "test.gguf: key 'u8': expected bool, found integer 200");
  EXPECT_EQ(ErrorOf(file.GetString("a.u8", "x")),
            "test.gguf: key 'a.u8': expected string, found array of 2 u8");
  EXPECT_EQ(ErrorOf(file.GetStringArray("string")),
            "test.gguf: key 'string': expected array of string, found string 'text'");
  EXPECT_EQ(ErrorOf(file.GetI32Array("a.u32")),
            "test.gguf: key 'a.u32': expected array of i32, found 2147483648 at index 0");
  EXPECT_EQ(ErrorOf(file.GetI32Array("a.bool")),
            "test.gguf: key 'a.bool': expected array of i32, found array of 2 bool");
}

TEST(GgufFile, FloatThatIsNotFiniteIsOutOfRange) {
  for (float bad : {std::numeric_limits<float>::infinity(), std::numeric_limits<float>::quiet_NaN(),
                    -std::numeric_limits<float>::infinity()}) {
    const std::string bytes = RawGguf().Key("eps", GgufValueType::kF32, Raw(bad)).Build();
    GgufFile file = ParseText(bytes).value();
    EXPECT_FALSE(file.GetF32("eps")) << bad;
  }
}

TEST(GgufFile, TensorsMayLieInAnyOrderAndKeepTheirBytes) {
  RawGguf raw;
  raw.alignment = 64;
  raw.Key("general.alignment", kU32, U32(64));
  raw.Tensor("second", {2, 3}, 24, 64).Tensor("first", {64}, 8 /* Q8_0 */, 128);
  raw.Data(std::string(64, 'x')).Data("abcdef").PadData().Data(std::string(68, 'q'));
  const std::string bytes = raw.Build();
  GgufFile file = ParseText(bytes).value();
  const GgufTensor* second = file.FindTensor("second");
  ASSERT_NE(second, nullptr);
  EXPECT_EQ(second->n_dims, 2u);
  EXPECT_EQ(second->ne[0], 2u);
  EXPECT_EQ(second->ne[1], 3u);
  EXPECT_EQ(second->ne[3], 1u);
  EXPECT_EQ(second->row_bytes(), 2u);
  EXPECT_EQ(std::memcmp(second->data, "abcdef", 6), 0);
  EXPECT_EQ(file.FindTensor("first")->size_bytes, 68u);
  EXPECT_EQ(file.tensors()[0].name, "second");
  EXPECT_EQ(file.FindTensor("third"), nullptr);
}

TEST(GgufFile, MovedFileStaysReadable) {
  TempDir dir;
  WriteFile(dir.File("m.gguf"), AllValueTypes().Build());
  GgufFile first = GgufFile::Open(dir.File("m.gguf")).value();
  const uint64_t sum = WalkEverything(first);
  GgufFile second = std::move(first);
  second.ReleasePages();  // read again from the file
  EXPECT_EQ(WalkEverything(second), sum);
  EXPECT_EQ(second.file_bytes(), std::filesystem::file_size(dir.File("m.gguf")));
}

// ---- refusals

TEST(GgufFile, RefusesWhatIsNotALittleEndianV2OrV3File) {
  RawGguf raw;
  raw.magic = "GGJT";
  EXPECT_EQ(ErrorOf(raw), "test.gguf: not a GGUF file: it begins with 'GGJT', expected 'GGUF'");
  raw.magic = "GGUF";
  raw.version = 1;
  EXPECT_EQ(ErrorOf(raw), "test.gguf: GGUF version 1, expected 2 or 3");
  raw.version = 4;
  EXPECT_EQ(ErrorOf(raw), "test.gguf: GGUF version 4, expected 2 or 3");
  raw.version = 0;
  EXPECT_EQ(ErrorOf(raw), "test.gguf: GGUF version 0, expected 2 or 3");
  raw.version = 0x03000000;
  EXPECT_EQ(ErrorOf(raw),
            "test.gguf: big-endian GGUF file (version bytes are 0x03000000): expected "
            "little-endian");
}

TEST(GgufFile, RefusesCountsThatTheFileHasNoRoomFor) {
  RawGguf raw;
  raw.tensor_count = uint64_t{1} << 60;
  EXPECT_EQ(ErrorOf(ParseText(raw.Build().substr(0, 20))),
            "test.gguf: the file ends inside the header: expected at least 24 bytes, actual 20");
  EXPECT_EQ(ErrorOf(ParseText(raw.Build().substr(0, 24))),
            "test.gguf: the file ends inside its 0 keys and 1152921504606846976 tensors: expected "
            "at least 18446744073709551615 bytes, actual 24");
  raw.tensor_count = 0;
  raw.key_count = 3;
  EXPECT_EQ(ErrorOf(ParseText(raw.Build().substr(0, 24))),
            "test.gguf: the file ends inside its 3 keys and 0 tensors: expected at least 66 bytes, "
            "actual 24");
}

TEST(GgufFile, RefusesBadStrings) {
  EXPECT_EQ(ErrorOf(RawGguf().Key("s", kString, U64((uint64_t{1} << 30) + 1))),
            "test.gguf: key 's': string of 1073741825 bytes, the format allows 1073741824");
  EXPECT_EQ(ErrorOf(RawGguf().Key("s", kString, U64(1000))),
            "test.gguf: the file ends inside key 's': expected at least 1045 bytes, actual 64");
  EXPECT_EQ(ErrorOf(RawGguf().Key("", kU8, U8(1) + "0")),
            "test.gguf: key 1 of 1: the name is empty");
}

TEST(GgufFile, RefusesBadArrays) {
  EXPECT_EQ(ErrorOf(RawGguf().Key("a", kArray, Array(kU8, (uint64_t{1} << 30) + 1, ""))),
            "test.gguf: key 'a': array of 1073741825 elements, the format allows 1073741824");
  EXPECT_EQ(ErrorOf(RawGguf().Key("a", kArray, Array(kU32, 100, ""))),
            "test.gguf: the file ends inside key 'a': expected at least 449 bytes, actual 64");
  EXPECT_EQ(ErrorOf(RawGguf().Key("a", kArray, Array(kString, 100, ""))),
            "test.gguf: the file ends inside key 'a': expected at least 849 bytes, actual 64");
  EXPECT_EQ(ErrorOf(RawGguf().Key("a", kArray, Array(kArray, 1, Array(kU8, 1, U8(0))))),
            "test.gguf: key 'a': array of arrays, which is not supported");
  EXPECT_EQ(ErrorOf(RawGguf().Key("a", kArray, U32(13) + U64(0))),
            "test.gguf: key 'a': array element type 13, expected 0 to 12");
  EXPECT_EQ(ErrorOf(RawGguf().Key("a", kArray, Array(GgufValueType::kBool, 2, U8(1) + U8(2)))),
            "test.gguf: key 'a': bool 1 is 2, expected 0 or 1");
}

TEST(GgufFile, RefusesBadValues) {
  EXPECT_EQ(ErrorOf(RawGguf().Key("k", 13, U8(0))),
            "test.gguf: key 'k': value type 13, expected 0 to 12");
  EXPECT_EQ(ErrorOf(RawGguf().Key("k", GgufValueType::kBool, U8(7))),
            "test.gguf: key 'k': bool is 7, expected 0 or 1");
  EXPECT_EQ(ErrorOf(RawGguf().Key("k", kU8, U8(0)).Key("j", kU8, U8(0)).Key("k", kU8, U8(0))),
            "test.gguf: key 'k' occurs twice");
}

TEST(GgufFile, RefusesBadAlignment) {
  auto with = [](GgufValueType type, const std::string& value) {
    return ErrorOf(RawGguf().Key("general.alignment", type, value));
  };
  const std::string start =
      "test.gguf: key 'general.alignment': expected a power of two of type u32 from 8, found ";
  EXPECT_EQ(with(kU32, U32(48)), start + "integer 48 of type u32");
  EXPECT_EQ(with(kU32, U32(0)), start + "integer 0 of type u32");
  EXPECT_EQ(with(kU32, U32(4)), start + "integer 4 of type u32");
  EXPECT_EQ(with(GgufValueType::kU64, U64(32)), start + "integer 32 of type u64");
  EXPECT_EQ(with(GgufValueType::kI32, U32(32)), start + "integer 32 of type i32");
  EXPECT_EQ(with(kString, Text("32")), start + "string '32' of type string");
  EXPECT_EQ(with(kU32, U32(8)), "parsed");
  EXPECT_EQ(with(kU32, U32(1u << 31)), "parsed");  // no tensor, no data to align
}

TEST(GgufFile, RefusesBadTensorDeclarations) {
  auto with = [](std::string_view name, const std::vector<uint64_t>& ne, uint32_t type,
                 uint64_t offset) {
    return ErrorOf(RawGguf().Tensor(name, ne, type, offset).Data(std::string(64, '\0')));
  };
  EXPECT_EQ(with("t", {16}, 0, 0), "parsed");
  EXPECT_EQ(with(std::string(63, 'n'), {16}, 0, 0), "parsed");
  EXPECT_EQ(
      with(std::string(64, 'n'), {16}, 0, 0),
      "test.gguf: tensor '" + std::string(64, 'n') + "': name of 64 bytes, expected fewer than 64");
  EXPECT_EQ(with("", {16}, 0, 0), "test.gguf: tensor 1 of 1: the name is empty");
  EXPECT_EQ(with("t", {}, 0, 0), "test.gguf: tensor 't': 0 dimensions, expected 1 to 4");
  EXPECT_EQ(with("t", {1, 1, 1, 1, 1}, 0, 0),
            "test.gguf: tensor 't': 5 dimensions, expected 1 to 4");
  EXPECT_EQ(with("t", {4, 0}, 0, 0), "test.gguf: tensor 't': dimension 1 is 0");
  EXPECT_EQ(with("t", {uint64_t{1} << 32, uint64_t{1} << 31}, 0, 0),
            "test.gguf: tensor 't': 4294967296 x 2147483648 x 1 x 1 elements, expected fewer than "
            "2^63");
  // 2^66 wraps to 4 in 64 bits.
  EXPECT_EQ(with("t", {uint64_t{1} << 33, uint64_t{1} << 33}, 0, 0),
            "test.gguf: tensor 't': 8589934592 x 8589934592 x 1 x 1 elements, expected fewer than "
            "2^63");
  // 2^62 elements of 8 bytes wrap to 0.
  EXPECT_EQ(with("t", {uint64_t{1} << 62}, 28, 0),
            "test.gguf: the file ends before the data of tensor 't' does: expected at least "
            "18446744073709551615 bytes, actual 128");
  EXPECT_EQ(with("t", {33}, 8, 0),
            "test.gguf: tensor 't': rows of 33 elements, expected a multiple of 32 for Q8_0");
  EXPECT_EQ(with("t", {128, 2}, 12, 0),
            "test.gguf: tensor 't': rows of 128 elements, expected a multiple of 256 for Q4_K");
  EXPECT_EQ(with("t", {16}, 4, 0),
            "test.gguf: tensor 't': tensor type 4 (Q4_2, removed from the format)");
  EXPECT_EQ(with("t", {16}, 33, 0),
            "test.gguf: tensor 't': tensor type 33 (Q4_0_8_8, removed from the format)");
  EXPECT_EQ(with("t", {16}, 39, 0), "test.gguf: tensor 't': tensor type 39 (MXFP4, not supported)");
  EXPECT_EQ(with("t", {16}, 999, 0), "test.gguf: tensor 't': tensor type 999 (unknown)");
  EXPECT_EQ(with("t", {1}, 0, 16), "test.gguf: tensor 't': offset 16, expected a multiple of 32");
}

TEST(GgufFile, RefusesTensorDataOutsideTheFile) {
  auto with = [](uint64_t offset, size_t data_bytes) {
    return ErrorOf(RawGguf().Tensor("t", {16}, 0, offset).Data(std::string(data_bytes, '\0')));
  };
  EXPECT_EQ(with(32, 96), "parsed");
  EXPECT_EQ(with(32, 95),
            "test.gguf: the file ends before the data of tensor 't' does: expected at least 160 "
            "bytes, actual 159");
  EXPECT_EQ(with(uint64_t{0} - 32, 96),  // the end wraps past 0
            "test.gguf: the file ends before the data of tensor 't' does: expected at least "
            "18446744073709551615 bytes, actual 160");
}

TEST(GgufFile, RefusesTensorsThatShareBytesOrNames) {
  RawGguf raw;
  raw.Tensor("b", {17}, 0, 64).Tensor("a", {17}, 0, 0).Data(std::string(256, '\0'));
  EXPECT_EQ(ErrorOf(raw),
            "test.gguf: tensor 'b': begins at byte 160, inside tensor 'a', which ends at byte 164");
  RawGguf same;
  same.Tensor("a", {8}, 0, 0).Tensor("b", {8}, 0, 0).Data(std::string(64, '\0'));
  EXPECT_EQ(ErrorOf(same),
            "test.gguf: tensor 'b': begins at byte 96, inside tensor 'a', which ends at byte 128");
  RawGguf twice;
  twice.Tensor("a", {8}, 0, 0).Tensor("a", {8}, 0, 32).Data(std::string(64, '\0'));
  EXPECT_EQ(ErrorOf(twice), "test.gguf: tensor 'a' occurs twice");
}

TEST(GgufFile, OpenSaysWhatTheSystemSays) {
  TempDir dir;
  Result<GgufFile> missing = GgufFile::Open(dir.File("none.gguf"));
  EXPECT_EQ(missing.error().code(), StatusCode::kIo);
  EXPECT_EQ(missing.error().message(), dir.File("none.gguf") + ": No such file or directory");
  WriteFile(dir.File("zero.gguf"), "");
  Result<GgufFile> zero = GgufFile::Open(dir.File("zero.gguf"));
  EXPECT_EQ(zero.error().code(), StatusCode::kBadFile);
  EXPECT_EQ(ErrorOf(GgufFile::Open(dir.File(""))), dir.File("") + ": not a regular file");
  ASSERT_EQ(::mkfifo(dir.File("fifo").c_str(), 0600), 0);  // must not wait for a writer
  EXPECT_EQ(ErrorOf(GgufFile::Open(dir.File("fifo"))), dir.File("fifo") + ": not a regular file");
}

// ---- text from the file in messages

TEST(Printable, LeavesNothingThatMovesTheCursor) {
  EXPECT_EQ(Quoted("plain \xC3\xA9 \xE6\xBC\xA2 \xF0\x9F\x98\x80"),
            "'plain \xC3\xA9 \xE6\xBC\xA2 \xF0\x9F\x98\x80'");
  EXPECT_EQ(Quoted("\x1B[2J\n\t\x7F"), "'\\x1b[2J\\x0a\\x09\\x7f'");
  EXPECT_EQ(Quoted("a\\b"), "'a\\\\b'");
  EXPECT_EQ(Quoted("\xC2\x9B"), "'\\xc2\\x9b'");           // U+009B, the 8-bit CSI
  EXPECT_EQ(Quoted("\xE2\x80\xAE"), "'\\xe2\\x80\\xae'");  // U+202E, right-to-left override
  EXPECT_EQ(Quoted("\xE2\x80\xA8"), "'\\xe2\\x80\\xa8'");  // U+2028, line separator
  EXPECT_EQ(Quoted("\xFF\xC0\x80"), "'\\xff\\xc0\\x80'");  // never valid; overlong
  EXPECT_EQ(Quoted("\xED\xA0\x80"), "'\\xed\\xa0\\x80'");  // surrogate
  EXPECT_EQ(Quoted("\xF4\x90\x80\x80"), "'\\xf4\\x90\\x80\\x80'");  // above U+10FFFF
  EXPECT_EQ(Quoted("\xE6\xBC"), "'\\xe6\\xbc'");                    // cut short
  EXPECT_EQ(Quoted(std::string_view("\0", 1)), "'\\x00'");
}

TEST(Printable, IsBoundedAndCutBetweenCharacters) {
  EXPECT_EQ(Quoted(std::string(80, 'a')), "'" + std::string(80, 'a') + "'");
  EXPECT_EQ(Quoted(std::string(200, 'a')), "'" + std::string(80, 'a') + "...' (200 bytes)");
  EXPECT_EQ(Printable("abc\xC3\xA9", 4), "abc...");
}

TEST(GgufFile, MessagesEscapeNamesFromTheFile) {
  EXPECT_EQ(ErrorOf(RawGguf().Key("k\n\x1B[31m", 13, U8(0))),
            "test.gguf: key 'k\\x0a\\x1b[31m': value type 13, expected 0 to 12");
}

}  // namespace
}  // namespace tessera
