#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The server under all that clients do, good and bad, for as long as asked.

Many more clients than run at a time ask without a pause and go away in the middle of some requests.
Beside them: malformed requests of every class, each of which must be refused as docs/http.md says;
requests that stop half-way; readers that take a byte now and then; bursts of more connections than
the server has workers; pins that are released or expire; the cache cleared; every page read.

Each second or so it checks that every page has one owner, that the budget holds, that no counter
falls and that all requests are accounted for; every answer is compared with the one that comes
alone. Afterwards nothing may be left: no request, no thread, no descriptor, no page.

Exits 0 when all of it held, 1 when something did not, 130 when interrupted. TESSERA and MODEL as in
server_process.py.
"""

import argparse
import asyncio
import collections
import json
import pathlib
import random
import sys
import tempfile
import time

from answers import Answer, Refused, ask
from bad_requests import Target, bad_requests, misanswered
from figures import Figures, fallen_counters, not_free, unbalanced, unbalanced_pages
from http_client import Connection, Lost, open_socket, request_bytes
from load_clients import REQUEST_SECONDS_MAX, ask_or_cut, moment_to_leave
from memory_curve import MIB, MemoryCurve
from server_process import ServerProcess
from workload import Job, Workload, answers_alone

KEY = "soak-test-key"
BUDGET = "4MiB"
CLIENTS = 96
CUT_SHARE = 0.15
BURST_CONNECTIONS = 260  # the server has 256 workers, 239 of them for requests with bodies
# The C library's caches of freed memory, up to 230 KiB for each of 256 workers, fill for long and
# would hide a leak.
NO_CACHES = {"GLIBC_TUNABLES": "glibc.malloc.tcache_count=0"}
FAILURES_MAX = 20  # then it ends early
QUIET_SECONDS_MAX = 120  # for what is under way when the load ends
READ_PATHS = ("/metrics", "/cache", "/cache/entries?limit=1000", "/cache/pages", "/cache/pins",
              "/requests", "/v1/models", "/health", "/")


class Soak:
    def __init__(self, server: ServerProcess, workload: Workload, alone: dict[int, Answer],
                 target: Target, options: argparse.Namespace):
        self.server = server
        self.workload = workload
        self.alone = alone
        self.target = target
        self.options = options
        self.failures: list[str] = []
        self.tally: collections.Counter[str] = collections.Counter()
        self.curve = MemoryCurve()
        self.begin = time.monotonic()
        self.end = self.begin + options.seconds
        # Held by whoever must not meet a burst: a full server refuses malformed requests otherwise.
        self.calm = asyncio.Lock()
        self.threads = self.fds = 0  # before the load

    def over(self) -> bool:
        return time.monotonic() >= self.end or len(self.failures) >= FAILURES_MAX

    def fail(self, *what: str) -> None:
        for line in what:
            self.failures.append(line)
            print(f"\nsoak: NOT SO: {line[:2000]}", file=sys.stderr, flush=True)

    def rng(self, who: str) -> random.Random:
        return random.Random(f"{self.options.seed}/{who}")

    def connect(self) -> Connection:
        return Connection(self.server.port, KEY)

    # ---- Clients that mean well.

    async def client(self, who: str) -> None:
        rng, connection = self.rng(who), self.connect()
        while not self.over():
            job = rng.choice(self.workload.jobs)
            leaves = rng.random() < CUT_SHARE
            choices = len(self.alone[job.number].choices)
            self.tally["choices asked for"] += choices
            try:
                answer = await ask_or_cut(connection, job,
                                          moment_to_leave(rng) if leaves else REQUEST_SECONDS_MAX)
            except Refused as refused:
                await self.overloaded(refused)
                continue
            if answer is None:
                self.tally["requests cut"] += 1
                self.tally["choices cut"] += choices
                if not leaves:
                    self.fail(f"request {job.number} is stuck: {job.body}")
                continue
            self.tally["answers"] += 1
            self.tally["choices answered"] += choices
            self.compare(job, answer)
        connection.cut()

    async def overloaded(self, refused: Refused) -> None:
        if refused.code != "server_overloaded":
            self.fail(f"a good request is refused: {refused}")
        self.tally["refused, overloaded"] += 1
        await asyncio.sleep(1)  # Retry-After

    def compare(self, job: Job, answer: Answer) -> None:
        if different := answer.differences(self.alone[job.number]):
            self.fail(f"request {job.number} answers otherwise than alone: {different}: {job.body}")

    async def reader(self, who: str) -> None:
        rng, connection = self.rng(who), self.connect()
        while not self.over():
            path = rng.choice(READ_PATHS)
            reply = await connection.request("GET", path)
            self.tally["pages read"] += 1
            if reply.status != 200:
                self.fail(f"GET {path} answers {reply.status}: {reply.body[:200]!r}")
            await asyncio.sleep(rng.uniform(0.02, 0.2))
        connection.cut()

    async def pinner(self, who: str) -> None:
        rng, connection = self.rng(who), self.connect()
        while not self.over():
            prompt = rng.choice(self.workload.contexts).text
            if rng.random() < 0.5:  # so that there is something to pin
                self.tally["choices asked for"] += 1
                self.tally["choices cut"] += 1
                await connection.request("POST", "/v1/completions",
                                         {"prompt": prompt, "max_tokens": 0})
            reply = await connection.request("POST", "/cache/pin",
                                             {"prompt": prompt, "ttl_s": rng.randint(1, 3)})
            self.tally[f"pins answered {reply.status}"] += 1
            if reply.status == 200 and rng.random() < 0.5:
                await asyncio.sleep(rng.uniform(0, 2))
                reply = await connection.request("POST", "/cache/release",
                                                 {"pin": reply.json()["pin"]})
            if reply.status not in (200, 404, 503):
                self.fail(f"a pin or release answers {reply.status}: {reply.body[:200]!r}")
            await asyncio.sleep(rng.uniform(0.05, 0.5))
        connection.cut()

    async def clearer(self, who: str) -> None:
        rng, connection = self.rng(who), self.connect()
        while not self.over():
            await asyncio.sleep(rng.uniform(1, 5))
            reply = await connection.request("DELETE", "/cache")
            self.tally["caches cleared"] += 1
            if reply.status != 200:
                self.fail(f"DELETE /cache answers {reply.status}")
        connection.cut()

    # ---- Clients that do not.

    async def malformed(self, who: str) -> None:
        rng = self.rng(who)
        while not self.over():
            cases = bad_requests(self.target)
            rng.shuffle(cases)
            for bad in cases:
                if self.over():
                    break
                if bad.after_seconds and self.options.seconds < 60:
                    continue
                async with self.calm:
                    wrong = await misanswered(self.server.port, bad)
                self.tally["malformed requests"] += 1
                if wrong:
                    self.fail(wrong)
                await asyncio.sleep(rng.uniform(0, 0.1))

    async def half_sender(self, who: str) -> None:
        """Any part of a request but all of it, then nothing more."""
        rng = self.rng(who)
        while not self.over():
            job = rng.choice(self.workload.jobs)
            data = request_bytes("POST", job.path, json.dumps(job.body).encode(),
                                 {"Authorization": f"Bearer {KEY}"})
            _, writer = await open_socket(self.server.port)
            writer.write(data[:rng.randrange(len(data))])
            self.tally["requests half sent"] += 1
            await asyncio.sleep(10 ** rng.uniform(-3, 0.5))
            writer.transport.abort()

    async def slow_reader(self, who: str) -> None:
        """More answer than the system holds for it, a few bytes at a time, for a while."""
        rng = self.rng(who)
        while not self.over():
            body = {"prompt": "Ada left the", "max_tokens": 400, "ignore_eos": True, "n": 2,
                    "logprobs": 20, "stream": True}
            self.tally["choices asked for"] += 2
            self.tally["choices cut"] += 2
            self.tally["slow readers"] += 1
            reader, writer = await open_socket(self.server.port, receive_bytes=2048,
                                               buffer_bytes=1024)
            writer.write(request_bytes("POST", "/v1/completions", json.dumps(body).encode(),
                                       {"Authorization": f"Bearer {KEY}"}))
            until = min(self.end, time.monotonic() + rng.uniform(2, 15))
            while time.monotonic() < until and await reader.read(rng.choice((1, 1, 100))):
                await asyncio.sleep(rng.uniform(0.001, 0.2))
            writer.transport.abort()

    async def burster(self, who: str) -> None:
        """So many bodies begun at once that the server must refuse some, and gets well again."""
        rng, connection = self.rng(who), self.connect()
        while not self.over():
            await asyncio.sleep(min(rng.uniform(5, 40), max(0, self.end - time.monotonic())))
            async with self.calm:
                await self.burst()
                while await self.is_full(connection):
                    await asyncio.sleep(0.1)
        connection.cut()

    async def is_full(self, connection: Connection) -> bool:
        return (await connection.request("POST", "/tokenize", {"prompt": "a"})).status == 503

    async def burst(self) -> None:
        begun = request_bytes("POST", "/v1/completions", b"{" * 100,
                              {"Authorization": f"Bearer {KEY}"})[:-1]
        opened = await asyncio.gather(*(open_socket(self.server.port)
                                        for _ in range(BURST_CONNECTIONS)))
        for _, writer in opened:
            writer.write(begun)
        await asyncio.sleep(0.5)
        for _, writer in opened:
            writer.transport.abort()
        self.tally["bursts"] += 1

    # ---- What must hold meanwhile.

    async def watch(self) -> None:
        connection = self.connect()
        interval = max(0.5, self.options.seconds / 400)
        before = await Figures.read(connection)
        while not self.over():
            await asyncio.sleep(interval)
            answered = self.tally["choices answered"]
            now = await Figures.read(connection)
            self.fail(*fallen_counters(before, now))
            self.account(now, answered)
            cache = (await connection.request("GET", "/cache")).json()
            pages = (await connection.request("GET", "/cache/pages")).json()
            self.fail(*unbalanced(cache), *unbalanced_pages(pages, cache))
            self.curve.add(self.server.rss_bytes())
            self.tally["most threads"] = max(self.tally["most threads"],
                                             self.server.thread_count())
            self.tally["most descriptors"] = max(self.tally["most descriptors"],
                                                 self.server.fd_count())
            self.tally["samples"] += 1
            before = now
            self.progress(now)
        connection.cut()

    def account(self, now: Figures, answered: int) -> None:
        """What ended, runs and waits is what was asked for, but for what was cut or refused."""
        known = now.ended() + int(now.get("tessera_requests_running")
                                  + now.get("tessera_requests_waiting"))
        asked = self.tally["choices asked for"]
        if not answered <= known <= asked:
            self.fail(f"{answered} choices are answered and {asked} asked for, but {known} have "
                      f"ended, run or wait")
        if now.ended("error"):
            self.fail(f"{now.ended('error')} requests ended with an error")

    def progress(self, now: Figures) -> None:
        if not sys.stderr.isatty():
            return
        seconds = time.monotonic() - self.begin
        print(f"\r{seconds:6.0f} of {self.options.seconds:.0f} s, {self.tally['answers']} answers, "
              f"{int(now.get('tessera_requests_running'))} running, "
              f"{int(now.get('tessera_requests_waiting'))} waiting, "
              f"{self.curve.rss_bytes[-1] / MIB:.1f} MiB, {len(self.failures)} failures ",
              end="", file=sys.stderr, flush=True)

    # ---- The run.

    async def guarded(self, task, who: str) -> None:
        try:
            await task(who)
        except (Lost, OSError, ValueError, KeyError, RuntimeError, TimeoutError) as error:
            if not self.over() or self.server.running():
                self.fail(f"{who}: {type(error).__name__}: {error}")

    async def run(self) -> None:
        self.threads, self.fds = self.server.thread_count(), self.server.fd_count()
        crowd = [(self.client, CLIENTS), (self.reader, 2), (self.pinner, 1), (self.clearer, 1),
                 (self.malformed, 1), (self.half_sender, 6), (self.slow_reader, 4),
                 (self.burster, 1)]
        tasks = [self.guarded(task, f"{task.__name__} {index}")
                 for task, count in crowd for index in range(count)]
        await asyncio.gather(self.guarded(lambda _: self.watch(), "watch"), *tasks)
        if not self.server.running():
            self.fail(f"the server ended with {self.server.wait()}: {self.server.log()}")
            return
        await self.guarded(lambda _: self.after(), "afterwards")

    async def after(self) -> None:
        connection = self.connect()
        await self.quiet(connection)
        figures = await Figures.read(connection)
        self.check_endings(figures)
        reply = await connection.request("DELETE", "/cache")
        self.tally["entries cleared at the end"] = reply.json()["entries_invalidated"]
        cache = (await connection.request("GET", "/cache")).json()
        self.fail(*unbalanced(cache), *not_free(cache))
        if pins := (await connection.request("GET", "/cache/pins")).json()["pins"]:
            self.fail(f"pins are left after the cache was cleared: {pins}")
        totals = cache["totals"]
        if totals["requests_finished"] + totals["requests_cancelled"] != figures.ended():
            self.fail(f"/cache and /metrics do not agree: {totals}, {figures.ended()}")
        connection.cut()
        await self.check_process()
        self.fail(*self.curve.not_flat(self.options.seconds))

    async def quiet(self, connection: Connection) -> None:
        end = time.monotonic() + QUIET_SECONDS_MAX
        while time.monotonic() < end:
            cache = (await connection.request("GET", "/cache")).json()
            if cache["running"] + cache["waiting"] == 0:
                return
            await asyncio.sleep(0.1)
        self.fail(f"{cache['running']} requests still run and {cache['waiting']} wait "
                  f"{QUIET_SECONDS_MAX} s after the load")

    def check_endings(self, figures: Figures) -> None:
        answered = self.tally["choices answered"]
        whole = figures.ended("stop", "length")
        if not answered <= whole <= answered + self.tally["choices cut"]:
            self.fail(f"{whole} choices ended whole; {answered} were answered, "
                      f"{self.tally['choices cut']} cut")
        records = int(figures.total("tessera_request_log_records_total"))
        refused = int(figures.total("tessera_requests_refused_total"))
        if records != figures.ended() + refused:
            self.fail(f"{records} records of {figures.ended()} requests and {refused} refused")
        timed = int(figures.get("tessera_e2e_request_latency_seconds_count"))
        if timed != whole:
            self.fail(f"{timed} requests are in the histogram of whole ones, {whole} ended so")
        for name in ("preemptions", "resumptions", "recomputed_tokens", "reclaims",
                     "generation_tokens", "prompt_tokens", "prompt_tokens_cached"):
            self.tally[name] = int(figures.total(f"tessera_{name}_total"))
        self.tally["aborted"] = figures.ended("abort")

    async def check_process(self) -> None:
        """Connections that were cut are noticed a little later."""
        end = time.monotonic() + QUIET_SECONDS_MAX
        while self.server.fd_count() > self.fds and time.monotonic() < end:
            await asyncio.sleep(0.1)
        if self.server.fd_count() > self.fds:
            self.fail(f"{self.server.fd_count()} descriptors are open, {self.fds} were before")
        if self.tally["most threads"] > self.threads:
            self.fail(f"{self.tally['most threads']} threads, {self.threads} before the load")


def check_log(path: pathlib.Path, soak: Soak) -> None:
    """Each line is whole JSON. (Rotation is off.)"""
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        try:
            record = json.loads(line)
        except ValueError as error:
            soak.fail(f"line {number} of the request log: {error}: {line[:200]}")
            return
        soak.tally[f"records of {record['finish']}"] += 1


async def prepare(options: argparse.Namespace) -> tuple[Workload, dict[int, Answer]]:
    with ServerProcess("--no-reuse", "--max-running", "1") as idle:
        connection = Connection(idle.port)
        workload = await Workload.create(options.seed, options.jobs, connection)
        alone = await answers_alone(workload.jobs, connection)
        connection.cut()
    return workload, alone


async def target_of(server: ServerProcess) -> Target:
    connection = Connection(server.port, KEY)
    card = (await connection.request("GET", "/v1/models")).json()["data"][0]
    connection.cut()
    return Target(KEY, card["id"], card["meta"]["n_ctx_train"], card["max_model_len"])


async def run(options: argparse.Namespace) -> Soak:
    workload, alone = await prepare(options)
    with tempfile.TemporaryDirectory() as folder:
        log = pathlib.Path(folder) / "requests.jsonl"
        with ServerProcess("--budget", BUDGET, "--api-key", KEY, "--request-log", str(log),
                           "--request-log-bytes", "0", environment=NO_CACHES) as server:
            soak = Soak(server, workload, alone, await target_of(server), options)
            await soak.run()
            if server.running() and (code := server.stop()) != 0:
                soak.fail(f"the server stops with {code}: {server.log()}")
        check_log(log, soak)
    return soak


def report(soak: Soak, as_json: bool) -> None:
    seconds = time.monotonic() - soak.begin
    if as_json:
        print(json.dumps({"seconds": seconds, "failures": soak.failures, "tally": soak.tally,
                          "rss_bytes": soak.curve.rss_bytes, "threads": soak.threads,
                          "descriptors": soak.fds}))
        return
    print(f"\n{soak.tally['answers']} answers in {seconds:.0f} s, each the one that comes alone")
    for what, count in sorted(soak.tally.items()):
        print(f"  {what:<28}{count:>12}")
    if soak.curve.rss_bytes:
        print(f"  resident  {soak.curve.text()}")
    print("all of it held" if not soak.failures else f"{len(soak.failures)} failures")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=1200, help="of load (default 1200)")
    parser.add_argument("--jobs", type=int, default=48, help="different requests (default 48)")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", action="store_true", help="the summary as JSON")
    options = parser.parse_args()
    try:
        soak = asyncio.run(run(options))
    except KeyboardInterrupt:
        print("\nsoak: interrupted", file=sys.stderr)
        return 130
    report(soak, options.json)
    return 1 if soak.failures else 0


if __name__ == "__main__":
    sys.exit(main())
