#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tessera beside llama.cpp: one model file, the same threads, alternating in one run.

    bench/peers/run.py --tessera build/release/bin/tessera

makes the Falcon-H1-0.5B shape in bf16 (random weights, about 1 GB) if it is not there yet, installs
node-llama-cpp 3.21.1 beside it, and for each round measures Tessera, then llama.cpp: prefill of 512
random tokens and greedy decode of 64 by one sequence. It prints every round's tokens/s, medians,
spread and the ratio of medians; --json FILE keeps the numbers. Exit code 1 when a ratio is below
--at-least.
"""

import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
PLATFORM = "linux-x64"


def parse_args() -> argparse.Namespace:
    cache = pathlib.Path(os.environ.get("XDG_CACHE_HOME", pathlib.Path.home() / ".cache"))
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--tessera", default=str(ROOT / "build/release/bin/tessera"))
    parser.add_argument("--work", default=str(cache / "tessera-peers"),
                        help="where the model and the peer's packages are kept")
    parser.add_argument("--model", help="a GGUF file instead of the one that would be made")
    parser.add_argument("--geometry", default="falcon-h1-0.5b")
    parser.add_argument("--type", default="bf16")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--prefill", type=int, default=512)
    parser.add_argument("--decode", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--at-least", type=float, default=0.0)
    parser.add_argument("--json", metavar="FILE")
    return parser.parse_args()


def install_peer(work: pathlib.Path) -> pathlib.Path:
    """node_modules with the versions of package.json, the other platforms' binaries left out."""
    packages = work / "packages"
    packages.mkdir(parents=True, exist_ok=True)
    wanted = (HERE / "package.json").read_text(encoding="utf-8")
    (packages / "package.json").write_text(wanted, encoding="utf-8")
    if not (packages / "node_modules/@node-llama-cpp" / PLATFORM).exists():
        subprocess.run(["npm", "install", "--ignore-scripts", "--omit=optional", "--no-audit",
                        "--no-fund", "--no-package-lock", "--silent"], cwd=packages, check=True)
    return packages


def model_file(args: argparse.Namespace, work: pathlib.Path) -> pathlib.Path:
    if args.model:
        return pathlib.Path(args.model)
    path = work / f"{args.geometry}-{args.type}-{args.seed}.gguf"
    if not path.exists():
        subprocess.run([args.tessera, "bench", "make-model", "--geometry", args.geometry, "--type",
                        args.type, "--seed", str(args.seed), str(path)], check=True)
    return path


def random_tokens(count: int, vocabulary: int, seed: int) -> list[int]:
    """The same stream as llama_cpp.mjs's."""
    tokens = []
    x = seed & 0xFFFFFFFF
    for _ in range(count):
        x = (x * 1664525 + 1013904223) & 0xFFFFFFFF
        tokens.append(x % vocabulary)
    return tokens


def measure_tessera(args: argparse.Namespace, model: pathlib.Path, prompt: list[int]) -> dict:
    command = [args.tessera, "run", str(model), "--prompt-tokens", ",".join(map(str, prompt)), "-n",
               str(args.decode), "--ignore-eos", "--threads", str(args.threads), "--json"]
    output = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    result = json.loads(output)
    timings = result["timings"]
    return {"prefill": [timings["prompt_per_second"]], "decode": [timings["predicted_per_second"]]}


def measure_peer(args: argparse.Namespace, packages: pathlib.Path, model: pathlib.Path) -> dict:
    command = ["node", str(HERE / "llama_cpp.mjs"), str(packages), str(model), "--threads",
               str(args.threads), "--prefill", str(args.prefill), "--decode", str(args.decode),
               "--repeats", "1", "--seed", str(args.seed)]
    result = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    return {"prefill": result["prefill_tps"], "decode": result["decode_tps"],
            "version": result["version"], "vocabulary": result["vocabulary"]}


def main() -> int:
    args = parse_args()
    work = pathlib.Path(args.work)
    work.mkdir(parents=True, exist_ok=True)
    packages = install_peer(work)
    model = model_file(args, work)

    rates = {engine: {"prefill": [], "decode": []} for engine in ("tessera", "llama.cpp")}
    version, prompt = "", None
    for number in range(args.rounds):
        # The peer goes first: it says how large the vocabulary is, from which the prompt is drawn.
        peer = measure_peer(args, packages, model)
        version = peer["version"]
        prompt = prompt or random_tokens(args.prefill, peer["vocabulary"], args.seed)
        ours = measure_tessera(args, model, prompt)
        for phase in ("prefill", "decode"):
            rates["llama.cpp"][phase] += peer[phase]
            rates["tessera"][phase] += ours[phase]
        print(f"round {number + 1}: prefill {ours['prefill'][0]:.1f} against "
              f"{peer['prefill'][0]:.1f}, decode {ours['decode'][0]:.1f} against "
              f"{peer['decode'][0]:.1f} tok/s", flush=True)

    print(f"\n{model.name}, {args.threads} threads, {args.rounds} rounds, {version}")
    print(f"{'':<20}{'Tessera':>22}{'llama.cpp':>22}{'ratio':>8}")
    summary, worst = {}, float("inf")
    for phase, tokens in (("prefill", args.prefill), ("decode", args.decode)):
        cells, medians = [], {}
        for engine in ("tessera", "llama.cpp"):
            values = rates[engine][phase]
            medians[engine] = statistics.median(values)
            cells.append(f"{medians[engine]:.1f} ({min(values):.1f}-{max(values):.1f})")
        ratio = medians["tessera"] / medians["llama.cpp"]
        worst = min(worst, ratio)
        summary[phase] = {"tokens": tokens, "ratio": ratio, "median_tps": medians,
                          "tps": {engine: rates[engine][phase] for engine in rates}}
        print(f"{f'{phase} {tokens}, tok/s':<20}{cells[0]:>22}{cells[1]:>22}{ratio:>7.2f}x")
    if args.json:
        record = {"model": model.name, "threads": args.threads, "peer": version, "result": summary}
        pathlib.Path(args.json).write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    return 1 if worst < args.at_least else 0


if __name__ == "__main__":
    sys.exit(main())
