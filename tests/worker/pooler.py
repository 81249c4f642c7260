"""A pooler in transaction mode, as pgbouncer's: each transaction of a client goes to another connection of the server.

What is set for a session, a LISTEN, a lock of a session: all that stays behind on a connection that somebody else gets
next. A client's own login makes the connection that it brings into the pool.
"""

from __future__ import annotations

import contextlib
import queue
import socket
import socketserver
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import urlsplit, urlunsplit

_SSL, _GSS, _CANCEL = 80877103, 80877104, 80877102
#: Seconds that a client waits for a connection that is free.
_PATIENCE = 60.0


class Pooler(socketserver.ThreadingTCPServer):
    """`url` is where clients connect. `switched` counts the transactions that began on another connection than the
    client's last one."""

    daemon_threads = True
    allow_reuse_address = True

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        self.target = (parts.hostname or "", parts.port or 5432)
        self.free: queue.Queue[Server] = queue.Queue()
        self.switched = self.transactions = 0
        super().__init__(("127.0.0.1", 0), Client)
        login = parts.netloc.rpartition("@")[0]
        self.url = urlunsplit(parts._replace(netloc=f"{login}@127.0.0.1:{self.server_address[1]}"))


class Server:
    """One connection to PostgreSQL."""

    def __init__(self, target: tuple[str, int]) -> None:
        self.socket = socket.create_connection(target)
        self._rest = b""

    def answer(self, client: socket.socket) -> str:
        """Hand everything on until the server is ready; its state: I, T or E."""
        while True:
            data = self.socket.recv(65536)
            if not data:
                raise ConnectionError("the server has closed the connection")
            client.sendall(data)
            if (state := self._state(data)) is not None:
                return state

    def _state(self, data: bytes) -> str | None:
        self._rest += data
        state = None
        while len(self._rest) >= 5:
            (length,) = struct.unpack_from("!I", self._rest, 1)
            if len(self._rest) < length + 1:
                break
            message, self._rest = self._rest[: length + 1], self._rest[length + 1 :]
            if message[:1] == b"Z":
                state = message[5:6].decode()
        return state

    def login(self, client: socket.socket, first: bytes) -> None:
        """What the client says to log in goes to the server word by word, until that is ready."""
        self.socket.sendall(first)
        while True:
            data = self.socket.recv(65536)
            if not data:
                raise ConnectionError("the server refuses the login")
            client.sendall(data)
            if self._state(data) is not None:
                return
            if data[:1] == b"R" and struct.unpack_from("!I", data, 5)[0] not in (0, 12):
                self.socket.sendall(client.recv(65536))


class Client(socketserver.BaseRequestHandler):
    """One client; holds a connection as long as its transaction is open."""

    server: Pooler

    def handle(self) -> None:
        with contextlib.suppress(OSError):
            first = self._startup()
            if first is None:
                return
            own = Server(self.server.target)
            own.login(self.request, first)
            self.server.free.put(own)
            self._serve(own)

    def _startup(self) -> bytes | None:
        while True:
            head = self.request.recv(8, socket.MSG_WAITALL)
            if len(head) < 8:
                return None
            length, code = struct.unpack("!II", head)
            if code in (_SSL, _GSS):
                self.request.sendall(b"N")
                continue
            if code == _CANCEL:
                return None
            return bytes(head + self.request.recv(length - 8, socket.MSG_WAITALL))

    def _serve(self, last: Server) -> None:
        held: Server | None = None
        try:
            while (data := self.request.recv(65536)) and data[:1] != b"X":
                if held is None:
                    held = self.server.free.get(timeout=_PATIENCE)
                    self.server.transactions += 1
                    self.server.switched += held is not last
                held.socket.sendall(data)
                if held.answer(self.request) == "I":
                    last = held
                    self.server.free.put(held)
                    held = None
        finally:
            if held is not None:
                held.socket.close()  # with its transaction


@contextmanager
def pooled(url: str) -> Iterator[Pooler]:
    """A pooler in front of `url`."""
    with Pooler(url) as made:
        serving = threading.Thread(target=made.serve_forever, kwargs={"poll_interval": 0.05})
        serving.start()
        try:
            yield made
        finally:
            made.shutdown()
            serving.join(10)
            while not made.free.empty():
                made.free.get().socket.close()
