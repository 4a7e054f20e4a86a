# SPDX-License-Identifier: Apache-2.0
"""SIGTERM and kill -9 while answers are under way."""

import asyncio
import json
import pathlib
import signal
import tempfile
import unittest

from answers import Answer, Refused, ask
from figures import not_free, unbalanced
from http_client import Connection, Lost, open_socket, request_bytes
from server_process import ServerProcess
from workload import Job, Workload, answers_alone

SEED = 20260102
STREAMS = 12  # fewer than run at a time: all of them have begun when the signal comes
# Long enough to be still under way then, short enough to end within the 20 s of grace on a machine
# that is busy with other things.
TOKENS = 1500
BUDGET = "64MiB"
WAIT_SECONDS_MAX = 120
TOKENS_WITHOUT_END = 8000


def stream_body(number: int, tokens: int) -> dict:
    return {"prompt": f"Log of day {number}. Ada left the red kite in the barn.\n",
            "max_tokens": tokens, "ignore_eos": True, "temperature": 1, "seed": number,
            "stream": True, "stream_options": {"include_usage": True}}


class Stream:
    """An answer that is being read; `begun` when its first token has come."""

    def __init__(self, port: int, body: dict):
        self.begun = asyncio.Event()
        self.task = asyncio.create_task(self._read(Connection(port), body))

    async def _read(self, connection: Connection, body: dict) -> Answer:
        try:
            return await ask(connection, "/v1/completions", body, self.begun.set)
        finally:
            self.begun.set()
            connection.cut()


async def begin_streams(port: int, tokens: int) -> list[Stream]:
    streams = [Stream(port, stream_body(number, tokens)) for number in range(STREAMS)]
    async with asyncio.timeout(WAIT_SECONDS_MAX):
        for stream in streams:
            await stream.begun.wait()
    return streams


async def answers_of(streams: list[Stream]) -> list[Answer | BaseException]:
    async with asyncio.timeout(WAIT_SECONDS_MAX):
        return await asyncio.gather(*(stream.task for stream in streams), return_exceptions=True)


async def ask_alone(port: int, tokens: int) -> list[Answer]:
    connection = Connection(port)
    alone = [await ask(connection, "/v1/completions", stream_body(number, tokens))
             for number in range(STREAMS)]
    connection.cut()
    return alone


async def is_refused(port: int) -> bool:
    """Whether a new client is turned away, by the system or by the server."""
    connection = Connection(port)
    try:
        return (await connection.request("GET", "/health")).status == 503
    except (Lost, ConnectionError):
        return True
    finally:
        connection.cut()


async def exit_code(server: ServerProcess) -> int:
    return await asyncio.to_thread(server.wait)


class Terminate(unittest.TestCase):
    def test_the_first_sigterm_lets_answers_end_whole_and_refuses_new_clients(self) -> None:
        with ServerProcess("--no-reuse", "--max-running", "1") as idle:
            alone = asyncio.run(ask_alone(idle.port, TOKENS))
        with ServerProcess("--budget", BUDGET) as server:
            answers, under_way, refused, code = asyncio.run(self.drain(server))
        self.assertGreater(under_way, 0, "all answers had ended before the signal")
        self.assertTrue(refused)
        self.assertEqual(code, 0)
        for answer, expected in zip(answers, alone, strict=True):
            self.assertIsInstance(answer, Answer)
            self.assertEqual(answer.differences(expected), [])

    async def drain(self, server: ServerProcess) -> tuple[list, int, bool, int]:
        streams = await begin_streams(server.port, TOKENS)
        server.signal(signal.SIGTERM)
        under_way = sum(not stream.task.done() for stream in streams)
        answers = asyncio.create_task(answers_of(streams))
        refused = False
        while not refused and server.running():
            refused = await is_refused(server.port)
            await asyncio.sleep(0.01)
        return await answers, under_way, refused, await exit_code(server)

    def test_the_second_sigterm_cuts_answers_with_an_error(self) -> None:
        with ServerProcess("--budget", BUDGET) as server:
            answers, code = asyncio.run(self.cut_short(server))
        self.assertEqual(code, 0)
        for answer in answers:
            self.assertIsInstance(answer, Refused)
            self.assertEqual(answer.code, "shutting_down")

    async def cut_short(self, server: ServerProcess) -> tuple[list, int]:
        streams = await begin_streams(server.port, TOKENS_WITHOUT_END)
        server.signal(signal.SIGTERM)
        while "stopping" not in server.log():  # else the two signals could be one
            await asyncio.sleep(0.01)
        server.signal(signal.SIGTERM)
        return await answers_of(streams), await exit_code(server)

    def test_a_client_that_does_not_read_does_not_keep_the_server(self) -> None:
        with ServerProcess("--budget", BUDGET) as server:
            self.assertEqual(asyncio.run(self.stall(server)), 0)

    async def stall(self, server: ServerProcess) -> int:
        """With more of an answer than the system holds for a client that takes none of it."""
        body = stream_body(1, TOKENS) | {"logprobs": 20, "n": 4}
        reader, writer = await open_socket(server.port, receive_bytes=2048, buffer_bytes=1024)
        writer.write(request_bytes("POST", "/v1/completions", json.dumps(body).encode()))
        await reader.read(1)
        writer.transport.pause_reading()
        connection = Connection(server.port)
        async with asyncio.timeout(WAIT_SECONDS_MAX):  # until the server alone has work to do
            while (await connection.request("GET", "/cache")).json()["running"]:
                await asyncio.sleep(0.05)
        connection.cut()
        server.signal(signal.SIGTERM)
        while "stopping" not in server.log():
            await asyncio.sleep(0.01)
        server.signal(signal.SIGTERM)
        code = await exit_code(server)
        writer.transport.abort()
        return code


