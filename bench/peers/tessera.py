# SPDX-License-Identifier: Apache-2.0
"""Tessera as its users get it: `tessera serve`, one streamed request with all prompts.

The state budget is said outright (`--budget`), else the server takes what --max-running whole
contexts need; everything else is the server's default. A token's time is when its chunk has been
read from the socket here, and reading shares the CPUs with the engine. Chunks ask for `logprobs: 0`
because a token that is half a character has no text, and without text no chunk: so each token is
seen, at the price of one log-softmax per token that llama.cpp does not pay. JSON is parsed after
the last token.
"""

import http.client
import json
import pathlib
import socket
import subprocess
import time

import engine

START_SECONDS_MAX = 300


def free_port() -> int:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


class HttpServer:
    """A server with GET /health; `port` is in its command."""

    def __init__(self, name: str, command: list[str], port: int, log: pathlib.Path):
        self.name = name
        self.command = command
        self.port = port
        self.log = log

    def __enter__(self):
        self.process = engine.Process(self.command, self.log, stdout=subprocess.DEVNULL)
        try:
            self._wait_until_ready()
        except BaseException:
            self.process.stop()
            raise
        self.load_s = time.monotonic() - self.process.started
        return self

    def __exit__(self, *_) -> None:
        self.process.stop()

    def get(self, path: str) -> tuple[int, str]:
        """Status and body."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=10)
        try:
            connection.request("GET", path)
            response = connection.getresponse()
            return response.status, response.read().decode(errors="replace")
        finally:
            connection.close()

    def _wait_until_ready(self) -> None:
        deadline = time.monotonic() + START_SECONDS_MAX
        while time.monotonic() < deadline:
            if self.process.child.poll() is not None:
                raise self.process.complain(self.name)
            try:
                if self.get("/health")[0] == 200:
                    return
            except (OSError, http.client.HTTPException):
                pass
            time.sleep(0.005)
        raise self.process.complain(f"{self.name} is not ready after {START_SECONDS_MAX} s")


class Tessera(HttpServer):
    def __init__(self, binary: str, model: pathlib.Path, threads: int, sequences: int,
                 budget_mib: int, log: pathlib.Path):
        port = free_port()
        super().__init__("tessera", [
            binary, "serve", str(model), "--port", str(port), "--threads", str(threads),
            "--max-running", str(sequences), "--budget", f"{budget_mib}MiB"], port, log)

    def generate(self, prompts: list[list[int]], tokens: int) -> engine.Answer:
        body = json.dumps({"prompt": prompts, "max_tokens": tokens, "temperature": 0,
                           "ignore_eos": True, "stream": True, "logprobs": 0})
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=3600)
        try:
            start = time.monotonic()
            connection.request("POST", "/v1/completions", body,
                               {"Content-Type": "application/json"})
            response = connection.getresponse()
            if response.status != 200:
                raise engine.PeersError(f"tessera: {response.status}: "
                                        f"{response.read().decode(errors='replace')}")
            pieces = []
            while piece := response.read1(1 << 16):
                pieces.append((time.monotonic() - start, piece))
        except (OSError, http.client.HTTPException) as error:
            raise self.process.complain(f"tessera: {error}") from None
        finally:
            connection.close()
        return self._parse(pieces, len(prompts), tokens)

    def ask(self, shared: list[int], rest: list[int], tokens: int) -> engine.Answer:
        return self.generate([shared + rest], tokens)

    @staticmethod
    def _parse(pieces: list[tuple[float, bytes]], sequences: int, tokens: int) -> engine.Answer:
        """Events from the stream; one that came in two pieces has the time of the second."""
        times: list[list[float]] = [[] for _ in range(sequences)]
        text, timings, rest = "", {}, b""
        for at, piece in pieces:
            *lines, rest = (rest + piece).split(b"\n")
            for line in lines:
                if not line.startswith(b"data: ") or line == b"data: [DONE]":
                    continue
                event = json.loads(line[6:])
                if "error" in event:
                    raise engine.PeersError(f"tessera: {event['error']['message']}")
                timings = event.get("timings", timings)
                for choice in event["choices"]:
                    times[choice["index"]] += [at] * len(choice["logprobs"]["tokens"])
                    text += choice["text"] if choice["index"] == 0 else ""
        if any(len(one) != tokens for one in times) or not timings:
            raise engine.PeersError(f"tessera: expected {tokens} tokens of each of {sequences} "
                                    f"sequences, got {[len(one) for one in times]}")
        return engine.Answer(times, timings["prompt_n"], text)
