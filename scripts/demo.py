#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The main job on the bundled model: serve it, ask eight questions about one text, show the memory.

Each question is asked twice: cold (cache_prompt false), then with the end of the text named by
checkpoint_at, so that the text is computed for the first question and reused by the other seven.

Exits 0 when every answer is right, the same bits come cold and reused, the text was computed once,
a prompt sent again computed nothing, and every page has an owner; 1 when one of these is not so.
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

failures: list[str] = []


def expect(holds: bool, what: str) -> None:
    if not holds:
        failures.append(what)
        print(f"demo: NOT SO: {what}")


def free_port() -> int:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def open_request(url: str, body: dict | None = None, method: str | None = None):
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data, {"Content-Type": "application/json"},
                                     method=method)
    return urllib.request.urlopen(request, timeout=REQUEST_SECONDS_MAX)


def call(url: str, body: dict | None = None, method: str | None = None) -> dict:
    with open_request(url, body, method) as response:
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


def ask(base: str, prompt: str, **fields) -> dict:
    """A streamed answer: text, receipt, usage, reuse, and milliseconds to the first token."""
    body = {"prompt": prompt, "max_tokens": 24, "temperature": 0, "stop": "\n", "stream": True,
            "stream_options": {"include_usage": True}} | fields
    answer = {"text": "", "first_ms": 0.0}
    begin = time.perf_counter()
    with open_request(base + "/v1/completions", body) as stream:
        for line in stream:
            if not line.startswith(b"data: {"):
                continue
            chunk = json.loads(line[len(b"data: "):])
            if "error" in chunk:
                raise SystemExit(f"demo: {chunk['error']['message']}")
            answer["first_ms"] = answer["first_ms"] or (time.perf_counter() - begin) * 1000
            for choice in chunk["choices"]:
                answer["text"] += choice["text"]
                answer |= {key: choice[key] for key in ("receipt", "reuse") if key in choice}
            if chunk["usage"]:
                answer["prompt"] = chunk["usage"]["prompt_tokens"]
                answer["cached"] = chunk["usage"]["prompt_tokens_details"]["cached_tokens"]
    return answer


def computed(base: str) -> int:
    """Prompt tokens that went through the model since the start."""
    return call(base + "/cache")["totals"]["prompt_tokens"]


def ask_all(base: str, text: str, questions: list[dict]) -> None:
    prompts = [f"{text}Q: {item['question']}\nA:" for item in questions]
    # The text ends with a line end, after which the tokenizer begins a new piece: its tokens are
    # the first ones of every prompt.
    boundary = call(base + "/v1/completions", {"prompt": text, "max_tokens": 0})["usage"]
    boundary = boundary["prompt_tokens"]
    cold = [ask(base, prompt, cache_prompt=False) for prompt in prompts]
    call(base + "/cache", method="DELETE")

    print(f"\n{len(prompts)} questions about one text of {boundary} tokens; to the first token, "
          f"cold and with reuse:\n")
    print(f"{'question':<34} {'answer':<16} {'prompt':>7} {'cached':>7} {'cold':>10} "
          f"{'reused':>10}")
    before = computed(base)
    not_cached = 0
    for at, (item, prompt) in enumerate(zip(questions, prompts)):
        warm = ask(base, prompt, checkpoint_at=boundary)
        answer = warm["text"].strip()
        print(f"{item['question']:<34} {answer:<16} {warm['prompt']:>7} {warm['cached']:>7} "
              f"{cold[at]['first_ms']:>7.1f} ms {warm['first_ms']:>7.1f} ms")
        expect(answer == item["answer"], f"the answer is {item['answer']!r}")
        expect(cold[at]["cached"] == 0, "cache_prompt false reuses nothing")
        expect(warm["receipt"] == cold[at]["receipt"], "the same bits come cold and reused")
        expect(warm["cached"] == 0 if at == 0 else warm["cached"] >= boundary,
               "the text is computed for the first question and reused by the others")
        not_cached += warm["prompt"] - warm["cached"]
    ran = computed(base) - before
    print(f"\ncomputed {ran} prompt tokens: the text once and what follows it; "
          f"cold it took {sum(a['prompt'] for a in cold)}")
    expect(ran == not_cached, f"the model ran over the {not_cached} tokens that were not cached")
    ask_again(base, prompts[-1], cold[-1])


