#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What serving adds to the time to the first token: its client's time less the model's own.

    tests/load/first_token.py          on an idle machine: it measures a server that has one client

The client's time is from the begin of the connection to the first event of the stream, the model's
is `timings.prompt_ms`: from the begin of the first step to the first token. Each request has a
connection of its own.
"""

import asyncio
import json
import statistics
import time

from http_client import Connection
from server_process import ServerProcess

REQUESTS = 200
PROMPTS = 7


def body(number: int, reuse: bool) -> dict:
    day = f"Log of day {number % PROMPTS}. Ada left the red kite in the barn."
    return {"prompt": day + " Rosa counted drums." * 20, "max_tokens": 8, "temperature": 0,
            "stream": True, "cache_prompt": reuse}


async def first_token_ms(port: int, request: dict) -> tuple[float, float]:
    """By the client, and by the model."""
    connection = Connection(port)
    begin = time.perf_counter()
    _, pieces = await connection.begin("POST", "/v1/completions", request)
    first, events = 0.0, b""
    async for piece in pieces:
        first = first or (time.perf_counter() - begin) * 1000
        events += piece
    connection.cut()
    chunks = [json.loads(line[6:]) for line in events.decode().splitlines()
              if line.startswith("data: {")]
    [timings] = [chunk["timings"] for chunk in chunks if "timings" in chunk]
    return first, timings["prompt_ms"]


async def measure(port: int) -> None:
    print(f"{f'{REQUESTS} requests, ms':<18}{'client p50':>12}{'model p50':>12}{'added p50':>12}"
          f"{'p90':>8}{'highest':>9}")
    for reuse in (False, True):
        times = [await first_token_ms(port, body(i, reuse)) for i in range(REQUESTS)]
        added = sorted(client - model for client, model in times)
        print(f"{'prompt known' if reuse else 'prompt computed':<18}"
              f"{statistics.median(client for client, _ in times):12.2f}"
              f"{statistics.median(model for _, model in times):12.2f}"
              f"{added[REQUESTS // 2]:12.2f}{added[REQUESTS * 9 // 10]:8.2f}{added[-1]:9.2f}")


if __name__ == "__main__":
    with ServerProcess("--budget", "128MiB") as server:
        asyncio.run(measure(server.port))
