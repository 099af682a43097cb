"""Observers: replicas that follow the metadata log, as far as they are known (KIP-595, KIP-630).

A follower shows itself by its fetches, and by nothing else: the offset that it asks for is the end
of its log. One that is silent for a while is taken to be gone, as in Apache Kafka. Nobody votes
with these, so the table may be wrong; all that hangs on it is how long old records are kept.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

NOBODY = -1
"""A time (ms) at which nothing happened, as DescribeQuorum says it."""

SESSION_MS = 300_000
"""A follower that has not asked for so long is gone. Kafka's figure."""

OBSERVERS_MAX = 1000
"""Followers that are kept in mind. Their ids are what they claim to be, so anybody could make up
any number of them; beyond this the one that has been silent longest is forgotten."""


class Observer:
    """One replica, and the time (ms since 1970) of what it did.

    log_end_offset  what it has fetched of the log, exclusive; -1 while it only loads a snapshot
    loads_offset    end offset of the snapshot that it loads, which it will then go on from; -1 for
                    none
    last_fetch_ms   its last request, to be shown
    caught_up_ms    the last time at which it had all there was then; -1 for never
    """

    __slots__ = (
        "caught_up_ms",
        "directory_id",
        "last_fetch_ms",
        "leader_end_offset",
        "loads_offset",
        "log_end_offset",
        "replica_id",
    )

    def __init__(self, replica_id: int, directory_id: bytes) -> None:
        self.replica_id = replica_id
        self.directory_id = directory_id
        self.log_end_offset = -1
        self.loads_offset = -1
        self.last_fetch_ms = NOBODY
        self.caught_up_ms = NOBODY
        self.leader_end_offset = -1
        """The end of our log at its last fetch."""

    @property
    def replicated_offset(self) -> int:
        """From where on it needs the log: what it has, or will have once its snapshot is loaded."""
        return max(self.log_end_offset, self.loads_offset)


class Observers:
    """By replica id and directory id (16 bytes): a node may have lost its disk and come back."""

    def __init__(self) -> None:
        self.heard: Callable[[int, int], None] = _nobody_listens
        """Called with the replica and the offset of each that asks for the log."""
        # The one that was heard of last stands last.
        self._found: dict[tuple[int, bytes], Observer] = {}

    def __len__(self) -> int:
        return len(self._found)

    def fetched(
        self,
        replica_id: int,
        directory_id: bytes,
        *,
        offset: int,
        leader_end_offset: int,
        now_ms: int,
    ) -> None:
        """A replica asks for the log from `offset` on, which ends at `leader_end_offset` here."""
        one = self._heard_of(replica_id, directory_id)
        if offset >= leader_end_offset:
            one.caught_up_ms = max(now_ms, one.caught_up_ms)
        elif 0 < one.leader_end_offset <= offset:
            # It has by now what there was when it asked last.
            one.caught_up_ms = max(one.last_fetch_ms, one.caught_up_ms)
        one.leader_end_offset = leader_end_offset
        one.log_end_offset = offset
        one.loads_offset = -1
        one.last_fetch_ms = max(now_ms, one.last_fetch_ms)
        self.heard(replica_id, offset)

    def loads(self, replica_id: int, directory_id: bytes, *, end_offset: int, now_ms: int) -> None:
        """A replica loads the snapshot with this end offset. Its log begins there afterwards."""
        one = self._heard_of(replica_id, directory_id)
        one.log_end_offset = one.leader_end_offset = -1
        one.loads_offset = end_offset
        one.last_fetch_ms = max(now_ms, one.last_fetch_ms)

    def live(self, now_ms: int) -> list[Observer]:
        """The observers that are not gone, by id. The log start waits for their
        `replicated_offset`, for max.replication.lag.ms at most."""
        gone = [key for key, one in self._found.items() if one.last_fetch_ms < now_ms - SESSION_MS]
        for key in gone:
            del self._found[key]
        return [one for _, one in sorted(self._found.items())]

    def _heard_of(self, replica_id: int, directory_id: bytes) -> Observer:
        key = (replica_id, directory_id)
        one = self._found.pop(key, None)
        if one is None:
            one = Observer(replica_id, directory_id)
            if len(self._found) >= OBSERVERS_MAX:
                del self._found[next(iter(self._found))]
        self._found[key] = one
        return one


def _nobody_listens(replica_id: int, offset: int) -> None:
    """Only where several processes serve a directory does it matter who has what."""
