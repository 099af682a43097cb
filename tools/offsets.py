"""`triglot offsets`: where the logs of topics begin and end, and where a time is in them."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, NamedTuple

from tools.arguments import (
    add_cluster_arguments,
    complete_topics,
    moment,
    run_on_cluster,
    topic_selection,
)

if TYPE_CHECKING:
    from tools.cluster import Cluster, TopicPartition

    Arguments = argparse.Namespace
    Commands = argparse._SubParsersAction[argparse.ArgumentParser]

CLIENT_ID = b"triglot-offsets"

OFFSETS_HELP = """\
Where the log of each partition begins and ends, and with --time the first offset of a record that
is not older. The broker is a running one, triglot or Apache Kafka of any age.

  triglot offsets orders
  triglot offsets orders:0,3 payments
  triglot offsets orders --time 2026-01-31T12:00:00Z

START is the offset of the first record that is still there, END the one that the next record gets.
RECORDS is their distance: records, but for the markers of transactions and what compaction removed.
AT is '-' where no record is so late. Brokers before Kafka 0.10.1 know the times of segments only:
there AT is where the last segment begins that was complete by then.

Exit code 0: done. 1: it could not be done. 2: the command line is wrong.
"""


class Bounds(NamedTuple):
    """A partition's offsets; None for what its leader does not tell, and `note` says why. `at` is
    that of a time, None if no record is so late."""

    topic: str
    partition: int
    start: int | None
    end: int | None
    records: int | None
    at: int | None
    note: str


def add_commands(commands: Commands) -> None:
    """Add `offsets` to the command line's."""
    offsets = commands.add_parser(
        "offsets",
        help="where the logs of topics begin and end, and where a time is in them",
        description=OFFSETS_HELP,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    offsets.set_defaults(run=run_offsets)
    complete_topics(
        offsets.add_argument("topic", nargs="+", type=topic_selection, metavar="TOPIC[:P,P]")
    )
    offsets.add_argument(
        "--time",
        type=moment,
        metavar="TIME",
        help="2026-01-31T12:00:00Z (UTC where no zone is named), or ms since 1970",
    )
    add_cluster_arguments(offsets)


def run_offsets(arguments: Arguments) -> int:
    """`triglot offsets`. The exit code."""
    return run_on_cluster(_run, arguments, client_id=CLIENT_ID)


def _run(cluster: Cluster, arguments: Arguments) -> None:
    from tools.printing import print_json, print_lines, table
    from tools.selection import places_of

    rows = _bounds(cluster, places_of(cluster, arguments.topic), arguments.time)
    if arguments.json:
        left_out = () if arguments.time is not None else ("at",)
        print_json([
            {name: value for name, value in row._asdict().items() if name not in left_out}
            for row in rows
        ])  # fmt: skip
        return
    head = ("TOPIC", "PARTITION", "START", "END", "RECORDS", "AT", "NOTE")
    print_lines(table(head, rows))


def _bounds(cluster: Cluster, places: list[TopicPartition], time_ms: int | None) -> list[Bounds]:
    from protocol.client import said
    from protocol.errors import ErrorCode
    from tools.cluster import EARLIEST, LATEST
    from tools.log_ends import log_ends

    ends = log_ends(cluster, places)
    times = {} if time_ms is None else cluster.offsets(places, time_ms)
    rows = []
    for place in places:
        start, end, records, note = ends[place]
        at = times.get(place)
        if isinstance(at, ErrorCode):
            note = note or said(at)
            at = None
        elif start is None or at == LATEST:
            at = None
        elif at == EARLIEST:
            at = start
        rows.append(Bounds(*place, start, end, records, at, note))
    return rows
