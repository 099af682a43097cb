"""A broker that a service manager started tells it when it is ready and when it stops."""

from __future__ import annotations

import shutil
import socket
import subprocess
from typing import TYPE_CHECKING

import pytest

from broker import logs
from broker.notify import notify, watchdog_period_s
from tests.support.broker_process import CHECKOUT, BrokerProcess

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

UNIT = CHECKOUT / "examples/systemd/triglot.service"


class NotifySocket:
    """The receiving end of the protocol: an address and what came there."""

    def __init__(self, address: str) -> None:
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.socket.settimeout(10)
        self.socket.bind(address)

    def received(self) -> list[str]:
        """The lines of the next message."""
        return self.socket.recv(4096).decode().split("\n")


@pytest.fixture
def manager(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[NotifySocket]:
    manager = NotifySocket(str(tmp_path / "notify"))
    monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "notify"))
    yield manager
    manager.socket.close()


def test_a_broker_tells_its_manager_when_it_is_ready_and_when_it_stops(
    manager: NotifySocket, tmp_path: Path
) -> None:
    with BrokerProcess(tmp_path / "data") as broker:
        ready, status = manager.received()
        with socket.create_connection((broker.host, broker.port), timeout=5):
            pass
    assert ready == "READY=1"
    assert status == f"STATUS=listening on {broker.bootstrap}, data in {tmp_path / 'data'}"
    assert manager.received() == ["STOPPING=1"]


def test_a_broker_that_is_watched_gives_signs_of_life(
    manager: NotifySocket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WATCHDOG_USEC", "200000")
    with BrokerProcess(tmp_path / "data"):
        assert manager.received()[0] == "READY=1"
        assert manager.received() == manager.received() == ["WATCHDOG=1"]


def test_signs_of_life_that_are_for_another_process_are_not_given(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("WATCHDOG_USEC", "200000")
    assert watchdog_period_s() == 0.1
    monkeypatch.setenv("WATCHDOG_PID", "1")
    assert watchdog_period_s() is None


def test_a_manager_may_have_an_abstract_address(monkeypatch: pytest.MonkeyPatch) -> None:
    manager = NotifySocket("\0triglot-test-notify")
    monkeypatch.setenv("NOTIFY_SOCKET", "@triglot-test-notify")
    notify(READY="1")
    assert manager.received() == ["READY=1"]
    manager.socket.close()


def test_a_manager_that_is_gone_stops_no_broker(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[dict[str, str]] = []
    monkeypatch.setattr(logs, "warning", lambda event, **facts: told.append(facts))
    monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "nobody"))
    notify(READY="1")
    assert [facts["states"] for facts in told] == ["READY=1"]


def test_the_unit_is_one_that_systemd_understands(tmp_path: Path) -> None:
    analyze = shutil.which("systemd-analyze")
    if analyze is None:
        pytest.skip("systemd-analyze is not installed")
    unit = tmp_path / UNIT.name
    # Its program is not installed here.
    text = UNIT.read_text(encoding="utf-8").replace("/opt/triglot/bin/triglot", "/bin/true")
    unit.write_text(text, encoding="utf-8")
    ended = subprocess.run(
        [analyze, "verify", "--man=no", str(unit)], capture_output=True, text=True, check=False
    )
    complaints = [line for line in ended.stderr.splitlines() if UNIT.name in line]
    assert complaints == []
