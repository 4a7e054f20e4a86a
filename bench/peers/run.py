#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tessera beside llama.cpp: the same GGUF file, the same threads, alternating in one run.

    bench/peers/run.py --tessera build/release/bin/tessera

makes the Falcon-H1-0.5B shape of random weights in each type (up to 1 GB each) if it is not there
yet, installs node-llama-cpp 3.21.1 beside it, and for each type and thread count measures

    prefill     one prompt of 512 random tokens: tokens by the time to its first token
    decode N    N = 1, 4, 8, 16 prompts of 64 random tokens each, all handed over at once, 64
                tokens of each: tokens/s of all N together, from the moment at which the last one
                has its first token to the moment at which the first one ends

and on the bundled model, for each thread count

    question K  one text of 1,690 tokens and a question; then the second and the third question
                after the same text, in the same process: time to the first token. llama.cpp keeps
                the text in its slot and a checkpoint at its end.

The clock starts when the caller hands the prompts over, and a token is there when the caller has
it: Tessera's caller is this program, over HTTP (tessera.py), llama.cpp's is the node program that
runs it (llama.py, llama_cpp.mjs). Both decode greedily, past any end of text. For each measure both
processes are started, warmed up with the same work, and then take turns, the first turn changing
sides every round; the one that waits is watched not to compute. Each question round has fresh
processes. Resident memory is each process's VmHWM at the end, load is from its start until it
answers, with the file in the page cache.

