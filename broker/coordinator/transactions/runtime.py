"""Transactions at work: their shards, the records of each state, and the ends.

An end is decided when its record, Prepare, is on the disk: that is the one sync. Answer and markers
follow in one turn, and wait for no other:

    EndTxn -> Prepare written -> group commit -> answer, markers

Until Prepare is on the disk others are told CONCURRENT_TRANSACTIONS. What a loss of power takes of
the rest the next start writes again (`settling`).

The shards exist when `__transaction_state` does, which is made when the coordinator of a
transactional id is first looked for.
"""

from __future__ import annotations

from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any

from broker import logs
from broker.coordinator.needs import StateTopic
from broker.coordinator.state_log import not_loaded
from broker.coordinator.transactions import transaction as machine
from broker.coordinator.transactions.ends import Ends
from broker.coordinator.transactions.loading import TransactionLoads
from broker.coordinator.transactions.settling import open_transactions, settle
from broker.coordinator.transactions.shard import TransactionShard
from broker.partitions.internal_topics import TRANSACTION_TOPIC
from broker.slicing import Slicer
from protocol.errors import ErrorCode, KafkaError
from protocol.logdata.offsets import shard_of
from protocol.logdata.transactions import FLEXIBLE_VALUE

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Iterator, Sequence

    from broker.coordinator.needs import ProducerIds
    from broker.coordinator.transactions.ends import Done
    from broker.coordinator.transactions.loading import Loaded, RawEnd
    from broker.coordinator.transactions.participants import Participants
    from broker.coordinator.transactions.transaction import Transaction
    from broker.current_settings import CurrentSettings
    from broker.partitions.disk_state import DiskState
    from broker.partitions.topic import Partition
    from broker.partitions.topics import Topics
    from broker.producing.appends import Appends
    from broker.producing.group_commit import GroupCommit

EXPIRY_STEP = 500
"""Ids that are looked at in one step, and tombstones of one batch at most."""
SLICE_S, PAUSE_S = 0.001, 0.02

shard_number = lru_cache(maxsize=4096)(shard_of)
"""`shard_of`, remembered for the ids that are asked for most: it goes over each letter."""


