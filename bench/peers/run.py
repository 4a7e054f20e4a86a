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
processes. Resident memory is each process's VmHWM at the end (Tessera's has its whole state budget
in it), load is from its start until it answers, with the file in the page cache. "read GB/s" is
what this many threads can read from memory before and after a measure (tessera bench kernels): on a
shared host it changes by the minute, and decoding is bound by it.

Exit codes: 0; 1 a ratio is below --at-least; 2 it cannot run (one line says why); 130 Ctrl-C, after
the rows that were complete. --json FILE keeps every sample.
"""

import argparse
import json
import os
import pathlib
import signal
import subprocess
import sys

import prepare
import table
from bench import DECODE_PROMPT, Bench, say
from engine import PeersError

SEQUENCES = (1, 4, 8, 16)
MEASURES = ("prefill", *(f"decode{n}" for n in SEQUENCES), "harbour")


# What a run can meet that is no fault of this program.
ERRORS = (PeersError, OSError, subprocess.SubprocessError)


def comma_list(text: str) -> list[str]:
    items = text.split(",")
    if not all(items):
        raise argparse.ArgumentTypeError(f"expected names with commas between, found '{text}'")
    return items


def positive_int(text: str) -> int:
    if not (text.isascii() and text.isdigit()) or int(text) == 0:
        raise argparse.ArgumentTypeError(f"expected a whole number from 1 on, found '{text}'")
    return int(text)


def positive_ints(text: str) -> list[int]:
    return [positive_int(item) for item in comma_list(text)]


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
    add("--threads", type=positive_ints, default=[2, 1], metavar="N,..", help="default 2,1")
    add("--only", type=comma_list, default=list(MEASURES), metavar="M,..",
        help=f"of {','.join(MEASURES)}")
    add("--rounds", type=positive_int, metavar="N", help="default 5; with --quick 2")
    add("--quick", action="store_true", help="fewer rounds, 24 tokens decoded")
    add("--prefill", type=positive_int, default=512, metavar="N",
        help="tokens of the prompt (default 512)")
    add("--decode", type=positive_int, metavar="N",
        help="tokens decoded (default 64; with --quick 24)")
    add("--budget-per-sequence", type=positive_int, default=64, metavar="MIB",
        help="Tessera's state budget: 64 MiB hold 600 tokens of the 0.5B shape")
    add("--peer", choices=["flash", "flash,mmap", "mmap", "plain"], metavar="OPTIONS",
        help="llama.cpp's (flash; flash,mmap; mmap; plain) instead of trying which are faster")
    add("--seed", type=int, default=1)
    add("--at-least", type=table.parse_gate, action="append", default=[], metavar="[NAME/..=]X",
        help="least ratio of all rows, or of those with these names: bf16/2t/decode8=6")
    add("--json", metavar="FILE", type=pathlib.Path)
    args = parser.parse_args()
    if args.rounds is None:
        args.rounds = 2 if args.quick else 5
    if args.decode is None:
        args.decode = 24 if args.quick else 64
    for name in args.only:
        if name not in MEASURES:
            parser.error(f"--only: '{name}' is none of {', '.join(MEASURES)}")
    return args


def check_files(args: argparse.Namespace) -> None:
    """What would otherwise be missed only after minutes."""
    if not (os.path.isfile(args.tessera) and os.access(args.tessera, os.X_OK)):
        raise PeersError(f"{args.tessera}: not there (make build, or --tessera)")
    if args.model and not (args.model.is_file() and os.access(args.model, os.R_OK)):
        raise PeersError(f"--model {args.model}: there is no file that can be read")
    if args.json:
        folder = args.json.parent
        writable = (args.json.is_file() and os.access(args.json, os.W_OK)
                    if args.json.exists() else
                    folder.is_dir() and os.access(folder, os.W_OK | os.X_OK))
        if not writable:
            raise PeersError(f"--json {args.json}: cannot be written")
    args.work.mkdir(parents=True, exist_ok=True)


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
        check_files(args)
        facts = prepare.machine(args.tessera) | {"node": prepare.check_node()}
        bench = Bench(args, prepare.install_peer(args.work, say))
    except KeyboardInterrupt:
        say("interrupted")
        return 130
    except ERRORS as error:
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
    except ERRORS as error:
        say(f"peers: {error}")
        code = 2
    if bench.rows:
        try:
            report(args, bench, facts)
        except OSError as error:
            say(f"peers: {error}")
            code = code or 2
    elif code == 0:
        say("peers: nothing was measured")
        code = 2
    if code == 0:
        missed = table.below(bench.rows, args.at_least)
        for line in missed:
            say(line)
        code = 1 if missed else 0
    return code


if __name__ == "__main__":
    sys.exit(main())
