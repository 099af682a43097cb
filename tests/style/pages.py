"""The pages of the documentation, and the commands and names in them."""

from __future__ import annotations

import functools
import re
import shlex
from contextlib import suppress
from itertools import chain, dropwhile
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, NamedTuple

from markdown_it import MarkdownIt

from tests.style.sources import CHECKOUT, text

if TYPE_CHECKING:
    from collections.abc import Iterator

    from markdown_it.token import Token

PAGES = sorted(
    path.relative_to(CHECKOUT).as_posix()
    for pattern in ("README.md", "CONTRIBUTING.md", "docs/**/*.md")
    for path in CHECKOUT.glob(pattern)
)
SHELLS = {"", "sh", "bash", "console"}
"""What is said of a block whose lines may be commands."""
PROGRAMS = re.compile(
    r"triglot|make|pip|python3?|curl|docker|kcat|kubectl|spark-submit|systemctl|useradd|install"
    r"|kafka-[a-z-]+\.sh|kadmin\.local|kinit|chmod|tar|printf|echo|export|eval|cp|rsync|mv|rm"
)
"""What a line begins with that is a command, where no prompt tells it."""
BEFORE = re.compile(r"sudo|exec|[A-Z_]+=.*")
BETWEEN = {"|", "||", "&&", ";", "&", "(", ")"}


class Command(NamedTuple):
    page: str
    program: str
    """Its name, without the folder."""
    words: tuple[str, ...]
    """What follows it."""

    def __str__(self) -> str:
        return f"{self.page}: {shlex.join((self.program, *self.words))}"


@functools.cache
def tokens(page: str) -> tuple[Token, ...]:
    return tuple(MarkdownIt("commonmark").enable("table").parse(text(page)))


def blocks(page: str) -> list[tuple[str, str]]:
    """What is said of each block of code, "" for none, and the block."""
    kinds = ("fence", "code_block")
    return [(token.info, token.content) for token in tokens(page) if token.type in kinds]


def inline(page: str) -> list[str]:
    """What stands in backticks within the text."""
    inside = (part for token in tokens(page) for part in token.children or ())
    return [part.content for part in inside if part.type == "code_inline"]


def commands(page: str) -> list[Command]:
    """Each command of each line, pipelines taken apart; `python -m tools` is triglot."""
    found: list[Command] = []
    for info, block in blocks(page):
        if info in SHELLS:
            lines = re.sub(r"\\\n\s*", " ", block).splitlines()
            typed = [line[2:] for line in lines if line.startswith("$ ")] or lines
            for line in chain.from_iterable(map(_written_out, typed)):
                for words in _simple(line):
                    found += _commands_of(page, words)
    return found


def _written_out(line: str) -> list[str]:
    """A line for each of the words in `list|create|delete`, as of a command that goes on."""
    choice = re.search(r"\w+(?:\|\w+)+", line)
    if choice is None:
        return [line]
    return [line.replace(choice[0], one) + " ..." for one in choice[0].split("|")]


def _simple(line: str) -> list[list[str]]:
    """The words of each simple command of a line, without comments and redirections."""
    lexer = shlex.shlex(re.sub(r"(^|\s)#\s.*", "", line), posix=True, punctuation_chars=True)
    lexer.whitespace_split, lexer.commenters = True, ""
    found: list[list[str]] = [[]]
    with suppress(ValueError):  # a quotation that goes on in the next line
        for word in lexer:
            if word in BETWEEN:
                found.append([])
            elif word == ">":
                next(lexer, None)
                if found[-1][-1:] == ["2"]:
                    found[-1].pop()
            else:
                found[-1].append(word)
    return found


def _commands_of(page: str, words: list[str]) -> Iterator[Command]:
    words = list(dropwhile(BEFORE.fullmatch, words))
    program = PurePosixPath(words[0]).name if words else ""
    if not PROGRAMS.fullmatch(program):
        return
    if program.startswith("python") and words[1:3] == ["-m", "tools"]:
        program, words = "triglot", words[2:]
    yield Command(page, program, tuple(words[1:]))
    if program in ("docker", "kubectl") and "triglot" in words:  # what the container runs
        behind = words[len(words) - words[::-1].index("triglot") :]
        if behind and behind[0].isalpha():
            yield Command(page, "triglot", tuple(behind))
