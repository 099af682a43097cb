"""The embedded consumer protocol: what members of a classic group exchange through the broker.

    int16 version, then the fields; all versions of a later Kafka only append fields
    subscription   what a member wants to read; from version 1 on what it has, 2 since which
                   generation, 3 in which rack it stands
    assignment     what the leader gives it

The broker looks into subscriptions to know which topics a group still reads, and into assignments
to show them. Both are anybody's bytes: programs other than consumers put other things there.
"""

from __future__ import annotations

from struct import Struct as Format
from typing import NamedTuple, TypeVar

from protocol.errors import Malformed
from protocol.schema import Struct, array, binary, int32, string

_VERSION = Format(">h")
NEWEST = 3

Made = TypeVar("Made", bound=Struct)


class ConsumerProtocolSubscription(Struct, versions="0-3"):
    class TopicPartition(Struct):
        topic: str = string()
        partitions: list[int] = array(int32)

    topics: list[str] = array(string)
    user_data: bytes | None = binary(nullable="", default=None)
    owned_partitions: list[TopicPartition] = array(TopicPartition, "1+", default=())
    generation_id: int = int32("2+", default=-1)
    rack_id: str | None = string("3+", nullable="3+", default=None)


class ConsumerProtocolAssignment(Struct, versions="0-3"):
    class TopicPartition(Struct):
        topic: str = string()
        partitions: list[int] = array(int32)

    assigned_partitions: list[TopicPartition] = array(TopicPartition)
    user_data: bytes | None = binary(nullable="", default=None)


class Subscription(NamedTuple):
    """A member's subscription. `owned` are (topic, partitions) that it has; -1 is no generation."""

    topics: list[str]
    user_data: bytes | None = None
    owned: list[tuple[str, list[int]]] = []  # noqa: RUF012 (a default that nobody changes)
    generation_id: int = -1
    rack_id: str | None = None


class Assignment(NamedTuple):
    """The assignment of a member: (topic, partitions)."""

    partitions: list[tuple[str, list[int]]]
    user_data: bytes | None = None


def encode_assignment(assignment: Assignment, version: int = NEWEST) -> bytes:
    """The bytes of `version`; all versions have the same fields."""
    pair = ConsumerProtocolAssignment.TopicPartition
    body = ConsumerProtocolAssignment(
        assigned_partitions=[pair(topic=t, partitions=list(p)) for t, p in assignment.partitions],
        user_data=assignment.user_data,
    )
    return _VERSION.pack(version) + body.encode(version)


def subscription_of(data: bytes) -> Subscription | None:
    """The subscription that these bytes are, None if they are none.

    A version after the newest is read as the newest, as consumers do; what follows the last field
    means nothing. Nothing is raised, and nothing is made for a count that the bytes cannot hold.
    """
    found = _decode(ConsumerProtocolSubscription, data)
    if found is None:
        return None
    owned = [(pair.topic, pair.partitions) for pair in found.owned_partitions]
    return Subscription(found.topics, found.user_data, owned, found.generation_id, found.rack_id)


def assignment_of(data: bytes) -> Assignment | None:
    """The assignment that these bytes are, None if they are none; as `subscription_of`.

    No bytes at all are what a member gets that the leader forgot: None as well.
    """
    found = _decode(ConsumerProtocolAssignment, data)
    if found is None:
        return None
    pairs = [(pair.topic, pair.partitions) for pair in found.assigned_partitions]
    return Assignment(pairs, found.user_data)


def _decode(cls: type[Made], data: bytes) -> Made | None:
    if len(data) < _VERSION.size:
        return None
    version = _VERSION.unpack_from(data)[0]
    if version < 0:
        return None
    try:
        return cls.decoder(min(version, NEWEST))(data, _VERSION.size, len(data))[0]
    except Malformed:
        return None
