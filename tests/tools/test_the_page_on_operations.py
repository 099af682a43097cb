"""docs/operations.md: its commands for a backup and a restore are typed, around a real broker.

systemd's part is played by the test, and root's by whoever runs it. What installs the service is
typed by tests/containers/test_systemd.py.
"""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from typing import TYPE_CHECKING

from tests.support.broker_process import CHECKOUT, BrokerProcess
from tests.support.caller import Caller, batch

if TYPE_CHECKING:
    from pathlib import Path

PAGE = (CHECKOUT / "docs" / "operations.md").read_text(encoding="utf-8")


def commands_of(heading: str) -> list[str]:
    """The lines of the first block below a heading."""
    section = PAGE.partition(f"\n## {heading}\n")[2]
    return section.split("```")[1].strip().splitlines()


def type_(command: str, broker: BrokerProcess, root: Path) -> None:
    """With the folder `root` in the place of the machine's root, and this Python's triglot."""
    words = shlex.split(command)
    assert words.pop(0) == "sudo"
    if words[:1] == ["systemctl"]:
        assert words[2] == "triglot"
        if words[1] == "stop":
            assert broker.stop() == 0
        else:
            assert words[1] == "start"
            broker.start()
        return
    there = [re.sub(r"^/(?=var|backup)", f"{root}/", word) for word in words]
    if there[0] == "/opt/triglot/bin/triglot":
        there[:1] = [sys.executable, "-m", "tools"]
    subprocess.run(there, cwd=CHECKOUT, check=True)


def test_a_backup_is_whole_and_a_restore_brings_back_what_was_in_it(tmp_path: Path) -> None:
    for name in ("var/lib", "backup"):
        (tmp_path / name).mkdir(parents=True)
    with BrokerProcess(tmp_path / "var/lib/triglot") as broker:
        with Caller(broker.host, broker.port) as caller:
            caller.create_topic("orders")
            caller.produce("orders", batch(b"before"))
        for command in commands_of("Backup"):
            type_(command, broker, tmp_path)
        with Caller(broker.host, broker.port) as caller:
            caller.produce("orders", batch(b"after"))

        for command in commands_of("Restore"):
            type_(command, broker, tmp_path)

        with Caller(broker.host, broker.port) as caller:
            assert caller.values("orders") == [b"before"]
            assert caller.produce("orders", batch(b"after the restore")).base_offset == 1
    assert (tmp_path / "var/lib/triglot-before").is_dir()
