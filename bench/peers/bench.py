# SPDX-License-Identifier: Apache-2.0
"""The cells of a run: which engines are started with what, and what they are asked in which order.

run.py says what is measured; a row is added when all its rounds are complete.
"""

import argparse
import json
import os
import pathlib
import sys
import time

import prepare
import table
from engine import Answer
from llama import Choice, LlamaCpp, choose
from tessera import Tessera

DECODE_PROMPT = 64
QUESTIONS = 3
ANSWER_TOKENS = 24  # as the demo asks for
IDLE_CORES_MAX = 0.05
BUNCHED_MAX = 0.1


def say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


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
                        answer.evaluated, answer.bunched(), answer.batches)


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
        read = [prepare.read_bandwidth(args.tessera, threads)]

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
        read.append(prepare.read_bandwidth(args.tessera, threads))
        self.add_row(name, threads, measure, "tok/s", samples, pair, read)

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

    def add_row(self, name: str, threads: int, measure: str, unit: str, samples: dict, pair,
                read: list[float] | None = None) -> None:
        row = table.Row(name, threads, measure, unit, samples,
                        {engine.name: engine.process.peak_mib for engine in pair},
                        {engine.name: engine.load_s for engine in pair}, read or [])
        if unit == "ms":
            last = [samples[engine][-1] for engine in ("tessera", "llama.cpp")]
            row.note = "computed " + " / ".join(f"{one.evaluated:,}" for one in last) + " tokens"
            wrong = [engine for engine, all_of in samples.items()
                     if not all(one.right for one in all_of)]
            row.note += f", WRONG ANSWER: {', '.join(wrong)}" if wrong else ""
        elif any(one.bunched > BUNCHED_MAX for one in samples["tessera"]):
            row.note = "tokens came in bunches, the rate is wrong: the client waited for a CPU"
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
