"""The lines of files and of standard input, as they come."""

from __future__ import annotations

import os
import select
import sys
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from tools.errors import NotDone

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

READ_BYTES = 1 << 18
LINE_BYTES_MAX = 128 << 20
"""The longest line that is taken: more than a broker takes of one record."""
STANDARD_INPUT = "-"


class Lines(NamedTuple):
    """Whole lines without their ends, which came together; `first` is the number of the first one,
    from 1 on. None at all means that nothing more is waiting to be read."""

    name: str
    first: int
    lines: list[bytes]


def lines_of(names: Sequence[str]) -> Iterator[Lines]:
    """Those of each file in turn. Raises NotDone for a file that cannot be read, and for a line of
    more than LINE_BYTES_MAX."""
    for name in names:
        if name == STANDARD_INPUT:
            yield from _lines("standard input", sys.stdin.fileno())
            continue
        try:
            with Path(name).open("rb", buffering=0) as file:
                yield from _lines(name, file.fileno())
        except OSError as error:
            raise unreadable(name, error) from None


def unreadable(name: str, error: OSError) -> NotDone:
    """The failure of a file that cannot be read."""
    return NotDone(f"{name} can't be read: {(error.strerror or str(error)).lower()}")


def _lines(name: str, descriptor: int) -> Iterator[Lines]:
    begun: list[bytes] = []
    begun_bytes, number = 0, 1
    while True:
        if not _is_ready(descriptor):
            yield Lines(name, number, [])
        data = os.read(descriptor, READ_BYTES)
        if not data:
            break
        lines = data.split(b"\n")
        if len(lines) > 1:
            begun.append(lines[0])
            lines[0] = b"".join(begun)
            begun, begun_bytes = [], 0
        last = lines.pop()
        begun.append(last)
        begun_bytes += len(last)
        if begun_bytes > LINE_BYTES_MAX:
            raise NotDone(
                f"line {number + len(lines)} of {name} has more than {LINE_BYTES_MAX:,} bytes, "
                "the most that is taken of one record"
            )
        if lines:
            yield Lines(name, number, lines)
            number += len(lines)
    rest = b"".join(begun)
    if rest:
        yield Lines(name, number, [rest])


def _is_ready(descriptor: int) -> bool:
    """Whether a read would not wait; true at the end of a file, too."""
    return bool(select.select([descriptor], [], [], 0)[0])
