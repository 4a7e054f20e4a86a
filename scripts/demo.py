#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The main job on the bundled model: serve it, ask its eight questions over HTTP, show the memory.

Exits 0 when every answer is right, 1 when one is not or the server does not come up.
"""

import argparse
import json
import pathlib
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request

START_SECONDS_MAX = 60
REQUEST_SECONDS_MAX = 300


def free_port() -> int:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def call(url: str, body: dict | None = None) -> dict:
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=REQUEST_SECONDS_MAX) as response:
        return json.load(response)


def wait_until_ready(base: str, server: subprocess.Popen) -> None:
    deadline = time.monotonic() + START_SECONDS_MAX
    while time.monotonic() < deadline:
        if server.poll() is not None:
            raise SystemExit(f"demo: the server ended with exit code {server.returncode}")
        try:
            if call(base + "/health").get("status") == "ok":
                return
        except (urllib.error.URLError, ConnectionError):
            time.sleep(0.05)
    raise SystemExit(f"demo: no answer from {base}/health after {START_SECONDS_MAX} s")


def show_answers(base: str, context: str, questions: list[dict]) -> int:
    """Asks each question after the whole context; returns how many answers are wrong."""
    print(f"{'question':<34} {'answer':<16} {'expected':<16} {'prompt':>13} {'decode':>12}")
    wrong = 0
    for item in questions:
        reply = call(base + "/v1/completions", {
            "prompt": f"{context}\nQ: {item['question']}\nA:",
            "max_tokens": 24, "temperature": 0, "stop": "\n",
        })
        answer = reply["choices"][0]["text"].strip()
        right = answer == item["answer"]
        wrong += not right
        t = reply["timings"]
        print(f"{item['question']:<34} {answer:<16} {item['answer']:<16} "
              f"{t['prompt_per_second']:>7.0f} tok/s {t['predicted_per_second']:>6.0f} tok/s"
              f"{'' if right else '   WRONG'}")
    return wrong


def mib(count: int) -> str:
    return f"{count / 2**20:10.2f} MiB"


def show_memory(base: str, context: str) -> None:
    """The ledger while one sequence is being generated, then after it: every byte has an owner."""
    body = json.dumps({"prompt": context, "max_tokens": 2000, "temperature": 0, "stream": True})
    request = urllib.request.Request(base + "/v1/completions", body.encode(),
                                     {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=REQUEST_SECONDS_MAX) as stream:
        stream.readline()  # the first token is there: its state is in the arena
        running = call(base + "/cache")
    if running["sequences"] != 1:
        raise SystemExit("demo: the sequence ended before the ledger could be read")
    idle = running
    deadline = time.monotonic() + REQUEST_SECONDS_MAX
    while idle["sequences"] > 0 and time.monotonic() < deadline:
        time.sleep(0.02)
        idle = call(base + "/cache")

    print(f"\nmemory: organisation {running['organisation']}, {running['planes']} planes")
    print(f"{'':<26} {'one sequence':>14} {'after it':>14}")
    print(f"{'budget':<26} {mib(running['budget_bytes']):>14} {mib(idle['budget_bytes']):>14}")
    for kind in ("attention", "ssm", "conv"):
        print(f"{'  ' + kind + ' state':<26} {mib(running['kinds'][kind]['bytes']):>14}"
              f" {mib(idle['kinds'][kind]['bytes']):>14}")
    for at, pool in enumerate(running["pools"]):
        after = idle["pools"][at]["pages"]
        for state in ("held_attention", "held_state", "reserved", "free", "total"):
            label = f"  {pool['name']} pages, {state.replace('_', ' ')}"
            print(f"{label:<26} {pool['pages'][state]:>14} {after[state]:>14}")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tessera", required=True)
    parser.add_argument("--model", required=True)
    args = parser.parse_args()

    models = pathlib.Path(__file__).resolve().parent.parent / "models"
    context = (models / "harbour-context.txt").read_text(encoding="utf-8").rstrip("\n")
    questions = json.loads((models / "harbour-questions.json").read_text(encoding="utf-8"))

    base = f"http://127.0.0.1:{free_port()}"
    server = subprocess.Popen([args.tessera, "serve", args.model, "--port", base.rsplit(":", 1)[1]])
    try:
        wait_until_ready(base, server)
        print(f"\n{len(questions)} questions over one context of {len(context)} characters\n")
        wrong = show_answers(base, context, questions)
        show_memory(base, context)
    finally:
        server.send_signal(signal.SIGTERM)
        code = server.wait(timeout=30)
    print(f"\n{len(questions) - wrong} of {len(questions)} answers right; "
          f"the server stopped with exit code {code}")
    return 1 if wrong or code != 0 else 0


if __name__ == "__main__":
    sys.exit(main())
