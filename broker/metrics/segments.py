"""The segments of a topic as JSON.

    {"now_ms": 1700000000000, "left_out": 0, "partitions": [
        {"partition": 0, "start": 0, "end": 900, "cleaned_to": null,
         "segments": [[base_offset, end_offset, byte_size, last_came_ms]]}]}

The last segment is the one that is written to. `last_came_ms` is when its last record came in, by
the broker's clock (`storage.receive_times`); `cleaned_to` how far compaction has come.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from storage.retention import segments_with_ends

if TYPE_CHECKING:
    from collections.abc import Generator

    from broker.partitions.topic import Topic
    from storage.log import Log
    from storage.segment import Segment

SEGMENTS_MAX = 5_000
"""On a page; how many more there are is told."""


def segment_figures(topic: Topic | None, now_ms: int) -> Generator[None, None, str]:
    """The page, without partitions if there is no topic; each step is that of a segment."""
    rows, room, left_out = [], SEGMENTS_MAX, 0
    for partition in () if topic is None else topic.partitions:
        if partition.led_elsewhere:
            continue
        log = partition.log
        segments = []
        for segment, end in segments_with_ends(log):
            if room:
                room -= 1
                segments.append(_row(log, segment, end, now_ms))
            else:
                left_out += 1
            yield
        row = {
            "partition": partition.index,
            "start": log.start_offset,
            "end": log.written_offset,
            "cleaned_to": log.cleaned_to,
            "segments": segments,
        }
        rows.append(json.dumps(row))
    return f'{{"now_ms":{now_ms},"left_out":{left_out},"partitions":[{",".join(rows)}]}}\n'


def _row(log: Log, segment: Segment, end: int, now_ms: int) -> list[int]:
    try:
        size = segment.byte_size()
    except OSError:
        size = 0  # it was removed, or can't be read
    last = max(segment.base_offset, end - 1)
    came_ms = log.received.since_ms(log, max(last, log.start_offset), now_ms=now_ms)
    return [segment.base_offset, end, size, came_ms]
