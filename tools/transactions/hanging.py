"""Transactions that hang: open in a partition, and no coordinator will end them there.

A partition is asked first and a coordinator after it, and in between a transaction may end or begin
as it should. So what looks hanging is looked at a second time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from protocol.errors import ErrorCode
from tools.transactions.coordinators import ONGOING, describe, list_transactions
from tools.transactions.partitions import producers_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tools.cluster import Cluster, TopicPartition
    from tools.transactions.coordinators import Described
    from tools.transactions.partitions import Producer

UNKNOWN_PRODUCER = "no transactional id has this producer id"


class Hanging(NamedTuple):
    """A transaction that hangs. `reason` says why nobody ends it; `transactional_id` is None where
    the producer id belongs to none."""

    place: TopicPartition
    producer: Producer
    transactional_id: str | None
    reason: str


class Search(NamedTuple):
    """What was found, how many partitions were looked at, and why some were not."""

    hanging: list[Hanging]
    looked_at: int
    refused: dict[TopicPartition, ErrorCode]


def search(cluster: Cluster, places: Iterable[TopicPartition], *, before_ms: int) -> Search:
    """Look for transactions whose last batch or marker is from before a time. Raises NotDone."""
    producers = producers_of(cluster, places)
    refused = {place: found for place, found in producers.items() if isinstance(found, ErrorCode)}
    candidates = [
        (place, producer)
        for place, found in producers.items()
        if not isinstance(found, ErrorCode)
        for producer in found
        if producer.start_offset >= 0 and producer.last_timestamp_ms < before_ms
    ]
    owners = _owners(cluster, {producer.producer_id for _, producer in candidates})
    suspects = [
        hanging
        for place, producer in candidates
        if (hanging := _judged(place, producer, owners.get(producer.producer_id))) is not None
    ]
    return Search(_still_open(cluster, suspects), len(producers) - len(refused), refused)


def owner_of(cluster: Cluster, producer_id: int) -> Described | None:
    """The transactional id that has this producer id, as its coordinator knows it."""
    return _owners(cluster, {producer_id}).get(producer_id)


def _owners(cluster: Cluster, producer_ids: set[int]) -> dict[int, Described]:
    """The transactional ids that have these producer ids, by those."""
    if not producer_ids:
        return {}
    found = {}
    for listed in list_transactions(cluster, producer_ids=sorted(producer_ids)):
        described = describe(cluster, listed.transactional_id)
        if described is not None:
            found[described.producer_id] = described
    return found


def _judged(place: TopicPartition, producer: Producer, owner: Described | None) -> Hanging | None:
    if owner is None:
        return Hanging(place, producer, None, UNKNOWN_PRODUCER)
    reason = why_it_hangs(place, producer, owner)
    return Hanging(place, producer, owner.transactional_id, reason) if reason else None


def why_it_hangs(place: TopicPartition, producer: Producer, owner: Described) -> str:
    """Why the coordinator will not end what this producer has open; "" if it will."""
    if not owner.is_open:
        return f"'{owner.transactional_id}' is in state {owner.state}"
    if place not in owner.partitions:
        return f"the transaction of '{owner.transactional_id}' is about other partitions"
    # An end that is under way may have an epoch of its own.
    if owner.state == ONGOING and producer.epoch != owner.producer_epoch:
        return f"the transaction of '{owner.transactional_id}' has epoch {owner.producer_epoch}"
    return ""


def _still_open(cluster: Cluster, suspects: list[Hanging]) -> list[Hanging]:
    """Those that a second look finds as they were."""
    if not suspects:
        return []
    now = producers_of(cluster, {suspect.place for suspect in suspects})
    still = []
    for suspect in suspects:
        found = now[suspect.place]
        if not isinstance(found, ErrorCode) and any(
            (one.producer_id, one.epoch, one.start_offset)
            == (suspect.producer.producer_id, suspect.producer.epoch, suspect.producer.start_offset)
            for one in found
        ):
            still.append(suspect)
    return still