def ask_again(base: str, prompt: str, cold: dict) -> None:
    """The same prompt: its last row was kept, so the first token needs the output head alone."""
    before = call(base + "/cache")["totals"]
    again = ask(base, prompt, max_tokens=1)
    after = call(base + "/cache")["totals"]
    ran = after["prompt_tokens"] - before["prompt_tokens"]
    passes = after["steps"] - before["steps"]
    print(f"the last prompt again, for one token: {again['cached']} of {again['prompt']} cached, "
          f"{ran} computed in {passes} passes of the model, first token after "
          f"{again['first_ms']:.1f} ms (cold {cold['first_ms']:.1f} ms)")
    expect(again["cached"] == again["prompt"] and ran == 0 and passes == 0,
           "a prompt sent again runs no forward pass")
    expect(again["text"] != "" and cold["text"].startswith(again["text"]),
           "its first token is the one that came cold")


def mib(count: int) -> str:
    return f"{count / 2**20:10.2f} MiB"


OWNERS = ("held_attention", "held_state", "reserved", "cached_attention", "cached_state",
          "draining", "free")


def show_memory(base: str, text: str) -> None:
    """The ledger while one sequence is being generated, then after it: every page has an owner."""
    body = {"prompt": text, "max_tokens": 2000, "temperature": 0, "stream": True}
    with open_request(base + "/v1/completions", body) as stream:
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
    print(f"{'':<32} {'one sequence':>14} {'after it':>14}")
    print(f"{'budget':<32} {mib(running['budget_bytes']):>14} {mib(idle['budget_bytes']):>14}")
    for kind in ("attention", "ssm", "conv"):
        print(f"{'  ' + kind + ' state':<32} {mib(running['kinds'][kind]['bytes']):>14}"
              f" {mib(idle['kinds'][kind]['bytes']):>14}")
    for at, pool in enumerate(running["pools"]):
        after = idle["pools"][at]["pages"]
        for owner in OWNERS + ("total",):
            label = f"  {pool['name']} pages, {owner.replace('_', ' ')}"
            print(f"{label:<32} {pool['pages'][owner]:>14} {after[owner]:>14}")
        for pages in (pool["pages"], after):
            expect(sum(pages[owner] for owner in OWNERS) == pages["total"],
                   f"every page of pool {pool['name']} has one owner")
    for what in ("checkpoints", "blocks", "rows"):
        print(f"{'  kept ' + what:<32} {running['kept'][what]:>14} {idle['kept'][what]:>14}")
    expect(sum(pool["pages"]["cached_attention"] for pool in idle["pools"]) > 0,
           "pages stay with the cache when no sequence runs")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tessera", required=True)
    parser.add_argument("--model", required=True)
    args = parser.parse_args()

    models = pathlib.Path(__file__).resolve().parent.parent / "models"
    text = (models / "harbour-context.txt").read_text(encoding="utf-8").rstrip("\n") + "\n"
    questions = json.loads((models / "harbour-questions.json").read_text(encoding="utf-8"))

    base = f"http://127.0.0.1:{free_port()}"
    server = subprocess.Popen([args.tessera, "serve", args.model, "--port", base.rsplit(":", 1)[1]])
    try:
        wait_until_ready(base, server)
        ask_all(base, text, questions)
        show_memory(base, text)
    finally:
        server.send_signal(signal.SIGTERM)
        code = server.wait(timeout=30)
    expect(code == 0, f"the server stops with exit code 0, not {code}")
    print("\nall of it held" if not failures else f"\n{len(failures)} expectations failed")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
