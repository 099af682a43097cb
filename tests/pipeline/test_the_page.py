"""docs/pipeline.md says what there is: options, exit codes, and commands as one would type them."""

from __future__ import annotations

import re
import shlex

import pytest

from pipeline import cli
from pipeline.dataframes import writer_options
from pipeline.errors import EXIT_CODES
from pipeline.reading import options
from tests.support.broker_process import CHECKOUT

PAGE = (CHECKOUT / "docs" / "pipeline.md").read_text(encoding="utf-8")
COMMANDS = re.findall(r"^triglot pipeline (.+?)(?:\s+#.*)?$", PAGE, re.MULTILINE)


@pytest.mark.parametrize("name", [*options.NAMES, *writer_options.OPTIONS])
def test_every_option_is_on_the_page(name: str) -> None:
    assert f"`{name}`" in PAGE


def test_every_exit_code_is_on_the_page() -> None:
    table = {int(code) for code in re.findall(r"^\| .+ \| (\d+) \|$", PAGE, re.MULTILINE)}
    assert table == set(EXIT_CODES.values())


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_of_the_page_is_understood(
    command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    words = shlex.split(command)
    if words == ["doctor"]:
        assert cli.main([*words, "--help"]) == 0
        return
    nobody = [word if ":909" not in word else "127.0.0.1:1" for word in words]
    # Understood: what stops it is that there is no such broker or archive.
    assert cli.main(nobody) in {3, 4, 5}, capsys.readouterr().err
