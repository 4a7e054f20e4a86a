# SPDX-License-Identifier: Apache-2.0
"""Clients that ask one request after another, and go away in the middle of some."""

import asyncio
import random
from dataclasses import dataclass, field

from answers import Answer, ask
from http_client import Connection
from workload import Job

# For any one request, also on a machine that is busy with other things: later it counts as stuck.
REQUEST_SECONDS_MAX = 240


@dataclass
class Outcome:
    finished: list[tuple[Job, Answer]] = field(default_factory=list)
    cut: list[Job] = field(default_factory=list)


async def ask_or_cut(connection: Connection, job: Job, seconds: float) -> Answer | None:
    """The answer, or None when it was not there by then and the connection was closed."""
    try:
        return await asyncio.wait_for(ask(connection, job.path, job.body), seconds)
    except TimeoutError:
        connection.cut()
        return None


def moment_to_leave(rng: random.Random) -> float:
    """Seconds: from before the request is read to well into its answer."""
    return 10 ** rng.uniform(-3.5, 0)


async def run_client(port: int, jobs: list[Job], cut_share: float, rng: random.Random,
                     outcome: Outcome) -> None:
    connection = Connection(port)
    for job in jobs:
        leaves = rng.random() < cut_share
        answer = await ask_or_cut(connection, job,
                                  moment_to_leave(rng) if leaves else REQUEST_SECONDS_MAX)
        if answer is not None:
            outcome.finished.append((job, answer))
        elif leaves:
            outcome.cut.append(job)
        else:
            raise TimeoutError(f"request {job.number} is stuck: {job.body}")
    connection.cut()


async def run_clients(port: int, jobs: list[Job], clients: int, cut_share: float,
                      seed: int) -> Outcome:
    """All at once, each with its share of the jobs."""
    outcome = Outcome()
    async with asyncio.TaskGroup() as group:
        for index in range(clients):
            group.create_task(run_client(port, jobs[index::clients], cut_share,
                                         random.Random(f"{seed}/client {index}"), outcome))
    return outcome
