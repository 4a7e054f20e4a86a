// SPDX-License-Identifier: Apache-2.0
//
// Parity with another engine on shared models (tests/golden/parity/README.md). Random weights
// amplify rounding, so there are two comparisons:
//
//   the unrounded twin against the F32 and F16 files: probabilities within .006 (.0044 was reached
//   when the limits were set). It proves the formulas and the loading of every tensor.
//   the product, which rounds as its numerics contract says, with every kernel table:
//
//                      largest difference    mean over positions of the   argmax equal where the
//                      of a top-8            largest top-8 difference     golden's two differ by
//   unquantised        .05                   .01                          .02
//   quantised          .10                   .02                          .05
//
//   and the tokens after the prompt are the golden's up to the first such near-tie.
//
// The limits are never loosened: a miss has a reason to be found. One was found to be rounding (the
// argmax of one position of h1-q4_k); it is named in Models(), and a test here proves it.
//
// Where inputs are rounded to int8 or bf16, a change of 1e-6 can move one of them by a whole step,
// and all that follows: runs that are equal but for that agree at first, then drift apart by about
// as much as the product differs from the golden. So twins with every rounding point of the other
// engine, or of the product, are compared over the first positions, and the nearest counts of runs
// whose results were changed by up to 6e-7: a wrong formula is near in none of them.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/random.h"
#include "compute/gguf/gguf_file.h"
#include "compute/kernels/kernel_table.h"
#include "compute/model/forward.h"
#include "compute/model/model.h"
#include "port/thread_pool.h"
#include "testing/sequence_runner.h"
#include "testing/toy_model.h"
#include "unrounded_twin.h"

