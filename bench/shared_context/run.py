#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Eight shared contexts under a budget too small for them: chosen cells, and llama.cpp.

    bench/shared_context/run.py --tessera build/release/bin/tessera

asks questions about 8 contexts of 1,500 tokens each on the bundled model, at a fixed rate, of a
server that holds about half of the contexts. A cell (cells.py) is an organisation, a headroom, a
retention and who shares; the last two are llama.cpp as llama-server uses it (llama_server.mjs).
Every run is a fresh server, a warm-up with contexts of its own, and one load of `tessera bench
serve`; within a repeat all cells get the same prompts at the same times, the next repeat has other
ones. Each repeat visits all cells in an order of its own, such that in three repeats every cell has
the same mean place: what drifts evenly in time adds the same to all.

--json FILE is written anew after every run; --resume goes on with it, --from only prints it.
--write-docs puts the table into docs/performance.md and the figures into docs/images.

Exit codes: 0; 2 it cannot run, or a run failed (a line says why); 130 Ctrl-C, with what was
measured so far.
"""

import argparse
import dataclasses
import fnmatch
import http.client
import json
import os
import pathlib
import signal
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "bench/peers"))

# pylint: disable=wrong-import-position
import cells  # noqa: E402
import measure  # noqa: E402
import prepare  # noqa: E402
import report  # noqa: E402
from engine import PeersError  # noqa: E402

ERRORS = (PeersError, OSError, http.client.HTTPException, subprocess.SubprocessError, ValueError)
QUICK = ["s3", "s3 isolate"]
RECORD = {"samples", "load", "budget", "threads", "seed", "repeats", "tessera", "cpu", "date",
          "load_average"}


def say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def positive(kind):
    def parse(text: str):
        value = kind(text)
        if not 0 < value < float("inf"):
            raise argparse.ArgumentTypeError(f"expected a number above 0, found '{text}'")
        return value
    parse.__name__ = kind.__name__
    return parse


def parse_args() -> argparse.Namespace:
    cache = pathlib.Path(os.environ.get("XDG_CACHE_HOME", pathlib.Path.home() / ".cache"))
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--tessera", default=str(ROOT / "build/release/bin/tessera"))
    add("--model", type=pathlib.Path, default=ROOT / "models/harbour-2.8m-q8_0.gguf")
    add("--threads", type=positive(int), default=len(os.sched_getaffinity(0)), metavar="N",
        help="of both engines (default: all CPUs)")
    add("--only", type=lambda text: text.split(","), metavar="CELL,..",
        help="cells by name; * and ? match ('s3*', 'llama.cpp*'); --list names all")
    add("--list", action="store_true", help="print the cells' names and end")
    add("--repeats", type=positive(int), default=3, metavar="N", help="default 3")
    add("--questions", type=positive(int), default=measure.Load.questions, metavar="N",
        help="of a run (default %(default)s)")
    add("--rate", type=positive(float), default=measure.Load.rate, metavar="R",
        help="questions a second (default %(default)s)")
    add("--seed", type=int, default=1, help="of prompts, arrivals and orders (default 1)")
    add("--quick", action="store_true",
        help=f"{' and '.join(QUICK)}, one run of 24 questions each: does it work?")
    add("--work", type=pathlib.Path, default=cache / "tessera-peers",
        help="where llama.cpp's packages and logs are kept")
    add("--json", type=pathlib.Path, metavar="FILE",
        help="default build/shared-context.json; with --quick build/shared-context-quick.json")
    add("--resume", action="store_true", help="keep what FILE has of the same load")
    add("--from", dest="source", type=pathlib.Path, metavar="FILE",
        help="measure nothing, report FILE")
    add("--write-docs", action="store_true")
    args = parser.parse_args()
    if args.quick and args.write_docs:
        parser.error("--quick measures nothing that --write-docs should write")
    if args.quick:
        args.repeats, args.questions = 1, 24
        args.only = args.only or QUICK
    if args.json is None:
        args.json = ROOT / f"build/shared-context{'-quick' if args.quick else ''}.json"
    return args


def choose(patterns: list[str] | None) -> list[cells.Cell]:
    if patterns is None:
        return list(cells.CHOSEN)
    for pattern in patterns:
        if not any(fnmatch.fnmatchcase(cell.name, pattern) for cell in cells.CHOSEN):
            raise PeersError(f"--only: no cell is called '{pattern}'; there are "
                             f"{', '.join(cell.name for cell in cells.CHOSEN)}")
    return [cell for cell in cells.CHOSEN
            if any(fnmatch.fnmatchcase(cell.name, pattern) for pattern in patterns)]


def write(path: pathlib.Path, record: dict) -> None:
    """Whole or not at all."""
    part = path.with_name(path.name + ".part")
    part.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    part.replace(path)


def read(path: pathlib.Path) -> dict:
    try:
        record = json.loads(path.read_text(encoding="utf-8"))
    except ValueError:
        record = None
    if not isinstance(record, dict) or not RECORD <= record.keys():
        raise PeersError(f"{path}: expected a file that --json has written")
    return record


def by_cell(record: dict) -> dict[str, list[dict]]:
    out: dict[str, list[dict]] = {}
    for cell in cells.CHOSEN:
        found = [one for one in record["samples"] if one["cell"] == cell.name]
        if found:
            out[cell.name] = sorted(found, key=lambda one: one["repeat"])
    return out


def same_load(a: dict, b: dict) -> bool:
    return all(a.get(key) == b[key] for key in ("load", "budget", "threads", "seed", "tessera"))


def run_all(args: argparse.Namespace, chosen: list[cells.Cell], record: dict,
            measurement: measure.Measurement) -> int:
    """How many runs failed: one that did is told and left to --resume."""
    done = {(one["cell"], one["repeat"]) for one in record["samples"]}
    plan = [(repeat, chosen[i])
            for repeat, order in enumerate(cells.orders(len(chosen), args.repeats, args.seed))
            for i in order if (chosen[i].name, repeat) not in done]
    begin, failed = time.monotonic(), 0
    for number, (repeat, cell) in enumerate(plan):
        try:
            got = measurement.run(cell, args.seed + repeat)
        except ERRORS as error:
            say(f"  repeat {repeat + 1}: {error}")
            failed += 1
            continue
        record["samples"].append({"cell": cell.name, "repeat": repeat, **got})
        write(args.json, record)
        spent = time.monotonic() - begin
        left = spent / (number + 1) * (len(plan) - number - 1)
        say(f"  {number + 1}/{len(plan)}, {left / 60:.0f} min left: repeat {repeat + 1}, "
            f"{cell.name}: {got['request_throughput']:.2f} req/s, TTFT p50 "
            f"{got['median_ttft_ms']:.0f}, p99 {got['p99_ttft_ms']:.0f} ms, computed "
            f"{got['computed_tokens']:,.0f} tokens")
    return failed


def measured(args: argparse.Namespace) -> tuple[dict, int]:
    """The record; 130 when it was interrupted, 2 when a run failed."""
    chosen = choose(args.only)
    args.work.mkdir(parents=True, exist_ok=True)
    args.json.parent.mkdir(parents=True, exist_ok=True)
    facts = prepare.machine(args.tessera)
    if facts["load_average"] > 0.5:
        say(f"warning: load average {facts['load_average']:.1f}: others compute here too, "
            "figures are provisional")
    load = measure.Load(questions=args.questions, rate=args.rate)
    measurement = measure.Measurement(args.tessera, args.model, args.threads, load, args.work)
    record = facts | {"load": dataclasses.asdict(load), "threads": args.threads,
                      "budget": dataclasses.asdict(measurement.budget), "seed": args.seed,
                      "repeats": args.repeats, "samples": []}
    if args.resume and args.json.exists():
        earlier = read(args.json)
        if not same_load(earlier, record):
            raise PeersError(f"--resume: {args.json} has another load, budget or version")
        record["samples"] = earlier["samples"]
        record["load_average"] = max(record["load_average"], earlier["load_average"])
    try:
        if any(cell.engine != "tessera" for cell in chosen):
            measurement.prepare_peer(say)
            record["llama.cpp"] = measurement.about()
        failed = run_all(args, chosen, record, measurement)
    except KeyboardInterrupt:
        say("interrupted")
        return record, 130
    if failed > 0:
        say(f"shared_context: {failed} runs failed; --resume tries them again")
    return record, 2 if failed > 0 else 0


def main() -> int:
    args = parse_args()
    # A terminated run ends its children like an interrupted one.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    if args.list:
        print("\n".join(cell.name for cell in cells.CHOSEN))
        return 0
    try:
        record, code = (read(args.source), 0) if args.source else measured(args)
        groups = by_cell(record)
        if not groups:
            say("nothing was measured")
            return code or 2
        body = report.text(record, groups)
        print(body)
        if args.write_docs and code == 0:
            for path in report.write_docs(ROOT, body, report.figures(groups)):
                say(f"wrote {path}")
        return code
    except KeyboardInterrupt:
        say("interrupted")
        return 130
    except ERRORS as error:
        named = isinstance(error, OSError) and error.filename
        say(f"shared_context: {f'{error.filename}: {error.strerror}' if named else error}")
        return 2


if __name__ == "__main__":
    sys.exit(main())
