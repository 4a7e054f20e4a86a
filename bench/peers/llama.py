# SPDX-License-Identifier: Apache-2.0
"""llama.cpp through node-llama-cpp: its own prebuilt binary, in a node process behind a pipe.

What it is given: the CPU backend it chooses itself (`backend` says which), as many threads as
Tessera, one slot per sequence, batches of 512 (llama.cpp's own default), and flash attention and
mmap as `choose` found them faster. Its tokens are timed inside its own process, as the async
iterator yields them, so the pipe costs it nothing.
"""

import dataclasses
import json
import pathlib
import subprocess
import time

import engine

SCRIPT = pathlib.Path(__file__).resolve().parent / "llama_cpp.mjs"


@dataclasses.dataclass(frozen=True)
class Choice:
    flash: bool
    mmap: bool

    def __str__(self) -> str:
        on = {True: "on", False: "off"}
        return f"flash attention {on[self.flash]}, mmap {on[self.mmap]}"


class LlamaCpp:
    name = "llama.cpp"

    def __init__(self, packages: pathlib.Path, model: pathlib.Path, threads: int, sequences: int,
                 context: int, choice: Choice, log: pathlib.Path):
        self.command = ["node", str(SCRIPT), str(packages), str(model), "--threads", str(threads),
                        "--sequences", str(sequences), "--context", str(context)]
        self.command += ["--flash"] * choice.flash + ["--mmap"] * choice.mmap
        self.log = log

    def __enter__(self) -> "LlamaCpp":
        self.process = engine.Process(self.command, self.log, stdin=subprocess.PIPE,
                                      stdout=subprocess.PIPE, text=True, encoding="utf-8")
        try:
            self.about = self._read()["ready"]
            # Node's own start, about 0.2 s, is part of it, as the server's is of Tessera's.
            self.load_s = time.monotonic() - self.process.started
            self.backend = self.process.mapped(r"/libggml-cpu-[^/]*\.so$")
        except BaseException:
            self.process.stop()
            raise
        return self

    def __exit__(self, *_) -> None:
        self.process.stop()

    def _read(self) -> dict:
        line = self.process.child.stdout.readline()
        if not line:
            self.process.child.wait()
            raise self.process.complain("llama.cpp")
        return json.loads(line)

    def _call(self, op: str, **fields) -> dict:
        try:
            self.process.child.stdin.write(json.dumps({"op": op, **fields}) + "\n")
            self.process.child.stdin.flush()
        except BrokenPipeError:
            raise self.process.complain("llama.cpp") from None
        answer = self._read()
        if "error" in answer:
            raise engine.PeersError(f"llama.cpp: {op}: {answer['error']}")
        return answer

    def generate(self, prompts: list[list[int]], tokens: int) -> engine.Answer:
        got = self._call("generate", prompts=prompts, tokens=tokens)
        return engine.Answer(got["times"], got["evaluated"], batches=got["batches"])

    def ask(self, shared: list[int], rest: list[int], tokens: int) -> engine.Answer:
        got = self._call("ask", shared=shared, rest=rest, tokens=tokens)
        text = self._call("detokenize", ids=got["ids"][0])["text"]
        return engine.Answer(got["times"], got["evaluated"], text, got["batches"])

    def tokenize(self, text: str) -> list[int]:
        return self._call("tokenize", text=text)["ids"]


def choose(make, prompt: list[int], tokens: int, say) -> Choice:
    """The faster of flash attention on and off, then of mmap on and off, each tried once.

    `make(choice)` gives an engine; faster is the larger product of the two rates.
    """
    def score(choice: Choice) -> float:
        with make(choice) as peer:
            peer.generate([prompt[:64]], 4)
            answer = peer.generate([prompt], tokens)
        prefill, decode = len(prompt) / answer.first_token(), answer.together()
        say(f"  llama.cpp, {choice}: prefill {prefill:.1f}, decode {decode:.1f} tok/s")
        return prefill * decode

    tried = {choice: score(choice) for choice in (Choice(False, False), Choice(True, False))}
    mapped = Choice(max(tried, key=tried.get).flash, True)
    tried[mapped] = score(mapped)
    return max(tried, key=tried.get)
