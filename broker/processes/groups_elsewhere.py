"""How far groups are that other processes coordinate, in the partitions that are led here.

Only the leader of a partition knows how far behind a committed offset is, in time as well. So it
asks the coordinators, when somebody asks for its metrics: for their groups, and then for one after
the other, so that nobody else waits long.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from broker.metrics.groups import LAGS_MAX
from broker.neighbours import Committed
from protocol.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchResponse

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator, Sequence

    from broker.neighbours import LedHere
    from broker.network.peer import Peer

WITHIN_S = 1.0
"""Time that a process has to answer: scrapers wait ten seconds."""


class GroupsElsewhere:
    """Belongs to the loop."""

    def __init__(self, connects: Sequence[Callable[[], Awaitable[Peer]]]) -> None:
        """`connects` open a connection to each of the other processes. They raise
        ConnectionError."""
        self._connects = connects
        self.committed: list[Committed] = []
        """As it was at the last look; at most `LAGS_MAX`."""

    async def look(self, led_here: LedHere) -> None:
        """Ask all of them. Of one that is away, or hangs, nothing is known."""
        found: list[Committed] = []
        for connect in self._connects:
            try:
                async with asyncio.timeout(WITHIN_S):
                    peer = await connect()
                    try:
                        await _ask(peer, led_here, found)
                    finally:
                        peer.close()
            except (ConnectionError, TimeoutError):
                continue
        self.committed = found


async def _ask(peer: Peer, led_here: LedHere, found: list[Committed]) -> None:
    """Raises ConnectionError."""
    listed = await peer.ask(ListGroupsRequest(), ListGroupsResponse)
    for group in listed.groups:
        asked = OffsetFetchRequest.Group(group_id=group.group_id, topics=None)
        answer = await peer.ask(OffsetFetchRequest(groups=[asked]), OffsetFetchResponse)
        found += _led_here(group.group_id, answer.groups[0], led_here)
        if len(found) >= LAGS_MAX:
            del found[LAGS_MAX:]
            return


def _led_here(
    group: str, answered: OffsetFetchResponse.Group, led_here: LedHere
) -> Iterator[Committed]:
    for topic in answered.topics:
        for entry in topic.partitions:
            name = led_here(topic.topic_id, entry.partition_index)
            if name is not None:
                yield Committed(group, name, entry.partition_index, entry.committed_offset)