class TransactionRuntime:
    """The shards of this broker and all that transactions need of the world. Belongs to the
    loop."""

    def __init__(
        self,
        *,
        settings: CurrentSettings,
        loop: asyncio.AbstractEventLoop,
        topics: Topics,
        disk: DiskState,
        appends: Appends,
        group_commit: GroupCommit,
        participants: Participants,
        producer_ids: ProducerIds,
        transaction_version: Callable[[], int],
        wall_ms: Callable[[], int],
    ) -> None:
        self.shards: list[TransactionShard] = []
        self.loads = TransactionLoads(loop)
        self._settings = settings
        self._loop = loop
        self._topics = topics
        self._state_topic = StateTopic(TRANSACTION_TOPIC, topics=topics, disk=disk, wall_ms=wall_ms)
        self._disk = disk
        self._appends = appends
        self._producer_ids = producer_ids
        self._transaction_version = transaction_version
        self._wall_ms = wall_ms
        self._slicer = Slicer(loop, "transactions", slice_s=SLICE_S, pause_s=PAUSE_S)
        self._decided_ends: dict[str, list[RawEnd]] = {}
        """Of ids that were loaded, until all shards are settled."""
        self._damaged: set[TransactionShard] = set()
        self._read: list[TransactionShard] = []
        """Shards that have been read, and wait for the others."""
        self._deadlines_ms: dict[str, int] = {}
        """When the time of each open transaction is up, on a clock that never goes back."""
        self.ends = self._make_ends(
            settings=settings,
            loop=loop,
            topics=topics,
            group_commit=group_commit,
            participants=participants,
            transaction_version=transaction_version,
            wall_ms=wall_ms,
        )
        self.aborted = 0
        """Transactions whose time was up."""
        self.expired = 0

    def _make_ends(self, **parts: Any) -> Ends:
        return Ends(**parts)

    # Shards

    def take_topic(self) -> bool:
        """Whether the topic exists; when it is first seen its shards are made, and their load
        begins."""
        if self.shards:
            return True
        topic = self._state_topic.find()
        if topic is None:
            return False
        self.shards = [self._new_shard(partition) for partition in topic.partitions]
        unended = open_transactions(self._topics)
        self.loads.begin(self.shards, self._take_up, self._settle, unended=unended)
        return True

    def _new_shard(self, partition: Partition) -> TransactionShard:
        return TransactionShard(partition, disk=self._disk, appends=self._appends)

    def require_topic(self) -> None:
        """See that the topic is there. Raises NeededFirst; KafkaError: COORDINATOR_NOT_AVAILABLE
        where it could not be made."""
        if not self.take_topic():
            raise self._state_topic.need.unmet()

    def stop(self) -> None:
        """Write nothing more."""
        self.loads.stop()
        self._slicer.stop()
        self.ends.stop()

    @property
    def is_loading(self) -> bool:
        """Whether there are ids that are not known yet."""
        return self.take_topic() and not all(
            shard.loaded or shard.partition.led_elsewhere for shard in self.shards
        )

    @property
    def is_settled(self) -> bool:
        """Whether what the last stop or crash has left half done is finished."""
        ending = any(shard.ending for shard in self.shards)
        return not (self.is_loading or ending) and self.ends.at_rest

    def shard(self, transactional_id: str) -> TransactionShard:
        """The shard of an id. Raises KafkaError: NOT_COORDINATOR where there is no topic, so that
        the client looks for the coordinator and has it made; COORDINATOR_LOAD_IN_PROGRESS."""
        if not self.take_topic():
            raise KafkaError(code=ErrorCode.NOT_COORDINATOR)
        shard = self.shards[shard_number(transactional_id, len(self.shards))]
        if not shard.loaded:
            raise not_loaded(shard.partition)
        return shard

    def leader_id(self, transactional_id: str) -> int:
        """The id of the broker that coordinates an id. The topic has to be there."""
        return self.partition_of(transactional_id).leader_id

    def partition_of(self, transactional_id: str) -> Partition:
        """The partition of the state topic that an id falls to. The topic has to be there."""
        return self.shards[shard_number(transactional_id, len(self.shards))].partition

    def known(self, transactional_id: str) -> tuple[TransactionShard, Transaction]:
        """An id with its shard. Raises KafkaError as `shard`, INVALID_REQUEST for an empty id,
        INVALID_PRODUCER_ID_MAPPING for one that is not known."""
        if not transactional_id:
            raise KafkaError("an empty transactional id", code=ErrorCode.INVALID_REQUEST)
        shard = self.shard(transactional_id)
        now = shard.get(transactional_id)
        if now is None:
            raise KafkaError(
                f"transactional id {transactional_id!r} is not known",
                code=ErrorCode.INVALID_PRODUCER_ID_MAPPING,
            )
        return shard, now

    def all(self) -> Iterator[tuple[str, Transaction]]:
        """All ids that have been loaded."""
        for shard in self.shards:
            if shard.loaded:
                yield from shard.all()

    def now_ms(self) -> int:
        """ms on a clock that never goes back; time-outs count in it."""
        return int(self._loop.time() * 1000)

    def _take_up(self, shard: TransactionShard, loaded: Loaded) -> None:
        """A shard has been read. Nobody may use it before all are settled: what would be begun now
        could be taken for a part of what has yet to be ended."""
        opened = loaded.open()
        shard.states = loaded.states
        for transactional_id, now in opened.items():
            if now.state is machine.ONGOING:
                self._watch(transactional_id, now)
            else:
                shard.ending[transactional_id] = now  # nobody may touch it before it is settled
        self._decided_ends.update(loaded.ends)
        if loaded.skipped:
            self._damaged.add(shard)
        self._read.append(shard)

    def _settle(self) -> None:
        """All shards have been read: finish what a stop or a crash has left half done."""
        settle(self, self.ends, self._topics, self._decided_ends, self._damaged)
        self._decided_ends = {}
        for shard in self._read:
            shard.loaded = True
        self._read.clear()

    # InitProducerId

    def initialize(
        self,
        transactional_id: str,
        *,
        timeout_ms: int,
        expected: tuple[int, int] | None,
        aborted: Callable[[ErrorCode], None],
        two_phase: bool = False,
        keep: bool = False,
    ) -> tuple[Partition, Transaction] | None:
        """An instance of a producer begins: its id and epoch are those of `Transaction.client`, to
        be told when the partition is on the disk. None where a transaction is open: it is aborted,
        `aborted` is called with the code for the answer then, and the instance has to come again.

        KIP-939: transactions of a `two_phase` producer have no time-out; with `keep` one that is
        open stays so, for this instance to end.

        Raises NeededFirst; KafkaError: INVALID_REQUEST, TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        UNSUPPORTED_VERSION, INVALID_TRANSACTION_TIMEOUT, PRODUCER_FENCED, CONCURRENT_TRANSACTIONS,
        and those of `shard`.
        """
        if not transactional_id:
            raise KafkaError("an empty transactional id", code=ErrorCode.INVALID_REQUEST)
        timeout_ms = self._allowed(timeout_ms, two_phase=two_phase, keep=keep)
        self.require_topic()
        shard, now_ms = self.shard(transactional_id), self._wall_ms()
        now = shard.get(transactional_id)
        if now is None:
            now = machine.first(self._producer_ids.new(), timeout_ms, now_ms)
        if transactional_id in shard.ending:
            raise KafkaError(code=ErrorCode.CONCURRENT_TRANSACTIONS)
        after = machine.initialized(
            now,
            timeout_ms=timeout_ms,
            expected=None if expected is None else machine.Expected(*expected),
            new_producer_id=self._producer_ids.new,
            transaction_version=self._transaction_version(),
            now_ms=now_ms,
            keep=keep,
        )
        if after.state in machine.PREPARED:

            def done(code: ErrorCode, producer_id: int, epoch: int) -> None:
                aborted(code or ErrorCode.CONCURRENT_TRANSACTIONS)

            self._decide(shard, transactional_id, after, done)
            return None
        self.ends.write(shard, transactional_id, after)
        if after.state is machine.ONGOING:
            self._watch(transactional_id, after)
        return shard.partition, after

    def _allowed(self, timeout_ms: int, *, two_phase: bool, keep: bool) -> int:
        """The time-out that a producer gets which asks for this, in ms. Raises KafkaError."""
        settings = self._settings.current
        if two_phase and not settings.transaction_two_phase_commit_enable:
            raise KafkaError(
                "a two-phase commit, and transaction.two.phase.commit.enable is false",
                code=ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
            )
        level = self._transaction_version()
        if keep and level < FLEXIBLE_VALUE:
            raise KafkaError(
                f"a transaction is kept at transaction.version {FLEXIBLE_VALUE}, this is {level}",
                code=ErrorCode.UNSUPPORTED_VERSION,
            )
        if two_phase:
            return machine.NO_TIMEOUT_MS
        most_ms = settings.transaction_max_timeout_ms
        if not 0 < timeout_ms <= most_ms:
            raise KafkaError(
                f"a transaction timeout of {timeout_ms} ms, wanted 1 to {most_ms}",
                code=ErrorCode.INVALID_TRANSACTION_TIMEOUT,
            )
        return timeout_ms

    # Partitions

    def add(
        self,
        transactional_id: str,
        producer_id: int,
        epoch: int,
        partitions: Sequence[tuple[str, int]],
        *,
        client_version: int,
    ) -> None:
        """Make these partitions part of the transaction, which begins with the first of them.

        The record is in the file and need not be on the disk: Prepare names all partitions again,
        and a start goes by what is open in them. Raises KafkaError as `known` and `machine.added`,
        COORDINATOR_NOT_AVAILABLE when the disk refuses.
        """
        shard, now = self.known(transactional_id)
        after = machine.added(
            now,
            producer_id,
            epoch,
            partitions,
            pending=transactional_id in shard.ending,
            client_version=client_version,
            now_ms=self._wall_ms(),
        )
        if after is not None:
            self.ends.write(shard, transactional_id, after)
            if now.state is not machine.ONGOING:
                self._watch(transactional_id, after)

    def verify(
        self,
        transactional_id: str,
        producer_id: int,
        epoch: int,
        partitions: Sequence[tuple[str, int]],
        *,
        add: bool,
    ) -> None:
        """See TransactionCoordinator.verify; an old epoch is PRODUCER_FENCED here."""
        if add:
            self.add(transactional_id, producer_id, epoch, partitions, client_version=machine.TV2)
            return
        missing = self.missing(transactional_id, producer_id, epoch, partitions)
        if missing:
            topic, index = missing[0]
            raise KafkaError(
                f"{topic}-{index} is not part of the transaction of {transactional_id!r}",
                code=ErrorCode.TRANSACTION_ABORTABLE,
            )

    def missing(
        self,
        transactional_id: str,
        producer_id: int,
        epoch: int,
        partitions: Sequence[tuple[str, int]],
    ) -> list[tuple[str, int]]:
        """Those of these partitions that are not part of the open transaction. Raises KafkaError as
        `known` and `machine.verify`."""
        shard, now = self.known(transactional_id)
        pending = transactional_id in shard.ending
        added = machine.verify(now, producer_id, epoch, pending=pending)
        return [place for place in partitions if place not in added]

    # Ends

    def end(
        self,
        transactional_id: str,
        producer_id: int,
        epoch: int,
        *,
        commit: bool,
        client_version: int,
        done: Done,
    ) -> None:
        """Commit or abort; `done` is called, now or later, when that can be told.

        Raises NeededFirst; KafkaError as `known` and `machine.ended`, COORDINATOR_NOT_AVAILABLE
        when the disk refuses: nothing is decided then.
        """
        shard, now = self.known(transactional_id)
        after = machine.ended(
            now,
            producer_id,
            epoch,
            commit=commit,
            pending=transactional_id in shard.ending,
            client_version=client_version,
            new_producer_id=self._producer_ids.new,
            now_ms=self._wall_ms(),
        )
        if after is None:
            done(ErrorCode.NONE, now.producer_id, now.epoch)
        else:
            self._decide(shard, transactional_id, after, done)

    def _decide(
        self, shard: TransactionShard, transactional_id: str, decided: Transaction, done: Done
    ) -> None:
        self.ends.decide(shard, transactional_id, decided, done)
        self._deadlines_ms.pop(transactional_id, None)

    def adopt(
        self,
        shard: TransactionShard,
        transactional_id: str,
        now: Transaction,
        partitions: Sequence[tuple[str, int]],
    ) -> None:
        """Take these partitions, in which its producer has something open, for part of the
        transaction of this id. Raises KafkaError."""
        after = machine.joined(
            now, partitions, client_version=now.client_version, now_ms=self._wall_ms()
        )
        if after is not None:
            self.ends.write(shard, transactional_id, after)
            self._watch(transactional_id, after)

    # Time

    def _watch(self, transactional_id: str, now: Transaction) -> None:
        """A transaction is open: note when its time is up, if it has one."""
        if now.timeout_ms == machine.NO_TIMEOUT_MS:
            self._deadlines_ms.pop(transactional_id, None)
            return
        left_ms = now.start_ms + now.timeout_ms - self._wall_ms()
        self._deadlines_ms[transactional_id] = self.now_ms() + min(max(left_ms, 0), now.timeout_ms)

    def look_for_timed_out(self) -> None:
        """Abort the transactions whose time is up; their producers are fenced."""
        now_ms = self.now_ms()
        due = [one for one, deadline_ms in self._deadlines_ms.items() if deadline_ms < now_ms]
        for transactional_id in due:
            shard = self.shards[shard_number(transactional_id, len(self.shards))]
            now = shard.get(transactional_id)
            if now is None or now.state is not machine.ONGOING or transactional_id in shard.ending:
                self._deadlines_ms.pop(transactional_id)
                continue
            after = machine.fenced(
                now,
                new_producer_id=self._producer_ids.at_hand,
                transaction_version=self._transaction_version(),
                now_ms=self._wall_ms(),
            )
            try:
                self._decide(
                    shard, transactional_id, after, partial(self._aborted, transactional_id)
                )
            except KafkaError:
                continue  # which has been said; the disk may have room at the next look

    def _aborted(self, transactional_id: str, code: ErrorCode, _id: int, _epoch: int) -> None:
        if code is ErrorCode.NONE:
            self.aborted += 1
            logs.info("transaction aborted: its time was up", transactional_id=transactional_id)

    def look_for_expired(self) -> None:
        """Forget the ids that nobody has used for transactional.id.expiration.ms."""
        if not self._slicer.is_running:
            self._slicer.run(self._expire(), lambda: None, self._not_expired)

    def _expire(self) -> Iterator[None]:
        after_ms = self._settings.current.transactional_id_expiration_ms
        for shard in self.shards:
            if not shard.loaded:
                continue
            gone: list[str] = []
            for number, (transactional_id, now) in enumerate(shard.all()):
                if transactional_id not in shard.ending and machine.is_expired(
                    now, now_ms=self._wall_ms(), after_ms=after_ms
                ):
                    gone.append(transactional_id)
                if number % EXPIRY_STEP == EXPIRY_STEP - 1:
                    self._forget(shard, gone)
                    yield
            self._forget(shard, gone)
            yield

    def _forget(self, shard: TransactionShard, gone: list[str]) -> None:
        if gone:
            self.ends.forget(shard, gone)
            self.expired += len(gone)
            gone.clear()

    def _not_expired(self, error: Exception) -> None:
        """The next look begins anew."""
        if not isinstance(error, KafkaError):
            logs.fault_once_a_minute("expiration of transactional ids failed", error, "ids")
