# SPDX-License-Identifier: Apache-2.0
"""What of an answer must not depend on anything but its request: text, log-probabilities, receipt.

A stream's pieces are put together to what the same request answers as a whole, so that the two
forms can be compared with each other.
"""

import json
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field

from http_client import Connection


class Refused(Exception):
    """An error of the server, before the answer or within a stream."""

    def __init__(self, status: int, code: str, message: str):
        super().__init__(f"{status} {code}: {message}")
        self.status = status
        self.code = code


@dataclass
class Choice:
    text: str = ""
    logprobs: dict[str, list] = field(default_factory=dict)
    finish_reason: str = ""
    receipt: str = ""


@dataclass
class Answer:
    choices: dict[int, Choice] = field(default_factory=dict)
    completion_tokens: int = 0

    def differences(self, other: "Answer") -> list[str]:
        """One line for each member that is not equal; empty: the same bits."""
        found = []
        if self.completion_tokens != other.completion_tokens:
            found.append(f"completion_tokens: {self.completion_tokens}, {other.completion_tokens}")
        if self.choices.keys() != other.choices.keys():
            found.append(f"choices: {sorted(self.choices)}, {sorted(other.choices)}")
        for index in self.choices.keys() & other.choices.keys():
            mine, its = self.choices[index], other.choices[index]
            for name in ("text", "logprobs", "finish_reason", "receipt"):
                if getattr(mine, name) != getattr(its, name):
                    found.append(f"choice {index}: {name}: {getattr(mine, name)!r}, "
                                 f"{getattr(its, name)!r}")
        return found


def _add_choice(answer: Answer, part: dict) -> None:
    """One member of `choices`, of a whole answer or of a chunk, of a completion or of a chat."""
    choice = answer.choices.setdefault(part["index"], Choice())
    message = part.get("message") or part.get("delta") or {}
    choice.text += part.get("text") or message.get("content") or ""
    for name, values in (part.get("logprobs") or {}).items():
        if values is not None:
            choice.logprobs.setdefault(name, []).extend(values)
    choice.finish_reason = part.get("finish_reason") or choice.finish_reason
    choice.receipt = part.get("receipt") or choice.receipt


def _add_part(answer: Answer, part: dict) -> None:
    for choice in part["choices"]:
        _add_choice(answer, choice)
    if part.get("usage"):
        answer.completion_tokens = part["usage"]["completion_tokens"]


def _refusal(status: int, body: dict) -> Refused:
    return Refused(status, body["error"]["code"], body["error"]["message"])


async def _events(pieces: AsyncIterator[bytes]) -> AsyncIterator[dict]:
    """The JSON of each event of a stream, up to [DONE]; an error event is raised."""
    rest = b""
    done = False
    async for piece in pieces:
        *whole, rest = (rest + piece).split(b"\n\n")
        for event in whole:
            if event == b"data: [DONE]":
                done = True
            elif event.startswith(b"data: "):
                part = json.loads(event[len(b"data: "):])
                if "error" in part:
                    raise _refusal(200, part)
                yield part
            elif not event.startswith(b":"):
                raise ValueError(f"not an event: {event!r}")
    if rest or not done:
        raise ValueError(f"the stream ends with {rest!r}, not with [DONE]")


async def ask(connection: Connection, path: str, body: dict,
              on_event: Callable[[], None] = lambda: None) -> Answer:
    """Raises Refused, or Lost when the connection ends too early. `on_event`: of a stream, each."""
    head, pieces = await connection.begin("POST", path, body)
    answer = Answer()
    if head.headers.get("content-type") == "text/event-stream":
        async for part in _events(pieces):
            on_event()
            _add_part(answer, part)
        return answer
    whole = json.loads(b"".join([piece async for piece in pieces]))
    if head.status != 200:
        raise _refusal(head.status, whole)
    _add_part(answer, whole)
    return answer