namespace tessera::testing {
namespace {

struct Limits {
  double max = 0;
  double mean = 0;
  double gap = 0;
};
constexpr Limits kUnquantised = {.05, .01, .02};
constexpr Limits kQuantised = {.10, .02, .05};
constexpr double kTwinMax = .006;

// Of twins with the roundings of what they are compared with, over the first positions: the goldens
// have six decimals, and .000002 was reached.
constexpr double kSameRoundingMax = .00001;
constexpr size_t kFirstPositions = 7;
constexpr float kPerturbation = 6e-7f;
constexpr uint64_t kPerturbedRuns = 256;  // of 31 comparisons 26 take one, one takes 48

struct ParityModel {
  std::string name;
  std::string path;
  std::string goldens;
  bool quantised = false;
  bool twin = false;  // an F32 or F16 file
  // Positions whose argmax is not the golden's though its top two differ by more than the gap.
  std::vector<size_t> argmax_misses = {};
};

std::string Golden(const std::string& name) {
  return std::string(TESSERA_SOURCE_DIR) + "/tests/golden/parity/" + name;
}

ParityModel Parity(const std::string& name, bool quantised, bool twin) {
  return {name, Golden(name + ".gguf"), Golden("goldens.json"), quantised, twin};
}

// The quantised types no h1 model has (types/README.md).
ParityModel Types(const std::string& name) {
  return {name, Golden("types/" + name + ".gguf"), Golden("types/goldens.json"), true, false};
}

std::vector<ParityModel> Models() {
  return {Parity("h1-f32", false, true),
          Parity("h1-f16", false, true),
          Parity("h1-bf16", false, false),
          Parity("h1-q8_0", true, false),
          Parity("h1-q4_0", true, false),
          // Golden .4788 and .4110: RoundingDecidesTheOnePositionWhoseArgmaxDiffers.
          {"h1-q4_k", Golden("h1-q4_k.gguf"), Golden("goldens.json"), true, false, {6}},
          Parity("h1-fused-theta", false, true),
          Parity("h1-norm-g2", false, true),
          Parity("h1-tied", false, true),
          Parity("llama-f32", false, true),
          Parity("llama-q8_0", true, false),
          Parity("mamba2-f32", false, true),
          Parity("mamba2-g4", false, true),
          {"harbour-2.8m-q8_0", std::string(TESSERA_SOURCE_DIR) + "/models/harbour-2.8m-q8_0.gguf",
           Golden("harbour-goldens.json"), true, false},
          Types("llama-q2_k-q4_0"),
          Types("llama-q3_k-q4_1"),
          Types("llama-q5_k-q5_1"),
          Types("llama-q6_k-q5_0")};
}

struct GoldenRun {
  std::vector<TokenId> prompt;
  std::vector<std::vector<std::pair<TokenId, double>>> rows;
  std::vector<TokenId> greedy;
};

GoldenRun ReadGoldens(const ParityModel& model) {
  std::ifstream in(model.goldens);
  const nlohmann::json json = nlohmann::json::parse(in).at(model.name);
  return {json.at("prompt_tokens"), json.at("rows"), json.at("greedy")};
}

// Logits of a sequence, one token after another.
using StepFunction = std::function<std::vector<float>(TokenId token)>;

std::vector<double> Softmax(const std::vector<float>& logits) {
  const float largest = *std::max_element(logits.begin(), logits.end());
  std::vector<double> p;
  double total = 0;
  for (float logit : logits) {
    p.push_back(std::exp(double{logit} - double{largest}));
    total += p.back();
  }
  for (double& x : p) x /= total;
  return p;
}

TokenId Argmax(const std::vector<double>& p) {
  return static_cast<TokenId>(std::max_element(p.begin(), p.end()) - p.begin());
}

struct Comparison {
  double max = 0;
  double mean = 0;
  std::vector<size_t> argmax_misses;  // where the golden's top two differ by more than the gap
  uint32_t near_ties = 0;             // other positions whose argmax differs
  size_t greedy_equal = 0;            // tokens equal before the first difference
  size_t greedy_total = 0;
  bool greedy_explained = true;
};

// The golden's greedy tokens have no probabilities: a difference is a near-tie when ours has its
// top two within the gap there.
void CompareGreedy(const GoldenRun& golden, const Limits& limits, const StepFunction& step,
                   std::vector<double> p, Comparison* result) {
  result->greedy_total = golden.greedy.size();
  for (TokenId expected : golden.greedy) {
    const TokenId found = Argmax(p);
    if (found != expected) {
      result->greedy_explained =
          p[static_cast<size_t>(found)] - p[static_cast<size_t>(expected)] <= limits.gap;
      return;
    }
    ++result->greedy_equal;
    p = Softmax(step(found));
  }
}

// The largest difference of a top-8.
double Difference(const std::vector<std::pair<TokenId, double>>& row,
                  const std::vector<double>& p) {
  double largest = 0;
  for (const auto& [token, probability] : row) {
    largest = std::max(largest, std::fabs(p[static_cast<size_t>(token)] - probability));
  }
  return largest;
}

Comparison Compare(const GoldenRun& golden, const Limits& limits, const StepFunction& step) {
  Comparison result;
  std::vector<double> p;
  for (size_t i = 0; i < golden.prompt.size(); ++i) {
    p = Softmax(step(golden.prompt[i]));
    const double largest = Difference(golden.rows[i], p);
    result.max = std::max(result.max, largest);
    result.mean += largest / static_cast<double>(golden.prompt.size());
    if (Argmax(p) == golden.rows[i][0].first) continue;
    if (golden.rows[i][0].second - golden.rows[i][1].second > limits.gap) {
      result.argmax_misses.push_back(i);
    } else {
      ++result.near_ties;
    }
  }
  CompareGreedy(golden, limits, step, p, &result);
  return result;
}

void PrintRow(const std::string& model, const std::string& who, const Comparison& result) {
  fmt::print(
      "  {:<18} {:<8} max {:.4f}  mean {:.4f}  argmax misses {}  near-ties {}  greedy {}/{}\n",
      model, who, result.max, result.mean, result.argmax_misses.size(), result.near_ties,
      result.greedy_equal, result.greedy_total);
}

TEST(Parity, UnroundedTwinGivesTheGoldenProbabilities) {
  for (const ParityModel& parity : Models()) {
    if (!parity.twin) continue;
    auto file = GgufFile::Open(parity.path);
    ASSERT_TRUE(file) << file.error().message();
    UnroundedTwin twin(*file);
    const Comparison result =
        Compare(ReadGoldens(parity), kUnquantised, [&](TokenId token) { return twin.Step(token); });
    PrintRow(parity.name, "twin", result);
    EXPECT_LE(result.max, kTwinMax) << parity.name;
    EXPECT_EQ(result.argmax_misses, parity.argmax_misses) << parity.name;
    EXPECT_TRUE(result.greedy_explained) << parity.name << " after " << result.greedy_equal;
  }
}

// One sequence through the product.
class ProductRun {
 public:
  ProductRun(const Model& model, const KernelTable& kernels, ThreadPool* threads)
      : model_(model),
        forward_(model, StateType::kF32, kernels, *threads, OneSequence()),
        sequence_(model.shape(), OneSequence().context_length) {}

