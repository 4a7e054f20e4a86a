// SPDX-License-Identifier: Apache-2.0
#include "cli/command_line.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <numeric>
#include <sstream>
#include <utility>

namespace tessera::cli {
namespace {

std::string EnvironmentName(std::string flag) {
  std::transform(flag.begin(), flag.end(), flag.begin(), [](char c) {
    return c == '-' ? '_' : static_cast<char>(c >= 'a' && c <= 'z' ? c - 'a' + 'A' : c);
  });
  return "TESSERA_" + flag;
}

void AddEnvironmentTwins(CLI::App& command) {
  for (CLI::Option* option : command.get_options()) {
    const bool is_flag = option->nonpositional() && !option->get_lnames().empty();
    if (!is_flag) continue;
    option->envname(EnvironmentName(option->get_lnames()[0]));
  }
}

// One flag a line, what it does beside it, wrapped. That each has a twin is said once, at the end.
class HelpFormatter : public CLI::Formatter {
 public:
  explicit HelpFormatter(const Verb& verb) : verb_(verb) {}

  std::string make_help(const CLI::App* app, std::string, CLI::AppFormatMode) const override {
    std::string text = fmt::format("{}\n\nUsage: {}\n", app->get_description(), UsageOf(*app));
    text +=
        Lines("Arguments",
              app->get_options([](const CLI::Option* option) { return option->get_positional(); }));
    for (const CLI::App* command : SubcommandsOf(*app)) {
      text += command == SubcommandsOf(*app).front() ? "\nCommands:\n" : "";
      text += Line(command->get_name(), command->get_description());
    }
    for (const std::string& group : app->get_groups()) {
      text += Lines(group, app->get_options([&](const CLI::Option* option) {
        return option->get_group() == group && option->nonpositional();
      }));
    }
    return text + kFooter + (verb_.name == "verify" ? kAllKernels : kOneKernel);
  }

 private:
  static constexpr size_t kHelpColumn = 26;
  static constexpr size_t kLineWidth = 96;
  static constexpr const char* kFooter =
      "\nEvery flag has an environment twin, its name in capitals: TESSERA_TEMP=0.7. A flag that "
      "is\n"
      "given wins. ";
  static constexpr const char* kOneKernel =
      "TESSERA_ISA=scalar, avx2 or avx512 chooses the kernels.\n";
  static constexpr const char* kAllKernels =
      "TESSERA_ISA has no say: all kernels that work are compared.\n";

  static std::vector<const CLI::App*> SubcommandsOf(const CLI::App& app) {
    return app.get_subcommands([](const CLI::App*) { return true; });
  }

  std::string UsageOf(const CLI::App& app) const {
    if (app.get_parent() == nullptr) return fmt::format("{} {}", app.get_name(), verb_.usage);
    std::string usage = fmt::format("{} {}", app.get_parent()->get_name(), app.get_name());
    for (const CLI::Option* option : app.get_options()) {
      if (option->get_positional()) usage += " " + option->get_name(true);
      if (!option->get_positional() && option->get_required()) {
        usage += fmt::format(" {} {}", option->get_name(), option->get_option_text());
      }
    }
    return usage + " [flags]";
  }

  std::string Lines(const std::string& title,
                    const std::vector<const CLI::Option*>& options) const {
    if (options.empty()) return {};
    std::string text = fmt::format("\n{}:\n", title);
    for (const CLI::Option* option : options) {
      std::string name = make_option_name(option, option->get_positional());
      if (!option->get_option_text().empty()) name += " " + option->get_option_text();
      text += Line(name, option->get_description());
    }
    return text;
  }

