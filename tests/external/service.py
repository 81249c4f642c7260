"""The other side: a server that counts the calls of each idempotency key, and can keep one waiting."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class Service:
    """`calls` counts by key. While `held`, a call is counted and its answer waits."""

    def __init__(self) -> None:
        self.calls: Counter[str] = Counter()
        self.answers = threading.Event()
        self.answers.set()
        self.server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self.server.daemon_threads = True

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server.server_port}/"

    @contextmanager
    def running(self) -> Iterator[Service]:
        thread = threading.Thread(target=self.server.serve_forever, args=(0.05,))
        thread.start()
        try:
            yield self
        finally:
            self.answers.set()
            self.server.shutdown()
            thread.join()
            self.server.server_close()

    @contextmanager
    def held(self) -> Iterator[None]:
        """Let calls come, and answer none before the end."""
        self.answers.clear()
        try:
            yield
        finally:
            self.answers.set()

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        service = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                self.rfile.read(int(self.headers["Content-Length"]))
                service.calls[self.headers["Idempotency-Key"]] += 1
                service.answers.wait(60)
                try:
                    self.send_response(200)
                    self.send_header("Content-Length", "0")
                    self.end_headers()
                except OSError:
                    pass  # who asked is dead

            def log_message(self, format: str, *args: object) -> None:
                pass

        return Handler
