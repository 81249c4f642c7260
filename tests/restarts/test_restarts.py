"""Each server ends and comes back under load of every kind, and all work goes on by itself.

For longer: python -m tests.restarts.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.restarts.run import Restart, restarts
from tests.services import Servers


@pytest.mark.parametrize(
    ("kind", "plan", "forgets"),
    [
        pytest.param("rabbitmq", (Restart("broker"),), False, marks=pytest.mark.rabbitmq),
        pytest.param("redis", (Restart("broker"), Restart("database")), False, marks=pytest.mark.redis),
        pytest.param("redis", (Restart("broker"),), True, marks=pytest.mark.redis),
    ],
)
def test_all_work_goes_on(
    servers: Servers, kind: str, plan: tuple[Restart, ...], forgets: bool, tmp_path: Path
) -> None:
    """A broker that forgets what it had loses what it alone had; the inbox sends again what was its own."""
    found = restarts(servers, kind, tmp_path, plan, seed=5, least=35, forgets=forgets)
    verdict = found.verdict
    assert (verdict.lost, verdict.doubled, verdict.stuck, verdict.violations) == ([], [], [], [])
    assert found.traces.misfits == []
    assert found.dead == 0, "no worker ended"
    assert len(found.resumed) == len(plan)
    assert verdict.jobs > 30
