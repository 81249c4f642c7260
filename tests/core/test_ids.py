"""Ids that are ordered by time."""

import os
import threading
import uuid
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.core import ids
from harness.core.ids import uuid7, uuid7_time


def test_an_id_is_a_uuid_of_version_7() -> None:
    made = uuid.UUID(uuid7())
    assert made.version == 7
    assert made.variant == uuid.RFC_4122


def test_ids_are_ordered_and_tell_their_time() -> None:
    before = datetime.now(UTC) - timedelta(milliseconds=1)
    made = [uuid7() for _ in range(20_000)]
    assert made == sorted(set(made))
    for text in (made[0], made[-1].upper()):
        at = uuid7_time(text)
        assert at is not None
        assert before <= at <= datetime.now(UTC) + timedelta(seconds=1)


def test_ids_keep_their_order_when_the_clock_goes_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ids, "_clock", ids._Clock())
    times = iter([2_000_000_000_000, 1_000_000_000_000, 1_000_000_000_000, 3_000_000_000_000])
    monkeypatch.setattr(ids.time, "time_ns", lambda: next(times) * 1_000_000)
    made = [uuid7() for _ in range(4)]
    assert made == sorted(set(made))
    assert uuid7_time(made[2]) == uuid7_time(made[0])


def test_a_full_counter_goes_on_in_the_next_millisecond(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = ids._Clock()
    clock.millisecond, clock.counter = 10**15, 2**42 - 2
    monkeypatch.setattr(ids, "_clock", clock)
    made = [uuid7() for _ in range(3)]
    assert made == sorted(set(made))
    assert clock.millisecond == 10**15 + 1


def test_threads_never_get_the_same_id() -> None:
    made: list[str] = []
    threads = [threading.Thread(target=lambda: made.extend([uuid7() for _ in range(2000)])) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(made)) == 16_000


def test_a_forked_child_goes_its_own_way() -> None:
    uuid7()
    reading, writing = os.pipe()
    with ids._clock.lock:  # as if another thread held it at the moment of the fork
        child = os.fork()
        if child == 0:
            os.write(writing, uuid7().encode())
            os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as pipe:
        theirs = pipe.read()
    os.waitpid(child, 0)
    assert uuid.UUID(theirs).version == 7
    assert uuid7() != theirs


def test_the_example_of_the_rfc() -> None:
    assert uuid7_time("017f22e2-79b0-7cc3-98c4-dc0c0c07398f") == datetime(2022, 2, 22, 19, 22, 22, tzinfo=UTC)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "order-4711",
        "3c2bba91-0cfd-458a-bbec-bb39fa1be1ae",
        "017f22e279b07cc398c4dc0c0c07398f",
        "{017f22e2-79b0-7cc3-98c4-dc0c0c07398f}",
        "017f22e2-79b0-7cc3-18c4-dc0c0c07398f",
        "ffffffff-ffff-7fff-bfff-ffffffffffff",
        None,
        7,
    ],
)
def test_anything_else_tells_no_time(text: str) -> None:
    assert uuid7_time(text) is None


@given(st.text(max_size=40) | st.from_regex(r"[0-9a-f-]{36}", fullmatch=True))
def test_reading_the_time_never_raises(text: str) -> None:
    uuid7_time(text)
