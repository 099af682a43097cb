"""The offsets that groups have committed which other processes coordinate, for retention that waits
for them (`retention.wait.groups`).

They are asked for at the beginning of each round of retention. A coordinator answers when what it
says is on its disk. While one is away nothing is known of its groups, and nothing goes that waits
for them.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from broker.coordinator.offset_coordinator import StoredOffset
from protocol.errors import ErrorCode, KafkaError
from protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchResponse

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from broker.network.peer import Peer
    from broker.partitions.topics import Topics

    Connect = Callable[[int], Awaitable[Peer]]

WITHIN_S = 10.0
"""Time that a process has to answer."""


class OffsetsElsewhere:
    """Belongs to the loop."""

    def __init__(
        self, topics: Topics, coordinator: Callable[[str], int | None], connect: Connect
    ) -> None:
        """`coordinator` tells the number of the process that coordinates a group, None for this
        one. `connect` connects to a process, by its number; it raises ConnectionError."""
        self._topics = topics
        self._coordinator = coordinator
        self._connect = connect
        self._known: dict[str, dict[tuple[bytes, int], int]] = {}
        """By group, topic id and partition: as at the beginning of the round."""

    def stored_offset(self, group: str, topic: str, index: int) -> StoredOffset | None:
        """What a group has committed; None for nothing. Raises KafkaError while it is not known."""
        known, found = self._known.get(group), self._topics.by_name.get(topic)
        if known is None or found is None:
            raise KafkaError(code=ErrorCode.COORDINATOR_NOT_AVAILABLE)
        offset = known.get((found.topic_id, index))
        return None if offset is None else StoredOffset(offset, None)

    async def look(self) -> None:
        """Ask for all groups that topics wait for, and forget what was known of them before."""
        wanted: dict[int, set[str]] = {}
        for topic in self._topics:
            for group in topic.settings.retention_wait_groups:
                number = self._coordinator(group)
                if number is not None:
                    wanted.setdefault(number, set()).add(group)
        known: dict[str, dict[tuple[bytes, int], int]] = {}
        for number, groups in wanted.items():
            try:
                async with asyncio.timeout(WITHIN_S):
                    peer = await self._connect(number)
                    try:
                        for group in groups:
                            known[group] = await _committed(peer, group)
                    finally:
                        peer.close()
            except (ConnectionError, TimeoutError, KafkaError):
                continue
        self._known = known


async def _committed(peer: Peer, group: str) -> dict[tuple[bytes, int], int]:
    """Raises ConnectionError; KafkaError where the coordinator does not know."""
    asked = OffsetFetchRequest.Group(group_id=group, topics=None)
    answer = await peer.ask(OffsetFetchRequest(groups=[asked]), OffsetFetchResponse)
    (found,) = answer.groups
    if found.error_code:
        raise KafkaError(code=ErrorCode(found.error_code))
    committed: dict[tuple[bytes, int], int] = {}
    for topic in found.topics:
        for entry in topic.partitions:
            if entry.error_code:
                raise KafkaError(code=ErrorCode(entry.error_code))
            if entry.committed_offset >= 0:
                committed[topic.topic_id, entry.partition_index] = entry.committed_offset
    return committed
