"""The ends of transactions: decided on the disk, then carried out.

    Prepare written -> group commit -> told, markers written -> Complete, or what follows, written

The client is told before the markers are written, and they are written before anything else is
handled: who was told finds all of it. The record of Complete says nothing that the next start would
not find out, and most often the next transaction of the id begins at once. So it is written within
COMPLETE_WITHIN_S, and not at all if another record of the id comes first.

What the disk refuses after the decision is tried again until it comes about.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker import logs
from broker.coordinator.transactions import transaction as machine
from broker.partitions.internal_topics import TRANSACTION_TOPIC
from protocol.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Iterable, Sequence

    from broker.coordinator.transactions.participants import Participants
    from broker.coordinator.transactions.shard import TransactionShard
    from broker.coordinator.transactions.transaction import Transaction
    from broker.current_settings import CurrentSettings
    from broker.partitions.topics import Topics
    from broker.producing.group_commit import GroupCommit
    from protocol.logdata.transactions import End
    from storage.log import Log

    Done = Callable[[ErrorCode, int, int], None]
    """Called with a code, and the producer id and epoch after the end if that is NONE."""

RETRY_S = 1.0
"""Between two tries to write markers, or Complete, that the disk has refused."""
COMPLETE_WITHIN_S = 0.1
"""So long after the end at most the record of Complete is written."""


def in_stored_order(places: Iterable[tuple[str, int]]) -> list[tuple[str, int]]:
    """Partitions as a record has them, by topic."""
    topics: dict[str, list[tuple[str, int]]] = {}
    for place in places:
        topics.setdefault(place[0], []).append(place)
    return [place for found in topics.values() for place in found]


class Ends:
    """Writes the records of transactional ids, and carries out their ends. Belongs to the loop.

    What waits for another try is bounded by the transactions that there are.
    """

    def __init__(
        self,
        *,
        settings: CurrentSettings,
        loop: asyncio.AbstractEventLoop,
        topics: Topics,
        group_commit: GroupCommit,
        participants: Participants,
        transaction_version: Callable[[], int],
        wall_ms: Callable[[], int],
    ) -> None:
        self._settings = settings
        self._loop = loop
        self._topics = topics
        self._group_commit = group_commit
        self._participants = participants
        self._transaction_version = transaction_version
        self._wall_ms = wall_ms
        self._unfinished: dict[str, tuple[TransactionShard, list[tuple[str, int]]]] = {}
        """Ends with the partitions whose marker could not be written yet."""
        self.unwritten: dict[str, TransactionShard] = {}
        """Ids in state Complete, of which the record is yet to be written."""
        self._completing: asyncio.TimerHandle | None = None
        self.ongoing: dict[str, Transaction] = {}
        """Open transactions, as last written, to which their producer may add: none that another
        instance keeps, or of which an end is on its way."""
        self._lost: list[tuple[TransactionShard, str, Transaction, list[tuple[str, int]]]] = []
        """Markers of a start that could not be written yet."""
        self._retry: asyncio.TimerHandle | None = None
        self._stopped = False

    def stop(self) -> None:
        """Carry out nothing more; the next start does."""
        self._stopped = True
        for timer in (self._retry, self._completing):
            if timer is not None:
                timer.cancel()
        self.write_completed()

    def left(self, shard: TransactionShard) -> None:
        """Carry out nothing more of this shard, whose coordinator has resigned: the next one finds
        in the log what was decided."""
        for transactional_id in shard.states:
            self.ongoing.pop(transactional_id, None)
            self.unwritten.pop(transactional_id, None)
            self._unfinished.pop(transactional_id, None)
        self._lost = [one for one in self._lost if one[0] is not shard]

    def decide(
        self, shard: TransactionShard, transactional_id: str, decided: Transaction, done: Done
    ) -> None:
        """Have a decision written and carried out. Raises KafkaError, and nothing is decided."""
        self.write(shard, transactional_id, decided, ends=self._ends_of(decided))
        if self._settings.current.log_flush_policy != "ack":
            self._carry_out(shard, transactional_id, decided, done)
            return

        def synced(failed: dict[Log, str]) -> None:
            if failed:
                # The next start finds it on the disk or not. Until then the log takes no more.
                shard.ending.pop(transactional_id, None)
                done(ErrorCode.COORDINATOR_NOT_AVAILABLE, -1, -1)
            elif not self._stopped:
                self._carry_out(shard, transactional_id, decided, done)

        self._group_commit.wait([shard.partition.log], synced)

    def _ends_of(self, decided: Transaction) -> list[End] | None:
        """Next offsets and leader epochs of the partitions of an end."""
        return [self._end_of(place) for place in in_stored_order(decided.partitions)]

    def _end_of(self, place: tuple[str, int]) -> End:
        partition = self._topics.partition(*place)
        if partition is None:
            return 0, 0
        return partition.log.next_offset, partition.log.leader_epoch

    def _carry_out(
        self, shard: TransactionShard, transactional_id: str, decided: Transaction, done: Done
    ) -> None:
        shard.states[transactional_id] = decided
        del shard.ending[transactional_id]
        try:
            # It is decided, so it is told also where a disk refuses a marker: that comes later.
            done(ErrorCode.NONE, *machine.next_of(decided))
        finally:
            self.finish(shard, transactional_id, list(decided.partitions))

    def finish(
        self, shard: TransactionShard, transactional_id: str, partitions: list[tuple[str, int]]
    ) -> None:
        """Write the markers of an end, then it is complete; what the disk refuses later."""
        decided = shard.get(transactional_id)
        assert decided is not None
        left = self._write_markers(shard, decided, partitions)
        if left:
            self._unfinished[transactional_id] = shard, left
            self._try_later()
            return
        self._unfinished.pop(transactional_id, None)
        shard.states[transactional_id] = machine.completed(decided, now_ms=self._wall_ms())
        self.unwritten[transactional_id] = shard
        self._write_completed_later(COMPLETE_WITHIN_S)

    @property
    def at_rest(self) -> bool:
        """Whether no marker waits for another try."""
        return not (self._unfinished or self._lost)

    def _write_completed_later(self, after_s: float) -> None:
        if self._completing is None and not self._stopped:
            self._completing = self._loop.call_later(after_s, self.write_completed)

    def write_completed(self) -> None:
        self._completing = None
        try:
            for transactional_id, shard in list(self.unwritten.items()):
                completed = shard.get(transactional_id)
                assert completed is not None
                self.write(shard, transactional_id, completed)
        except KafkaError:  # which has been said
            self._write_completed_later(RETRY_S)

    def forget(self, shard: TransactionShard, transactional_ids: Iterable[str]) -> None:
        """Forget ids for good. Raises KafkaError, and then nothing has changed."""
        gone = list(transactional_ids)
        shard.forget(gone, now_ms=self._wall_ms())
        for transactional_id in gone:
            self.unwritten.pop(transactional_id, None)

    def mend(
        self,
        shard: TransactionShard,
        transactional_id: str,
        decided: Transaction,
        partitions: list[tuple[str, int]],
    ) -> None:
        """Write markers that a start has found missing. Until they are there, nothing new may be
        begun under this id: it would lie before them."""
        left = self._write_markers(shard, decided, partitions)
        if left:
            self.ongoing.pop(transactional_id, None)
            shard.ending[transactional_id] = decided
            self._lost.append((shard, transactional_id, decided, left))
            self._try_later()

    def _try_later(self) -> None:
        if self._retry is None and not self._stopped:
            self._retry = self._loop.call_later(RETRY_S, self._try_again)

    def _write_markers(
        self, shard: TransactionShard, decided: Transaction, partitions: list[tuple[str, int]]
    ) -> list[tuple[str, int]]:
        """Write the markers of an end; those that could not be written."""
        if not partitions:
            return []
        try:
            return self._participants.write_markers(
                decided.producer_id,
                decided.epoch,
                commit=decided.is_commit,
                coordinator_epoch=shard.epoch,
                partitions=partitions,
            )
        except Exception as error:  # whatever it is, the end is decided and must come about
            logs.fault_once_a_minute("markers were not written", error, TRANSACTION_TOPIC)
            return partitions

    def _try_again(self) -> None:
        self._retry = None
        lost, self._lost = self._lost, []
        for shard, transactional_id, decided, left in lost:
            shard.ending.pop(transactional_id, None)
            self.mend(shard, transactional_id, decided, left)
        for transactional_id, (shard, left) in list(self._unfinished.items()):
            self.finish(shard, transactional_id, left)

    def write(
        self,
        shard: TransactionShard,
        transactional_id: str,
        after: Transaction,
        *,
        ends: Sequence[End] | None = None,
    ) -> None:
        """Write a record and let memory follow, but for a decision, which counts when it is on the
        disk. Raises KafkaError, and then nothing has changed."""
        shard.write(
            transactional_id,
            after,
            transaction_version=self._transaction_version(),
            now_ms=self._wall_ms(),
            ends=ends,
        )
        self.unwritten.pop(transactional_id, None)
        if after.state in machine.PREPARED:
            self.ongoing.pop(transactional_id, None)
            shard.ending[transactional_id] = after
            return
        shard.states[transactional_id] = after
        takes_more = after.state is machine.ONGOING and not after.is_kept
        if takes_more and transactional_id not in shard.ending:
            self.ongoing[transactional_id] = after
        else:
            self.ongoing.pop(transactional_id, None)
