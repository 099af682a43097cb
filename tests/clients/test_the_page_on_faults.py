"""docs/faults.md: every command and every program of it is typed, at a broker that it starts."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from broker.faults.engine import ACTIONS, DISKS, FILTER_KEYS, TRIGGER_KEYS
from broker.faults.interface import Interface
from testing.control import Control
from tests.clients.available import end_of_test
from tests.support import fetched
from tests.support.broker_process import CHECKOUT, BrokerProcess
from tests.support.caller import Caller, batch
from tests.support.proxy_process import ProxyProcess
from tests.support.wire_client import ConnectionClosed

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

PAGE = (CHECKOUT / "docs" / "faults.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```(\w*)\n(.*?)```", PAGE, flags=re.DOTALL)
PORT = "127.0.0.1:9099"


@pytest.fixture
def address(tmp_path: Path) -> Iterator[str]:
    """The control port of a broker that the page's first command starts."""
    (command,) = [text for kind, text in BLOCKS if kind == "" and "triglot serve" in text]
    words = command.split()
    assert words == ["triglot", "serve", "--testing", PORT]
    with BrokerProcess(tmp_path / "data", arguments=("--testing", "127.0.0.1:0")) as broker:
        yield broker.control


@pytest.fixture
def control(address: str) -> Control:
    return Control.at(address)


def typed(kind: str, address: str) -> list[str]:
    """The blocks of a kind, for the port that there is."""
    return [text.replace(PORT, address) for found, text in BLOCKS if found == kind]


def printed(*command: str, folder: Path | None = None) -> str:
    run = subprocess.run(
        command, cwd=folder or CHECKOUT, capture_output=True, text=True, check=False
    )
    assert run.returncode == 0, run.stderr
    return run.stdout


def test_the_commands_can_be_typed(control: Control, address: str) -> None:
    if shutil.which("curl") is None:
        pytest.skip("there is no curl")
    commands = [
        command
        for block in typed("bash", address)
        for command in re.findall(r"^curl .*?(?:'\{.*?\}'$|$)", block, re.MULTILINE | re.DOTALL)
    ]
    answers = [json.loads(printed("/bin/sh", "-c", command)) for command in commands]

    added, shown, unfired, cleared, at_random, of_disk, *of_the_broker, moved, sent = answers
    rebalanced, elected, truncated = of_the_broker
    assert added == shown == unfired["faults"][0]
    assert (added["api"], added["times"], added["fired"]) == ("Produce", 2, 0)
    assert cleared == {"faults": []}
    assert (of_disk["disk"], of_disk["times"]) == ("failed_sync", 1)
    assert "there is no group 'billing'" in rebalanced["error"]
    assert "there is no topic 'orders'" in elected["error"]
    assert "there is no topic 'orders'" in truncated["error"]
    assert at_random["probability"] == 0.1
    assert moved["advanced_ms"] == 25 * 3_600_000
    assert sent == {"requests": []}
    assert control.get("/faults") == {"faults": [*at_random["faults"], of_disk]}


def test_the_programs_in_python_run(address: str, tmp_path: Path) -> None:
    printed_by = [
        # The name that the packages have when they are installed.
        printed(sys.executable, "-c", program.replace("from triglot.", "from "))
        for program in typed("python", address)
    ]
    assert printed_by == ["0 0\n", "", "True\n"]


def test_the_proxy_of_the_page_stands_in_front_of_a_broker(tmp_path: Path) -> None:
    command, in_a_container = [
        text for kind, text in BLOCKS if kind == "" and "triglot faults" in text
    ]
    assert in_a_container.split()[2::2] == ["--in-front-of", "--listen", "--advertise", "--faults"]
    (faults,) = [text for kind, text in BLOCKS if kind == "json"]
    program, name, *words = command.split()
    assert (program, name) == ("triglot", "faults")
    assert words[::2] == ["--in-front-of", "--listen", "--testing"]
    assert words[-1] == PORT
    (tmp_path / "faults.json").write_text(faults)
    arguments = ("--testing", "127.0.0.1:0", "--faults", str(tmp_path / "faults.json"))
    with (
        BrokerProcess(tmp_path / "data") as broker,
        ProxyProcess(broker.bootstrap, arguments=arguments) as proxy,
        Caller(proxy.host, proxy.port) as caller,
    ):
        caller.create_topic("orders", 1)
        standing = Control.at(proxy.control).get("/faults")["faults"]
        assert [one["api"] for one in standing] == ["Produce", "Fetch"]
        with pytest.raises(ConnectionClosed):
            caller.produce("orders", batch(b"a"))
        with Caller(broker.host, broker.port) as direct:
            assert direct.values("orders") == [b"a"]


@pytest.mark.node
def test_the_program_in_javascript_runs(address: str, tmp_path: Path) -> None:
    node = shutil.which("node")
    if node is None:
        end_of_test("node", "there is no node")
    (program,) = typed("javascript", address)
    (tmp_path / "fault.mjs").write_text(program)
    assert "waits for the second fetch" in printed(node, str(tmp_path / "fault.mjs"))


@pytest.mark.java
def test_the_program_in_java_runs(control: Control, address: str, tmp_path: Path) -> None:
    try:
        java = fetched.runtime("java")
    except fetched.NotAvailable as reason:
        end_of_test("java", str(reason))
    (program,) = typed("java", address)
    (tmp_path / "Fault.java").write_text(program)
    assert printed(java, str(tmp_path / "Fault.java")).startswith("201 ")
    assert [one["api"] for one in control.get("/faults")["faults"]] == ["Heartbeat"]


@pytest.mark.go
@pytest.mark.long
def test_the_program_in_go_runs(control: Control, address: str, tmp_path: Path) -> None:
    go = shutil.which("go")
    if go is None:
        end_of_test("go", "there is no go")
    (program,) = typed("go", address)
    (tmp_path / "fault.go").write_text(program)
    assert printed(go, "run", str(tmp_path / "fault.go")).startswith("201 ")
    assert [one["api"] for one in control.get("/faults")["faults"]] == ["OffsetCommit"]


@pytest.mark.parametrize("key", [*FILTER_KEYS, *TRIGGER_KEYS])
def test_every_key_is_on_the_page(key: str) -> None:
    assert f"| `{key}` |" in PAGE


@pytest.mark.parametrize("disk", DISKS)
def test_every_fault_of_the_disk_is_on_the_page(disk: str) -> None:
    assert f'| `"disk": "{disk}"' in PAGE


@pytest.mark.parametrize("action", ACTIONS)
def test_every_action_is_on_the_page(action: str) -> None:
    assert f'| `"{action}": ' in PAGE


def test_every_path_is_on_the_page_with_its_words() -> None:
    rows = dict(re.findall(r"^\| `([A-Z]+ /\S*)` \| (.*) \|$", PAGE, re.MULTILINE))
    assert {path: words.replace("`", "") for path, words in rows.items()} == Interface.PATHS
