"""A TCP proxy before a server: it cuts all connections, or (PostgreSQL) one at the COMMIT of a chosen transaction."""

import contextlib
import socket
import threading
from dataclasses import dataclass, field
from urllib.parse import urlsplit, urlunsplit

COMMIT = b"Q\x00\x00\x00\x0bCOMMIT\x00"
ROLLBACK = b"Q\x00\x00\x00\x0dROLLBACK\x00"


@dataclass
class Cut:
    """Cut the first transaction that says all of `words` at its COMMIT; `forward` it before, and let it happen."""

    words: tuple[bytes, ...]
    forward: bool
    done: threading.Event = field(default_factory=threading.Event)


class Proxy:
    """Listens on a free port; `url` leads through it. One cut at a time."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        self.aim(url)
        self._listener = socket.create_server(("127.0.0.1", 0))
        login = parts.netloc.rpartition("@")[0]
        host = f"127.0.0.1:{self._listener.getsockname()[1]}"
        self.url = urlunsplit(parts._replace(netloc=f"{login}@{host}" if login else host))
        self._cut: Cut | None = None
        self._lock = threading.Lock()
        self._connections: list[threading.Thread] = []
        self._open: set[socket.socket] = set()
        self._swallowed: bytes | None = None
        self._broken: tuple[bytes, int] | None = None
        self._held: bytes | None = None
        self._release = threading.Event()
        self.in_crumbs = False
        self._accepting = threading.Thread(target=self._accept)
        self._accepting.start()

    def aim(self, url: str) -> None:
        """Lead to another port, for a server that was started again."""
        parts = urlsplit(url)
        self._target = (parts.hostname or "127.0.0.1", parts.port or 5432)

    def cut_all(self) -> int:
        """Cut every connection; returns how many.

        The server hears of it first, and what it has said by then still arrives.
        """
        with self._lock:
            servers = list(self._open)
        for server in servers:
            with contextlib.suppress(OSError):
                server.shutdown(socket.SHUT_WR)
        return len(servers)

    def swallow(self, word: str) -> threading.Event:
        """The answer that says `word` never arrives, nor does anything behind it; set when it has been given."""
        self._gone = threading.Event()
        self._swallowed = word.encode()
        return self._gone

    def break_off(self, word: str, at: int) -> None:
        """Of the answer that says `word`, so many bytes arrive; then its connection ends."""
        self._broken = word.encode(), at

    def hold(self, word: str) -> None:
        """The request that says `word` waits, as its answer does, for `release`: its connection seems well."""
        self._release.clear()
        self._held = word.encode()

    @property
    def holds(self) -> bool:
        """Does a request wait?"""
        return self._held is None and not self._release.is_set()

    def release(self) -> None:
        """Let what waits reach the server, even if who sent it is gone."""
        self._release.set()

    def cut(self, *words: str, forward: bool) -> Cut:
        made = Cut(tuple(word.encode() for word in words), forward)
        with self._lock:
            self._cut = made
        return made

    def close(self) -> None:
        """End, with all connections."""
        self._release.set()
        _end(self._listener)
        self._accepting.join()
        for server in list(self._open):
            _end(server)
        for connection in self._connections:
            connection.join()
        self._listener.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                self._connections.append(threading.Thread(target=self._serve, args=(client,)))
                self._connections[-1].start()

    def _serve(self, client: socket.socket) -> None:
        with client, contextlib.suppress(ConnectionError), socket.create_connection(self._target) as server:
            with self._lock:
                self._open.add(server)
            answers = threading.Thread(target=self._pump, args=(server, client))
            answers.start()
            with contextlib.suppress(OSError):
                self._requests(client, server)
            _end(server)
            answers.join()
            with self._lock:
                self._open.discard(server)

    def _requests(self, client: socket.socket, server: socket.socket) -> None:
        said = b""
        while data := client.recv(1 << 20):
            if self._cut is not None:
                said += data
            if data == COMMIT and (cut := self._take(said)):
                # First the way back: the answer must not slip through.
                client.shutdown(socket.SHUT_RDWR)
                if cut.forward:
                    server.sendall(data)
                cut.done.set()
                return
            if data in (COMMIT, ROLLBACK):
                said = b""
            if self._held is not None and self._held in data:
                self._held = None
                self._release.wait(60)
            server.sendall(data)

    def _pump(self, server: socket.socket, client: socket.socket) -> None:
        with contextlib.suppress(OSError):
            deaf = False
            while data := server.recv(1 << 20):
                if self._swallowed is not None and self._swallowed in data:
                    deaf, self._swallowed = True, None
                    self._gone.set()
                if self._broken is not None and self._broken[0] in data:
                    at, self._broken = self._broken[1], None
                    client.sendall(data[:at])
                    break
                if not deaf:
                    for piece in (data[n : n + 1] for n in range(len(data))) if self.in_crumbs else (data,):
                        client.sendall(piece)
        _end(client)

    def _take(self, said: bytes) -> Cut | None:
        with self._lock:
            cut = self._cut
            if cut is None or not all(word in said for word in cut.words):
                return None
            self._cut = None
            return cut


def _end(end: socket.socket) -> None:
    with contextlib.suppress(OSError):
        end.shutdown(socket.SHUT_RDWR)
