"""What shells are told when a user asks them to complete a command."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from tests.support.broker_process import CHECKOUT
from tests.support.typed_bytes import typed

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

BASH = """
eval "$(triglot completion bash)"
COMP_LINE="$1" COMP_POINT=${#1} COMP_TYPE=9 IFS=$' \\n'
read -ra COMP_WORDS <<< "$1"
[[ "$1" == *' ' ]] && COMP_WORDS+=("")
COMP_CWORD=$((${#COMP_WORDS[@]} - 1))
_python_argcomplete triglot 2>&1
printf '%s\\n' "${COMPREPLY[@]}"
"""


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    """Of a shell that finds the command."""
    command = tmp_path / "triglot"
    command.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m tools "$@"\n')
    command.chmod(0o755)
    path = f"{tmp_path}:{os.environ['PATH']}"
    return os.environ | {"PATH": path, "PYTHONPATH": str(CHECKOUT), "HOME": str(tmp_path)}


@pytest.fixture
def completed(environ: dict[str, str]) -> Callable[[str], set[str]]:
    """What bash has to offer for a line, by the script that it is told to read."""
    bash = shutil.which("bash")
    if bash is None:
        pytest.skip("there is no bash")

    def ask(line: str) -> set[str]:
        run = subprocess.run(
            [bash, "-c", BASH, "bash", line],
            cwd=CHECKOUT,
            env=environ,
            capture_output=True,
            text=True,
            check=True,
        )
        return set(run.stdout.split())

    return ask


def test_bash_completes_commands_options_values_and_topics(
    completed: Callable[[str], set[str]], bootstrap: str, new_name: Callable[[], str]
) -> None:
    name = f"completed-{new_name()}"
    assert typed("topics", "create", name, "--bootstrap", bootstrap).code == 0
    assert completed("triglot cons") == {"consume"}
    assert completed("triglot produce --co") == {"--codec", "--command-config"}
    assert completed(f"triglot consume --bootstrap {bootstrap} completed-") == {name}


def test_nobody_is_kept_waiting_for_topics_of_a_broker_that_is_down(
    completed: Callable[[str], set[str]],
) -> None:
    found = completed("triglot topics describe --bootstrap 127.0.0.1:1 ")
    assert "--json" in found
    assert all(one.startswith("-") for one in found)


def test_fish_completes_commands_options_and_values(environ: dict[str, str]) -> None:
    fish = shutil.which("fish")
    if fish is None:
        pytest.skip("there is no fish")
    lines = ("triglot cons", "triglot produce --co", "triglot produce orders --codec z")
    asked = "; ".join(f"complete -C '{line}'" for line in lines)
    run = subprocess.run(
        [fish, "--no-config", "-c", f"triglot completion fish | source; {asked}"],
        cwd=CHECKOUT,
        env=environ,
        capture_output=True,
        text=True,
        check=True,
    )
    found = [line.partition("\t")[0] for line in run.stdout.splitlines()]
    assert found == ["consume", "--codec", "--command-config", "zstd"]


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_each_shell_has_a_script_that_it_can_read(shell: str) -> None:
    script = typed("completion", shell)
    assert script.code == 0
    assert b"triglot" in script.out
    program = shutil.which(shell)
    if program is None:
        pytest.skip(f"there is no {shell}")
    run = subprocess.run([program, "-n"], input=script.out, capture_output=True, check=False)
    assert (run.returncode, run.stderr) == (0, b"")
