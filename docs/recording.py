"""The picture at the top of the README, a recording of its first lines: `make recording`.

The distribution is installed into a new environment, as the first line says, and the others are
typed in an empty folder. What they print is drawn as a terminal by Rich. Ports 9092 and 9404 have
to be free.
"""

from __future__ import annotations

import os
import re
import subprocess
import tempfile
import venv
from contextlib import ExitStack
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from rich.console import Console
from rich.text import Text

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

CHECKOUT = Path(__file__).resolve().parents[1]
PICTURE = CHECKOUT / "docs/pictures/first-minute.svg"
COLUMNS = 120
FONTS = "ui-monospace, Menlo, Consolas, 'DejaVu Sans Mono', monospace"
TIMEOUT_S = 60.0


class Typed(NamedTuple):
    command: str
    printed: str


def first_lines() -> list[str]:
    """The README's first block of commands, without what stands behind a `#`."""
    block = (CHECKOUT / "README.md").read_text(encoding="utf-8").split("```")[1]
    return [re.sub(r"\s+#\s.*", "", line) for line in block.splitlines()[1:]]


def typed(
    commands: Sequence[str], *, bin: Path, folder: Path, instead: Mapping[str, str] | None = None
) -> Iterator[Typed]:
    """What each command prints, typed in the folder, with the programs in `bin` before others.

    One that ends with `&` is a server: it has printed its first line when the next is typed, and
    ends after the last. `instead` has texts that take the place of parts of the commands. Raises
    subprocess.CalledProcessError.
    """
    environ = {**os.environ, "HOME": str(folder), "PATH": f"{bin}:{os.environ['PATH']}"}
    with ExitStack() as servers:
        for command in commands:
            there = command
            for part, other in (instead or {}).items():
                there = there.replace(part, other)
            if command.endswith("&"):
                shell = f"exec {there.removesuffix('&')}"
                server = subprocess.Popen(
                    ["/bin/sh", "-c", shell],
                    cwd=folder,
                    env=environ,
                    stdout=subprocess.PIPE,
                    text=True,
                )
                servers.enter_context(server)
                servers.callback(server.terminate)
                assert server.stdout is not None
                printed = server.stdout.readline()
            else:
                ended = subprocess.run(
                    ["/bin/sh", "-c", there],
                    cwd=folder,
                    env=environ,
                    stdout=subprocess.PIPE,
                    text=True,
                    check=True,
                    timeout=TIMEOUT_S,
                )
                printed = ended.stdout
            yield Typed(command, printed.replace(str(folder), "~"))


def picture(recorded: Sequence[Typed]) -> str:
    """An SVG of the terminal, which fetches nothing: the viewer's own fonts do."""
    console = Console(record=True, width=COLUMNS, file=StringIO())
    for one in recorded:
        console.print(Text.assemble(("$ ", "green"), (one.command, "bold")))
        if one.printed:
            console.print(Text(one.printed.rstrip("\n")))
    drawn = console.export_svg(title="triglot", unique_id="terminal")
    drawn = re.sub(r"@font-face \{.*?\}\n", "", drawn, flags=re.DOTALL)
    drawn = re.sub(r"font-family: [^;]*;", f"font-family: {FONTS};", drawn)
    return re.sub(r"[ \t]+$", "", drawn, flags=re.MULTILINE)


def main() -> None:
    install, *others = first_lines()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        bin = folder / "environment" / "bin"
        venv.create(bin.parent, with_pip=True)
        subprocess.run(
            [bin / "python", "-m", *install.split(), "--quiet"], cwd=CHECKOUT, check=True
        )
        home = folder / "home"
        home.mkdir()
        recorded = [Typed(install, ""), *typed(others, bin=bin, folder=home)]
    PICTURE.parent.mkdir(exist_ok=True)
    PICTURE.write_text(picture(recorded), encoding="utf-8")
    print(PICTURE.relative_to(CHECKOUT))


if __name__ == "__main__":
    main()