Exit codes: 0; 1 a ratio is below --at-least; 2 it cannot run (one line says why); 130 Ctrl-C, after
the rows that were complete. --json FILE keeps every sample.
"""

import argparse
import json
import os
import pathlib
import signal
import sys
import time

import prepare
import table
from engine import Answer, PeersError
from llama import Choice, LlamaCpp, choose
from tessera import Tessera

SEQUENCES = (1, 4, 8, 16)
MEASURES = ("prefill", *(f"decode{n}" for n in SEQUENCES), "harbour")
DECODE_PROMPT = 64
QUESTIONS = 3
ANSWER_TOKENS = 24  # as the demo asks for
IDLE_CORES_MAX = 0.05


def say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def comma_list(text: str) -> list[str]:
    return [item for item in text.split(",") if item]


def parse_args() -> argparse.Namespace:
    cache = pathlib.Path(os.environ.get("XDG_CACHE_HOME", pathlib.Path.home() / ".cache"))
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--tessera", default=str(prepare.ROOT / "build/release/bin/tessera"))
    add("--work", type=pathlib.Path, default=cache / "tessera-peers",
        help="where models and the peer's packages are kept")
    add("--model", type=pathlib.Path, help="a GGUF file instead of those that would be made")
    add("--geometry", default="falcon-h1-0.5b")
    add("--types", type=comma_list, default=["bf16", "q8_0", "q4_k"], metavar="T,..",
        help="weight types (default bf16,q8_0,q4_k)")
    add("--threads", type=comma_list, default=["2", "1"], metavar="N,..", help="default 2,1")
    add("--only", type=comma_list, default=list(MEASURES), metavar="M,..",
        help=f"of {','.join(MEASURES)}")
    add("--rounds", type=int, help="default 5; with --quick 2")
    add("--quick", action="store_true", help="fewer rounds, 24 tokens decoded")
    add("--prefill", type=int, default=512)
    add("--decode", type=int, help="tokens decoded (default 64; with --quick 24)")
    add("--budget-per-sequence", type=int, default=64, metavar="MIB",
        help="Tessera's state budget: 64 MiB hold 600 tokens of the 0.5B shape")
    add("--peer", choices=["flash", "flash,mmap", "mmap", "plain"],
        help="llama.cpp's options instead of trying which are faster")
    add("--seed", type=int, default=1)
    add("--at-least", type=table.parse_gate, action="append", default=[], metavar="[NAME/..=]X",
        help="least ratio of all rows, or of those with these names: bf16/2t/decode8=6")
    add("--json", metavar="FILE", type=pathlib.Path)
    args = parser.parse_args()
    args.rounds = args.rounds or (2 if args.quick else 5)
    args.decode = args.decode or (24 if args.quick else 64)
    for name in args.only:
        if name not in MEASURES:
            parser.error(f"--only: '{name}' is none of {', '.join(MEASURES)}")
    if not all(count.isdigit() and int(count) > 0 for count in args.threads):
        parser.error(f"--threads: expected counts, found {','.join(args.threads)}")
    args.threads = [int(count) for count in args.threads]
    return args


def sample(engine, other, run, value) -> table.Sample:
    """One turn of `engine`, while `other` is expected to sleep."""
    cpu, idle, start = engine.process.cpu_seconds(), other.process.cpu_seconds(), time.monotonic()
    answer: Answer = run(engine)
    wall = time.monotonic() - start
    idle_cores = (other.process.cpu_seconds() - idle) / wall
    # Clock ticks are 10 ms: below a second they say little.
    if wall > 1 and idle_cores > IDLE_CORES_MAX:
        say(f"  warning: {other.name} used {idle_cores:.2f} cores while it should have waited")
    return table.Sample(value(answer), (engine.process.cpu_seconds() - cpu) / wall,
                        answer.evaluated, answer.batches)


def turns(pair, number: int):
    """(who computes, who waits), twice; who begins changes with every round."""
    order = [pair, pair[::-1]]
    return order if number % 2 == 0 else order[::-1]


class Bench:
    """The cells of one run; `rows` grows as they complete."""

    def __init__(self, args: argparse.Namespace, packages: pathlib.Path):
        self.args = args
        self.packages = packages
        self.rows: list[table.Row] = []
        self.about: dict = {"choices": {}}

    def pair(self, model: pathlib.Path, threads: int, sequences: int, context: int,
             choice: Choice) -> tuple[Tessera, LlamaCpp]:
        logs = self.args.work
        return (Tessera(self.args.tessera, model, threads, sequences,
                        sequences * self.args.budget_per_sequence, logs / "tessera.log"),
                LlamaCpp(self.packages, model, threads, sequences, context, choice,
                         logs / "llama.cpp.log"))

    def choice_for(self, model: pathlib.Path, threads: int) -> Choice:
        if self.args.peer:
            return Choice("flash" in self.args.peer, "mmap" in self.args.peer)
        context = self.args.prefill + 64

        def make(choice: Choice) -> LlamaCpp:
            return self.pair(model, threads, 1, context, choice)[1]

        prompt = prepare.random_tokens(self.args.prefill, 256, self.args.seed)
        choice = choose(make, prompt, 16, say)
        self.about["choices"][f"{model.name}, {threads} threads"] = str(choice)
        return choice

    def rates(self, model: pathlib.Path, name: str, threads: int, measure: str,
              choice: Choice) -> None:
        """A row of tokens/s: prefill, or decode of several sequences together."""
        args = self.args
        prefill = measure == "prefill"
        sequences = 1 if prefill else int(measure.removeprefix("decode"))
        length, tokens = (args.prefill, 1) if prefill else (DECODE_PROMPT, args.decode)
        pair = self.pair(model, threads, sequences, length + tokens + 32, choice)
        samples = {"tessera": [], "llama.cpp": []}

        def value(answer: Answer) -> float:
            return length / answer.first_token() if prefill else answer.together()

        with pair[0], pair[1]:
            for turn in range(args.rounds + 1):  # the first warms up
                prompts = [prepare.random_tokens(length, pair[1].about["vocabulary"],
                                                 args.seed + 1000 * turn + i)
                           for i in range(sequences)]
                for engine, other in turns(pair, turn):
                    got = sample(engine, other, lambda e: e.generate(prompts, tokens), value)
                    if turn > 0:
                        samples[engine.name].append(got)
                if turn > 0:
                    self.progress(name, threads, measure, turn, samples, "tok/s")
        self.add_row(name, threads, measure, "tok/s", samples, pair)

    def questions(self, model: pathlib.Path, threads: int, choice: Choice) -> None:
        """Rows of the first three questions over one text, in fresh processes every round."""
        args = self.args
        items = json.loads((prepare.ROOT / "models/harbour-questions.json").read_text("utf-8"))
        text = (prepare.ROOT / "models/harbour-context.txt").read_text("utf-8").rstrip("\n")
        samples = [{"tessera": [], "llama.cpp": []} for _ in range(QUESTIONS)]
        for turn in range(1, args.rounds + 1):
            pair = self.pair(model, threads, 1, 2048, choice)
            with pair[0], pair[1]:
                prompts = [pair[1].tokenize(f"{text}\nQ: {item['question']}\nA:")
                           for item in items[:QUESTIONS]]
                # Tokens that all questions begin with: the text, and the line break merged into it.
                shared = os.path.commonprefix(prompts)
                for engine in pair:  # what a process does only once is not a question's cost
                    engine.generate([prepare.random_tokens(DECODE_PROMPT, 512, turn)], 4)
                for number, item in enumerate(items[:QUESTIONS]):
                    for engine, other in turns(pair, turn):
                        self.ask(engine, other, shared, prompts[number][len(shared):],
                                 item["answer"], samples[number])
            say(f"  harbour, {threads} threads, round {turn}: " + ", ".join(
                f"question {i + 1} {one['tessera'][-1].value:.1f} against "
                f"{one['llama.cpp'][-1].value:.1f} ms" for i, one in enumerate(samples)))
        for number, one in enumerate(samples):
            self.add_row("harbour", threads, f"question{number + 1}", "ms", one, pair)

    def ask(self, engine, other, shared: list[int], rest: list[int], expected: str,
            samples: dict) -> None:
        answers = []

        def run(one) -> Answer:
            answers.append(one.ask(shared, rest, ANSWER_TOKENS))
            return answers[0]

        got = sample(engine, other, run, lambda answer: 1000 * answer.first_token())
        got.right = answers[0].text.strip().startswith(expected)
        samples[engine.name].append(got)

    @staticmethod
    def progress(name: str, threads: int, measure: str, turn: int, samples: dict,
                 unit: str) -> None:
        say(f"  {name}, {threads} threads, {measure}, round {turn}: "
            f"{samples['tessera'][-1].value:.1f} against {samples['llama.cpp'][-1].value:.1f} "
            f"{unit}")

    def add_row(self, name: str, threads: int, measure: str, unit: str, samples: dict,
                pair) -> None:
        row = table.Row(name, threads, measure, unit, samples,
                        {engine.name: engine.process.peak_mib for engine in pair},
                        {engine.name: engine.load_s for engine in pair})
        if unit == "ms":
            last = [samples[engine][-1] for engine in ("tessera", "llama.cpp")]
            row.note = "computed " + " / ".join(f"{one.evaluated:,}" for one in last) + " tokens"
            wrong = [engine for engine, all_of in samples.items()
                     if not all(one.right for one in all_of)]
            row.note += f", WRONG ANSWER: {', '.join(wrong)}" if wrong else ""
        self.rows.append(row)
        self.about["llama.cpp"] = pair[1].about | {"backend": pair[1].backend}

    def models(self) -> list[tuple[str, pathlib.Path]]:
        args = self.args
        if args.model:
            return [(args.model.stem, args.model)]
        return [(weights, prepare.model_file(args.tessera, args.work, args.geometry, weights,
                                             args.seed, say)) for weights in args.types]

    def everything(self) -> None:
        args = self.args
        rated = [measure for measure in args.only if measure != "harbour"]
        # All models first: what cannot be made is known before anything is measured.
        for name, model in self.models() if rated else ():
            for threads in args.threads:
                say(f"{name}, {threads} threads")
                read_whole(model)
                choice = self.choice_for(model, threads)
                for measure in rated:
                    self.rates(model, name, threads, measure, choice)
        harbour = prepare.ROOT / "models/harbour-2.8m-q8_0.gguf"
        for threads in args.threads if "harbour" in args.only else ():
            say(f"harbour, {threads} threads")
            self.questions(harbour, threads, self.choice_for(harbour, threads))


def read_whole(path: pathlib.Path) -> None:
    """Into the page cache, so that neither engine's load waits for a disk."""
    with path.open("rb") as file:
        while file.read(1 << 24):
            pass


