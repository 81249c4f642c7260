"""Where `harness dev` puts Flower, and behind which login."""

from __future__ import annotations

import socket
import stat
from contextlib import closing
from pathlib import Path

import pytest

from harness.dev import flower
from harness.dev.process import ServiceError, free_port


@pytest.fixture(autouse=True)
def _empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_a_login_of_its_own_is_kept(tmp_path: Path) -> None:
    first, second = (flower.plan(tmp_path / "flower", {"FLOWER_PORT": str(free_port())}) for _ in range(2))
    assert first.env == second.env
    assert first.env["FLOWER_BASIC_AUTH"] in first.url
    assert not any(first.env["FLOWER_BASIC_AUTH"] in argument for argument in first.arguments), "others see those"
    assert "--address=127.0.0.1" in first.arguments
    assert stat.S_IMODE((tmp_path / "flower" / "password").stat().st_mode) == 0o600
    assert stat.S_IMODE((tmp_path / "flower").stat().st_mode) == 0o700


def test_a_taken_port_is_named_and_another_one_used(tmp_path: Path) -> None:
    with closing(socket.create_server(("127.0.0.1", 0))) as server:
        taken = server.getsockname()[1]
        its = flower.plan(tmp_path, {"FLOWER_PORT": str(taken)})
        assert its.port != taken
        assert f"--port={its.port}" in its.arguments
        assert f":{its.port}/" in its.url
        assert its.remark == f"  (port {taken} is taken by another program)"
    port = free_port()
    its = flower.plan(tmp_path, {"FLOWER_PORT": str(port)})
    assert (its.port, its.remark) == (port, "")


@pytest.mark.parametrize("port", ["http", "0", "70000", "-1"])
def test_a_port_that_is_none_is_refused(tmp_path: Path, port: str) -> None:
    with pytest.raises(ServiceError, match=r"FLOWER_PORT is .*: give a number from 1 to 65535"):
        flower.plan(tmp_path, {"FLOWER_PORT": port})


@pytest.mark.parametrize("variable", ["FLOWER_BASIC_AUTH", "FLOWER_AUTH"])
def test_a_login_of_the_users_own_wins(tmp_path: Path, variable: str) -> None:
    its = flower.plan(tmp_path, {variable: "me:secret", "FLOWER_URL_PREFIX": "/flower/"})
    assert its.env == {}
    assert its.url == f"http://127.0.0.1:{its.port}/flower/"


def test_a_configuration_file_may_have_a_login(tmp_path: Path) -> None:
    (tmp_path / "flowerconfig.py").write_text("basic_auth = ['me:secret']")
    assert flower.plan(tmp_path, {}).env == {}
