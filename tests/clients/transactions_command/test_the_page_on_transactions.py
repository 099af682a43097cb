"""The program and the commands of docs/transactions.md do what the page says."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from tests.clients.transactions.conversation import Conversation
from tests.clients.transactions.scripts import parse
from tests.clients.transactions.telling import VERBS
from tests.support import typed_command
from tests.support.broker_process import CHECKOUT, BrokerProcess

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.clients

PAGE = (CHECKOUT / "docs/transactions.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```(\w*)\n(.*?)```", PAGE, flags=re.DOTALL)
(PROGRAM,) = [text for kind, text in BLOCKS if kind == "python"]
TYPED = [
    line.removeprefix("$ triglot ")
    for kind, text in BLOCKS
    if not kind
    for line in text.splitlines()
    if line.startswith("$ triglot ")
]
ADDRESS = "127.0.0.1:9092"
LATE = {"transaction.partition.verification.enable": "false"}

TOLD = (
    "topic orders 2",
    "topic payments",
    "init/4 id=billing-0 as=a",
    "init/4 id=billing-1 as=b",
    "init/4 id=idle as=c",
    "add/3 id=billing-0 by=a orders:0,payments:0",
    "offsets/3 id=billing-0 by=a billing",
    "produce/11 id=billing-0 by=a orders:0 seq=0 x",
    "add/3 id=billing-1 by=b orders:1",
    "produce/11 id=billing-1 by=b orders:1 seq=0 x,y,z",
    "end/3 id=billing-1 by=b commit",
    "produce/11 id=billing-1 by=b orders:1 seq=3 late",
)


def without_numbers(text: str) -> list[str]:
    """Lines, with 0 for all that differs from run to run: addresses, times, counts."""
    return [
        re.sub(r" +", " ", re.sub(r"[\d.:TZ-]*\d[\d.:TZ-]*", "0", line)).strip()
        for line in text.splitlines()
    ]


def test_the_program_of_the_page_reads_writes_and_commits(bootstrap: str) -> None:
    ended = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", PROGRAM.replace(ADDRESS, bootstrap)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (ended.returncode, ended.stdout) == (0, "b'an order'\n"), ended.stderr


def test_the_commands_of_the_page_say_what_it_says(tmp_path: Path) -> None:
    commands = [line for line in TYPED if line.startswith("transactions ")]
    assert len(commands) == 5
    with BrokerProcess(tmp_path / "data", settings=LATE) as broker:
        talk = Conversation(broker, "")
        for line in TOLD:
            step = parse(line)
            VERBS[step.verb](talk, step)
        talk.close()
        for line in commands:
            command, *words = shlex.split(line)
            code, out, err = typed_command.run(command, broker.bootstrap, *words)
            assert (code, err) == (0, "")
            shown = PAGE.partition(f"$ triglot {line}\n")[2].partition("```")[0]
            shown = shown.partition("$ triglot ")[0]
            assert without_numbers(out) == without_numbers(shown), line
