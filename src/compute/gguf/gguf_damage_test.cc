// SPDX-License-Identifier: Apache-2.0
//
// Files cut and changed at every byte. Each is parsed with its last byte at the edge of an
// inaccessible page, so that a read past the end faults in any build, and with the largest
// allocation on record, so that a count in the file cannot ask for memory the file does not back.
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>

#include "base/random.h"
#include "compute/gguf/gguf_test_files.h"
#include "compute/gguf/gguf_walk.h"
#include "compute/gguf/largest_allocation.h"

namespace tessera {
namespace {

using namespace testing;  // NOLINT

// Memory whose end is the end of the mapped world.
class GuardedBuffer {
 public:
  explicit GuardedBuffer(size_t size_bytes) : page_bytes_(::sysconf(_SC_PAGESIZE)) {
    usable_bytes_ = (size_bytes + page_bytes_ - 1) / page_bytes_ * page_bytes_;
    base_ = static_cast<char*>(::mmap(nullptr, usable_bytes_ + page_bytes_, PROT_READ | PROT_WRITE,
                                      MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    ::mprotect(base_ + usable_bytes_, page_bytes_, PROT_NONE);
  }
  ~GuardedBuffer() { ::munmap(base_, usable_bytes_ + page_bytes_); }

  std::string_view Place(std::string_view bytes) {
    char* at = base_ + usable_bytes_ - bytes.size();
    std::copy(bytes.begin(), bytes.end(), at);
    return {at, bytes.size()};
  }

 private:
  size_t page_bytes_ = 0;
  size_t usable_bytes_ = 0;
  char* base_ = nullptr;
};

// Parses, walks when it parsed, and checks what every outcome owes. The message, or nothing when it
// parsed.
std::string ParseAndCheck(std::string_view bytes) {
  largest_allocation_bytes = 0;
  Result<GgufFile> file = ParseText(bytes);
  if (file) {
    WalkEverything(*file);
  } else {
    EXPECT_EQ(file.error().code(), StatusCode::kBadFile);
    EXPECT_TRUE(file.error().message().starts_with("test.gguf: ")) << file.error().message();
    EXPECT_EQ(file.error().message().find('\n'), std::string::npos);
    EXPECT_LE(file.error().message().size(), 700u);  // two names of 80 bytes at 4 characters each
  }
  // The most a byte of the file may cost: a key of 14 bytes is a 56-byte value in a vector that
  // doubles; text in messages is bounded apart.
  EXPECT_LE(largest_allocation_bytes, 1024 + 16 * bytes.size());
  return file ? "" : file.error().message();
}

struct Damage : ::testing::Test {
  TempDir dir;
  std::map<std::string, std::string> corpus = MakeCorpus(dir);
  GuardedBuffer buffer{64 << 10};
};

// Where the padding at the end begins, which nothing misses: behind the last tensor; without one,
// behind the key "a.empty" (its name, type, element type and count 0) or the 24 bytes of the
// counts.
size_t MeaningfulBytes(std::string_view bytes) {
  GgufFile file = ParseText(bytes).value();
  const GgufTensor* last = nullptr;
  for (const GgufTensor& tensor : file.tensors()) last = &tensor;
  if (file.keys().empty()) return 24;
  if (last == nullptr) return bytes.find("a.empty") + 7 + 4 + 4 + 8;
  const auto* end = reinterpret_cast<const char*>(last->data + last->size_bytes);
  return static_cast<size_t>(end - bytes.data());
}

TEST_F(Damage, FileCutAnywhereIsRefusedWithBothSizes) {
  for (const auto& [name, bytes] : corpus) {
    SCOPED_TRACE(name);
    const size_t meaningful_bytes = MeaningfulBytes(bytes);
    for (size_t size_bytes = 0; size_bytes < bytes.size(); ++size_bytes) {
      const std::string message = ParseAndCheck(buffer.Place(bytes.substr(0, size_bytes)));
      EXPECT_EQ(message.empty(), size_bytes >= meaningful_bytes) << size_bytes;
      if (message.empty()) continue;
      EXPECT_NE(message.find("expected at least "), std::string::npos) << message;
      EXPECT_TRUE(message.ends_with(" bytes, actual " + std::to_string(size_bytes))) << message;
    }
  }
}

TEST_F(Damage, EveryByteChanged) {
  for (const auto& [name, bytes] : corpus) {
    SCOPED_TRACE(name);
    for (size_t at = 0; at < bytes.size(); ++at) {
      for (int flip : {0x01, 0x20, 0x80, 0xFF}) {
        std::string changed = bytes;
        changed[at] = static_cast<char>(changed[at] ^ flip);
        ParseAndCheck(buffer.Place(changed));
      }
      std::string inserted = bytes;
      inserted.insert(at, 1, '\0');
      ParseAndCheck(buffer.Place(inserted));
    }
  }
}

// Numbers where a check is one off or wraps, in place of any eight bytes.
TEST_F(Damage, EveryNumberReplacedByAnEdge) {
  constexpr uint64_t kEdges[] = {0,
                                 1,
                                 0x7FFFFFFF,
                                 0xFFFFFFFF,
                                 uint64_t{1} << 30,
                                 uint64_t{1} << 32,
                                 uint64_t{1} << 60,
                                 (uint64_t{1} << 63) - 1,
                                 uint64_t{1} << 63,
                                 ~uint64_t{0} - 31,
                                 ~uint64_t{0}};
  for (const auto& [name, bytes] : corpus) {
    SCOPED_TRACE(name);
    for (size_t at = 0; at + 8 <= bytes.size(); ++at) {
      for (uint64_t edge : kEdges) {
        std::string changed = bytes;
        changed.replace(at, 8, Raw(edge));
        ParseAndCheck(buffer.Place(changed));
      }
    }
  }
}

TEST_F(Damage, RandomMutations) {
  constexpr uint64_t kSeed = 20261129;
  constexpr int kRounds = 5000;
  std::vector<std::string> files;
  for (const auto& [name, bytes] : corpus) files.push_back(bytes);
  size_t parsed = 0;
  for (int round = 0; round < kRounds; ++round) {
    SCOPED_TRACE(round);
    Random random(kSeed + static_cast<uint64_t>(round));
    std::string bytes = files[random.Below(files.size())];
    for (uint64_t i = 1 + random.Below(4); i > 0 && !bytes.empty(); --i) {
      const size_t at = random.Below(bytes.size());
      switch (random.Below(4)) {
        case 0:
          bytes[at] = static_cast<char>(random.Next());
          break;
        case 1:
          bytes.erase(at, 1 + random.Below(16));
          break;
        case 2:
          bytes.insert(at, bytes.substr(random.Below(bytes.size()), random.Below(32)));
          break;
        default:
          bytes.resize(at + 1);
      }
    }
    if (ParseAndCheck(buffer.Place(bytes)).empty()) ++parsed;
  }
  EXPECT_GT(parsed, 100u);  // some damage is in data or padding: the walk was reached
}

// As many keys as a large model has, alike in their first hundred bytes.
TEST(ManyNames, AreFoundAndDuplicatesSeen) {
  RawGguf raw;
  constexpr uint32_t kKeys = 10000;
  const std::string beginning(100, 'k');
  for (uint32_t i = 0; i < kKeys; ++i) {
    raw.Key(beginning + std::to_string(i), GgufValueType::kU32, U32(i));
  }
  const std::string bytes = raw.Build();
  GgufFile file = ParseText(bytes).value();
  for (uint32_t i = 0; i < kKeys; ++i) {
    ASSERT_EQ(file.GetU32(beginning + std::to_string(i)).value(), i);
  }
  raw.Key(beginning + "77", GgufValueType::kU32, U32(0));
  EXPECT_FALSE(ParseText(raw.Build()));
}

// The committed corpus is what the writer makes today. TESSERA_UPDATE_CORPUS=1 writes it anew.
TEST_F(Damage, CorpusOfTheFuzzerIsTheseFiles) {
  const std::filesystem::path folder =
      std::filesystem::path(TESSERA_SOURCE_DIR) / "src/compute/gguf/gguf_fuzz_corpus";
  size_t total_bytes = 0;
  for (const auto& [name, bytes] : corpus) {
    if (std::getenv("TESSERA_UPDATE_CORPUS") != nullptr) {
      std::filesystem::create_directories(folder);
      WriteFile(folder / name, bytes);
    }
    EXPECT_EQ(ReadFile(folder / name), bytes) << name;
    EXPECT_TRUE(ParseText(bytes)) << name;
    total_bytes += bytes.size();
  }
  EXPECT_LT(total_bytes, 20u << 10);
}

// Whatever models the checkout has open as they are.
TEST(RealFiles, Open) {
  const std::filesystem::path root(TESSERA_SOURCE_DIR);
  for (const char* folder : {"models", "tests/golden"}) {
    if (!std::filesystem::exists(root / folder)) continue;
    for (const auto& entry : std::filesystem::recursive_directory_iterator(root / folder)) {
      if (entry.path().extension() != ".gguf") continue;
      Result<GgufFile> file = GgufFile::Open(entry.path());
      ASSERT_TRUE(file) << file.error().message();
      WalkEverything(*file);
      EXPECT_FALSE(file->tensors().empty());
    }
  }
}

}  // namespace
}  // namespace tessera
