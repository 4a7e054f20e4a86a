# SPDX-License-Identifier: Apache-2.0
"""What a server must refuse, and with what: the classes of docs/http.md, "Errors" and "Limits".

Each is sent on a connection of its own, as bytes, so that it can be malformed at any level.
"""

import asyncio
import json
from dataclasses import dataclass

from http_client import Lost, open_socket, read_chunks, read_head, request_bytes

# The connection's own limits (docs/http.md), and time to spare on a busy machine.
REFUSAL_SECONDS_MAX = 120
# Of the bundled model: 8,192 tokens of at most 16 bytes fill less than the least there is.
BODY_BYTES_MAX = 1 << 20


@dataclass(frozen=True)
class BadRequest:
    name: str
    data: bytes
    status: int
    code: str
    ends: bool = False       # the client ends its side after the data
    after_seconds: bool = False  # the refusal comes when a limit of 10 s is over


@dataclass(frozen=True)
class Target:
    """What of a server decides where its limits are."""
    key: str
    model: str
    context: int       # tokens of the model
    max_model_len: int  # tokens that the budget holds


def _post(target: Target, path: str, body: object, **headers: str) -> bytes:
    return request_bytes("POST", path, json.dumps(body).encode(), _key(target) | headers)


def _key(target: Target) -> dict[str, str]:
    return {"Authorization": f"Bearer {target.key}"}


def _head(target: Target, first: str, *lines: str) -> bytes:
    return "\r\n".join([first, "Host: localhost", f"Authorization: Bearer {target.key}", *lines,
                        "", ""]).encode()


def _fields(target: Target) -> list[BadRequest]:
    """Fields of a completion: name of the case, fields, code."""
    cases = [
        ("no prompt", {"max_tokens": 1}, "missing_required_parameter"),
        ("an unknown field", {"prompt": "a", "promt": "b"}, "unknown_parameter"),
        ("a suffix", {"prompt": "a", "suffix": "b"}, "unsupported_parameter"),
        ("best_of that n is not", {"prompt": "a", "best_of": 3}, "unsupported_parameter"),
        ("a prompt of a wrong type", {"prompt": {"a": 1}}, "invalid_type"),
        ("temperature of a wrong type", {"prompt": "a", "temperature": "hot"}, "invalid_type"),
        ("temperature too high", {"prompt": "a", "temperature": 2.5}, "invalid_value"),
        ("top_p of 0", {"prompt": "a", "top_p": 0}, "invalid_value"),
        ("n of 0", {"prompt": "a", "n": 0}, "invalid_value"),
        ("choices beyond 128", {"prompt": ["a"] * 50, "n": 3}, "invalid_value"),
        ("prompts beyond 64", {"prompt": ["a"] * 65}, "invalid_value"),
        ("an id beyond the vocabulary", {"prompt": [1, 1 << 30]}, "invalid_value"),
        ("an id below 0", {"prompt": [-1]}, "invalid_value"),
        ("stops beyond 4", {"prompt": "a", "stop": list("abcde")}, "invalid_value"),
        ("an empty stop", {"prompt": "a", "stop": ""}, "invalid_value"),
        ("a bias on a word", {"prompt": "a", "logit_bias": {"barn": 1}}, "invalid_value"),
        ("a bias beyond 100", {"prompt": "a", "logit_bias": {"1": 101}}, "invalid_value"),
        ("min_tokens above max_tokens", {"prompt": "a", "max_tokens": 1, "min_tokens": 2},
         "invalid_value"),
        ("a salt of 257 bytes", {"prompt": "a", "cache_salt": "s" * 257}, "invalid_value"),
        ("checkpoint_at 0", {"prompt": "a", "checkpoint_at": 0}, "invalid_value"),
        ("checkpoint_at beyond the prompt", {"prompt": "a", "checkpoint_at": 100},
         "invalid_value"),
        ("checkpoints beyond 64", {"prompt": "a", "checkpoint_at": [1] * 65}, "invalid_value"),
        ("a priority of 33 bits", {"prompt": "a", "priority": 1 << 32}, "invalid_value"),
        ("stream_options of no stream", {"prompt": "a", "stream_options": {}}, "invalid_value"),
        ("a prompt longer than the context", {"prompt": [1] * (target.context + 1)},
         "context_length_exceeded"),
        ("a text longer than the context", {"prompt": "x y " * (4 * target.context)},
         "context_length_exceeded"),
        ("a text as long as a body may be",
         {"prompt": "x" * (BODY_BYTES_MAX - len('{"prompt": ""}'))}, "context_length_exceeded"),
        ("an answer longer than the context", {"prompt": "a", "max_tokens": target.context},
         "context_length_exceeded"),
        ("more than the budget holds", {"prompt": [1] * (target.max_model_len + 1)},
         "budget_exceeded"),
    ]
    return [BadRequest(name, _post(target, "/v1/completions", fields), 400, code)
            for name, fields, code in cases]