  std::vector<float> Step(TokenId token) {
    sequence_.Run(&forward_, {&token, 1}, WantedRows::kLast);
    const float* logits = forward_.Head(forward_.norm_rows(), 1);
    return {logits, logits + model_.shape().vocab_size};
  }

 private:
  static ForwardLimits OneSequence() {
    ForwardLimits limits;
    limits.rows = 16;
    limits.sequences = 1;
    limits.head_rows = 1;
    limits.context_length = 512;
    return limits;
  }

  const Model& model_;
  Forward forward_;
  SequenceRunner sequence_;
};

Comparison CompareProduct(const GoldenRun& golden, const Limits& limits, const Model& model,
                          const KernelTable& kernels, ThreadPool* threads) {
  ProductRun product(model, kernels, threads);
  return Compare(golden, limits, [&](TokenId token) { return product.Step(token); });
}

TEST(Parity, ProductStaysWithinItsLimits) {
  ThreadPool threads(2);
  for (const ParityModel& parity : Models()) {
    auto file = GgufFile::Open(parity.path);
    ASSERT_TRUE(file) << file.error().message();
    auto model = Model::Load(*file, threads);
    ASSERT_TRUE(model) << model.error().message();
    const Limits& limits = parity.quantised ? kQuantised : kUnquantised;
    for (const KernelTable* kernels : AvailableKernels()) {
      const Comparison result =
          CompareProduct(ReadGoldens(parity), limits, **model, *kernels, &threads);
      PrintRow(parity.name, kernels->isa, result);
      EXPECT_LE(result.max, limits.max) << parity.name;
      EXPECT_LE(result.mean, limits.mean) << parity.name;
      EXPECT_EQ(result.argmax_misses, parity.argmax_misses) << parity.name;
      EXPECT_TRUE(result.greedy_explained) << parity.name << " after " << result.greedy_equal;
    }
  }
}

// The largest difference from `golden` over the first positions, of the nearest of a few runs of a
// twin with the given roundings.
double NearestRun(const GgufFile& file, TwinRounding rounding, const GoldenRun& golden) {
  double nearest = 1;
  for (uint64_t seed = 0; seed < kPerturbedRuns && nearest > kSameRoundingMax; ++seed) {
    rounding.perturbation = seed == 0 ? 0 : kPerturbation;
    rounding.perturbation_seed = seed;
    UnroundedTwin twin(file, rounding);
    double largest = 0;
    for (size_t i = 0; i < std::min(kFirstPositions, golden.prompt.size()); ++i) {
      const std::vector<double> p = Softmax(twin.Step(golden.prompt[i]));
      largest = std::max(largest, Difference(golden.rows[i], p));
    }
    nearest = std::min(nearest, largest);
  }
  return nearest;
}

TwinRounding GoldenRounding() {
  return {.inputs = InputRounding::kGolden, .attention = AttentionRounding::kHalf};
}

TwinRounding ProductRounding() {
  return {.inputs = InputRounding::kContract,
          .attention = AttentionRounding::kBf16,
          .bf16_conv_inputs = true};
}

// What each block of a quantised type stands for, from an engine that shares no code with this one.
TEST(Parity, TwinWithTheGoldensRoundingGivesTheGoldens) {
  for (const ParityModel& parity : Models()) {
    if (!parity.quantised) continue;
    auto file = GgufFile::Open(parity.path);
    ASSERT_TRUE(file) << file.error().message();
    const double nearest = NearestRun(*file, GoldenRounding(), ReadGoldens(parity));
    fmt::print("  {:<18} twin with the golden's rounding   {:.6f}\n", parity.name, nearest);
    EXPECT_LE(nearest, kSameRoundingMax) << parity.name;
  }
}

// So nothing but the contract's rounding points lies between the product and the formulas.
TEST(Parity, TwinWithTheProductsRoundingGivesTheProductsProbabilities) {
  ThreadPool threads(2);
  for (const ParityModel& parity : Models()) {
    if (!parity.quantised) continue;
    auto file = GgufFile::Open(parity.path);
    ASSERT_TRUE(file) << file.error().message();
    auto model = Model::Load(*file, threads);
    ASSERT_TRUE(model) << model.error().message();
    ProductRun product(**model, *AvailableKernels().back(), &threads);
    GoldenRun found = ReadGoldens(parity);
    for (size_t i = 0; i < kFirstPositions; ++i) {
      const std::vector<double> p = Softmax(product.Step(found.prompt[i]));
      for (auto& [token, probability] : found.rows[i]) {
        probability = p[static_cast<size_t>(token)];
      }
    }
    const double nearest = NearestRun(*file, ProductRounding(), found);
    fmt::print("  {:<18} twin with the product's rounding  {:.6f}\n", parity.name, nearest);
    EXPECT_LE(nearest, kSameRoundingMax) << parity.name;
  }
}

// Position 6 of h1-q4_k. The tests before show that the twin with the golden's rounding gives the
// golden there and that with the product's the product. With the product's rounding, changes of
// 6e-7 decide which of the two tokens comes out first.
TEST(Parity, RoundingDecidesTheOnePositionWhoseArgmaxDiffers) {
  const std::vector<ParityModel> models = Models();
  const auto parity =
      std::find_if(models.begin(), models.end(), [](auto& m) { return m.name == "h1-q4_k"; });
  ASSERT_NE(parity, models.end());
  ASSERT_EQ(parity->argmax_misses, std::vector<size_t>{6});
  const GoldenRun golden = ReadGoldens(*parity);
  auto file = GgufFile::Open(parity->path);
  ASSERT_TRUE(file) << file.error().message();
  int first = 0;
  int second = 0;
  for (uint64_t seed = 1; seed <= 32; ++seed) {
    TwinRounding rounding = ProductRounding();
    rounding.perturbation = kPerturbation;
    rounding.perturbation_seed = seed;
    UnroundedTwin twin(*file, rounding);
    std::vector<double> p;
    for (size_t i = 0; i <= 6; ++i) p = Softmax(twin.Step(golden.prompt[i]));
    first += Argmax(p) == golden.rows[6][0].first ? 1 : 0;
    second += Argmax(p) == golden.rows[6][1].first ? 1 : 0;
  }
  fmt::print("  h1-q4_k position 6: {} runs give the golden's first token, {} its second\n", first,
             second);
  EXPECT_GT(first, 0);
  EXPECT_GT(second, 0);
}

// What the shared models lack: biases, rope divisors, a head rotated in part, sizes that are no
// multiple of a vector. The twin's probabilities take the golden's place.
std::vector<RandomModel> ModelsWithoutGoldens() {
  RandomModelOptions hybrid = ToyOptions(Architecture::kFalconH1);
  hybrid.shape.head_dim = 18;
  hybrid.shape.n_rot = 10;
  hybrid.shape.width = 60;
  hybrid.shape.feed_forward = 90;
  hybrid.shape.ssm_inner = 66;  // 6 heads of 11
  hybrid.shape.conv_kernel = 3;
  hybrid.ssm_norm = true;
  std::vector<RandomModel> models = {RandomModel::Make(hybrid).value(),
                                     RandomModel::Make(ToyOptions(Architecture::kLlama)).value()};
  for (RandomModel& model : models) {
    const std::vector<RandomModel::Tensor> matrices = model.tensors;
    for (const RandomModel::Tensor& matrix : matrices) {
      for (const char* biased : {"attn_q", "attn_k", "attn_v", "ffn_gate", "ffn_up", "ffn_down"}) {
        const size_t at = matrix.name.find(std::string(biased) + ".weight");
        if (at == std::string::npos) continue;
        const std::string name = matrix.name.substr(0, at) + biased + ".bias";
        model.tensors.push_back({name, GgufTensorType::kF32, {matrix.ne[1]}, -0.5f, 0.5f});
      }
    }
  }
  models[1].tensors.push_back({"rope_freqs.weight", GgufTensorType::kF32, {8}, 1.0f, 8.0f});
  return models;
}

// What `step` gives for random tokens.
GoldenRun MakeGoldens(uint32_t vocab_size, size_t tokens, const StepFunction& step) {
  GoldenRun golden;
  Random random(5);
  for (size_t i = 0; i < tokens; ++i) {
    golden.prompt.push_back(static_cast<TokenId>(random.Below(vocab_size)));
    const std::vector<double> p = Softmax(step(golden.prompt.back()));
    std::vector<std::pair<TokenId, double>> row;
    for (size_t id = 0; id < p.size(); ++id) row.emplace_back(static_cast<TokenId>(id), p[id]);
    std::sort(row.begin(), row.end(), [](auto& a, auto& b) { return a.second > b.second; });
    row.resize(8);
    golden.rows.push_back(std::move(row));
  }
  return golden;
}

// Weights of the head four times as large, so that probabilities are not all alike.
void SharpenHead(RandomModel* model) {
  RandomModel::Tensor* head = FindTensor(model, "output.weight");
  head->low *= 4;
  head->high *= 4;
}

TEST(Parity, ProductAgreesWithTheTwinWhereThereAreNoGoldens) {
  ThreadPool threads(2);
  for (RandomModel& random : ModelsWithoutGoldens()) {
    SharpenHead(&random);
    const GgufFile file = WriteAndOpen(random);
    auto model = Model::Load(file, threads);
    ASSERT_TRUE(model) << model.error().message();
    UnroundedTwin twin(file);
    const GoldenRun golden =
        MakeGoldens(twin.vocab_size(), 64, [&](TokenId token) { return twin.Step(token); });
    for (const KernelTable* kernels : AvailableKernels()) {
      const Comparison result = CompareProduct(golden, kUnquantised, **model, *kernels, &threads);
      PrintRow((*model)->shape().has_ssm() ? "toy hybrid" : "toy llama", kernels->isa, result);
      EXPECT_LE(result.max, kUnquantised.max);
      EXPECT_LE(result.mean, kUnquantised.mean);
      EXPECT_TRUE(result.argmax_misses.empty());
    }
  }
}

// A hybrid whose matrices have a type each, `first` being that of the first.
RandomModel MixedTypes(size_t first) {
  constexpr GgufTensorType kTypes[] = {
      GgufTensorType::kQ8_0, GgufTensorType::kQ4_K, GgufTensorType::kBF16, GgufTensorType::kQ4_0,
      GgufTensorType::kF32,  GgufTensorType::kQ6_K, GgufTensorType::kQ5_1, GgufTensorType::kF16,
      GgufTensorType::kQ3_K, GgufTensorType::kQ4_1, GgufTensorType::kQ2_K, GgufTensorType::kQ5_0,
      GgufTensorType::kQ5_K};
  RandomModelOptions options = ToyOptions(Architecture::kFalconH1, GgufTensorType::kBF16);
  // Rows of every matrix are whole blocks of 256.
  options.shape.width = 256;
  options.shape.feed_forward = 512;
  options.shape.head_dim = options.shape.n_rot = 64;
  options.shape.ssm_heads = 8;
  options.shape.ssm_inner = 256;
  RandomModel model = RandomModel::Make(options).value();
  for (RandomModel::Tensor& tensor : model.tensors) {
    if (tensor.type == GgufTensorType::kBF16) tensor.type = kTypes[first++ % std::size(kTypes)];
  }
  SharpenHead(&model);
  return model;
}

// A stage that feeds matrices of several types prepares its rows in every form they want.
TEST(Parity, EveryMatrixMayHaveATypeOfItsOwn) {
  ThreadPool threads(2);
  constexpr size_t kTokens = 2;  // more let a flip in that none of the runs shares
  for (size_t first = 0; first < 13; ++first) {
    const GgufFile file = WriteAndOpen(MixedTypes(first));
    auto model = Model::Load(file, threads);
    ASSERT_TRUE(model) << model.error().message();
    ProductRun product(**model, *AvailableKernels().back(), &threads);
    const GoldenRun found = MakeGoldens((*model)->shape().vocab_size, kTokens,
                                        [&](TokenId token) { return product.Step(token); });
    const double nearest = NearestRun(file, ProductRounding(), found);
    fmt::print("  mixed types {:>2}: twin with the product's rounding {:.6f}\n", first, nearest);
    EXPECT_LE(nearest, kSameRoundingMax) << first;
  }
}

}  // namespace
}  // namespace tessera::testing
