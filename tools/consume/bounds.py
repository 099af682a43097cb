"""Where reading begins and ends in each partition."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from client.cluster import EARLIEST, LATEST, TopicPartition
from tools.errors import NotDone
from tools.selection import chosen

if TYPE_CHECKING:
    from argparse import Namespace as Arguments

    from client.cluster import Cluster

    Offsets = dict[TopicPartition, int]


class Bounds(NamedTuple):
    """Of each partition the first offset to read, and the first one not to read any more; `ends` is
    None where more is waited for."""

    starts: Offsets
    ends: Offsets | None


def bounds(client: Cluster, arguments: Arguments) -> Bounds:
    """As the command line says. Raises NotDone, NoSuchTopic."""
    known: dict[str, list[int]] = {}
    for place in client.partitions([item.topic for item in arguments.topic]):
        known.setdefault(place.topic, []).append(place.partition)
    places = chosen(arguments.topic, known)
    committed_only = not arguments.uncommitted
    first = client.offsets(places, EARLIEST)
    last = client.offsets(places, LATEST, committed_only=committed_only)
    starts = _starts(client, arguments, first, last)
    if arguments.group is not None:
        committed = client.committed_offsets(arguments.group, places)
        starts |= committed
    for place, offset in starts.items():
        if not first[place] <= offset <= last[place]:
            raise NotDone(
                f"{place} has no offset {offset}: its log goes from {first[place]} to "
                f"{last[place]}; --from-start and --from-end begin there"
            )
    ends = None
    if arguments.until_end:
        ends = last
    elif arguments.until_offset is not None:
        ends = dict.fromkeys(places, arguments.until_offset)
    elif arguments.until_time is not None:
        ends = client.offsets(places, arguments.until_time, committed_only=committed_only)
        ends = {place: min(offset, last[place]) for place, offset in ends.items()}
    return Bounds(starts, ends)


def _starts(client: Cluster, arguments: Arguments, first: Offsets, last: Offsets) -> Offsets:
    if arguments.from_end:
        return dict(last)
    if arguments.from_offset is not None:
        return dict.fromkeys(first, arguments.from_offset)
    if arguments.from_time is not None:
        found = client.offsets(first, arguments.from_time)
        return {place: min(offset, last[place]) for place, offset in found.items()}
    if arguments.last is not None:
        return {place: max(first[place], end - arguments.last) for place, end in last.items()}
    return dict(first)
