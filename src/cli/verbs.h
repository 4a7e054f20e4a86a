// SPDX-License-Identifier: Apache-2.0
//
// The verbs of the command line. A verb is one file with one function, and one line in kVerbs; it
// adds its flags to the parser it is given and returns what to do once they are parsed.
//
// Exit codes (DESIGN §8): 0 ok, 1 a check failed, 2 usage, 3 bad input file, 4 no memory in the
// budget, 5 I/O; 130 after an interrupt. An error is one line on stderr, "tessera: …".
#pragma once

#include <functional>
#include <string_view>

namespace CLI {
class App;
}

namespace tessera::cli {

// Returns the exit code.
using Action = std::function<int()>;

Action AddRun(CLI::App& command);
Action AddServe(CLI::App& command);
Action AddPlan(CLI::App& command);
Action AddVerify(CLI::App& command);
Action AddBench(CLI::App& command);
Action AddCache(CLI::App& command);

struct Verb {
  std::string_view name;
  std::string_view usage;  // after the name
  std::string_view summary;
  Action (*add)(CLI::App& command);
};

inline constexpr Verb kVerbs[] = {
    {"run", "MODEL --prompt TEXT [flags]", "Continue a prompt and print the text", AddRun},
    {"serve", "MODEL [flags]", "Answer OpenAI-compatible requests over HTTP", AddServe},
    {"plan", "MODEL | --geometry NAME [flags]", "Say what its state memory takes and holds",
     AddPlan},
    {"verify", "MODEL [--quick] [flags]", "Prove exactness on this machine", AddVerify},
    {"bench", "kernels | step MODEL | memory | replay FILE | serve | make-model FILE",
     "Measure this machine, a model, a server and what is reused", AddBench},
    {"cache", "ls | show | clear [--url URL]", "Look at what a running server keeps", AddCache},
};

}  // namespace tessera::cli
