"""A TCP gate before a server: while it is shut, nobody gets in and whoever was in is cut off."""

import contextlib
import socket
import threading
from urllib.parse import urlsplit, urlunsplit


class Gate:
    """`url` leads through it; shut at first."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        self._target = (parts.hostname or "127.0.0.1", parts.port or 0)
        self._listener: socket.socket | None = socket.create_server(("127.0.0.1", 0))
        self._port = self._listener.getsockname()[1]
        login = parts.netloc.rpartition("@")[0]
        host = f"127.0.0.1:{self._port}"
        self.url = urlunsplit(parts._replace(netloc=f"{login}@{host}" if login else host))
        self._sockets: list[socket.socket] = []
        self._threads: list[threading.Thread] = []
        self.shut()

    def open(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", self._port))
        self._start(self._accept, self._listener)

    def shut(self) -> None:
        listener, self._listener = self._listener, None
        for one in [*self._sockets, *([listener] if listener else [])]:
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
            one.close()
        for thread in self._threads:
            thread.join(10)
        self._sockets, self._threads = [], []

    def _start(self, target: object, *args: object) -> None:
        self._threads.append(threading.Thread(target=target, args=args))  # type: ignore[arg-type]
        self._threads[-1].start()

    def _accept(self, listener: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = listener.accept()
                server = socket.create_connection(self._target)
                self._sockets += [client, server]
                self._start(_pump, client, server)
                self._start(_pump, server, client)


def _pump(source: socket.socket, target: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while data := source.recv(1 << 16):
            target.sendall(data)
    with contextlib.suppress(OSError):
        target.shutdown(socket.SHUT_RDWR)
