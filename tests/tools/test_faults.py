"""`triglot faults` as a command: what it takes, what it says, how it ends."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from protocol.errors import ErrorCode
from protocol.messages.heartbeat import HeartbeatRequest
from tests.support.broker_process import CHECKOUT, BrokerProcess
from tests.support.proxy_process import ProxyProcess
from tests.support.wire_client import WireClient

if TYPE_CHECKING:
    from pathlib import Path

NOBODY = "127.0.0.1:1"


def refused(*words: str) -> tuple[int, str]:
    """Exit code and standard error of a command that does not start."""
    command = [sys.executable, "-m", "tools", "faults", "--in-front-of", NOBODY, *words]
    run = subprocess.run(command, cwd=CHECKOUT, capture_output=True, text=True, check=False)
    return run.returncode, run.stderr


def test_a_proxy_with_nothing_to_do_wrong_is_refused() -> None:
    code, said = refused()
    assert (code, said.count("\n")) == (2, 1)
    assert "--testing" in said


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("[", "the body is not JSON"),
        ('[{"api": "Produse", "error": "NOT_CONTROLLER"}]', "did you mean Produce?"),
        ('[{"api": "Produce"}]', "a fault has one of error"),
        ('[{"disk": "full"}]', "a proxy has no disk"),
        ("7", "a fault is a JSON object"),
    ],
)
def test_a_file_that_makes_no_faults_is_refused(tmp_path: Path, text: str, why: str) -> None:
    file = tmp_path / "faults.json"
    file.write_text(text)
    code, said = refused("--faults", str(file))
    assert code == 2
    assert said.startswith(f"triglot: --faults {file}: ")
    assert why in said.splitlines()[-1]


def test_a_control_port_that_other_machines_reach_has_to_be_wanted() -> None:
    code, said = refused("--testing", "0.0.0.0:0", "--log-level", "error")
    assert (code, said.count("\n")) == (1, 1)
    assert "--testing-anywhere" in said


def test_a_port_that_is_taken_is_one_line() -> None:
    with ProxyProcess(NOBODY) as proxy:
        code, said = refused(
            "--listen", proxy.bootstrap, "--testing", "127.0.0.1:0", "--log-level", "error"
        )
    assert (code, said.count("\n")) == (1, 1)
    assert "in use" in said


def test_the_faults_of_a_file_act_and_those_that_did_not_are_told_at_the_end(
    tmp_path: Path,
) -> None:
    file = tmp_path / "faults.json"
    faults = [{"api": "Heartbeat", "error": "NOT_COORDINATOR"}, {"api": "Fetch", "delay_ms": 5}]
    file.write_text(json.dumps(faults))
    with BrokerProcess(tmp_path / "data") as broker:
        proxy = ProxyProcess(broker.bootstrap, arguments=("--faults", str(file)))
        proxy.start()
        run = proxy.run
        assert run is not None
        with WireClient(proxy.host, proxy.port) as client:
            request = HeartbeatRequest(group_id="g", generation_id=1, member_id="m")
            answer = client.call(request, 4)
        assert proxy.stop() == 0

    assert answer.error_code == ErrorCode.NOT_COORDINATOR
    (told,) = [line for line in run.output().splitlines() if "a fault never acted" in line]
    assert "2: Fetch" in told


def test_a_broker_begins_with_the_faults_of_a_file_and_tells_those_that_did_not_act(
    tmp_path: Path,
) -> None:
    file = tmp_path / "faults.json"
    faults = [
        {"api": "Heartbeat", "error": "NOT_COORDINATOR"},
        {"disk": "full", "topic": "orders"},
    ]
    file.write_text(json.dumps(faults))
    broker = BrokerProcess(tmp_path / "data", arguments=("--faults", str(file)))
    broker.start()
    run = broker.run
    assert run is not None
    with WireClient(broker.host, broker.port) as client:
        answer = client.call(HeartbeatRequest(group_id="g", generation_id=1, member_id="m"), 4)
    assert broker.stop() == 0

    assert answer.error_code == ErrorCode.NOT_COORDINATOR
    told = run.output()
    assert "TESTING IS ON" in told
    (never,) = [line for line in told.splitlines() if "a fault never acted" in line]
    assert "2: disk=full topic=orders" in never


def test_a_broker_does_not_start_with_a_file_that_makes_no_faults(tmp_path: Path) -> None:
    file = tmp_path / "faults.json"
    file.write_text('[{"api": "Produce", "error": "NOT_LEADER"}]')
    command = [sys.executable, "-m", "tools", "serve", "--data", str(tmp_path / "data")]
    run = subprocess.run(
        [*command, "--faults", str(file)], cwd=CHECKOUT, capture_output=True, text=True, check=False
    )
    assert run.returncode == 2
    assert f"--faults {file}: fault 1 of 1: there is no error 'NOT_LEADER'" in run.stderr
    assert not (tmp_path / "data").exists()


def test_a_broker_that_is_down_is_one_line_and_the_ready_line_is_json_for_machines(
    tmp_path: Path,
) -> None:
    proxy = ProxyProcess(NOBODY, arguments=("--testing", "127.0.0.1:0", "--json"))
    proxy.READY_LINE = re.compile(r'"event": "ready".*"port": (?P<port>\d+)')
    proxy.start()
    run = proxy.run
    assert run is not None
    for _ in range(3):
        with WireClient(proxy.host, proxy.port) as client:
            assert client.closed_by_server()
    assert proxy.stop() == 0

    lines = [json.loads(line) for line in run.output().splitlines()]
    (ready,) = [line for line in lines if line["event"] == "ready"]
    assert (ready["port"], ready["in_front_of"]) == (proxy.port, NOBODY)
    assert ready["testing"].startswith("127.0.0.1:")
    (closed,) = [line for line in lines if line["event"] == "a connection was closed"]
    assert closed["cause"] == "nobody listens at the broker's address"
    assert closed["broker"] == NOBODY
