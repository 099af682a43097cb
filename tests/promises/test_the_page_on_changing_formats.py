"""Every command and program of docs/changing-the-record-format.md does what the page says."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.support.broker_process import CHECKOUT, BrokerProcess
from tests.support.caller import Caller
from tests.support.old_sets import log_bytes, magics, messages, read_through, seen, wrapper
from tests.support.scraped import scrape
from tests.support.server_process import free_port
from tests.support.topic_changes import change

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.clients

PAGE = (CHECKOUT / "docs/changing-the-record-format.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```(\w*)\n(.*?)```", PAGE, flags=re.DOTALL)
COMMANDS = [line for kind, text in BLOCKS if not kind for line in text.splitlines()]
ADMIN = [line for line in COMMANDS if line.startswith("python -m kafka.admin ")]


@pytest.fixture
def watched(tmp_path: Path) -> Iterator[BrokerProcess]:
    settings = {"metrics.port": str(free_port())}
    with BrokerProcess(tmp_path / "data", settings=settings) as broker:
        yield broker


def admin(broker: BrokerProcess, line: str) -> str:
    """What the command prints, run with this Python against this broker."""
    command = shlex.split(line.replace("ADDRESS", broker.bootstrap))
    return run([sys.executable, *command[1:]])


def run(command: list[str]) -> str:
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert ended.returncode == 0, ended.stderr
    return ended.stdout


def test_the_page_is_read_here() -> None:
    assert len(ADMIN) == 6
    assert sum("triglot serve --set" in line for line in COMMANDS) == 2


def test_its_commands_switch_watch_and_roll_back_a_topic(watched: BrokerProcess) -> None:
    describe, refuse, allow, canary, forget, back = ADMIN
    sent = wrapper(messages(b"a", b"b", magic=0), magic=0)
    with Caller(watched.host, watched.port) as caller:
        caller.create_topic("orders", message_format_version="0.9.0", retention_ms="77")

        assert "'0.9.0'" in admin(watched, describe)
        assert "OK" in admin(watched, canary)
        assert "'0.10.2'" in admin(watched, describe)
        caller.produce("orders", sent, version=1)
        assert magics(log_bytes(watched.data, "orders")) == [1]

        assert "OK" in admin(watched, refuse)
        assert caller.fetch("orders", version=1).error_code == 35
        assert caller.fetch("orders", version=2).error_code == 0
        assert "OK" in admin(watched, allow)
        assert caller.fetch("orders", version=1).error_code == 0

        assert "OK" in admin(watched, back)
        caller.produce("orders", sent, version=1)
        assert magics(log_bytes(watched.data, "orders")) == [1, 0]
        assert "OK" in admin(watched, forget)
        assert "'3.0-IV1'" in admin(watched, describe)
        kept = describe.replace("message.format.version", "retention.ms")
        assert "'77'" in admin(watched, kept)


def test_the_counters_that_it_names_are_on_the_page_of_counters(watched: BrokerProcess) -> None:
    names = set(re.findall(r"triglot_(\w+)", PAGE))
    names |= set(
        re.findall(r"triglot_(\w+)", (CHECKOUT / "docs/conversion.md").read_text(encoding="utf-8"))
    )

    body = scrape(int(watched.settings["metrics.port"])).body
    there = set(re.findall(r"^# HELP triglot_(\w+)", body, re.MULTILINE))

    assert len(names) > 5
    assert names <= there


def test_its_format_for_the_broker_is_read_at_the_start(tmp_path: Path) -> None:
    (line,) = [line for line in COMMANDS if "log.message.format.version" in line]
    name, _, value = line.rpartition(" ")[2].partition("=")

    with (
        BrokerProcess(tmp_path / "data", settings={name: value}) as broker,
        Caller(broker.host, broker.port) as caller,
    ):
        caller.create_topic("orders")
        caller.produce("orders", messages(b"a", magic=0), version=1)
        assert magics(log_bytes(broker.data, "orders")) == [1]


def test_its_program_copies_a_topic_of_all_formats_into_format_2(
    watched: BrokerProcess, tmp_path: Path
) -> None:
    (program,) = [text for kind, text in BLOCKS if kind == "python"]
    script = tmp_path / "copy_topic.py"
    script.write_text(program)
    with Caller(watched.host, watched.port) as caller:
        for name in ("source", "target"):
            caller.create_topic(name)
        for release in ("0.9.0", "0.10.2", "3.0"):
            assert change(caller, "source", message_format_version=release) == 0
            plain = messages(b"a", None, b"", magic=1, keys=[None, b"", b"k"])
            caller.produce("source", wrapper(plain, magic=1), version=2)
            caller.produce("source", plain, version=2)

        run([sys.executable, str(script), watched.bootstrap, "source", "target"])

        copied = read_through(caller, "target", version=12)
        original = seen(read_through(caller, "source", version=12))
    assert set(magics(copied)) == {2}
    assert [(r.offset, r.key, r.value) for r in seen(copied)] == [
        (r.offset, r.key, r.value) for r in original
    ]
    for before, after in zip(original, seen(copied), strict=True):
        assert after.timestamp_ms == before.timestamp_ms or before.timestamp_ms == -1
