"""What a client and a broker said, one entry for each, and the lines of the files that keep it."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from broker.clock import utc_text
from tools.errors import NotDone

if TYPE_CHECKING:
    from collections.abc import Iterator

LINE_BYTES_MAX = 1 << 30
"""Of a file: more than any frame takes in base64 with its text."""
OPENED, REQUEST, ANSWER, CLOSED = "opened", "request", "answer", "closed"
ARROWS = {REQUEST: ">", ANSWER: "<"}


class Entry(NamedTuple):
    """One request or answer, or the beginning or end of a connection, by `what`.

    `connection` numbers connections from 1 on; `peer` is the client's address, `broker` the one
    that it is led to. `took_ms` is the time between a request and its answer. `frame` is what was
    said, without its length; None for what is not kept: secrets, and what is not understood.
    """

    what: str
    time_ms: int
    connection: int
    peer: str = ""
    broker: str = ""
    client: str = ""
    api: str = ""
    version: int = -1
    correlation_id: int = -1
    took_ms: float | None = None
    text: str = ""
    frame: bytes | None = None

    def line(self) -> str:
        """For people."""
        start = f"{utc_text(self.time_ms)[11:23]} #{self.connection}"
        if self.what == OPENED:
            return f"{start} opened by {self.peer}, led to {self.broker}"
        if self.what == CLOSED:
            return f"{start} closed"
        who = f" {self.client}" if self.client else ""
        took = f" after {self.took_ms:.1f} ms" if self.took_ms is not None else ""
        api = f"{self.api} v{self.version}{took} " if self.api else ""
        return f"{start}{who} {ARROWS[self.what]} {api}{self.text}"

    def as_json(self, *, with_frame: bool) -> str:
        """For machines and files: a line without its end."""
        found: dict[str, Any] = {
            name: value
            for name, value in self._asdict().items()
            if value != Entry._field_defaults.get(name)
        }
        frame = found.pop("frame", None)
        if with_frame and frame is not None:
            found["frame"] = base64.b64encode(frame).decode()
        return json.dumps(found)


def read_conversation(path: str) -> Iterator[Entry]:
    """The entries of a file that `triglot tap --save` wrote. Raises NotDone."""
    try:
        with Path(path).open("rb") as file:
            for number, line in enumerate(iter(lambda: file.readline(LINE_BYTES_MAX), b""), 1):
                try:
                    yield _entry(json.loads(line))
                except (ValueError, TypeError, RecursionError):
                    raise NotDone(
                        f"line {number} of {path} is none of a saved conversation (tap --save)"
                    ) from None
    except OSError as error:
        raise NotDone(f"{path} can't be read: {(error.strerror or str(error)).lower()}") from None


def _entry(found: Any) -> Entry:
    """Raises ValueError, TypeError."""
    if not isinstance(found, dict):
        raise TypeError(found)
    frame = found.pop("frame", None)
    entry = Entry(**found)
    kinds = Entry(OPENED, 0, 0)
    for name, value in entry._asdict().items():
        wanted = (int, float) if name == "took_ms" else type(getattr(kinds, name))
        if not isinstance(value, wanted) and value is not None:
            raise TypeError(name)
    if entry.what not in (OPENED, REQUEST, ANSWER, CLOSED):
        raise ValueError(entry.what)
    return entry._replace(frame=None if frame is None else base64.b64decode(frame, validate=True))
