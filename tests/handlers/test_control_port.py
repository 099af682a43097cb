"""The control port of `triglot serve --testing`: what it serves, and whom."""

from __future__ import annotations

import http.client
import json
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

from broker.faults.interface import Interface
from testing.control import Control, ControlError
from tests.support.broker_process import CHECKOUT, BrokerProcess
from tests.support.caller import Caller

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    data = tmp_path_factory.mktemp("control") / "data"
    with BrokerProcess(data, arguments=("--testing", "127.0.0.1:0")) as found:
        yield found


@pytest.fixture
def control(broker: BrokerProcess) -> Iterator[Control]:
    found = Control.at(broker.control)
    yield found
    found.delete("/faults")


def raw(broker: BrokerProcess, method: str, path: str, body: bytes = b"", **fields: str) -> Any:
    """Status and JSON of an answer."""
    connection = http.client.HTTPConnection(broker.control, timeout=30)
    connection.request(method, path, body, {name: fields[name] for name in fields})
    response = connection.getresponse()
    found = response.status, json.loads(response.read())
    connection.close()
    return found


def test_every_path_that_is_told_is_served(broker: BrokerProcess, control: Control) -> None:
    assert control.get("/")["paths"] == Interface.PATHS
    for path in Interface.PATHS:
        method, _, target = path.partition(" ")
        status, answer = raw(broker, method, target.replace("{id}", "99"))
        assert status in (200, 201) or ("error" in answer and "\n" not in answer["error"])
        assert "did you mean" not in answer.get("error", "")


def test_a_fault_is_added_shown_and_removed(control: Control) -> None:
    added = control.post("/faults", {"api": "Heartbeat", "error": "UNKNOWN_MEMBER_ID"})

    assert added == {
        "id": added["id"],
        "api": "Heartbeat",
        "on_call": 1,
        "times": 1,
        "error": "UNKNOWN_MEMBER_ID",
        "calls": 0,
        "fired": 0,
    }
    assert control.get("/faults") == {"faults": [added]}
    assert control.get("/unfired") == {"faults": [added]}
    assert control.delete(f"/faults/{added['id']}") == added
    assert control.get("/faults") == {"faults": []}
    assert control.get("/unfired") == {"faults": [added]}


def test_a_list_adds_all_or_none(broker: BrokerProcess, control: Control) -> None:
    good = [{"api": "Fetch", "delay_ms": 5, "client": "x"}, {"disk": "slow", "delay_ms": 1}]

    added = control.post("/faults", good)["faults"]
    assert control.get("/faults")["faults"] == added
    status, answer = raw(broker, "POST", "/faults", json.dumps([*good, {"api": "Fatch"}]).encode())

    assert (len(added), status) == (2, 400)
    assert answer["error"].startswith("fault 3 of 3: there is no API 'Fatch'; did you mean Fetch?")
    assert control.get("/faults")["faults"] == added


def test_a_seed_that_the_broker_picks_is_told(control: Control) -> None:
    added = control.post("/faults", {"api": "*", "probability": 0.5, "delay_ms": 1, "client": "x"})

    assert added["times"] == "always"
    assert added["seed"] >= 0


def test_requests_are_told_by_client_and_number(broker: BrokerProcess, control: Control) -> None:
    with Caller(broker.host, broker.port, client_id="teller") as caller:
        caller.create_topic("told")

    told = control.get("/requests?client=teller&api=CreateTopics")["requests"]
    later = control.get(f"/requests?client=teller&after={told[-1]['number']}")["requests"]

    assert len(told) == 1
    assert "name: told" in told[0]["text"]
    assert told[0] not in later


