"""Reading `.properties` text the way Java does, and the variables of the environment.

The rules are those of `java.util.Properties.load` on bytes: ISO 8859-1, `#` and `!` begin a
comment, a key ends at the first `=`, `:` or blank, a backslash at the end of a line
continues it without the blanks that follow, and `\\uXXXX` is a character. A mark at the
start that says "UTF-8" is skipped; Java would make it part of the first key.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from config.errors import ConfigError, Problem

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

BLANKS = " \t\f"
ESCAPES = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
VARIABLE_PREFIX = "TRIGLOT_"


class Property(NamedTuple):
    """One key and its text; `line` is the line on which it begins, from 1."""

    name: str
    text: str
    line: int


def parse_properties(data: bytes, file_name: str) -> list[Property]:
    """All entries in order, duplicates included (the last one holds).

    ConfigError names each line with a `\\u` that is not followed by four hexadecimal digits.
    """
    text = data.removeprefix(b"\xef\xbb\xbf").decode("latin-1")
    entries = []
    problems = []
    for line, logical in _logical_lines(text):
        name_end, value_start = _split(logical)
        try:
            name = _unescape(logical[:name_end])
            entries.append(Property(name, _unescape(logical[value_start:]), line))
        except ValueError as error:
            problems.append(Problem(f"{file_name}:{line}", logical[:name_end], None, str(error)))
    if problems:
        raise ConfigError(problems)
    return entries


def _logical_lines(text: str) -> Iterator[tuple[int, str]]:
    """Lines with their continuations joined, without comments and empty lines."""
    begin = 0
    joined: str | None = None
    natural = text.replace("\r\n", "\n").replace("\r", "\n").split("\n")
    for number, raw in enumerate(natural, start=1):
        line = raw.lstrip(BLANKS)
        if joined is None:
            if not line or line[0] in "#!":
                continue
            begin = number
            joined = ""
        backslashes = len(line) - len(line.rstrip("\\"))
        if backslashes % 2:
            joined += line[:-1]
        else:
            yield begin, joined + line
            joined = None
    if joined:
        yield begin, joined


def _split(logical: str) -> tuple[int, int]:
    """The end of the key and the beginning of the value."""
    position = 0
    end = len(logical)
    while position < end and logical[position] not in "=:" + BLANKS:
        position += 2 if logical[position] == "\\" else 1
    name_end = min(position, end)
    position = _after_blanks(logical, name_end)
    if position < end and logical[position] in "=:":
        position = _after_blanks(logical, position + 1)
    return name_end, position


def _after_blanks(logical: str, position: int) -> int:
    while position < len(logical) and logical[position] in BLANKS:
        position += 1
    return position


def _unescape(text: str) -> str:
    if "\\" not in text:
        return text
    pieces = []
    position = 0
    while (backslash := text.find("\\", position)) >= 0:
        pieces.append(text[position:backslash])
        escaped = text[backslash + 1 : backslash + 2]
        position = backslash + 2
        if escaped == "u":
            digits = text[position : position + 4]
            if len(digits) < 4 or not all(digit in "0123456789abcdefABCDEF" for digit in digits):
                raise ValueError(f"\\u{digits} is not \\u and four hexadecimal digits")
            pieces.append(chr(int(digits, 16)))
            position += 4
        else:
            pieces.append(ESCAPES.get(escaped, escaped))
    pieces.append(text[position:])
    # Two escapes may be the halves of one character, as in Java's UTF-16 strings.
    joined = "".join(pieces)
    return joined.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")


def variable_of(name: str) -> str:
    """The environment variable of a key: `log.dirs` -> `TRIGLOT_LOG_DIRS`."""
    return VARIABLE_PREFIX + name.upper().replace(".", "_").replace("-", "_")


def keys_by_variable(names: Iterable[str]) -> dict[str, str]:
    """The key each variable stands for.

    No two keys share a variable (a test holds this), so nothing has to be guessed. Keys with
    a part of the user's choice, as those of one listener, have no variable.
    """
    return {variable_of(name): name for name in names}


def made_by_an_orchestrator(variable: str, text: str) -> bool:
    """Whether Kubernetes or Docker made this variable for a service named "triglot".

    They put the address of every service into every container: TRIGLOT_SERVICE_HOST,
    TRIGLOT_PORT_9092_TCP_ADDR, TRIGLOT_PORT=tcp://10.0.0.1:9092 and so on. A broker behind
    such a service would not start if they were taken for keys.
    """
    name = variable.removeprefix(VARIABLE_PREFIX)
    if name.endswith(("SERVICE_HOST", "SERVICE_PORT")) or "SERVICE_PORT_" in name:
        return True
    words = name.split("_")
    return _is_link(words) or (words[-1] == "PORT" and "://" in text)


def _is_link(words: list[str]) -> bool:
    """Whether a name ends as Docker's links do: PORT_9092_TCP, then nothing or one more word."""
    if words[-1] in ("PROTO", "PORT", "ADDR"):
        words = words[:-1]
    return (
        len(words) > 2
        and words[-3] == "PORT"
        and words[-2].isdigit()
        and words[-1] in ("TCP", "UDP")
    )