def _chats(target: Target) -> list[BadRequest]:
    user = [{"role": "user", "content": "a"}]
    cases = [
        ("no messages", {"max_tokens": 1}, "missing_required_parameter"),
        ("messages of a wrong type", {"messages": "a"}, "invalid_type"),
        ("a role that there is not", {"messages": [{"role": "king", "content": "a"}]},
         "invalid_type"),
        ("a JSON format", {"messages": user, "response_format": {"type": "json_object"}},
         "unsupported_parameter"),
        ("a forced tool", {"messages": user, "tool_choice": "required"}, "unsupported_parameter"),
        ("top_logprobs of none", {"messages": user, "top_logprobs": 2}, "invalid_value"),
    ]
    return [BadRequest(f"chat: {name}", _post(target, "/v1/chat/completions", fields), 400, code)
            for name, fields, code in cases]


def _routes(target: Target) -> list[BadRequest]:
    def ask(name: str, method: str, path: str, status: int, code: str) -> BadRequest:
        return BadRequest(name, request_bytes(method, path, None, _key(target)), status, code)

    return [
        ask("an unknown path", "GET", "/v2/completions", 404, "not_found"),
        ask("a path of 600 bytes", "GET", "/" + "a" * 600, 404, "not_found"),
        ask("another model's card", "GET", "/v1/models/other", 404, "model_not_found"),
        ask("GET of a completion", "GET", "/v1/completions", 405, "method_not_allowed"),
        ask("DELETE of the metrics", "DELETE", "/metrics", 405, "method_not_allowed"),
        ask("entries without a limit", "GET", "/cache/entries?limit=none", 400, "invalid_value"),
        ask("entries by another parameter", "GET", "/cache/entries?page=2", 400,
            "unknown_parameter"),
        BadRequest("no key", request_bytes("GET", "/cache"), 401, "invalid_api_key"),
        BadRequest("another key", request_bytes("POST", "/v1/completions", b'{"prompt":"a"}',
                                                {"Authorization": "Bearer guess"}),
                   401, "invalid_api_key"),
        BadRequest("another model", _post(target, "/v1/completions",
                                          {"prompt": "a", "model": "other"}),
                   404, "model_not_found"),
        BadRequest("a pin of what is not kept", _post(target, "/cache/pin", {
            "prompt": "never asked", "cache_salt": "nobody's"}), 404, "not_cached"),
        BadRequest("a pin for no time", _post(target, "/cache/pin", {"prompt": "a", "ttl_s": 0}),
                   400, "invalid_value"),
        BadRequest("release of no pin", _post(target, "/cache/release", {"pin": 1 << 40}), 404,
                   "pin_not_found"),
        BadRequest("tokenize of nothing", _post(target, "/tokenize", {}), 400,
                   "missing_required_parameter"),
        BadRequest("detokenize beyond the vocabulary", _post(target, "/detokenize",
                                                             {"tokens": [1 << 30]}),
                   400, "invalid_value"),
    ]


