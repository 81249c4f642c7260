"""A receiver is killed between store and acknowledgement, a hundred times: each message is in the inbox once."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.receive.running import Receiver, environment, message
from tests.worker.proxy import Proxy
from tests.worker.running import ROOT, State, until
from tests.worker.wires import Wires

TIMES = 100


def test_each_message_is_in_the_inbox_once(broker_url: str, database: str, tmp_path: Path) -> None:
    wires, state = Wires(broker_url, "orders"), State(database)
    for number in range(TIMES):
        wires.send(message(f"o{number}"))
    command = [sys.executable, "-m", "tests.receive.killed", str(TIMES)]
    done = subprocess.run(
        command, cwd=ROOT, env=environment(broker_url, database), capture_output=True, text=True, timeout=500
    )
    assert done.stdout == f"died={TIMES}\n", done.stdout + done.stderr[-3000:]
    stored = {row.job_id: row.count for row in state.sql("SELECT job_id, count(*) FROM core.inbox GROUP BY job_id")}
    assert stored == {f"o{number}": 1 for number in range(TIMES)}
    # Who comes next finds the rest a duplicate, and acknowledges it.
    receiver = Receiver(broker_url, database, tmp_path / "log", "orders").start()
    try:
        wires.empty(60)
    finally:
        receiver.kill()
    assert state.sql("SELECT count(*) FROM core.inbox")[0][0] == TIMES
    assert not receiver.says("received job_id=")
    wires.close()
    state.close()


def test_it_dies_as_it_is_handed_a_message(broker_url: str, database: str, tmp_path: Path) -> None:
    wires, state, proxy = Wires(broker_url, "orders"), State(database), Proxy(broker_url)
    first = Receiver(proxy.url, database, tmp_path / "first", "orders").start()
    second = Receiver(broker_url, database, tmp_path / "second", "orders")
    try:
        handed = proxy.swallow("o-handed")
        wires.send(message("o-handed"))
        assert handed.wait(60)
        first.kill()
        assert state.sql("SELECT count(*) FROM core.inbox")[0][0] == 0
        second.start()
        until(lambda: state.inbox("o-handed"), 60, "it comes again")
    finally:
        first.kill()
        second.kill()
        proxy.close()
        wires.close()
        state.close()