class Kill(unittest.TestCase):
    def test_after_kill_9_the_same_port_answers_the_same_with_nothing_left_over(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            log = pathlib.Path(folder) / "requests.jsonl"
            flags = ("--budget", "4MiB", "--request-log", str(log))
            with ServerProcess(*flags) as server:
                port = server.port
                alone = asyncio.run(self.kill_under_load(server))
                self.assertEqual(server.wait(), -signal.SIGKILL)
            records = log.read_text(encoding="utf-8").count("\n")
            with ServerProcess(*flags, port=port) as server:
                asyncio.run(self.check_fresh(port, alone))
                self.assertEqual(server.stop(), 0)
            self.check_log(log, records, len(alone))

    async def kill_under_load(self, server: ServerProcess) -> list[tuple[Job, Answer]]:
        """What some jobs answer on an idle server, which is then killed under all of them."""
        connection = Connection(server.port)
        workload = await Workload.create(SEED, 16, connection)
        alone = await answers_alone(workload.jobs, connection)
        streams = await begin_streams(server.port, TOKENS)
        server.signal(signal.SIGKILL)
        for answer in await answers_of(streams):
            self.assertIsInstance(answer, Lost)
        connection.cut()
        return [(job, alone[job.number]) for job in workload.jobs]

    async def check_fresh(self, port: int, alone: list[tuple[Job, Answer]]) -> None:
        connection = Connection(port)
        cache = (await connection.request("GET", "/cache")).json()
        self.assertEqual(unbalanced(cache) + not_free(cache), [])
        for job, expected in alone:
            answer = await ask(connection, job.path, job.body)
            self.assertEqual(answer.differences(expected), [], job.body)
        connection.cut()

    def check_log(self, log: pathlib.Path, before: int, jobs: int) -> None:
        lines = log.read_text(encoding="utf-8").splitlines()
        # Every whole answer has one, of each of its choices.
        self.assertGreaterEqual(before, jobs)
        self.assertGreaterEqual(len(lines), before + jobs)
        for line in lines:
            self.assertEqual(json.loads(line)["schema"], 1)

    def test_a_log_whose_last_line_was_cut_goes_on_with_whole_lines(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            log = pathlib.Path(folder) / "requests.jsonl"
            log.write_text('{"schema":1,"id":0}\n{"schema":1,"i', encoding="utf-8")
            with ServerProcess("--budget", "4MiB", "--request-log", str(log)) as server:
                asyncio.run(ask_alone(server.port, 4))
                self.assertEqual(server.stop(), 0)
            first, cut, *added = log.read_text(encoding="utf-8").splitlines()
        self.assertEqual(json.loads(first)["id"], 0)
        self.assertEqual(cut, '{"schema":1,"i')
        self.assertEqual([json.loads(line)["completion_tokens"] for line in added], [4] * STREAMS)


if __name__ == "__main__":
    unittest.main()
