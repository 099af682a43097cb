"""The work of `triglot consume`: what is read is printed and committed if that is asked for."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from broker.clock import monotonic_s
from client.errors import Refused
from protocol.records.record_rows import OFFSET
from tools.consume.bounds import bounds
from tools.consume.reading import Reader
from tools.errors import NotDone
from tools.groups.committed import HAS_MEMBERS
from tools.printing import Records, say

if TYPE_CHECKING:
    from argparse import Namespace as Arguments

    from client.cluster import Cluster, TopicPartition
    from protocol.records.record_rows import Row
    from tools.consume.format import Rendered

COMMIT_S = 5.0
"""Between two commits while reading goes on."""


def run(client: Cluster, arguments: Arguments) -> None:
    """Print the records of the topics. Raises NotDone, Failure, BrokenPipeError."""
    found = bounds(client, arguments)
    reader = Reader(
        client,
        found.starts,
        found.ends,
        committed_only=not arguments.uncommitted,
        skip_corrupt=arguments.on_corrupt == "skip",
    )
    total = 0
    if found.ends is not None:
        spans = (found.ends[place] - start for place, start in found.starts.items())
        total = sum(max(span, 0) for span in spans)
    # Progress among the records of a terminal would be neither.
    line = Records(arguments.progress, total)
    output = Output(client, arguments, reader)
    if not (sys.stdout.isatty() and sys.stderr.isatty()):
        output.told = line.more
    try:
        output.print_all()
    finally:
        line.clear()
        output.commit()
    for example in reader.left_out.examples:
        say(f"triglot: left out: {example}", sys.stderr)


class Output:
    """Prints what a reader finds, up to `--count` records, and commits what was printed."""

    def __init__(self, client: Cluster, arguments: Arguments, reader: Reader) -> None:
        self._client = client
        self._reader = reader
        self._group: str | None = arguments.group if arguments.commit else None
        self._left: int | None = arguments.count
        self._renderer = arguments.renderer
        self._rendered: dict[TopicPartition, Rendered] = {}
        self._printed: dict[TopicPartition, int] = {}
        """The offset behind the last record of each partition that was printed since a commit."""
        self._committed_at = monotonic_s()
        self._shown = shown_on_a_terminal if sys.stdout.isatty() else bytes
        self.told = _untold

    def print_all(self) -> None:
        """Until the reader ends, or there are enough."""
        if self._left == 0:
            return
        for place, records in self._reader.records():
            if not records:
                sys.stdout.flush()  # more is waited for
            elif self._print(place, records):
                return
            if self._group is not None and monotonic_s() - self._committed_at >= COMMIT_S:
                self.commit()

    def commit(self) -> None:
        """Tell the group how far it has been read, if that is asked for. Raises NotDone for a group
        that has members."""
        sys.stdout.flush()
        self._committed_at = monotonic_s()
        if self._group is not None and self._printed:
            try:
                self._client.commit_offsets(self._group, self._printed)
            except Refused as refused:
                if refused.code in HAS_MEMBERS:
                    raise NotDone(
                        f"group '{self._group}' has members, and takes no offsets of others: stop "
                        "them, or leave --commit away"
                    ) from None
                raise
            self._printed = {}

    def _print(self, place: TopicPartition, records: list[Row]) -> bool:
        """Whether that is enough."""
        rendered = self._rendered.get(place)
        if rendered is None:
            rendered = self._rendered[place] = self._renderer(place)
        if self._left is not None:
            records = records[: self._left]
            self._left -= len(records)
        sys.stdout.buffer.write(self._shown(rendered(records)))
        self._printed[place] = records[-1][OFFSET] + 1
        self.told(len(records))
        return self._left == 0


def shown_on_a_terminal(output: bytes) -> bytes:
    """Without what a terminal would obey: escapes stand in its place."""
    text = output.decode("utf-8", "backslashreplace")
    return "".join(
        c if c.isprintable() or c in "\n\t" else c.encode("unicode_escape").decode() for c in text
    ).encode()


def _untold(count: int) -> None:
    pass