@pytest.mark.parametrize(
    ("method", "path", "body", "status", "told"),
    [
        ("GET", "/fault", b"", 404, "there is no /fault; did you mean /faults?"),
        ("GET", "/nothing", b"", 404, "there is no /nothing; GET / lists the paths"),
        ("PUT", "/faults", b"", 405, "/faults takes GET and POST and DELETE, not PUT"),
        ("DELETE", "/faults/x", b"", 404, "there is no fault x"),
        ("POST", "/faults", b"{", 400, "the body is not JSON"),
        ("POST", "/faults", b"[1]", 400, "fault 1 of 1: a fault is a JSON object"),
        ("POST", "/faults", b"", 400, "a fault is a JSON object"),
        ("POST", "/faults", b'{"api": "Fetsch", "error": "X"}', 400, "did you mean Fetch?"),
        ("GET", "/requests?after=x", b"", 400, "after is the number of a request, not 'x'"),
    ],
)
def test_what_makes_no_sense_is_told_in_one_line(
    broker: BrokerProcess, method: str, path: str, body: bytes, status: int, told: str
) -> None:
    found, answer = raw(broker, method, path, body)

    assert found == status
    assert told in answer["error"]
    assert "\n" not in answer["error"]


def test_a_page_in_a_browser_is_refused(broker: BrokerProcess, control: Control) -> None:
    fault = b'{"api": "*", "close": "before"}'

    status, _ = raw(broker, "POST", "/faults", fault, Origin="https://example.com")

    assert status == 403
    assert control.get("/faults") == {"faults": []}


def test_a_body_beyond_its_bound_is_not_read(broker: BrokerProcess) -> None:
    connection = http.client.HTTPConnection(broker.control, timeout=30)
    connection.putrequest("POST", "/faults")
    connection.putheader("Content-Length", str(10**12))
    connection.endheaders()

    assert connection.getresponse().status == 413
    connection.close()


def test_the_port_is_said_loudly(broker: BrokerProcess) -> None:
    assert "TESTING IS ON" in broker.output()


def test_without_the_option_there_is_nothing_of_it(tmp_path: Path) -> None:
    program = (
        "import sys, asyncio, broker.server as s, config\n"
        "from broker.network import dispatch\n"
        f"settings = config.load(overrides={{'log.dirs': {str(tmp_path / 'data')!r}, "
        "'listeners': 'PLAINTEXT://127.0.0.1:0'})\n"
        "async def run():\n"
        "    running = await s.start(settings, asyncio.get_running_loop())\n"
        "    handlers = {k: one.handler for k, one in running.broker.routes.served.items()}\n"
        "    assert handlers == dispatch.HANDLERS\n"
        "    await running.stop()\n"
        "asyncio.run(run())\n"
        "print([name for name in sys.modules if 'faults' in name or 'http_exchange' in name])\n"
    )
    run = subprocess.run(
        [sys.executable, "-c", program], cwd=CHECKOUT, capture_output=True, text=True, check=True
    )
    assert run.stdout == "[]\n"


@pytest.mark.parametrize(
    ("address", "told"),
    [
        ("0.0.0.0:0", "--testing wants one of loopback"),
        ("9099", "--testing wants HOST:PORT, found '9099'"),
    ],
)
def test_an_address_for_others_stops_the_start(tmp_path: Path, address: str, told: str) -> None:
    words = ["serve", "--data", str(tmp_path / "data"), "--listen", "127.0.0.1:0"]
    run = subprocess.run(
        [sys.executable, "-m", "tools", *words, "--testing", address],
        cwd=CHECKOUT,
        capture_output=True,
        text=True,
        check=False,
    )

    assert run.returncode in (1, 2)
    assert told in run.stderr


def test_a_port_that_is_taken_stops_the_start(broker: BrokerProcess, tmp_path: Path) -> None:
    words = ["serve", "--data", str(tmp_path / "data"), "--listen", "127.0.0.1:0"]
    run = subprocess.run(
        [sys.executable, "-m", "tools", *words, "--testing", broker.control],
        cwd=CHECKOUT,
        capture_output=True,
        text=True,
        check=False,
    )

    assert run.returncode == 1
    assert "can't open the control port (--testing)" in run.stderr


def test_a_control_port_that_is_not_there_is_told_in_one_line() -> None:
    with pytest.raises(ControlError, match=r"the control port 127\.0\.0\.1:1 did not answer"):
        Control.at("127.0.0.1:1").get("/faults")
