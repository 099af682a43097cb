"""Scripts of requests about transactions, as `scripts/*.txt` have them; README.txt explains."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import NamedTuple

FOLDER = Path(__file__).parent / "scripts"
NOT_SCRIPTS = "README"
TWO_PHASE_COMMIT = "two-phase commit"

_TITLE = re.compile(r"== (?P<title>.+?)(?: \| versions (?P<first>\d+)-(?P<last>\d+))?$")


class Step(NamedTuple):
    """One line of a script."""

    line: str
    verb: str
    #: Of the request; None is the verb's own.
    version: int | None
    words: list[str]
    options: dict[str, str]

    def has(self, word: str) -> bool:
        """Whether this word stands alone among the others."""
        return word in self.words


class Script(NamedTuple):
    title: str
    lines: list[str]
    #: The versions with which it is told; one None where it names its own.
    versions: list[int | None]

    @property
    def needs_unstable(self) -> bool:
        """Whether it is about requests that Kafka offers only where it is told to."""
        return self.title.startswith(TWO_PHASE_COMMIT)

    def steps(self, version: int | None) -> list[Step]:
        return [parse(line, version) for line in self.lines]


def parse(line: str, script_version: int | None = None) -> Step:
    """The step that a line tells, with the script's version in the place of V."""
    head, *words = shlex.split(line)
    verb, _, version = head.partition("/")
    alone = [word for word in words if not re.match(r"[a-z0-9]+=", word)]
    options = dict(word.split("=", 1) for word in words if word not in alone)
    if version == "V":
        return Step(line, verb, script_version, alone, options)
    return Step(line, verb, int(version) if version else None, alone, options)


def read_scripts() -> list[Script]:
    """All of them, in the order of their files. Titles are unique."""
    found: list[Script] = []
    for path in sorted(FOLDER.glob("*.txt")):
        if path.stem == NOT_SCRIPTS:
            continue
        for line in path.read_text(encoding="utf-8").splitlines():
            title = _TITLE.match(line)
            if title:
                first, last = title["first"], title["last"]
                versions = [None] if first is None else [*range(int(first), int(last) + 1)]
                found.append(Script(title["title"], [], versions))
            elif line:
                found[-1].lines.append(line)
    titles = [script.title for script in found]
    assert len(set(titles)) == len(titles), "two scripts have one title"
    return found
