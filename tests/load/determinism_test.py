# SPDX-License-Identifier: Apache-2.0
"""Answers under load against the answers of an idle server that reuses nothing."""

import asyncio
import copy
import random
import unittest

from answers import Answer
from figures import Figures, unbalanced
from http_client import Connection
from load_clients import Outcome, run_clients
from server_process import ServerProcess
from workload import Job, Workload, answers_alone

SEED = 20260101
CLIENTS = 64
DISTINCT_JOBS = 64
ROUNDS = 3       # how often each job is asked, by different clients
CUT_SHARE = 0.2  # of the requests; their connection is closed at a random moment
# The least in which every job fits alone, and little more: some 3 of 16 run at a time.
SERVERS = {
    "s3": ("--organisation", "s3", "--budget", "3MiB"),
    "s2": ("--organisation", "s2:block=64", "--budget", "4MiB"),
    "d0": ("--organisation", "d0:split=0.6", "--budget", "4MiB"),
}
ONE_PROMPT = {"prompt": "Ada left the red kite in the barn.\nQ: Where is the red kite?\nA:",
              "max_tokens": 200, "temperature": 0, "ignore_eos": True, "logprobs": 1}


class DeterminismUnderLoad(unittest.TestCase):
    workload: Workload
    alone: dict[int, Answer]

    @classmethod
    def setUpClass(cls) -> None:
        with ServerProcess("--no-reuse", "--max-running", "1") as idle:
            asyncio.run(cls.ask_alone(idle.port))

    @classmethod
    async def ask_alone(cls, port: int) -> None:
        connection = Connection(port)
        cls.workload = await Workload.create(SEED, DISTINCT_JOBS, connection)
        cls.alone = await answers_alone(cls.workload.jobs, connection)
        connection.cut()

    def jobs(self) -> list[Job]:
        jobs = self.workload.jobs * ROUNDS
        random.Random(SEED).shuffle(jobs)
        return jobs

    async def run_load(self, port: int) -> tuple[Outcome, Figures]:
        outcome = await run_clients(port, self.jobs(), CLIENTS, CUT_SHARE, SEED)
        connection = Connection(port)
        figures = await Figures.read(connection)
        self.assertEqual(unbalanced((await connection.request("GET", "/cache")).json()), [])
        connection.cut()
        return outcome, figures

    def check_organisation(self, name: str) -> None:
        with ServerProcess(*SERVERS[name]) as server:
            outcome, figures = asyncio.run(self.run_load(server.port))
            self.assertEqual(server.stop(), 0)
        for job, answer in outcome.finished:
            self.assertEqual(answer.differences(self.alone[job.number]), [], job.body)
        self.assertGreater(len({job.number for job, _ in outcome.finished}), DISTINCT_JOBS * 0.9)
        self.check_pressure(figures, len(outcome.cut))

    def check_pressure(self, figures: Figures, cut: int) -> None:
        """That the load was what the test claims: else equal answers say little."""
        pressure = {
            "cut": cut,
            "aborted": figures.ended("abort"),
            "pinned": figures.get("tessera_preemptions_total", way="pin"),
            "recomputed": figures.get("tessera_preemptions_total", way="recompute"),
            "resumed": figures.get("tessera_resumptions_total"),
            "evicted": figures.total("tessera_entries_evicted_total"),
            "reused tokens": figures.get("tessera_lookup_usable_tokens_total"),
            "joins": figures.get("tessera_prefill_joins_total"),
        }
        print(", ".join(f"{int(count)} {what}" for what, count in pressure.items()), flush=True)
        for what, count in pressure.items():
            self.assertGreater(count, 0, what)

    def test_every_finished_answer_of_s3_is_the_one_that_comes_alone(self) -> None:
        self.check_organisation("s3")

    def test_every_finished_answer_of_s2_is_the_one_that_comes_alone(self) -> None:
        self.check_organisation("s2")

    def test_every_finished_answer_of_d0_is_the_one_that_comes_alone(self) -> None:
        self.check_organisation("d0")

    def test_identical_greedy_prompts_have_one_answer(self) -> None:
        jobs = [Job(number, "/v1/completions", ONE_PROMPT) for number in range(2 * CLIENTS)]
        with ServerProcess("--budget", "2MiB") as server:
            outcome = asyncio.run(run_clients(server.port, jobs, CLIENTS, 0, SEED))
        self.assertEqual(len(outcome.finished), len(jobs))
        self.assertEqual(len({repr(answer) for _, answer in outcome.finished}), 1)

    def test_the_comparison_sees_one_changed_bit(self) -> None:
        number, answer = next(iter(self.alone.items()))
        for member, value in (("receipt", "0" * 16), ("text", "other"), ("logprobs", {"x": [1]}),
                              ("finish_reason", "other")):
            changed = copy.deepcopy(answer)
            setattr(changed.choices[0], member, value)
            self.assertEqual(len(changed.differences(self.alone[number])), 1, member)
        self.assertEqual(answer.differences(copy.deepcopy(answer)), [])


if __name__ == "__main__":
    unittest.main()