def _bodies(target: Target) -> list[BadRequest]:
    post = "POST /v1/completions HTTP/1.1"
    beyond = BODY_BYTES_MAX + 1

    def raw(name: str, body: bytes, code: str) -> BadRequest:
        return BadRequest(name, request_bytes("POST", "/v1/completions", body, _key(target)), 400,
                          code)

    def chunked(size: int) -> bytes:
        return (_head(target, post, "Content-Type: application/json", "Transfer-Encoding: chunked")
                + f"{size:x}\r\n".encode() + b"a" * size + b"\r\n0\r\n\r\n")

    return [
        raw("a body that is not JSON", b"prompt=a", "invalid_json"),
        raw("JSON that ends early", b'{"prompt": "a', "invalid_json"),
        raw("JSON nested 5,000 deep", b"[" * 5000, "invalid_json"),
        raw("bytes that are not UTF-8", b'{"prompt": "\xff\xfe"}', "invalid_json"),
        raw("an array instead of an object", b"[1]", "invalid_type"),
        BadRequest("a length beyond the limit", _head(target, post, f"Content-Length: {beyond}"),
                   413, "payload_too_large"),
        BadRequest("a body beyond the limit",
                   request_bytes("POST", "/v1/completions", b"a" * beyond, _key(target)), 413,
                   "payload_too_large"),
        BadRequest("chunks beyond the limit", chunked(beyond), 413, "payload_too_large"),
        BadRequest("a form", _head(target, post, "Content-Type: multipart/form-data; boundary=x",
                                   "Content-Length: 5") + b"--x--", 415,
                   "unsupported_media_type"),
        BadRequest("half a body, then the end",
                   _head(target, post, "Content-Length: 100") + b'{"prompt"', 408,
                   "incomplete_body", ends=True),
        BadRequest("half a body, then silence",
                   _head(target, post, "Content-Length: 100") + b'{"prompt"', 408,
                   "incomplete_body", after_seconds=True),
    ]


def _framing(target: Target) -> list[BadRequest]:
    post = "POST /v1/completions HTTP/1.1"

    def bad(name: str, data: bytes) -> BadRequest:
        return BadRequest(name, data, 400, "invalid_request")

    return [
        bad("not HTTP", b"hello\r\n\r\n"),
        bad("TLS", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n"),
        bad("no version", b"GET /health\r\n\r\n"),
        bad("two lengths", _head(target, post, "Content-Length: 2", "Content-Length: 3") + b"{}"),
        bad("a length of +2", _head(target, post, "Content-Length: +2") + b"{}"),
        bad("a length below 0", _head(target, post, "Content-Length: -2") + b"{}"),
        bad("a length and chunks", _head(target, post, "Content-Length: 2",
                                         "Transfer-Encoding: chunked") + b"{}"),
        bad("an encoding that there is not", _head(target, post, "Transfer-Encoding: rot13")),
    ]


def bad_requests(target: Target) -> list[BadRequest]:
    return [*_fields(target), *_chats(target), *_routes(target), *_bodies(target),
            *_framing(target)]


async def misanswered(port: int, bad: BadRequest) -> str:
    """What is wrong with the refusal; empty when it is the documented one."""
    reader, writer = await open_socket(port)
    try:
        writer.write(bad.data)
        if bad.ends:
            writer.write_eof()
        async with asyncio.timeout(REFUSAL_SECONDS_MAX):
            head = await read_head(reader)
            body = b"".join([piece async for piece in read_chunks(reader, head)])
    except TimeoutError:
        return f"{bad.name}: no answer within {REFUSAL_SECONDS_MAX} s"
    except (Lost, ConnectionError) as error:
        return f"{bad.name}: {error}"
    finally:
        writer.transport.abort()
    try:
        error = json.loads(body)["error"]
        found, message = (head.status, error["code"]), error["message"]
    except (ValueError, KeyError, TypeError):
        return f"{bad.name}: {head.status} with the body {body[:200]!r}"
    if found == (bad.status, bad.code) and message:
        return ""
    return f"{bad.name}: expected {bad.status} {bad.code}, got {found[0]} {found[1]}: {message}"
