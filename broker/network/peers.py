"""The connections of a process to those of its data directory, itself among them."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, TypeVar

from protocol.schema import Message

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from broker.network.peer import Peer

Answer = TypeVar("Answer", bound=Message)


class Peers:
    """One connection to each, opened when it is first needed and kept. Belongs to the loop.

    Requests go out as they come; the other side answers them in their order.
    """

    def __init__(self, connect: Callable[[int], Awaitable[Peer]]) -> None:
        """`connect` opens a connection to the process of this number. Raises ConnectionError."""
        self._connect = connect
        self._peers: dict[int, Peer] = {}
        self._opening: dict[int, asyncio.Lock] = {}

    async def ask(self, process: int, request: Message, kind: type[Answer]) -> Answer:
        """The answer of a process. Raises ConnectionError: it has gone, and comes back."""
        async with self._opening.setdefault(process, asyncio.Lock()):
            peer = self._peers.get(process)
            if peer is None or peer.is_lost:
                peer = self._peers[process] = await self._connect(process)
        return await peer.ask(request, kind)
