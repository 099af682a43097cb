"""docs/commands.md: what it shows was typed, and the options that it names are all there are."""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from tests.support.broker_process import CHECKOUT, BrokerProcess
from tools.cli import _parser

if TYPE_CHECKING:
    from pathlib import Path

PAGE = (CHECKOUT / "docs" / "commands.md").read_text(encoding="utf-8")
COMMANDS = ("topics", "configs", "offsets", "produce", "consume")
TIMES = re.compile(r'"timestamp_ms": \d+')


def typed_in(page: str) -> list[tuple[str, str]]:
    """The commands of the page, each with what it is said to print."""
    blocks = re.findall(r"```console\n(.*?)```", page, flags=re.DOTALL)
    found = []
    for block in blocks:
        for text in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
            command, _, printed = text.partition("\n")
            found.append((command, printed))
    return found


@pytest.mark.long
def test_every_command_of_the_page_prints_what_it_shows(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "data") as broker:
        for command, printed in typed_in(PAGE):
            here = f'triglot() {{ {sys.executable} -m tools "$@" --bootstrap {broker.bootstrap}; }}'
            run = subprocess.run(
                ["/bin/sh", "-c", f"{here}\n{command}"],
                cwd=CHECKOUT,
                capture_output=True,
                text=True,
                check=False,
            )
            assert "Traceback" not in run.stderr
            found = (run.stdout + run.stderr).replace(broker.bootstrap, "127.0.0.1:9092")
            assert TIMES.sub("", found) == TIMES.sub("", printed), command


def test_the_page_has_a_command_for_each_of_them() -> None:
    named = {
        words.split()[0] for command, _ in typed_in(PAGE) for words in command.split("triglot ")[1:]
    }
    assert named == set(COMMANDS)


@pytest.mark.parametrize("command", ["produce", "consume"])
def test_every_option_is_on_the_page(command: str) -> None:
    parser = _parser(command)
    (commands,) = [a for a in parser._actions if isinstance(a, argparse._SubParsersAction)]
    options = {
        option
        for action in commands.choices[command]._actions
        for option in action.option_strings
        if option.startswith("--")
    }
    assert not {option for option in options if not re.search(rf"{option}\b", PAGE)}
