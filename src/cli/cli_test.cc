// SPDX-License-Identifier: Apache-2.0
//
// The command line as its users meet it: the program is run, and what it prints and returns is
// compared with the contract of flags, JSON and exit codes.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <httplib.h>
#include <spawn.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmath>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>
#include <sstream>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "cli/cache_report.h"
#include "cli/command_line.h"
#include "cli/prompt_source.h"
#include "compute/gguf/gguf_writer.h"

namespace tessera::cli {
namespace {

const std::string kModel = TESSERA_SOURCE_DIR "/models/harbour-2.8m-q8_0.gguf";

struct Outcome {
  int code = -1;
  std::string out;
  std::string error;
};

class Scratch {
 public:
  Scratch() { std::filesystem::create_directories(path_); }
  ~Scratch() { std::filesystem::remove_all(path_); }
  std::string operator/(const std::string& name) const { return path_ / name; }

 private:
  std::filesystem::path path_ =
      std::filesystem::temp_directory_path() /
      ("tessera-cli-test-" + std::to_string(getpid()) + "-" + std::to_string(Next()));
  static int Next() {
    static int next = 0;
    return next++;
  }
};

std::string Slurp(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  std::ostringstream text;
  text << in.rdbuf();
  return text.str();
}

class Process {
 public:
  // `out` is a path; environment entries are added to ours.
  Process(const std::vector<std::string>& arguments, const std::string& out,
          const std::string& error, const std::string& in = "/dev/null",
          const std::vector<std::string>& environment = {}) {
    std::vector<std::string> words = {TESSERA_BINARY};
    words.insert(words.end(), arguments.begin(), arguments.end());
    std::vector<char*> argv;
    for (std::string& word : words) argv.push_back(word.data());
    argv.push_back(nullptr);
    std::vector<std::string> variables = environment;
    std::vector<char*> envp;
    for (std::string& variable : variables) envp.push_back(variable.data());
    for (char** entry = environ; *entry != nullptr; ++entry) envp.push_back(*entry);
    envp.push_back(nullptr);
    posix_spawn_file_actions_t files;
    posix_spawn_file_actions_init(&files);
    posix_spawn_file_actions_addopen(&files, 0, in.c_str(), O_RDONLY, 0);
    posix_spawn_file_actions_addopen(&files, 1, out.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
    posix_spawn_file_actions_addopen(&files, 2, error.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
    EXPECT_EQ(posix_spawn(&pid_, TESSERA_BINARY, &files, nullptr, argv.data(), envp.data()), 0);
    posix_spawn_file_actions_destroy(&files);
  }
  void Interrupt() { kill(pid_, SIGINT); }
  // The exit code, or 128 + the signal.
  int Wait() {
    int status = 0;
    waitpid(pid_, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  }

 private:
  pid_t pid_ = -1;
};

Outcome Tessera(const std::vector<std::string>& arguments,
                const std::vector<std::string>& environment = {}, const std::string& in = "") {
  const Scratch scratch;
  std::ofstream(scratch / "in", std::ios::binary) << in;
  Process process(arguments, scratch / "out", scratch / "error", scratch / "in", environment);
  const int code = process.Wait();
  return {code, Slurp(scratch / "out"), Slurp(scratch / "error")};
}

std::vector<std::string> OnHarbour(const std::vector<std::string>& flags) {
  std::vector<std::string> arguments = {"run", kModel};
  arguments.insert(arguments.end(), flags.begin(), flags.end());
  return arguments;
}

void ExpectOneLine(const Outcome& outcome, int code, const std::string& part) {
  EXPECT_EQ(outcome.code, code) << outcome.error;
  EXPECT_EQ(outcome.out, "");
  EXPECT_TRUE(outcome.error.starts_with("tessera: ")) << outcome.error;
  EXPECT_EQ(outcome.error.find('\n'), outcome.error.size() - 1) << outcome.error;
  EXPECT_NE(outcome.error.find(part), std::string::npos) << outcome.error;
}

TEST(CommandLine, ErrorsAreOneLineWithTheCodeOfTheirKind) {
  const std::vector<std::string> prompt = {"--prompt", "Log of day 3."};
  const auto with = [&](std::vector<std::string> flags) {
    flags.insert(flags.begin(), prompt.begin(), prompt.end());
    return Tessera(OnHarbour(flags));
  };
  ExpectOneLine(Tessera({}), 2, "which verb?");
  ExpectOneLine(Tessera({"rnu"}), 2, "did you mean run?");
  ExpectOneLine(Tessera({"run"}), 2, "MODEL is required");
  ExpectOneLine(Tessera(OnHarbour({})), 2, "there is no prompt");
  ExpectOneLine(with({"--prompt-file", "x"}), 2, "more than one prompt");
  ExpectOneLine(with({"--promt", "x"}), 2, "did you mean --prompt?");
  ExpectOneLine(Tessera({"serve", "--memory", "128MiB"}), 2,
                "unknown flag --memory; see tessera serve --help");
  // A flag of a later version is unknown, not ignored.
  ExpectOneLine(with({"--frames", "1GiB"}), 2, "unknown flag --frames");
  ExpectOneLine(with({"--state", "f16"}), 2, "--state: 'f16' is neither fp32 nor bf16");
  ExpectOneLine(with({"--organisation", "s9"}), 2, "--organisation");
  ExpectOneLine(with({"--checkpoint-grid", "0"}), 2, "--checkpoint-grid: 0 is not");
  ExpectOneLine(with({"--placement", "head"}), 2, "--placement: ");
  ExpectOneLine(with({"--eviction", "fifo"}), 2, "--eviction: ");
  ExpectOneLine(with({"--retention", "ever"}), 2, "--retention: ");
  ExpectOneLine(with({"--isolate", "keys"}), 2,
                "--isolate: 'keys' is none of off, key and request");
  ExpectOneLine(with({"-n", "many"}), 2, "--max-tokens does not take 'many'");
  ExpectOneLine(with({"-n"}), 2, "--max-tokens needs a value");
  ExpectOneLine(with({"--prompt", "x"}), 2, "--prompt is given more than once");
  ExpectOneLine(with({"-n", "9000"}), 2, "context length of 8192");
  ExpectOneLine(Tessera(OnHarbour({"--prompt", std::string(20'000, 'x')})), 2,
                "tokens exceeds the context length of 8192");
  ExpectOneLine(with({"--top-p", "2"}), 2, "top_p");
  ExpectOneLine(with({"more"}), 2, "unexpected argument 'more'");
  ExpectOneLine(Tessera(OnHarbour({"--prompt-tokens", "1,x"})), 2, "'x' is not a token id");
  ExpectOneLine(Tessera(OnHarbour({"--prompt-tokens", "1,900"})), 2, "id 900");
  ExpectOneLine(Tessera({"run", "no.gguf", "--prompt", "x"}), 5, "no.gguf");
  ExpectOneLine(Tessera(OnHarbour({"--prompt-file", "no.txt"})), 5, "no.txt");
  ExpectOneLine(Tessera(OnHarbour({"--prompt-file", TESSERA_SOURCE_DIR})), 3, "is a directory");
  ExpectOneLine(Tessera({"run", TESSERA_SOURCE_DIR "/LICENSE", "--prompt", "x"}), 3, "LICENSE");
  ExpectOneLine(with({"--budget", "1KiB"}), 4, "206336");
  ExpectOneLine(with({"--budget", "600KiB", "-n", "8000"}), 4, "needs a budget of");
  ExpectOneLine(with({"--budget", "1XB"}), 2, "--budget");
  ExpectOneLine(with({"--budget", ""}), 2, "--budget: the value is empty");
  ExpectOneLine(Tessera(OnHarbour({"--prompt-file", "/dev/zero"})), 2, "longer than 64.00 MiB");
}

TEST(CommandLine, HelpAndVersionGoToStdout) {
  const Outcome help = Tessera({"run", "--help"});
  EXPECT_EQ(help.code, 0);
  EXPECT_EQ(help.error, "");
  for (const char* flag : {"--prompt-file", "-n,", "--logprobs", "--budget", "--organisation"}) {
    EXPECT_NE(help.out.find(flag), std::string::npos) << flag;
  }
  EXPECT_EQ(Tessera({"--help"}).code, 0);
  EXPECT_TRUE(Tessera({"--version"}).out.starts_with("tessera "));
}

TEST(CommandLine, EveryFlagHasAnEnvironmentTwinAndTheFlagWins) {
  const Outcome flags = Tessera(OnHarbour({"--prompt", "Log of day 4.", "-n", "5"}));
  ASSERT_EQ(flags.code, 0) << flags.error;
  const std::vector<std::string> twins = {"TESSERA_PROMPT=Log of day 4.", "TESSERA_MAX_TOKENS=5"};
  EXPECT_EQ(Tessera(OnHarbour({}), twins).out, flags.out);
  const Outcome shorter = Tessera(OnHarbour({"-n", "2"}), twins);
  EXPECT_LT(shorter.out.size(), flags.out.size());
  EXPECT_EQ(flags.out.find(shorter.out), 0u);
  ExpectOneLine(Tessera(OnHarbour({}), {"TESSERA_PROMPT=x", "TESSERA_TEMP=warm"}), 2,
                "TESSERA_TEMP does not take 'warm'");
  ExpectOneLine(Tessera(OnHarbour({"--prompt", "x"}), {"TESSERA_ISA=sparc"}), 2,
                "TESSERA_ISA=sparc");
}

// `--api-key "$KEY"` without a KEY must not be a server without a key.
TEST(CommandLine, AnEmptyApiKeyIsRefused) {
  const std::vector<std::string> serve = {"serve", kModel, "--port", "0"};
  ExpectOneLine(Tessera(serve, {"TESSERA_API_KEY="}), 2, "TESSERA_API_KEY is set but empty");
  ExpectOneLine(Tessera({"serve", kModel, "--api-key", ""}), 2, "--api-key: the value is empty");
  ExpectOneLine(Tessera({"serve", kModel, "--api-key", "a b"}), 2, "API key 1: expected printable");
  ExpectOneLine(Tessera({"serve", kModel, "--api-key-file", "/no/such/file"}), 5,
                "/no/such/file: cannot be read");
}

TEST(CommandLine, LogProbabilitiesThatNothingWouldPrintAreRefused) {
  for (const char* flag : {"--logprobs", "--prompt-logprobs"}) {
    ExpectOneLine(Tessera(OnHarbour({"--prompt", "x", flag, "3"})), 2, "printed by --json alone");
  }
}

TEST(CommandLine, APromptFromAFileOrStdinIsTakenByteForByte) {
  const std::string text = "Log of day 5.\n";
  const Outcome direct = Tessera(OnHarbour({"--prompt", text, "-n", "8", "--json"}));
  ASSERT_EQ(direct.code, 0) << direct.error;
  const Outcome piped = Tessera(OnHarbour({"--prompt-file", "-", "-n", "8", "--json"}), {}, text);
  const auto direct_json = nlohmann::json::parse(direct.out);
  const auto piped_json = nlohmann::json::parse(piped.out);
  EXPECT_EQ(direct_json["prompt_tokens"], piped_json["prompt_tokens"]);
  EXPECT_EQ(direct_json["receipt"], piped_json["receipt"]);
  std::string ids;
  for (int id : direct_json["prompt_tokens"]) ids += (ids.empty() ? "" : ", ") + std::to_string(id);
  const auto by_ids =
      nlohmann::json::parse(Tessera(OnHarbour({"--prompt-tokens", ids, "-n", "8", "--json"})).out);
  EXPECT_EQ(by_ids["tokens"], direct_json["tokens"]);
}

TEST(CommandLine, JsonHasTheFieldsOfTheContract) {
  const Outcome outcome = Tessera(OnHarbour({"--prompt", "Log of day 6.", "-n", "4", "--json",
                                             "--logprobs", "3", "--prompt-logprobs", "2"}));
  ASSERT_EQ(outcome.code, 0) << outcome.error;
  const auto json = nlohmann::ordered_json::parse(outcome.out);
  std::vector<std::string> names;
  for (const auto& [name, value] : json.items()) names.push_back(name);
  EXPECT_EQ(names, (std::vector<std::string>{"model", "prompt_tokens", "tokens", "text",
                                             "finish_reason", "logprobs", "prompt_logprobs",
                                             "usage", "timings", "receipt"}));
  EXPECT_EQ(json["tokens"].size(), 4u);
  EXPECT_EQ(json["finish_reason"], "length");
  ASSERT_EQ(json["logprobs"].size(), 4u);
  for (size_t i = 0; i < 4; ++i) {
    ASSERT_EQ(json["logprobs"][i].size(), 4u);
    EXPECT_EQ(json["logprobs"][i][0]["id"], json["tokens"][i]);
    EXPECT_TRUE(json["logprobs"][i][1]["token"].is_string());
    EXPECT_LE(json["logprobs"][i][1]["logprob"], 0);
  }
  const size_t prompt = json["prompt_tokens"].size();
  ASSERT_EQ(json["prompt_logprobs"].size(), prompt);
  for (size_t i = 0; i + 1 < prompt; ++i) {
    ASSERT_EQ(json["prompt_logprobs"][i].size(), 3u);
    EXPECT_EQ(json["prompt_logprobs"][i][0]["id"], json["prompt_tokens"][i + 1]);
  }
  EXPECT_EQ(json["usage"]["prompt_tokens"], prompt);
  EXPECT_EQ(json["usage"]["cached_tokens"], 0);
  EXPECT_EQ(json["usage"]["completion_tokens"], 4);
  for (const char* name : {"prompt_n", "prompt_ms", "prompt_per_second", "predicted_n",
                           "predicted_ms", "predicted_per_second", "cache_n"}) {
    EXPECT_TRUE(json["timings"][name].is_number()) << name;
  }
  EXPECT_EQ(json["receipt"].get<std::string>().size(), 16u);
}

TEST(CommandLine, SettingsOfMemoryAndSpeedDoNotChangeTheReceipt) {
  const std::vector<std::string> base = {"--prompt", "Log of day 7. Ada left the red kite.", "-n",
                                         "12", "--json"};
  const std::string receipt = nlohmann::json::parse(Tessera(OnHarbour(base)).out)["receipt"];
  for (const std::vector<std::string>& flags :
       std::vector<std::vector<std::string>>{{"--organisation", "s0"},
                                             {"--organisation", "s1:block=32"},
                                             {"--organisation", "s2"},
                                             {"--organisation", "d0:split=0.4"},
                                             {"--threads", "3", "--chunk-tokens", "3"},
                                             {"--max-running", "2", "--budget", "32MiB"}}) {
    std::vector<std::string> all = base;
    all.insert(all.end(), flags.begin(), flags.end());
    const Outcome outcome = Tessera(OnHarbour(all));
    ASSERT_EQ(outcome.code, 0) << outcome.error;
    EXPECT_EQ(nlohmann::json::parse(outcome.out)["receipt"], receipt) << flags[1];
  }
  for (const char* isa : {"TESSERA_ISA=scalar", "TESSERA_ISA=avx2"}) {
    EXPECT_EQ(nlohmann::json::parse(Tessera(OnHarbour(base), {isa}).out)["receipt"], receipt)
        << isa;
  }
}

TEST(CommandLine, StatsGoToStderrAndLeaveTheTextAlone) {
  const Outcome plain = Tessera(OnHarbour({"--prompt", "Log of day 8.", "-n", "6"}));
  EXPECT_EQ(plain.error, "");
  const Outcome stats = Tessera(OnHarbour({"--prompt", "Log of day 8.", "-n", "6", "--stats"}));
  EXPECT_EQ(stats.out, plain.out);
  for (const char* word : {"weights", "budget", "activations", "metadata", "pool", "tokens/s"}) {
    EXPECT_NE(stats.error.find(word), std::string::npos) << word;
  }
}

// Two bytes an element instead of four; the convolution's part is bf16 in both. Another state is
// another computation, with receipts of its own that no setting of speed changes.
TEST(CommandLine, Bf16StateIsHalfAsLargeAndAsExact) {
  const auto recurrent = [](const std::string& state) {
    const Outcome outcome =
        Tessera(OnHarbour({"--prompt", "Log of day 8.", "-n", "6", "--stats", "--state", state}));
    EXPECT_EQ(outcome.code, 0) << outcome.error;
    const size_t at = outcome.error.find("\nrecurrent ");
    EXPECT_NE(at, std::string::npos) << outcome.error;
    return outcome.error.substr(at + 1, outcome.error.find('\n', at + 1) - at - 1);
  };
  // Harbour's five layers have 256 rows of 32 elements and 3 past inputs of 320 channels.
  EXPECT_EQ(recurrent("fp32"),
            "recurrent    169.38 KiB per sequence: ssm 160.00 KiB in fp32, conv 9.38 KiB");
  EXPECT_EQ(recurrent("bf16"),
            "recurrent    89.38 KiB per sequence: ssm 80.00 KiB in bf16, conv 9.38 KiB");
  const auto receipt = [](std::vector<std::string> flags) -> std::string {
    std::vector<std::string> all = {"--prompt", "Log of day 7.", "-n", "12", "--json"};
    all.insert(all.end(), flags.begin(), flags.end());
    return nlohmann::json::parse(Tessera(OnHarbour(all)).out)["receipt"];
  };
  const std::string bf16 = receipt({"--state", "bf16"});
  EXPECT_NE(bf16, receipt({}));
  EXPECT_EQ(receipt({"--state", "bf16", "--threads", "3", "--chunk-tokens", "3", "--organisation",
                     "s1", "--max-running", "2"}),
            bf16);
}

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
// Weights + budget + activations and metadata as printed at start, and 64 MiB for everything else.
TEST(CommandLine, ThePeakOfResidentMemoryStaysWithinWhatIsPrintedAtStart) {
  const auto bytes_after = [](const std::string& text, const std::string& label) {
    const size_t at = text.find(label);
    if (at == std::string::npos) return 0.0;
    std::istringstream in(text.substr(at + label.size()));
    double value = 0;
    std::string unit;
    in >> value >> unit;
    const auto power = std::string("BKMG").find(unit[0]);
    return std::ldexp(value, static_cast<int>(10 * power));
  };
  for (const std::vector<std::string>& flags : std::vector<std::vector<std::string>>{
           {"-n", "1500"}, {"-n", "6", "--budget", "96MiB", "--chunk-tokens", "2048"}}) {
    std::vector<std::string> all = {"--prompt", "Log of day 8.", "--ignore-eos", "--stats"};
    all.insert(all.end(), flags.begin(), flags.end());
    const std::string stats = Tessera(OnHarbour(all)).error;
    double sum = 64.0 * kMiB;
    for (const char* label : {"\nweights ", "\nbudget ", "\nactivations ", "\nmetadata "}) {
      EXPECT_GT(bytes_after(stats, label), 0) << label << stats;
      sum += bytes_after(stats, label);
    }
    const double peak = bytes_after(stats, ", at most ");
    EXPECT_GT(peak, bytes_after(stats, "\nweights ")) << stats;
    EXPECT_LE(peak, sum) << stats;
  }
}
#endif

TEST(CommandLine, NumbersAreDecimalAndInRange) {
  const auto with = [](const std::string& flag, const std::string& value) {
    return Tessera(OnHarbour({"--prompt", "x", flag + "=" + value}));
  };
  for (const char* seed : {"-1", "+1", "99999999999999999999", "18446744073709551616", "0x10",
                           "010", "1e3", "1 ", "1_000"}) {
    ExpectOneLine(with("--seed", seed), 2, "--seed does not take '" + std::string(seed) + "'");
  }
  EXPECT_EQ(with("--seed", "18446744073709551615").code, 0);
  for (const char* flag : {"--max-tokens", "--top-k", "--chunk-tokens", "--max-running"}) {
    ExpectOneLine(with(flag, "010"), 2, std::string(flag) + " does not take '010'");
    ExpectOneLine(with(flag, "-1"), 2, std::string(flag) + " does not take '-1'");
    ExpectOneLine(with(flag, "4294967296"), 2, std::string(flag) + " does not take");
  }
  ExpectOneLine(with("--threads", "-1"), 2, "--threads");
  ExpectOneLine(with("--threads", "1025"), 2, "1024");
  ExpectOneLine(with("--threads", "010"), 2, "--threads does not take '010'");
  ExpectOneLine(Tessera(OnHarbour({"--prompt", "x"}), {"TESSERA_SEED=010"}), 2, "'010'");
}

TEST(CommandLine, AStopStringEndsTheText) {
  const Outcome outcome =
      Tessera(OnHarbour({"--prompt", "Log of day 3.", "-n", "100", "--stop", ".", "--stop", "\n"}));
  EXPECT_EQ(outcome.code, 0);
  EXPECT_FALSE(outcome.out.empty());
  EXPECT_EQ(outcome.out.find_first_of(".\n"), std::string::npos);
}

TEST(CommandLine, AnInterruptPrintsWhatThereIsAndReturns130) {
  const Scratch scratch;
  const std::string out = scratch / "out";
  Process process(OnHarbour({"--prompt", "Log of day 3.", "-n", "8000", "--ignore-eos"}), out,
                  scratch / "error", "/dev/null", {"TESSERA_ISA=scalar", "TESSERA_THREADS=1"});
  while (Slurp(out).size() < 20) usleep(1000);
  process.Interrupt();
  EXPECT_EQ(process.Wait(), 130);
  EXPECT_EQ(Slurp(scratch / "error"), "");
}

TEST(CommandLine, AFullOrClosedStdoutIsAnIoError) {
  const Scratch scratch;
  Process full(OnHarbour({"--prompt", "Log of day 3."}), "/dev/full", scratch / "error");
  EXPECT_EQ(full.Wait(), 5);
  EXPECT_NE(Slurp(scratch / "error").find("cannot write to stdout"), std::string::npos);
  for (const std::vector<std::string>& text :
       {std::vector<std::string>{"--help"}, {"--version"}, {"run", "--help"}}) {
    Process help(text, "/dev/full", scratch / "error");
    EXPECT_EQ(help.Wait(), 5) << text[0];
  }

  const std::string fifo = scratch / "fifo";
  ASSERT_EQ(mkfifo(fifo.c_str(), 0600), 0);
  const int reader = open(fifo.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC);
  Process piped(OnHarbour({"--prompt", "Log of day 3.", "-n", "8000", "--ignore-eos"}), fifo,
                scratch / "error");
  char byte = 0;
  while (read(reader, &byte, 1) != 1) usleep(1000);
  close(reader);
  EXPECT_EQ(piped.Wait(), 5);
  EXPECT_NE(Slurp(scratch / "error").find("stdout was closed"), std::string::npos);
}

TEST(CommandLine, AFullOrClosedStderrChangesNothing) {
  const Scratch scratch;
  const std::vector<std::string> make = {"bench",      "make-model",     scratch / "m.gguf",
                                         "--geometry", "falcon-h1-tiny", "--layers",
                                         "1",          "--type",         "q8_0"};
  Process full(make, scratch / "out", "/dev/full");
  EXPECT_EQ(full.Wait(), 0);

  const std::string fifo = scratch / "fifo";
  ASSERT_EQ(mkfifo(fifo.c_str(), 0600), 0);
  const int reader = open(fifo.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC);
  // The prompt comes by a fifo too, so that stderr is closed before anything is printed.
  const std::string in = scratch / "in";
  ASSERT_EQ(mkfifo(in.c_str(), 0600), 0);
  const int writer = open(in.c_str(), O_RDWR | O_CLOEXEC);
  Process piped(OnHarbour({"--prompt-file", "-", "-n", "3", "--stats"}), scratch / "out", fifo, in);
  close(reader);
  ASSERT_EQ(write(writer, "Log of day 3.", 13), 13);
  close(writer);
  EXPECT_EQ(piped.Wait(), 0);
  EXPECT_NE(Slurp(scratch / "out"), "");
}

TEST(CommandLine, MakeModelSaysInJsonWhatItWrote) {
  const Scratch scratch;
  const std::string path = scratch / "m.gguf";
  const Outcome outcome = Tessera({"bench", "make-model", path, "--geometry", "falcon-h1-tiny",
                                   "--layers", "1", "--type", "q8_0", "--seed", "3", "--json"});
  ASSERT_EQ(outcome.code, 0) << outcome.error;
  EXPECT_EQ(outcome.error, "");
  const auto json = nlohmann::json::parse(outcome.out);
  EXPECT_EQ(json["path"], path);
  EXPECT_EQ(json["bytes"], std::filesystem::file_size(path));
  EXPECT_EQ(json["geometry"], "falcon-h1-tiny");
  EXPECT_EQ(json["type"], "q8_0");
  EXPECT_EQ(json["seed"], 3);
  EXPECT_GT(json["seconds"], 0);
}

TEST(CommandLine, BenchKernelsPrintsATableAndTheSameAsJson) {
  const std::vector<std::string> base = {"bench",   "kernels",   "--only",
                                         "to_bf16", "--seconds", "0.01"};
  const Outcome table = Tessera(base);
  ASSERT_EQ(table.code, 0) << table.error;
  EXPECT_EQ(table.error, "");
  EXPECT_NE(table.out.find("to_bf16.3072"), std::string::npos) << table.out;
  std::vector<std::string> flags = base;
  flags.push_back("--json");
  const Outcome outcome = Tessera(flags, {"TESSERA_ISA=scalar"});
  ASSERT_EQ(outcome.code, 0) << outcome.error;
  const auto json = nlohmann::json::parse(outcome.out);
  EXPECT_EQ(json["isa"], "scalar");
  ASSERT_EQ(json["kernels"].size(), 1u);
  EXPECT_EQ(json["kernels"][0]["name"], "to_bf16.3072");
}

TEST(CommandLine, AnInterruptOfBenchKernelsPrintsTheRoundsThereAre) {
  const Scratch scratch;
  // A round is milliseconds, the mapping before it less than a second; on a busy machine more.
  for (int seconds : {3, 12, 48}) {
    Process process({"bench", "kernels", "--only", "to_bf16", "--seconds", "600", "--json"},
                    scratch / "out", scratch / "error");
    sleep(static_cast<unsigned>(seconds));
    process.Interrupt();
    EXPECT_EQ(process.Wait(), 130);
    if (!Slurp(scratch / "out").empty()) break;
  }
  EXPECT_EQ(Slurp(scratch / "error"), "");
  const auto json = nlohmann::json::parse(Slurp(scratch / "out"));
  EXPECT_EQ(json["interrupted"], true);
  EXPECT_GE(json["rounds"], 1);
}

TEST(CommandLine, BenchStepPrintsSpeedsAndLayoutsAsJson) {
  const Outcome outcome = Tessera({"bench", "step", kModel, "--sequences", "1,2", "--compare", "2",
                                   "--organisation", "s3,s2:block=64", "--context", "32", "--steps",
                                   "2", "--rounds", "1", "--threads", "2", "--json"});
  ASSERT_EQ(outcome.code, 0) << outcome.error;
  const auto json = nlohmann::json::parse(outcome.out);
  EXPECT_EQ(json["threads"], 2);
  EXPECT_EQ(json["speed"].size(), 2u);
  ASSERT_EQ(json["layout"].size(), 4u);
  EXPECT_EQ(json["layout"][3]["organisation"], "s2:block=64");
}

TEST(CommandLine, BenchMemoryPrintsATableAndTheSameAsJson) {
  const std::vector<std::string> base = {"bench",     "memory", "--entries", "1000,3000",
                                         "--threads", "1",      "--samples", "4"};
  const Outcome table = Tessera(base);
  ASSERT_EQ(table.code, 0) << table.error;
  EXPECT_EQ(table.error, "");
  EXPECT_NE(table.out.find("publish checkpoint"), std::string::npos) << table.out;
  std::vector<std::string> flags = base;
  flags.insert(flags.end(), {"--geometry", "falcon-h1-tiny", "--json"});
  const Outcome outcome = Tessera(flags);
  ASSERT_EQ(outcome.code, 0) << outcome.error;
  const auto json = nlohmann::json::parse(outcome.out);
  EXPECT_EQ(json["geometry"], "falcon-h1-tiny");
  EXPECT_EQ(json["operations"].size(), 2u * 15);
}

const std::string kTraces = TESSERA_SOURCE_DIR "/bench/traces/";

TEST(CommandLine, BenchReplayPrintsATableAndTheSameAsJson) {
  const std::vector<std::string> base = {"bench", "replay", kTraces + "agents_miniswe.jsonl",
                                         "--capacity", "16K,unlimited"};
  std::vector<std::string> flags = base;
  flags.insert(flags.end(),
               {"--placement", "tail", "--eviction", "lru", "--checkpoint-grid", "64"});
  const Outcome table = Tessera(flags);
  ASSERT_EQ(table.code, 0) << table.error;
  EXPECT_EQ(table.error, "");
  EXPECT_NE(table.out.find("       16K tail/lru@64 "), std::string::npos) << table.out;
  flags.push_back("--json");
  const Outcome outcome = Tessera(flags);
  ASSERT_EQ(outcome.code, 0) << outcome.error;
  const auto json = nlohmann::json::parse(outcome.out);
  EXPECT_EQ(json["price_tokens"], 1557);
  ASSERT_EQ(json["runs"].size(), 2u);
  EXPECT_EQ(json["runs"][0]["requests"], 206);
  EXPECT_GT(json["runs"][1]["hit_rate"], json["runs"][0]["hit_rate"]);
  flags = base;
  flags.insert(flags.end(), {"--geometry", "falcon-h1-7b", "--state", "bf16", "--compare"});
  const Outcome compared = Tessera(flags);
  ASSERT_EQ(compared.code, 0) << compared.error;
  EXPECT_NE(compared.out.find("as much as 1557 tokens"), std::string::npos) << compared.out;
  EXPECT_NE(compared.out.find("default/value@512"), std::string::npos) << compared.out;
}

TEST(CommandLine, BenchReplayRefusesWhatItCannotReplay) {
  const std::string trace = kTraces + "agents_miniswe.jsonl";
  const auto replay = [&](const std::vector<std::string>& flags) {
    std::vector<std::string> arguments = {"bench", "replay", trace};
    arguments.insert(arguments.end(), flags.begin(), flags.end());
    return Tessera(arguments);
  };
  ExpectOneLine(Tessera({"bench", "replay"}), 2, "FILE");
  ExpectOneLine(Tessera({"bench", "replay", "no-such.jsonl"}), 5, "no-such.jsonl");
  ExpectOneLine(replay({"--capacity", "0"}), 2, "--capacity: '0'");
  ExpectOneLine(replay({"--capacity", "4MB"}), 2, "--capacity: '4MB'");
  ExpectOneLine(replay({"--capacity", "1K"}), 4, "no request of agents_miniswe.jsonl fits");
  ExpectOneLine(replay({"--capacity", "16G"}), 4, "the index of");
  ExpectOneLine(replay({"--price", "16777217"}), 2, "--price");
  ExpectOneLine(replay({"--geometry", "falcon"}), 2, "--geometry");
  ExpectOneLine(replay({"--geometry", "mamba2-130m"}), 2, "no attention layers");
  ExpectOneLine(replay({"--geometry", "falcon-h1-7b", "--state", "fp16"}), 2, "--state: 'fp16'");
  ExpectOneLine(replay({"--geometry", "falcon-h1-7b", "--price", "3"}), 2, "--price");
  ExpectOneLine(replay({"--placement", "tails"}), 2, "--placement");
  ExpectOneLine(replay({"--eviction", "lfu"}), 2, "--eviction");
  ExpectOneLine(replay({"--organisation", "s9"}), 2, "--organisation");
  ExpectOneLine(replay({"--checkpoint-grid", "0"}), 2, "--checkpoint-grid");
  ExpectOneLine(replay({"--compare", "--eviction", "lru"}), 2, "--compare");
  const Scratch scratch;
  std::string text = Slurp(trace);
  std::ofstream(scratch / "cut.jsonl") << text.substr(0, text.size() / 2);
  ExpectOneLine(Tessera({"bench", "replay", scratch / "cut.jsonl"}), 3, "cut.jsonl:");
  std::ofstream(scratch / "empty.jsonl") << "";
  ExpectOneLine(Tessera({"bench", "replay", scratch / "empty.jsonl"}), 3, "empty.jsonl");
}

TEST(CommandLine, BenchRefusesWhatItDoesNotKnow) {
  ExpectOneLine(Tessera({"bench"}), 2, "subcommand");
  ExpectOneLine(Tessera({"bench", "kernels", "--isa", "mmx"}), 2, "--isa mmx");
  ExpectOneLine(Tessera({"bench", "kernels", "--only", "gem"}), 2, "nothing is called 'gem'");
  ExpectOneLine(Tessera({"bench", "kernels", "--treads", "1"}), 2, "did you mean --threads?");
  ExpectOneLine(Tessera({"bench", "kernels", "--threads", "0"}), 2, "bench kernels: --threads");
  ExpectOneLine(Tessera({"bench", "kernels", "--threads", "1,,2"}), 2,
                "bench kernels: --threads: an item of '1,,2' is empty");
  ExpectOneLine(Tessera({"bench", "kernels", "--threads", ","}), 2, "an item of ',' is empty");
  ExpectOneLine(Tessera({"bench", "kernels", "--only="}), 2, "bench kernels: --only");
  ExpectOneLine(Tessera({"bench", "kernels"}, {"TESSERA_ONLY=gemm,"}), 2, "TESSERA_ONLY");
  ExpectOneLine(Tessera({"bench", "kernels", "--seconds", "nan"}), 2, "no number of seconds");
  ExpectOneLine(Tessera({"bench", "memory", "--entries", "10"}), 2, "bench memory: --entries");
  ExpectOneLine(Tessera({"bench", "memory", "--entries", "1e6"}), 2, "bench memory: --entries");
  ExpectOneLine(Tessera({"bench", "memory", "--thread", "1"}), 2, "did you mean --threads?");
  ExpectOneLine(Tessera({"bench", "memory", "--threads", "0"}), 2, "bench memory: --threads");
  ExpectOneLine(Tessera({"bench", "memory", "--samples", "0"}), 2, "bench memory: --samples");
  ExpectOneLine(Tessera({"bench", "memory", "--geometry", "gpt"}), 2, "geometry 'gpt' is unknown");
  ExpectOneLine(Tessera({"bench", "memory", "--geometry", "llama-3.2-1b"}), 2,
                "16 attention and 0 recurrent layers");
  ExpectOneLine(Tessera({"bench", "step", "--x"}), 2, "tessera bench step --help");
  ExpectOneLine(Tessera({"bench", "step", kModel, "--compare", "0", "--organisation", "s3"}), 2,
                "--compare 0");
  ExpectOneLine(Tessera({"bench", "step"}), 2, "MODEL is required");
  ExpectOneLine(Tessera({"bench", "step", "none.gguf"}), 5, "none.gguf");
  ExpectOneLine(Tessera({"bench", "step", kModel, "--state", "f16"}), 2, "--state: 'f16'");
  ExpectOneLine(Tessera({"bench", "step", kModel, "--organisation", "s9"}), 2, "--organisation");
  ExpectOneLine(Tessera({"bench", "step", kModel, "--context", "8192"}), 2, "--context 8192");
}

// The plan of a file, in JSON, and what the engine then maps for it.
TEST(CommandLine, PlanSaysInJsonWhatTheEngineMaps) {
  const Outcome planned = Tessera({"plan", kModel, "--budget", "3MiB", "--organisation", "s2,s3",
                                   "--users", "2", "--context", "500", "--json"});
  ASSERT_EQ(planned.code, 0) << planned.error;
  const auto json = nlohmann::json::parse(planned.out);
  EXPECT_EQ(json["model"]["name"], "Harbour 2.8M");
  EXPECT_EQ(json["model"]["architecture"], "falcon-h1");
  EXPECT_EQ(json["model"]["runs"], true);
  const auto& state = json["states"]["fp32"];
  EXPECT_EQ(state["kept_row_bytes"], 768);
  EXPECT_EQ(state["kept_rows"], 40);  // 31,457 B / 768
  EXPECT_EQ(state["pool_bytes"], 3 * kMiB - 40 * 768);
  EXPECT_EQ(state["checkpoint_price_tokens"].get<double>(), 173440.0 / 1280);
  const auto& s3 = state["organisations"][1];
  EXPECT_EQ(s3["organisation"], "s3");
  EXPECT_EQ(s3["error"], nullptr);
  EXPECT_EQ(s3["pools"][0]["page_bytes"], 5 * 4096);
  EXPECT_EQ(s3["pools"][0]["pages"], (3 * kMiB - 40 * 768) / (5 * 4096));
  EXPECT_EQ(s3["checkpoint"]["bytes"], 180 * kKiB);
  EXPECT_EQ(json["states"]["bf16"]["organisations"][1]["checkpoint"]["bytes"], 100 * kKiB);
  const Outcome run = Tessera(OnHarbour(
      {"--prompt", "x", "-n", "1", "--stats", "--organisation", "s2", "--budget", "3MiB"}));
  ASSERT_EQ(run.code, 0) << run.error;
  EXPECT_NE(
      run.error.find("shared: " + state["organisations"][0]["pools"][0]["pages"].dump() + " pages"),
      std::string::npos)
      << run.error;
}

TEST(CommandLine, PlanPrintsATableOfAtMost100Columns) {
  const Outcome outcome = Tessera({"plan", "--geometry", "nemotron-h-8b", "--budget", "16GiB"});
  ASSERT_EQ(outcome.code, 0) << outcome.error;
  EXPECT_EQ(outcome.error, "");
  std::istringstream lines(outcome.out);
  for (std::string line; std::getline(lines, line);) EXPECT_LE(line.size(), 100u) << line;
  for (const char* part :
       {"nemotron-h-8b: 4 attention + 24 recurrent layers in 4 planes", "to be checked",
        "kept rows", "6234 tokens of attention", "copies of the set", "With bf16 state in s3",
        "- A plane's conv state of 360.00 KiB breaks the slot of 32.00 KiB"}) {
    EXPECT_NE(outcome.out.find(part), std::string::npos) << part;
  }
  const Outcome twins =
      Tessera({"plan"}, {"TESSERA_GEOMETRY=nemotron-h-8b", "TESSERA_BUDGET=16GiB"});
  EXPECT_EQ(twins.out, outcome.out);
}

// Metadata alone, of an architecture the engine does not run.
TEST(CommandLine, PlanReadsFilesTheEngineDoesNotRun) {
  const Scratch scratch;
  {
    auto writer = GgufWriter::Create(scratch / "lfm2.gguf").value();
    writer.AddString("general.architecture", "lfm2");
    for (const auto& [key, value] :
         std::vector<std::pair<std::string, uint32_t>>{{"block_count", 4},
                                                       {"context_length", 4096},
                                                       {"embedding_length", 2048},
                                                       {"attention.head_count", 32},
                                                       {"shortconv.l_cache", 3}}) {
      writer.AddU32("lfm2." + key, value);
    }
    writer.AddI32Array("lfm2.attention.head_count_kv", std::vector<int32_t>{0, 8, 0, 8});
    ASSERT_TRUE(writer.BeginData().ok());
    ASSERT_TRUE(writer.Finish().ok());
  }
  const Outcome outcome = Tessera({"plan", scratch / "lfm2.gguf", "--state", "bf16", "--json"});
  ASSERT_EQ(outcome.code, 0) << outcome.error;
  const auto json = nlohmann::json::parse(outcome.out);
  EXPECT_EQ(json["model"]["runs"], false);
  EXPECT_NE(json["model"]["why_not"].get<std::string>().find("'lfm2'"), std::string::npos);
  EXPECT_EQ(json["model"]["planes"], 2);
  EXPECT_EQ(json["context_tokens"], 4096);
  EXPECT_EQ(json["states"].size(), 1u);
  EXPECT_EQ(json["states"]["bf16"]["kinds"][1]["layer_bytes"], 8 * kKiB);
}

TEST(CommandLine, PlanErrorsAreOneLineWithTheCodeOfTheirKind) {
  ExpectOneLine(Tessera({"plan"}), 2, "either MODEL or --geometry");
  ExpectOneLine(Tessera({"plan", kModel, "--geometry", "jamba-mini"}), 2, "either MODEL or");
  ExpectOneLine(Tessera({"plan", "--geometry", "falcon"}), 2, "falcon-h1-7b, qwen3-next-80b-a3b");
  ExpectOneLine(Tessera({"plan", "no.gguf"}), 5, "no.gguf");
  ExpectOneLine(Tessera({"plan", TESSERA_SOURCE_DIR "/LICENSE"}), 3, "LICENSE");
  const auto with = [](std::vector<std::string> flags) {
    flags.insert(flags.begin(), {"plan", "--geometry", "falcon-h1-7b"});
    return Tessera(flags);
  };
  ExpectOneLine(with({"--budget", "0"}), 2, "--budget");
  ExpectOneLine(with({"--budget", "many"}), 2, "--budget");
  ExpectOneLine(with({"--budget", "1KiB"}), 4, "must be at least");
  ExpectOneLine(with({"--state", "f16"}), 2, "--state: 'f16'");
  ExpectOneLine(with({"--organisation", "s3,s9"}), 2, "--organisation");
  ExpectOneLine(with({"--set", "16"}), 2, "--set");
  ExpectOneLine(with({"--set", "0,0"}), 2, "set");
  ExpectOneLine(with({"--set", "1,2,3"}), 2, "found 3 numbers");
  ExpectOneLine(with({"--set", "99999999999999,4"}), 2, "2^60");
  ExpectOneLine(with({"--users", "0"}), 2, "users");
  ExpectOneLine(with({"--context", "0"}), 2, "--context");
  ExpectOneLine(with({"--context", "262145"}), 2, "262144");
  ExpectOneLine(with({"--checkpoint-grid", "0"}), 2, "checkpoint-grid");
  ExpectOneLine(with({"--chekpoint-grid", "1"}), 2, "did you mean --checkpoint-grid?");
}

TEST(CommandLine, CacheSaysWhyItHasNoAnswer) {
  ExpectOneLine(Tessera({"cache"}), 2, "subcommand");
  ExpectOneLine(Tessera({"cache", "rm"}), 2, "there is no 'rm'; usage: tessera cache ls");
  ExpectOneLine(Tessera({"cache", "--json", "ls"}), 2, "--json goes after 'cache ls'");
  ExpectOneLine(Tessera({"cache", "ls", "--url", "http://127.0.0.1:1"}), 5,
                "cache ls: http://127.0.0.1:1: nobody answers; is tessera serve running there?");
  for (const char* url : {"127.0.0.1:8080", "ftp://x", "http://", "http://x/v1", "http://a b"}) {
    ExpectOneLine(Tessera({"cache", "show", "--url", url}), 2, "--url: '");
  }
  ExpectOneLine(Tessera({"cache", "clear", "--limit", "3"}), 2, "unknown flag --limit");
}

// A server with its log, stopped when it goes.
class ServeProcess {
 public:
  explicit ServeProcess(std::vector<std::string> flags) {
    std::vector<std::string> arguments = {"serve", kModel, "--port", "0", "--threads", "1"};
    arguments.insert(arguments.end(), flags.begin(), flags.end());
    process_.emplace(arguments, scratch_ / "out", scratch_ / "error");
    const std::string before = " on ";
    for (int i = 0; i < 10'000 && url_.empty(); ++i) {
      const std::string log = Slurp(scratch_ / "error");
      const size_t at = log.find(before + "http://");
      const size_t end = at == std::string::npos ? at : log.find('\n', at);
      if (end != std::string::npos) {
        url_ = log.substr(at + before.size(), end - at - before.size());
      } else {
        usleep(1000);
      }
    }
  }
  ~ServeProcess() { Stop(); }

  const std::string& url() const { return url_; }
  // Its stderr.
  std::string Stop() {
    if (!process_) return {};
    process_->Interrupt();
    EXPECT_EQ(process_->Wait(), 0);
    process_.reset();
    return Slurp(scratch_ / "error");
  }

 private:
  const Scratch scratch_;
  std::optional<Process> process_;
  std::string url_;
};

TEST(CommandLine, CacheListsShowsAndClearsWhatAServerKeeps) {
  ServeProcess server(
      {"--api-key", "other", "--api-key", "key", "--stats", "--checkpoint-grid", "8"});
  const std::vector<std::string> twins = {"TESSERA_URL=" + server.url(), "TESSERA_API_KEY=key"};
  const auto cache = [&](std::vector<std::string> words) {
    words.insert(words.begin(), "cache");
    return Tessera(words, twins);
  };
  ExpectOneLine(Tessera({"cache", "ls", "--url", server.url()}), 2, "wants its API key");
  ExpectOneLine(cache({"ls", "--limit", "0"}), 2, "limit: expected an integer from 1 to 10000");
  EXPECT_EQ(cache({"ls"}).out, "nothing is kept\n");

  httplib::Client client(server.url());
  const httplib::Headers headers = {{"Authorization", "Bearer key"}};
  for (const char* salt : {"", "tenant 7"}) {
    const nlohmann::json body = {{"prompt", "Log of day 12. Ada left the red kite in the barn."},
                                 {"max_tokens", 1},
                                 {"cache_salt", salt}};
    for (int i = 0; i < 2; ++i) {
      ASSERT_EQ(client.Post("/v1/completions", headers, body.dump(), "application/json")->status,
                200);
    }
  }
  // A list is shared for a moment: the first may still be the empty one.
  Outcome list = cache({"ls"});
  for (int i = 0; i < 200 && list.out.find("salted") == std::string::npos; ++i) {
    usleep(10'000);
    list = cache({"ls"});
  }
  EXPECT_EQ(list.code, 0) << list.error;
  EXPECT_NE(list.out.find("\"Log of day 12."), std::string::npos) << list.out;
  EXPECT_NE(list.out.find("salted"), std::string::npos) << list.out;
  EXPECT_EQ(list.out.find("tenant"), std::string::npos) << list.out;
  const auto json = nlohmann::json::parse(cache({"ls", "--json"}).out);
  EXPECT_GE(json["entries"].size(), 2u);
  for (const auto& entry : json["entries"]) EXPECT_EQ(entry["tokens"].get<int>() % 8, 0) << entry;

  const Outcome show = cache({"show"});
  EXPECT_EQ(show.code, 0) << show.error;
  EXPECT_NE(show.out.find("reuse on, checkpoint grid 8"), std::string::npos) << show.out;
  EXPECT_NE(show.out.find("4 look-ups, 2 hits"), std::string::npos) << show.out;
  EXPECT_TRUE(cache({"clear"}).out.ends_with(" entries dropped\n"));
  EXPECT_EQ(cache({"ls"}).out, "nothing is kept\n");
  EXPECT_EQ(cache({"clear"}).out, "0 entries dropped\n");
  // --stats says at the end what show said.
  const std::string log = server.Stop();
  const size_t supply = show.out.find("supply ");
  EXPECT_NE(log.find(show.out.substr(supply)), std::string::npos) << log;
}

TEST(CommandLine, ServeLogsEveryRequestAndHasVllmsMetricsWhenAsked) {
  const Scratch scratch;
  const std::string path = scratch / "requests.jsonl";
  ServeProcess server({"--request-log", path, "--metrics-alias", "vllm"});
  httplib::Client client(server.url());
  const nlohmann::json body = {{"prompt", "Log of day 12."}, {"max_tokens", 3}};
  for (int i = 0; i < 2; ++i) {
    ASSERT_EQ(client.Post("/v1/completions", body.dump(), "application/json")->status, 200);
  }
  const std::string metrics = client.Get("/metrics")->body;
  EXPECT_NE(metrics.find("\nvllm:time_to_first_token_seconds_count"), std::string::npos);
  server.Stop();
  std::istringstream log(Slurp(path));
  std::string line;
  std::vector<nlohmann::json> records;
  while (std::getline(log, line)) records.push_back(nlohmann::json::parse(line));
  ASSERT_EQ(records.size(), 2u);
  EXPECT_EQ(records[0]["supply"]["j_adopt"], 0);
  EXPECT_EQ(records[1]["supply"]["j_adopt"], records[1]["prompt_tokens"]);
  EXPECT_EQ(records[1]["model"], records[0]["model"]);

  const auto refused = [](std::vector<std::string> flags) {
    flags.insert(flags.begin(), {"serve", kModel, "--port", "0"});
    return Tessera(flags);
  };
  ExpectOneLine(refused({"--request-log", "/no/such"}), 5, "/no/such: No such file or directory");
  ExpectOneLine(refused({"--request-log", path, "--request-log-bytes", "x"}), 2,
                "--request-log-bytes");
  ExpectOneLine(refused({"--metrics-alias", "sglang"}), 2, "--metrics-alias: 'sglang' is not vllm");
}

nlohmann::json EntryThatBeginsWith(const nlohmann::json& text) {
  return {{"entries",
           {{{"tokens", 17},
             {"bytes", 4096},
             {"hits", 2},
             {"lookups_since_use", 9},
             {"row", true},
             {"held", false},
             {"pinned", false},
             {"retained", false},
             {"spare", false},
             {"salted", text.is_null()},
             {"text", text}}}},
          {"more", false}};
}

TEST(CommandLine, BenchServeLoadsAServerAndSavesARecordOfEveryRequest) {
  const Scratch scratch;
  const ServeProcess server({"--api-key", "key"});
  const std::vector<std::string> twins = {"TESSERA_URL=" + server.url(), "TESSERA_API_KEY=key"};
  const auto bench = [&](std::vector<std::string> flags) {
    flags.insert(flags.begin(), {"bench", "serve", "--ignore-eos", "--output-len", "5"});
    return Tessera(flags, twins);
  };
  const std::string path = scratch / "result.json";
  const Outcome json = bench({"--workload", "shared-context:contexts=2,tokens=64,questions=6",
                              "--repeats", "2", "--request-rate", "200", "--num-warmups", "1",
                              "--clear-cache", "--save-result", path, "--json"});
  ASSERT_EQ(json.code, 0) << json.error;
  EXPECT_EQ(json.error, "");  // no bar where there is no terminal
  const auto report = nlohmann::json::parse(json.out);
  EXPECT_EQ(report["completed"], 6) << json.out;
  EXPECT_EQ(report["failed"], 0);
  EXPECT_EQ(report["total_input_tokens"], 6 * (64 + 24));
  EXPECT_EQ(report["total_output_tokens"], 6 * 5);
  EXPECT_EQ(report["cache_prompt_tokens"], report["total_input_tokens"]);
  EXPECT_EQ(report["cache_reused_tokens"], report["cached_tokens"]);
  EXPECT_GT(report["repeated_input_tokens"], 0);
  EXPECT_GT(report["mean_ttft_ms"], 0);
  EXPECT_EQ(report["repeats"].size(), 2u);
  const auto saved = nlohmann::json::parse(Slurp(path));
  ASSERT_EQ(saved["receipts"].size(), 12u);
  for (const std::string receipt : saved["receipts"]) EXPECT_EQ(receipt.size(), 16u);
  EXPECT_EQ(saved["total_output_tokens"], report["total_output_tokens"]);

  const Outcome text = bench({"--num-prompts", "3", "--max-concurrency", "1", "--repeats", "1"});
  EXPECT_EQ(text.code, 0) << text.error;
  EXPECT_NE(text.out.find("Successful requests:                     3\n"), std::string::npos);
  EXPECT_NE(text.out.find("Server's Cache"), std::string::npos);

  // The bench is refused, and says so, where its requests are.
  ExpectOneLine(Tessera({"bench", "serve", "--url", server.url()}), 2, "wants its API key");
  const Outcome failed =
      bench({"--num-prompts", "2", "--repeats", "1", "--extra-body", R"({"no_such_field":1})"});
  EXPECT_EQ(failed.code, 1);
  EXPECT_NE(failed.out.find("2 x status: HTTP 400: no_such_field"), std::string::npos);
  EXPECT_NE(failed.error.find("no request completed: HTTP 400"), std::string::npos);
  EXPECT_EQ(bench({"--num-prompts", "1", "--repeats", "1", "--save-result", "/dev/full"}).code, 5);
}

TEST(CommandLine, AnInterruptOfBenchServePrintsWhatWasMeasured) {
  const Scratch scratch;
  const ServeProcess server({});
  Process process({"bench", "serve", "--url", server.url(), "--request-rate", "20", "--num-prompts",
                   "2000", "--output-len", "2", "--repeats", "2"},
                  scratch / "out", scratch / "error");
  httplib::Client client(server.url());
  for (int i = 0; i < 10'000; ++i) {  // until the server has finished some
    const httplib::Result cache = client.Get("/cache");
    if (nlohmann::json::parse(cache->body)["totals"]["requests_finished"] > 2) break;
    usleep(1000);
  }
  process.Interrupt();
  EXPECT_EQ(process.Wait(), 130);
  const std::string out = Slurp(scratch / "out");
  EXPECT_NE(out.find("Unfinished requests:"), std::string::npos) << out;
  EXPECT_NE(out.find("Interrupted: the last repeat is a part of one."), std::string::npos);
  EXPECT_EQ(out.find("Successful requests:                     0"), std::string::npos) << out;
  EXPECT_EQ(Slurp(scratch / "error"), "");
}

TEST(CommandLine, BenchServeErrorsAreOneLineWithTheCodeOfTheirKind) {
  const auto bench = [](std::vector<std::string> flags) {
    flags.insert(flags.begin(), {"bench", "serve"});
    return Tessera(flags);
  };
  ExpectOneLine(bench({"--num-promts", "3"}), 2, "did you mean --num-prompts?");
  ExpectOneLine(bench({"--request-rate", "0"}), 2, "--request-rate: expected a number above 0");
  ExpectOneLine(bench({"--request-rate", "nan"}), 2, "--request-rate");
  ExpectOneLine(bench({"--cancel-fraction", "1.5"}), 2, "--cancel-fraction");
  ExpectOneLine(bench({"--goodput", "ttft:fast"}), 2, "--goodput: expected each of ttft:MS");
  ExpectOneLine(bench({"--percentile-metrics", "ttft,x"}), 2, "--percentile-metrics: 'x'");
  ExpectOneLine(bench({"--metric-percentiles", "101"}), 2, "--metric-percentiles");
  ExpectOneLine(bench({"--workload", "chat"}), 2, "--workload: 'chat' is neither");
  ExpectOneLine(bench({"--trace", "no.jsonl"}), 5, "no.jsonl");
  ExpectOneLine(bench({"--trace", TESSERA_SOURCE_DIR "/LICENSE"}), 3, "LICENSE");
  ExpectOneLine(bench({"--prompts", TESSERA_SOURCE_DIR "/LICENSE"}), 3, "LICENSE:2");
  ExpectOneLine(bench({"--endpoint", "/v1/models"}), 2, "--endpoint: expected /v1/completions");
  ExpectOneLine(bench({"--url", "https://127.0.0.1:1"}), 2, "without TLS");
  ExpectOneLine(bench({"--url", "http://127.0.0.1:1"}), 5, "nobody answers");
  ExpectOneLine(bench({"--save-result", "/no/such/folder/r.json"}), 5, "--save-result: /no/such");
}

TEST(CacheReport, TextOfPromptsCannotMoveTheCursor) {
  const std::string hostile =
      "a\x1b[2J\r\n\x7f\xC2\x9B"
      "31m\xC3\xA9\"";
  const Result<std::string> table = DescribeEntries(EntryThatBeginsWith(hostile).dump());
  ASSERT_TRUE(table) << table.error().message();
  const std::string line = table->substr(table->find('\n') + 1);
  EXPECT_NE(line.find(R"("a\u001b[2J\r\n\u007f\u009b31m)"
                      "\xC3\xA9"
                      R"(\"")"),
            std::string::npos)
      << line;
  EXPECT_EQ(line.find('\n'), line.size() - 1);
}

TEST(CacheReport, LongTextIsCutBetweenCharacters) {
  std::string text;
  for (int i = 0; i < 60; ++i) text += "\xE6\x97\xA5";
  const Result<std::string> table = DescribeEntries(EntryThatBeginsWith(text).dump());
  ASSERT_TRUE(table) << table.error().message();
  EXPECT_NE(table->find(text.substr(0, 48 * 3) + "\"…"), std::string::npos) << *table;
}

TEST(CacheReport, ASaltedEntryIsListedWithoutItsText) {
  const Result<std::string> table = DescribeEntries(EntryThatBeginsWith(nullptr).dump());
  ASSERT_TRUE(table) << table.error().message();
  EXPECT_NE(table->find("row,salted"), std::string::npos) << *table;
  EXPECT_NE(table->find("(not shown)"), std::string::npos) << *table;
}

TEST(CacheReport, AnAnswerOfAnotherServerIsAnIoErrorOfOneLine) {
  for (const char* body : {"", "<html>", "[]", "{}", R"({"entries": 5, "more": false})",
                           R"({"entries": [{"tokens": "x"}], "more": false})"}) {
    for (auto* describe : {DescribeEntries, DescribeLedger, DescribeClearing}) {
      const Result<std::string> text = describe(body);
      ASSERT_FALSE(text) << body;
      EXPECT_EQ(text.error().code(), StatusCode::kIo);
      EXPECT_EQ(text.error().message().find('\n'), std::string::npos) << text.error().message();
    }
  }
}

TEST(CommandLine, NearestWordFindsSlipsOnly) {
  const std::vector<std::string> flags = {"--prompt", "--prompt-file", "--threads", "--top-k"};
  EXPECT_EQ(NearestWord("--promt", flags), "--prompt");
  EXPECT_EQ(NearestWord("--thread", flags), "--threads");
  EXPECT_EQ(NearestWord("--topk", flags), "--top-k");
  EXPECT_EQ(NearestWord("--checkpoint-grid", flags), "");
  EXPECT_EQ(NearestWord("x", {"run"}), "");
  EXPECT_EQ(NearestWord("--temperature", {"--temp", "--top-k"}), "--temp") << "the longer form";
  // Four letters of six are another word, however few the flags there are.
  EXPECT_EQ(NearestWord("--memory", {"--model", "--port"}), "");
  EXPECT_EQ(NearestWord("--prot", {"--host", "--port"}), "--port") << "two neighbours swapped";
  EXPECT_EQ(NearestWord("--", {"--port"}), "");
  EXPECT_EQ(NearestWord("---", {"--port"}), "");
}

TEST(CommandLine, TokenIdsAreParsedStrictly) {
  EXPECT_EQ(*ParseTokenIds("1, 2 ,3"), (std::vector<TokenId>{1, 2, 3}));
  for (const char* bad : {"", "1,", "1,,2", "1 2", "-1", "1.5", "99999999999", "0x1"}) {
    EXPECT_FALSE(ParseTokenIds(bad)) << bad;
  }
}

}  // namespace
}  // namespace tessera::cli
