# SPDX-License-Identifier: Apache-2.0
"""HTTP/1.1 as a client that can also misbehave: cut a request or an answer, or read slowly.

A Connection is opened by its first request, and again when the server has closed it meanwhile.
Whoever is cancelled or gets an exception inside a request must `cut` it.
"""

import asyncio
import json
import socket
from collections.abc import AsyncIterator
from dataclasses import dataclass

HOST = "127.0.0.1"


class Lost(Exception):
    """The connection ended before the answer did."""


@dataclass
class Head:
    status: int
    headers: dict[str, str]  # names in lower case


@dataclass
class Reply:
    status: int
    headers: dict[str, str]
    body: bytes

    def json(self) -> dict:
        return json.loads(self.body)


def request_bytes(method: str, path: str, body: bytes | None = None,
                  headers: dict[str, str] | None = None) -> bytes:
    """A well-formed request."""
    lines = [f"{method} {path} HTTP/1.1", f"Host: {HOST}"]
    if body is not None:
        lines += ["Content-Type: application/json", f"Content-Length: {len(body)}"]
    lines += [f"{name}: {value}" for name, value in (headers or {}).items()]
    return "\r\n".join([*lines, "", ""]).encode() + (body or b"")


async def read_head(reader: asyncio.StreamReader) -> Head:
    try:
        text = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
    except (asyncio.IncompleteReadError, ConnectionError) as error:
        raise Lost(f"no answer: {error}") from error
    first, *lines = text.rstrip("\r\n").split("\r\n")
    pairs = (line.split(":", 1) for line in lines)
    return Head(int(first.split(" ")[1]), {name.lower(): value.strip() for name, value in pairs})


async def read_chunks(reader: asyncio.StreamReader, head: Head) -> AsyncIterator[bytes]:
    """The body in the pieces in which it is sent."""
    try:
        if head.headers.get("transfer-encoding") != "chunked":
            yield await reader.readexactly(int(head.headers.get("content-length", "0")))
            return
        while size := int(await reader.readuntil(b"\r\n"), 16):
            yield (await reader.readexactly(size + 2))[:-2]
        await reader.readuntil(b"\r\n")
    except (asyncio.IncompleteReadError, ConnectionError) as error:
        raise Lost(f"the answer broke off: {error}") from error


async def open_socket(port: int, receive_bytes: int = 0, buffer_bytes: int = 1 << 20
                      ) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """`receive_bytes`: what the system takes for a reader that does not read; 0: its default."""
    plain = socket.socket()
    if receive_bytes:
        plain.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_bytes)
    plain.setblocking(False)
    try:
        await asyncio.get_running_loop().sock_connect(plain, (HOST, port))
        return await asyncio.open_connection(sock=plain, limit=buffer_bytes)
    except BaseException:
        plain.close()
        raise


class Connection:
    def __init__(self, port: int, key: str = ""):
        self._port = port
        self._headers = {"Authorization": f"Bearer {key}"} if key else {}
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def _send(self, data: bytes) -> Head:
        """An idle connection that the server has closed is not an error: the request goes again."""
        while True:
            kept = self._streams is not None
            if not kept:
                self._streams = await open_socket(self._port)
            reader, writer = self._streams
            try:
                writer.write(data)
                return await read_head(reader)
            except (Lost, ConnectionError):
                self.cut()
                if not kept:
                    raise

    async def begin(self, method: str, path: str, body: dict | None = None
                    ) -> tuple[Head, AsyncIterator[bytes]]:
        """Head and pieces of the answer; the pieces are to be read to their end, or `cut`."""
        payload = None if body is None else json.dumps(body).encode()
        head = await self._send(request_bytes(method, path, payload, self._headers))
        return head, self._pieces(head)

    async def _pieces(self, head: Head) -> AsyncIterator[bytes]:
        async for piece in read_chunks(self._streams[0], head):
            yield piece
        if head.headers.get("connection") == "close":
            self.cut()

    async def request(self, method: str, path: str, body: dict | None = None) -> Reply:
        head, pieces = await self.begin(method, path, body)
        return Reply(head.status, head.headers, b"".join([piece async for piece in pieces]))

    def cut(self) -> None:
        """Closes at once, whatever is under way."""
        if self._streams is not None:
            self._streams[1].transport.abort()
            self._streams = None
