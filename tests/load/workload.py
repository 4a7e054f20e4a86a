# SPDX-License-Identifier: Apache-2.0
"""Requests drawn from a seed: completions and chats about a few shared contexts.

What a request asks for (sampling, penalties, stops, choices, log-probabilities) decides its answer.
How it asks (stream, salt, priority, checkpoint_at, cache_prompt) must not: `alone` leaves that out.
"""

import random
from dataclasses import dataclass

from answers import Answer, ask
from http_client import Connection
from server_process import ROOT

CONTEXTS = 6
# How a request asks. Left out of what it is compared with.
MANNER = ("stream", "stream_options", "return_progress", "cache_salt", "priority", "checkpoint_at",
          "cache_prompt", "prompt_cache_key")


@dataclass
class Context:
    text: str
    tokens: list[int]


@dataclass(frozen=True, eq=False)
class Job:
    number: int
    path: str
    body: dict

    def alone(self) -> dict:
        return {name: value for name, value in self.body.items() if name not in MANNER}


def make_contexts(rng: random.Random) -> list[str]:
    """Texts of 150 to 700 tokens: sentences of the bundled text in other orders."""
    text = (ROOT / "models/harbour-context.txt").read_text(encoding="utf-8")
    sentences = [sentence.strip() + "." for sentence in text.split(".") if sentence.strip()]
    return [" ".join(rng.sample(sentences, rng.randint(8, 36))) + "\n" for _ in range(CONTEXTS)]


class Workload:
    """Jobs, each a function of the seed and its number alone. `count` is how many differ."""

    def __init__(self, seed: int, count: int, contexts: list[Context]):
        self._seed = seed
        self.contexts = contexts
        self.jobs = [self._draw(number) for number in range(count)]

    @staticmethod
    async def create(seed: int, count: int, connection: Connection) -> "Workload":
        """The connection is for counting the tokens of contexts."""
        contexts = []
        for text in make_contexts(random.Random(seed)):
            reply = await connection.request("POST", "/tokenize", {"prompt": text})
            contexts.append(Context(text, reply.json()["tokens"]))
        return Workload(seed, count, contexts)

    def _draw(self, number: int) -> Job:
        rng = random.Random(f"{self._seed}/{number}")
        context = rng.choice(self.contexts)
        question = f"Q: Where is the {rng.choice(['red kite', 'golden chest', 'grey ledger'])}?\nA:"
        body = _sampling(rng) | _ending(rng) | _manner(rng)
        kind = rng.choices(("text", "ids", "several", "echo", "chat"), (5, 3, 1, 1, 4))[0]
        if kind == "chat":
            messages = [{"role": "system", "content": context.text},
                        {"role": "user", "content": question}]
            if rng.random() < 0.3:
                body |= {"logprobs": True, "top_logprobs": rng.randint(0, 4)}
            return Job(number, "/v1/chat/completions", body | {"messages": messages})
        if kind in ("text", "ids") and rng.random() < 0.5:
            # The context ends with a line end, after which the tokenizer begins a new piece.
            body["checkpoint_at"] = len(context.tokens)
        if rng.random() < 0.3 or kind == "echo":
            body["logprobs"] = rng.randint(0, 4)
        if kind == "ids":
            prompt = context.tokens + [rng.randrange(256) for _ in range(rng.randint(1, 40))]
        elif kind == "several":
            prompt = [context.text + question, rng.choice(self.contexts).text]
        else:
            prompt = context.text + question
        return Job(number, "/v1/completions", body | {"prompt": prompt, "echo": kind == "echo"})


def _sampling(rng: random.Random) -> dict:
    body: dict = {"temperature": 0, "seed": rng.getrandbits(32)}
    if rng.random() < 0.6:
        body |= {"temperature": rng.choice((0.7, 1, 1.5)),
                 "top_p": rng.choice((0.8, 0.95, 1)), "top_k": rng.choice((0, 5, 40)),
                 "min_p": rng.choice((0, 0.05))}
    if rng.random() < 0.4:
        body |= {"presence_penalty": rng.choice((-1, 0.5, 1)),
                 "frequency_penalty": rng.choice((-0.5, 0, 0.7)),
                 "repetition_penalty": rng.choice((0.9, 1, 1.2))}
    if rng.random() < 0.2:
        body["logit_bias"] = {str(rng.randrange(256)): rng.choice((-100, -3, 4)) for _ in range(3)}
    if rng.random() < 0.3:
        body["n"] = rng.randint(2, 4)
    return body


def _ending(rng: random.Random) -> dict:
    if rng.random() < 0.6:  # long: memory must grow while others run
        return {"max_tokens": rng.randint(60, 300), "ignore_eos": True}
    return {"max_tokens": rng.randint(1, 60), "min_tokens": rng.choice((0, 1)),
            "stop": rng.choice(("\n", ["\n", " barn"], ["."])),
            "stop_token_ids": rng.sample(range(256), rng.randint(0, 2))}


def _manner(rng: random.Random) -> dict:
    body: dict = {"priority": rng.choice((-1, 0, 0, 0, 2))}
    if rng.random() < 0.5:
        body |= {"stream": True, "stream_options": {"include_usage": True},
                 "return_progress": rng.random() < 0.5}
    if rng.random() < 0.3:
        body["cache_salt"] = rng.choice(("", "one", "another"))
    if rng.random() < 0.1:
        body["cache_prompt"] = False
    return body


async def answers_alone(jobs: list[Job], connection: Connection) -> dict[int, Answer]:
    """By number, one after the other: of an idle server that reuses nothing."""
    return {job.number: await ask(connection, job.path, job.alone()) for job in jobs}
