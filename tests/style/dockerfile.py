"""A Dockerfile as its stages and instructions: enough of the language for the tests of ours."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from pathlib import Path


class Instruction(NamedTuple):
    word: str
    """Upper case: RUN, COPY, ..."""
    rest: str
    """All that follows, continuation lines joined by one space."""

    def command(self) -> list[str]:
        """The words of an exec form, `["program", "argument"]`, which needs no shell."""
        words = json.loads(self.rest[self.rest.index("[") :])
        assert all(isinstance(word, str) for word in words), self.rest
        return list(words)


class Stage(NamedTuple):
    image: str
    name: str
    instructions: tuple[Instruction, ...]

    def only(self, word: str) -> Instruction:
        """The single instruction of that kind; an assertion if there are none or several."""
        found = [instruction for instruction in self.instructions if instruction.word == word]
        assert len(found) == 1, f"{len(found)} {word} instructions in stage {self.name!r}"
        return found[0]


def stages(path: Path) -> list[Stage]:
    found: list[Stage] = []
    for word, rest in instructions(path):
        if word == "FROM":
            image, _, name = rest.partition(" AS ")
            found.append(Stage(image, name, ()))
        else:
            last = found.pop()
            found.append(last._replace(instructions=(*last.instructions, Instruction(word, rest))))
    return found


def instructions(path: Path) -> list[tuple[str, str]]:
    """(word, rest) of each instruction, comments and empty lines left out."""
    lines = [
        line.strip()
        for line in path.read_text(encoding="utf-8").splitlines()
        if line.strip() and not line.lstrip().startswith("#")
    ]
    whole = "\n".join(lines).replace("\\\n", " ").splitlines()
    pairs = (line.partition(" ") for line in whole)
    return [(word.upper(), " ".join(rest.split())) for word, _, rest in pairs]
