"""Faults of stored records against those acknowledged to a load, by what becomes of old ones.

All lists are of (offset, number), in the order of the offsets.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.clients.drivers.confluent_driver import ConfluentDriver
from tests.clients.drivers.driver import KEEP_FOR_EVER
from tests.clients.kill_loads import KEYS, PARTITIONS, number_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    #: (offset, number) of each record of a partition.
    Numbered = list[tuple[int, int]]

SMALL = {"segment.bytes": "100000", "max.message.bytes": "90000", "file.delete.delay.ms": "200"}

#: What becomes of a topic's old records.
RETAINED_BYTES = 300_000
POLICIES = {
    "kept": KEEP_FOR_EVER,
    "retention": {**SMALL, "retention.ms": "-1", "retention.bytes": str(RETAINED_BYTES)},
    "compaction": {
        **SMALL,
        **{"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.01"},
        **{"min.compaction.lag.ms": "0", "retention.ms": "-1"},
    },
}


def stored_numbers(bootstrap: str, topic: str) -> list[Numbered]:
    """All that a topic holds, by partition."""
    read = ConfluentDriver().consume(bootstrap, topic)
    return [
        [(offset, number_of(record.value)) for offset, record in read[partition]]
        for partition in range(PARTITIONS)
    ]


def _faults_of_all(acknowledged: Numbered, stored: Numbered) -> Iterator[str]:
    """Everything is there."""
    lost = set(acknowledged) - set(stored)
    if lost:
        yield f"{len(lost)} not at their offset: {sorted(lost)[:3]}"
    yield from _faults_of_order(stored)


def _faults_of_the_rest(acknowledged: Numbered, stored: Numbered) -> Iterator[str]:
    """Nothing but a beginning is gone, and not more than retention may take."""
    if not stored:
        yield "nothing is left"
        return
    first = stored[0][0]
    lost = {record for record in acknowledged if record[0] >= first} - set(stored)
    if lost:
        yield f"{len(lost)} not at their offset: {sorted(lost)[:3]}"
    if first and sum(200 + number % 300 for _, number in stored) < RETAINED_BYTES:
        yield f"retention left {len(stored)} records, which is too little"
    yield from _faults_of_order(stored)


def _faults_of_the_newest(acknowledged: Numbered, stored: Numbered) -> Iterator[str]:
    """Of every key the newest record is there; nothing is where it was not acknowledged."""
    newest = {number % KEYS: (offset, number) for offset, number in sorted(acknowledged)}
    lost = set(newest.values()) - set(stored)
    if lost:
        yield f"the newest of {len(lost)} keys not at their offset: {sorted(lost)[:3]}"
    foreign = set(stored) - set(acknowledged)
    if foreign:
        yield f"{len(foreign)} where they were not acknowledged: {sorted(foreign)[:3]}"
    if len(acknowledged) > 3_000 and len(stored) == len(acknowledged):
        yield f"none of {len(stored)} records was compacted away"
    yield from _faults_of_order(stored)


def _faults_of_order(stored: Numbered) -> Iterator[str]:
    numbers = [number for _, number in stored]
    if len(set(numbers)) != len(numbers):
        yield f"{len(numbers) - len(set(numbers))} doubled"
    if numbers != sorted(numbers):
        yield "out of order"


FAULTS = {
    "kept": _faults_of_all,
    "retention": _faults_of_the_rest,
    "compaction": _faults_of_the_newest,
}
