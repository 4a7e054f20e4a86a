// SPDX-License-Identifier: Apache-2.0
#include "compute/tokenizer/pre_tokenizer.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <cstdint>
#include <utility>

#include "base/check.h"
#include "base/utf8.h"

namespace tessera {
namespace {

// Inside brackets. \s is spelled out: see the header.
#define SPACE "\\t-\\r\\x{85}\\p{Z}"
#define CONTRACTION "'(?:[sStTmMdD]|[rR][eE]|[vV][eE]|[lL][lL])"
#define TAIL_SPACES "[" SPACE "]+(?![^" SPACE "])|[" SPACE "]+"

#define GPT2 "'(?:[stmd]|re|ve|ll)| ?\\p{L}+| ?\\p{N}+| ?[^" SPACE "\\p{L}\\p{N}]+|" TAIL_SPACES

// llama-bpe and qwen2 differ in how many digits go together.
#define LLAMA_BPE(digits)                                            \
  CONTRACTION "|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|" digits "| ?[^" SPACE \
              "\\p{L}\\p{N}]+[\\r\\n]*|"                             \
              "[" SPACE "]*[\\r\\n]+|" TAIL_SPACES

#define QWEN35                                     \
  CONTRACTION                                      \
  "|[^\\r\\n\\p{L}\\p{N}]?[\\p{L}\\p{M}]+|\\p{N}|" \
  " ?[^" SPACE "\\p{L}\\p{M}\\p{N}]+[\\r\\n]*|[" SPACE "]*[\\r\\n]+|" TAIL_SPACES

constexpr std::string_view kDefaultNames[] = {kDefaultPreTokenizer};
constexpr std::string_view kDefaultPatterns[] = {"[\\p{P}$+<=>^~|]+", GPT2, "\\p{N}+",
                                                 "[0-9][0-9][0-9]"};

constexpr std::string_view kGpt2Names[] = {"gpt-2",   "phi-2",    "gigachat",       "a.x-4.0",
                                           "mpt",     "olmo",     "jais",           "mellum",
                                           "exaone4", "trillion", "granite-docling"};
constexpr std::string_view kGpt2Patterns[] = {GPT2};

constexpr std::string_view kLlamaBpeNames[] = {"llama-bpe", "llama3", "llama-v3", "falcon3",
                                               "falcon-h1", "lfm2",   "pixtral",  "midm-2.0"};
constexpr std::string_view kLlamaBpePatterns[] = {LLAMA_BPE("\\p{N}{1,3}")};

constexpr std::string_view kQwen2Names[] = {"qwen2",     "deepseek-r1-qwen", "megrez",
                                            "stablelm2", "hunyuan",          "solar-open"};
constexpr std::string_view kQwen2Patterns[] = {LLAMA_BPE("\\p{N}")};

constexpr std::string_view kQwen35Names[] = {"qwen35"};
constexpr std::string_view kQwen35Patterns[] = {QWEN35};

#undef SPACE
#undef CONTRACTION
#undef TAIL_SPACES
#undef GPT2
#undef LLAMA_BPE
#undef QWEN35

constexpr PreTokenizerRow kRows[] = {
    {.names = kDefaultNames, .patterns = kDefaultPatterns},
    {.names = kGpt2Names, .patterns = kGpt2Patterns},
    {.names = kLlamaBpeNames,
     .patterns = kLlamaBpePatterns,
     .ignore_merges = true,
     .add_bos = true},
    {.names = kQwen2Names, .patterns = kQwen2Patterns},
    {.names = kQwen35Names, .patterns = kQwen35Patterns},
};

template <auto Free>
struct Freer {
  template <typename T>
  void operator()(T* pointer) const {
    Free(pointer);
  }
};
using Code = std::unique_ptr<pcre2_code, Freer<pcre2_code_free>>;
using MatchData = std::unique_ptr<pcre2_match_data, Freer<pcre2_match_data_free>>;
using MatchContext = std::unique_ptr<pcre2_match_context, Freer<pcre2_match_context_free>>;

Code Compile(std::string_view pattern) {
  int error = 0;
  PCRE2_SIZE offset = 0;
  Code code(pcre2_compile(reinterpret_cast<PCRE2_SPTR>(pattern.data()), pattern.size(),
                          PCRE2_UTF | PCRE2_UCP | PCRE2_NEVER_BACKSLASH_C, &error, &offset,
                          nullptr));
  TESSERA_CHECK(code != nullptr);  // the patterns are this file's
  // Where the system forbids executable memory the interpreter does the same, slower.
  (void)pcre2_jit_compile(code.get(), PCRE2_JIT_COMPLETE);
  return code;
}

}  // namespace

constinit const std::span<const PreTokenizerRow> kPreTokenizers = kRows;

const PreTokenizerRow* FindPreTokenizer(std::string_view name) {
  for (const PreTokenizerRow& row : kPreTokenizers) {
    for (const std::string_view row_name : row.names) {
      if (row_name == name) {
        return &row;
      }
    }
  }
  return nullptr;
}

std::string KnownPreTokenizers() {
  std::string known;
  for (const PreTokenizerRow& row : kPreTokenizers) {
    for (const std::string_view name : row.names) {
      known.append(known.empty() ? "" : ", ").append(name);
    }
  }
  return known;
}

// One compiled pattern.
class PreTokenizer::Pattern {
 public:
  explicit Pattern(std::string_view pattern)
      : code_(Compile(pattern)), context_(pcre2_match_context_create(nullptr)) {
    TESSERA_CHECK(context_ != nullptr);
    // The defaults (10 million steps, 20 GB) are there for patterns that explode; ours cannot (P2),
    // but a run of a hundred million spaces may pass the first.
    pcre2_set_match_limit(context_.get(), UINT32_MAX);
    pcre2_set_depth_limit(context_.get(), UINT32_MAX);
    pcre2_set_heap_limit(context_.get(), UINT32_MAX);
  }