def report(args: argparse.Namespace, bench: Bench, facts: dict) -> None:
    facts |= bench.about | {"load_average_after": os.getloadavg()[0], "rounds": args.rounds,
                            "prefill": args.prefill, "decode": args.decode,
                            "decode_prompt": DECODE_PROMPT, "geometry": args.geometry}
    peer = bench.about["llama.cpp"]
    print(f"{facts['tessera']}; {peer['version']}, llama.cpp {peer['llama_cpp']}, "
          f"{', '.join(peer['backend'])}")
    print(f"{facts['cpu']}, {facts['cpus']} CPUs, {facts['date']}; medians of {args.rounds} rounds "
          "(lowest–highest)")
    for where, choice in facts["choices"].items():
        print(f"llama.cpp with {choice}: {where}")
    print("\n" + table.text(bench.rows))
    if args.json:
        record = facts | {"rows": [row.json() for row in bench.rows]}
        args.json.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")


def main() -> int:
    args = parse_args()
    # A terminated run ends its children like an interrupted one.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        args.work.mkdir(parents=True, exist_ok=True)
        if not os.access(args.tessera, os.X_OK):
            raise PeersError(f"{args.tessera}: not there (make build, or --tessera)")
        facts = prepare.machine(args.tessera) | {"node": prepare.check_node()}
        bench = Bench(args, prepare.install_peer(args.work, say))
    except (PeersError, OSError) as error:
        say(f"peers: {error}")
        return 2
    if facts["load_average"] > 0.5:
        say(f"warning: load average {facts['load_average']:.1f}: others compute here too, which "
            "costs the engines unequally; figures are provisional")
    code = 0
    try:
        bench.everything()
    except KeyboardInterrupt:
        say("interrupted")
        code = 130
    except (PeersError, OSError) as error:
        say(f"peers: {error}")
        code = 2
    if bench.rows:
        report(args, bench, facts)
    if code == 0:
        missed = table.below(bench.rows, args.at_least)
        for line in missed:
            say(line)
        code = 1 if missed else 0
    return code


if __name__ == "__main__":
    sys.exit(main())
