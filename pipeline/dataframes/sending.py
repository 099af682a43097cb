"""Producing at least once: what may not have been stored is sent again."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, NamedTuple

from client.cluster import ProduceUnknown
from pipeline.errors import Unreachable

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from client.cluster import Cluster, Producing, TopicPartition
    from client.producing import EntryBytes

PAUSE_S = 0.1
"""Before what failed is sent again."""


class _Sent(NamedTuple):
    producing: Producing
    entries: Sequence[EntryBytes]
    magic: int


class Sending:
    """Sends entries to partitions while the caller makes the next ones.

    Those of one `send` at a time are on their way. Entries that are sent again come behind what was
    stored in the meantime, and may be there twice.
    """

    def __init__(
        self,
        cluster: Cluster,
        *,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._cluster = cluster
        self._clock = clock
        self._sleep = sleep
        self._sent: _Sent | None = None

    def send(self, partition: TopicPartition, entries: Sequence[EntryBytes], magic: int) -> None:
        """Wait for what was sent before, and send these, which are of one format.

        Raises Refused; Unreachable when an answer is missing for longer than the cluster's
        `timeout_s`.
        """
        self.finish()
        producing = self._cluster.begin_produce(partition, entries, magic=magic)
        self._sent = _Sent(producing, entries, magic)

    def finish(self) -> None:
        """Wait until all that was sent is stored. Raises as `send` does."""
        if self._sent is None:
            return
        (producing, entries, magic), self._sent = self._sent, None
        try:
            self._cluster.finish_produce(producing)
        except ProduceUnknown as unknown:
            self._send_again(producing.partition, entries[unknown.stored :], magic)

    def _send_again(
        self, partition: TopicPartition, entries: Sequence[EntryBytes], magic: int
    ) -> None:
        deadline = self._clock() + self._cluster.timeout_s
        while True:
            self._sleep(PAUSE_S)
            try:
                self._cluster.produce(partition, entries, magic=magic)
            except ProduceUnknown as unknown:
                if self._clock() >= deadline:
                    raise Unreachable(str(unknown)) from None
            else:
                return