  // `text` is valid UTF-8; checking it here would cost a pass per match. No match data, no memory.
  void Split(std::string_view text, pcre2_match_data* match,
             std::vector<std::string_view>* pieces) const {
    size_t done = 0;
    while (done < text.size() && match != nullptr && Match(text, done, match)) {
      const PCRE2_SIZE* const bounds = pcre2_get_ovector_pointer(match);
      TESSERA_CHECK(bounds[0] >= done && bounds[1] > bounds[0]);
      if (bounds[0] > done) {
        pieces->push_back(text.substr(done, bounds[0] - done));
      }
      pieces->push_back(text.substr(bounds[0], bounds[1] - bounds[0]));
      done = bounds[1];
    }
    if (done < text.size()) {
      pieces->push_back(text.substr(done));
    }
  }

 private:
  bool Match(std::string_view text, size_t from, pcre2_match_data* match) const {
    const auto* const subject = reinterpret_cast<PCRE2_SPTR>(text.data());
    int result = pcre2_match(code_.get(), subject, text.size(), from, PCRE2_NO_UTF_CHECK, match,
                             context_.get());
    if (result == PCRE2_ERROR_JIT_STACKLIMIT) {
      // JIT has 32 KiB of stack; the interpreter takes what it needs from the heap.
      result = pcre2_match(code_.get(), subject, text.size(), from,
                           PCRE2_NO_UTF_CHECK | PCRE2_NO_JIT, match, context_.get());
    }
    return result > 0;
  }

  Code code_;
  MatchContext context_;
};

PreTokenizer::PreTokenizer(const PreTokenizerRow& row) {
  for (const std::string_view pattern : row.patterns) {
    patterns_.emplace_back(pattern);
  }
}
PreTokenizer::PreTokenizer(PreTokenizer&&) noexcept = default;
PreTokenizer& PreTokenizer::operator=(PreTokenizer&&) noexcept = default;
PreTokenizer::~PreTokenizer() = default;

void PreTokenizer::Split(std::string_view text, std::vector<std::string_view>* pieces) const {
  while (!text.empty()) {
    const size_t valid = ValidUtf8Prefix(text);
    if (valid > 0) {
      SplitValid(text.substr(0, valid), pieces);
      text.remove_prefix(valid);
    }
    size_t invalid = 0;
    while (invalid < text.size()) {
      const Utf8Part part = FirstUtf8Part(text.substr(invalid));
      if (part.kind == Utf8Part::Kind::kValid) {
        break;
      }
      invalid += part.size;
    }
    if (invalid > 0) {
      pieces->push_back(text.substr(0, invalid));
      text.remove_prefix(invalid);
    }
  }
}

void PreTokenizer::SplitValid(std::string_view text, std::vector<std::string_view>* pieces) const {
  // One pair of bounds: the patterns capture nothing.
  const MatchData match(pcre2_match_data_create(1, nullptr));
  if (patterns_.size() == 1) {
    patterns_[0].Split(text, match.get(), pieces);
    return;
  }
  std::vector<std::string_view> current = {text};
  std::vector<std::string_view> next;
  for (const Pattern& pattern : patterns_) {
    next.clear();
    for (const std::string_view piece : current) {
      pattern.Split(piece, match.get(), &next);
    }
    current.swap(next);
  }
  pieces->insert(pieces->end(), current.begin(), current.end());
}

}  // namespace tessera
