"""Breaks connections, as by a network that fails: this process's own and, to the broker, its worker's as well."""

import os
import signal
import socket
import time
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any

#: A child asks its worker's parent by this signal, for no process can end another one's connections.
ASK = signal.SIGIO
#: Connections by the process that opened them: a child inherits its parent's sockets, which are not its own.
_opened: "weakref.WeakKeyDictionary[Any, int]" = weakref.WeakKeyDictionary()
_home = 0


def remember(folder: Path) -> None:
    """Keep hold of every connection that is opened from now on; called where the worker's parent begins."""
    from amqp.connection import Connection as AmqpConnection
    from redis.connection import AbstractConnection as RedisConnection

    from harness.store.guard import GuardedConnection

    global _home
    _home = os.getpid()
    for kind in (GuardedConnection, AmqpConnection, RedisConnection):
        _note(kind)
    signal.signal(ASK, lambda *_: _answer(folder))


def database() -> int:
    """Break this process's connections to PostgreSQL; returns how many there were."""
    from harness.store.guard import GuardedConnection

    return sum(_end(one.fileno()) for one in _own(GuardedConnection) if not one.closed)


def broker(folder: Path) -> int:
    """Break the connections to the broker of this process and of the parent of its worker; returns how many."""
    broken = _own_broker()
    if os.getppid() != _home:
        return broken
    answer = _answer_file(folder, os.getpid())
    _ask_file(folder, os.getpid()).touch()
    os.kill(_home, ASK)
    for _ in range(200):
        if answer.exists():
            return broken + int(answer.read_text())
        time.sleep(0.02)
    return broken


def _answer(folder: Path) -> None:
    asked = [*folder.glob("*.ask")]
    broken = _own_broker() if asked else 0
    for ask in asked:
        ask.unlink()
        draft = ask.with_suffix(".draft")
        draft.write_text(str(broken))
        draft.rename(ask.with_suffix(".answer"))


def _ask_file(folder: Path, pid: int) -> Path:
    _answer_file(folder, pid).unlink(missing_ok=True)
    return folder / f"broker-{pid}.ask"


def _answer_file(folder: Path, pid: int) -> Path:
    return folder / f"broker-{pid}.answer"


def _own_broker() -> int:
    from amqp.connection import Connection as AmqpConnection
    from celery import current_app
    from kombu.utils.url import parse_url
    from redis.connection import AbstractConnection as RedisConnection

    url = str(current_app.conf.broker_write_url or current_app.conf.broker_url or "")
    if url.startswith(("redis", "valkey")):
        parts = parse_url(url)
        # A result backend may live on the same server; it is another database, and stays.
        where = (parts["port"] or 6379, str(parts["virtual_host"] or 0))
        ours = [c for c in _own(RedisConnection) if (getattr(c, "port", None), str(c.db)) == where]
        return sum(_end(c._sock.fileno()) for c in ours if c._sock is not None)
    ends = [c._transport for c in _own(AmqpConnection)]
    return sum(_end(end.sock.fileno()) for end in ends if end is not None and end.sock is not None)


def _own(kind: type) -> Iterator[Any]:
    return (one for one, pid in list(_opened.items()) if isinstance(one, kind) and pid == os.getpid())


def _end(descriptor: int) -> int:
    """End the socket under a driver, which notices when it is used next; 1 where it was still open."""
    if descriptor < 0:
        return 0
    try:
        with socket.socket(fileno=os.dup(descriptor)) as end:
            end.shutdown(socket.SHUT_RDWR)
    except OSError:
        return 0
    return 1


def _note(kind: Any) -> None:
    make = kind.__init__

    def init(self: Any, *args: Any, **kwargs: Any) -> None:
        make(self, *args, **kwargs)
        _opened[self] = os.getpid()

    kind.__init__ = init
