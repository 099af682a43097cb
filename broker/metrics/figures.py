"""The figures of topics and groups as JSON, for a program that asks again and again.

    {"now_ms": 1700000000000, "topics": {"names": ["orders"], "bytes_in": [], "bytes_out": [],
                                         "byte_size": [], "records": [], "end": []}}

A column for each figure, in the order of the names. `bytes_in` and `bytes_out` count from the start
of the broker. `byte_size` is that of the segments, `records` the offsets between the starts and the
ends of the logs, `end` the sum of the ends, whose rate is that of records.

    {"now_ms": 1700000000000, "groups": {"billing": [partitions, records, seconds, members]}}

`partitions` are those that the group has committed an offset of, `records` is its lag in all of
them, `seconds` the largest of theirs (`broker.metrics.groups`).

    {"now_ms": 1700000000000, "lags": [["orders", 0, records, seconds]]}

The lag of one group in each partition.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from broker.metrics.groups import lags, lags_of
from broker.metrics.partitions import byte_size

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from broker.coordinator.group_coordinator import GroupCoordinator
    from broker.neighbours import GroupsElsewhere
    from broker.partitions.topic import Topic
    from broker.partitions.topics import Topics

FIGURES = ("bytes_in", "bytes_out", "byte_size", "records", "end")


def topic_figures(topics: Topics, now_ms: int) -> Generator[None, None, str]:
    """The page; each step is that of a topic."""
    columns: dict[str, list[str]] = {name: [] for name in ("names", *FIGURES)}
    appends = [column.append for column in columns.values()]
    for topic in list(topics):
        # No name of a topic has anything to escape.
        for append, value in zip(appends, (f'"{topic.name}"', *_figures(topic)), strict=True):
            append(str(value))
        yield
    told = ",".join(f'"{name}":[{",".join(column)}]' for name, column in columns.items())
    return f'{{"now_ms":{now_ms},"topics":{{{told}}}}}\n'


def _figures(topic: Topic) -> tuple[int, int, int, int, int]:
    bytes_in = bytes_out = size = start = end = 0
    for partition in topic.partitions:
        log = partition.log
        bytes_in += partition.bytes_in
        bytes_out += partition.bytes_out
        size += byte_size(partition)
        start += log.start_offset
        end += log.written_offset
    return bytes_in, bytes_out, size, end - start, end


def group_figures(
    groups: GroupCoordinator,
    topics: Topics,
    now_ms: Callable[[], int],
    elsewhere: GroupsElsewhere | None,
) -> Generator[None, None, str]:
    """The page; each step is that of a group, or of a partition of one."""
    found: dict[str, list[float]] = {}
    for shard in list(groups.loaded_shards()):
        for name, group in list(shard.state.groups.items()):
            found[name] = [0, 0, 0.0, len(group.members)]
            yield
    for lag in lags(groups, topics, now_ms, elsewhere):
        row = found.setdefault(lag.group, [0, 0, 0.0, 0])
        row[0] += 1
        row[1] += lag.records
        row[2] = max(row[2], lag.seconds)
        yield
    rows = []
    for name, row in found.items():
        rows.append(f"{json.dumps(name)}:{json.dumps(row)}")
        yield
    return f'{{"now_ms":{now_ms()},"groups":{{{",".join(rows)}}}}}\n'


def lag_figures(
    group: str,
    groups: GroupCoordinator,
    topics: Topics,
    now_ms: Callable[[], int],
    elsewhere: GroupsElsewhere | None,
) -> Generator[None, None, str]:
    """The page on one group; each step is that of a partition."""
    rows = []
    for lag in lags_of(group, groups, topics, now_ms, elsewhere):
        rows.append(json.dumps(lag[1:]))
        yield
    return f'{{"now_ms":{now_ms()},"lags":[{",".join(rows)}]}}\n'