  // The words of `text` beside `name`, later lines under the first one's text.
  static std::string Line(const std::string& name, const std::string& text) {
    std::string line = "  " + name;
    line.resize(std::max(line.size() + 2, kHelpColumn), ' ');
    std::string lines;
    std::istringstream words(text);
    bool starts_line = true;
    for (std::string word; words >> word; starts_line = false) {
      if (!starts_line && line.size() + 1 + word.size() > kLineWidth) {
        lines += line + "\n";
        line = std::string(kHelpColumn, ' ');
        starts_line = true;
      }
      line += (starts_line ? "" : " ") + word;
    }
    return lines + line + "\n";
  }

  const Verb& verb_;
};

// The parser's own conversion takes 010 for 8 and, into 64 bits, -1 and too much for 2^64 - 1.
template <typename T>
bool IsDecimal(std::string_view text) {
  T value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return false;
  const std::string_view digits = text.substr(text.starts_with('-') ? 1 : 0);
  return digits.size() == 1 || !digits.starts_with('0');
}

void CheckNumbers(CLI::App& command) {
  for (CLI::Option* option : command.get_options()) {
    const std::string type = option->get_type_name();
    const bool is_unsigned = type.starts_with("UINT");
    if (!is_unsigned && !type.starts_with("INT")) continue;
    option->check([option, is_unsigned](const std::string& value) -> std::string {
      if (is_unsigned ? IsDecimal<uint64_t>(value) : IsDecimal<int64_t>(value)) return {};
      throw CLI::ConversionError(
          fmt::format("Could not convert: {} = {}", option->get_name(), value));
    });
  }
}

// An empty value is most often a variable that was not set: --budget "$B" must not run on the
// default budget, nor --api-key "$K" without a key.
void RefuseEmptyValues(CLI::App& command) {
  for (CLI::Option* option : command.get_options()) {
    if (option->get_items_expected_max() == 0) continue;  // a switch
    option->check([](const std::string& value) -> std::string {
      return value.empty() ? "the value is empty" : "";
    });
  }
}

// What every command and sub-command gets, once it has its own flags.
void AddEverywhere(CLI::App& command) {
  RefuseEmptyValues(command);
  CheckNumbers(command);
  AddEnvironmentTwins(command);
  command.set_help_flag("-h,--help", "Print this and exit")->group("Other");
  for (CLI::App* sub : command.get_subcommands([](const CLI::App*) { return true; })) {
    AddEverywhere(*sub);
  }
}

std::vector<std::string> FlagNames(const CLI::App& command) {
  std::vector<std::string> names;
  for (const CLI::Option* option : command.get_options()) {
    for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
  }
  for (const CLI::App* sub : command.get_subcommands()) {  // those that were named
    for (const std::string& name : FlagNames(*sub)) names.push_back(name);
  }
  return names;
}

// "verify", "bench kernels": the verb and the sub-command that was named.
std::string NameOf(const Verb& verb, const CLI::App& command) {
  std::string name(verb.name);
  for (const CLI::App* sub : command.get_subcommands()) name += " " + sub->get_name();
  return name;
}

// Letters put in, left out, taken for another, or two neighbours swapped: each is one slip.
size_t SlipsBetween(std::string_view typed, std::string_view meant) {
  std::vector<size_t> before_last, last, row(meant.size() + 1);
  std::iota(row.begin(), row.end(), size_t{0});
  for (size_t i = 1; i <= typed.size(); ++i) {
    before_last = std::move(last);
    last = std::exchange(row, std::vector<size_t>(meant.size() + 1, i));
    for (size_t j = 1; j <= meant.size(); ++j) {
      const size_t other = typed[i - 1] == meant[j - 1] ? 0 : 1;
      row[j] = std::min({last[j - 1] + other, last[j] + 1, row[j - 1] + 1});
      const bool swapped =
          i > 1 && j > 1 && typed[i - 1] == meant[j - 2] && typed[i - 2] == meant[j - 1];
      if (swapped) row[j] = std::min(row[j], before_last[j - 2] + 1);
    }
  }
  return row.back();
}

// What was typed that the verb does not know.
std::string UnexpectedArgument(const std::string& name, const CLI::App& command) {
  const std::vector<std::string> rest = command.remaining(/*recurse=*/true);
  const std::string word = rest.empty() ? std::string("?") : rest[0];
  if (word.size() < 2 || word[0] != '-') {
    return fmt::format("unexpected argument '{}'; see tessera {} --help", word, name);
  }
  const std::string flag = word.substr(0, word.find('='));
  const std::string nearest = NearestWord(flag, FlagNames(command));
  if (nearest == flag) return fmt::format("{} goes after '{}'", flag, name);
  return nearest.empty() ? fmt::format("unknown flag {}; see tessera {} --help", flag, name)
                         : fmt::format("unknown flag {}; did you mean {}?", flag, nearest);
}

// The flag, or its environment twin when that is where the value came from.
std::string WhereGiven(std::string_view flag, const std::vector<std::string>& arguments) {
  for (const std::string& argument : arguments) {
    if (argument == flag || argument.starts_with(fmt::format("{}=", flag)))
      return std::string(flag);
  }
  if (!flag.starts_with("--")) return std::string(flag);
  std::string twin = EnvironmentName(std::string(flag.substr(2)));
  return std::getenv(twin.c_str()) != nullptr ? twin : std::string(flag);
}

// The parser says "Could not convert: --flag = value".
std::string UnconvertibleValue(std::string_view text, const std::vector<std::string>& arguments) {
  const size_t colon = text.find(": ");
  const size_t equals = text.find(" = ");
  if (colon == std::string_view::npos || equals == std::string_view::npos || equals < colon) {
    return std::string(text);
  }
  return fmt::format("{} does not take '{}'",
                     WhereGiven(text.substr(colon + 2, equals - colon - 2), arguments),
                     text.substr(equals + 3));
}

// The parser says "--flag: 1 required UINT missing" and "--flag: At Most 1 required but received 2".
std::string MismatchedValues(std::string_view text) {
  const std::string_view flag = text.substr(0, text.find(": "));
  if (text.ends_with(" missing")) return fmt::format("{} needs a value", flag);
  if (text.find(": At Most 1 ") == flag.size()) {
    return fmt::format("{} is given more than once", flag);
  }
  return std::string(text);
}

// What a flag was given, as it was typed or as its environment twin has it; "" when it was not.
std::string RawValue(const CLI::Option& option, const std::vector<std::string>& arguments) {
  const std::string flag = "--" + option.get_lnames()[0];
  for (size_t i = 0; i < arguments.size(); ++i) {
    if (arguments[i].starts_with(flag + "=")) return arguments[i].substr(flag.size() + 1);
    if (arguments[i] == flag && i + 1 < arguments.size()) return arguments[i + 1];
  }
  const char* twin = std::getenv(option.get_envname().c_str());
  return twin != nullptr ? twin : "";
}

// The parser leaves out what is empty in a list: "1,,2" would be 1 and 2, and "," everything.
Status CheckLists(const CLI::App& command, const std::vector<std::string>& arguments) {
  for (const CLI::Option* option : command.get_options()) {
    if (option->get_delimiter() != ',' || option->get_lnames().empty()) continue;
    const std::string value = RawValue(*option, arguments);
    if (value.starts_with(',') || value.ends_with(',') || value.find(",,") != std::string::npos) {
      return InvalidArgument(fmt::format("{}: an item of '{}' is empty",
                                         WhereGiven(option->get_name(), arguments), value));
    }
  }
  for (const CLI::App* sub : command.get_subcommands()) {  // the one that was named
    TESSERA_RETURN_IF_ERROR(CheckLists(*sub, arguments));
  }
  return Status::Ok();
}

int ReportUsage(const std::string& name, const std::string& message) {
  std::string line = message;
  std::replace(line.begin(), line.end(), '\n', ' ');
  return ReportError(InvalidArgument(fmt::format("{}: {}", name, line)));
}

// A required argument or sub-command is missing.
int ReportMissing(const Verb& verb, const std::string& name, const std::string& what) {
  return ReportUsage(name, name == verb.name
                               ? fmt::format("{}; usage: tessera {} {}", what, name, verb.usage)
                               : fmt::format("{}; see tessera {} --help", what, name));
}

}  // namespace

void PrintNote(std::string_view text) { std::fwrite(text.data(), 1, text.size(), stderr); }

Status WriteResult(std::string_view text) {
  if (std::fwrite(text.data(), 1, text.size(), stdout) == text.size() && std::fflush(stdout) == 0) {
    return Status::Ok();
  }
  return IoError(errno == EPIPE ? std::string("stdout was closed before the end")
                                : fmt::format("cannot write to stdout: {}", std::strerror(errno)));
}

int PrintResult(std::string_view text) {
  const Status written = WriteResult(text);
  return written.ok() ? 0 : ReportError(written);
}

int ReportError(const Status& status) {
  PrintNote(fmt::format("tessera: {}\n", status.message()));
  switch (status.code()) {
    case StatusCode::kCancelled:
      return 130;
    case StatusCode::kUnavailable:
      return static_cast<int>(StatusCode::kFailed);
    default:
      return static_cast<int>(status.code());
  }
}

std::string NearestWord(std::string_view word, const std::vector<std::string>& candidates) {
  const auto letters = [](std::string_view text) {
    return text.substr(std::min(text.find_first_not_of('-'), text.size()));
  };
  const std::string_view asked = letters(word);
  if (asked.size() >= 2) {
    for (const std::string& candidate : candidates) {
      if (candidate.starts_with(word)) return candidate;
    }
  }
  std::string nearest;
  size_t least = asked.size() / 3 + 1;
  for (const std::string& candidate : candidates) {
    const size_t slips = SlipsBetween(asked, letters(candidate));
    if (slips < least) {
      least = slips;
      nearest = candidate;
    }
  }
  if (!nearest.empty()) return nearest;
  // A longer form of a flag: --temperature is --temp.
  for (const std::string& candidate : candidates) {
    const std::string_view flag = letters(candidate);
    if (flag.size() >= 4 && asked.starts_with(flag)) return candidate;
  }
  return {};
}

int RunVerb(const Verb& verb, int argument_count, const char* const* arguments) {
  CLI::App command(std::string(verb.summary), fmt::format("tessera {}", verb.name));
  command.formatter(std::make_shared<HelpFormatter>(verb));
  command.set_help_flag();  // comes last
  const Action action = verb.add(command);
  AddEverywhere(command);

  const std::vector<std::string> given(arguments, arguments + argument_count);
  std::vector<std::string> reversed(given);
  std::reverse(reversed.begin(), reversed.end());
  try {
    command.parse(reversed);
  } catch (const CLI::CallForHelp&) {
    return PrintResult(command.help());
  } catch (const CLI::ExtrasError&) {
    const std::string name = NameOf(verb, command);
    return ReportUsage(name, UnexpectedArgument(name, command));
  } catch (const CLI::RequiredError& error) {
    const std::vector<std::string> rest = command.remaining();
    const bool no_such = command.get_require_subcommand_min() > 0 &&
                         command.get_subcommands().empty() && !rest.empty();
    return ReportMissing(verb, NameOf(verb, command),
                         no_such ? fmt::format("there is no '{}'", rest[0]) : error.what());
  } catch (const CLI::ConversionError& error) {
    return ReportUsage(NameOf(verb, command), UnconvertibleValue(error.what(), given));
  } catch (const CLI::ParseError& error) {
    const Status lists = CheckLists(command, given);  // a list of nothing is said to be missing
    return ReportUsage(NameOf(verb, command),
                       lists.ok() ? MismatchedValues(error.what()) : lists.message());
  }
  const Status lists = CheckLists(command, given);
  if (!lists.ok()) return ReportUsage(NameOf(verb, command), lists.message());
  return action();
}

}  // namespace tessera::cli
