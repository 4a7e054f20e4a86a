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


def show_memory(base: str) -> None:
    print("\nmemory (GET /cache)")
    print(json.dumps(call(base + "/cache"), indent=2))


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
        show_memory(base)
    finally:
        server.send_signal(signal.SIGTERM)
        code = server.wait(timeout=30)
    print(f"\n{len(questions) - wrong} of {len(questions)} answers right; "
          f"the server stopped with exit code {code}")
    return 1 if wrong or code != 0 else 0


if __name__ == "__main__":
    sys.exit(main())
