"""docs/rehearsal.md: its command, its settings and its test are tried."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from config import load
from tests.support.broker_process import CHECKOUT, BrokerProcess
from tests.support.caller import Caller, batch
from tests.support.wire_client import ConnectionClosed
from tests.testing.test_plugin import TestRun

if TYPE_CHECKING:
    from pathlib import Path

PAGE = (CHECKOUT / "docs" / "rehearsal.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```(\w*)\n(.*?)```", PAGE, flags=re.DOTALL)
COMMAND, LOGGED = (text for kind, text in BLOCKS if kind == "")


def test_the_command_serves_the_release_and_says_what_it_has_refused(tmp_path: Path) -> None:
    words = COMMAND.split()
    assert words[:2] == ["triglot", "serve"]
    with BrokerProcess(tmp_path / "data", arguments=tuple(words[2:])) as broker:
        with Caller(broker.host, broker.port) as caller, pytest.raises(ConnectionClosed):
            caller.produce("t", batch(b"x"), version=2)
        assert broker.run is not None
        run = broker.run
        assert broker.stop() == 0
        event, reason = re.split(r"  +", LOGGED.strip(), maxsplit=1)
        assert re.search(rf"{event}.*{re.escape(reason)}", run.output())


def test_the_settings_hold_together() -> None:
    (block,) = (text for kind, text in BLOCKS if kind == "properties")
    found = load(overrides=dict(line.split("=", 1) for line in block.splitlines()))

    assert [found.as_version_on(one.name) for one in found.listeners] == [None, "4.1"]
    assert found.as_version_client_ids == (("billing", "4.1"), ("reports", "2.8"))


@pytest.mark.clients
def test_the_test_of_the_page_passes(tmp_path: Path) -> None:
    (example,) = (text for kind, text in BLOCKS if kind == "python")
    (tmp_path / "test_example.py").write_text(example.replace("triglot.testing", "testing"))
    run = TestRun(tmp_path)
    run.write("")
    assert "1 passed" in run.run()
