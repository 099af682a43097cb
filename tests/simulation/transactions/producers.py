"""Transactional producers of both generations, as state machines with one request at a time.

A producer commits what was acknowledged, and aborts where something was refused. What was not
answered it sends again, as it was, to the broker that has come back; or it is given up, and another
instance takes its transactional id. The old one may go on all the same: it is a zombie then.

Of the second generation some take part in two-phase commits (KIP-939): an instance that has written
all of a transaction may leave its end to the next one, which keeps it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from broker.coordinator.transactions.transaction import TV1, TV2
from protocol.errors import ErrorCode
from protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from protocol.messages.add_partitions_to_txn import AddPartitionsToTxnRequest, Topic
from protocol.messages.end_txn import EndTxnRequest
from protocol.messages.init_producer_id import InitProducerIdRequest
from protocol.messages.txn_offset_commit import TxnOffsetCommitRequest
from protocol.records.builder import build_batch
from tests.simulation.transactions.model import Status, Transaction, Written
from tests.support.caller import produce_request

if TYPE_CHECKING:
    import random
    from collections.abc import Callable

    from protocol.schema import Message
    from tests.simulation.transactions.machine import Asked
    from tests.simulation.transactions.world import World

TOPIC, PARTITIONS = "t", 3
SOURCE = "s"
OFFSETS_TOPIC = "__consumer_offsets"
TIMEOUT_MS = 60_000

AGAIN = frozenset({
    ErrorCode.CONCURRENT_TRANSACTIONS,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.NOT_ENOUGH_REPLICAS,
    ErrorCode.KAFKA_STORAGE_ERROR,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
})  # fmt: skip
"""Codes after which the same request is sent again."""
DEAD = frozenset({
    ErrorCode.PRODUCER_FENCED,
    ErrorCode.INVALID_PRODUCER_EPOCH,
    ErrorCode.INVALID_PRODUCER_ID_MAPPING,
    ErrorCode.INVALID_TXN_STATE,
    ErrorCode.UNKNOWN_PRODUCER_ID,
})  # fmt: skip
"""Codes after which an instance is of no use any more."""
TRIES_MAX = 12
UNKNOWN = -1, -1


def some_indexes(rng: random.Random) -> list[int]:
    return sorted(rng.sample(range(PARTITIONS), rng.choice((1, 1, 2, 3))))


class Pending:
    """A request that is not answered; `asked` is None when its broker died."""

    def __init__(
        self, request: Message, version: int, done: Callable[[Any], None], born: int
    ) -> None:
        self.request = request
        self.version = version
        self.done = done
        self.asked: Asked | None = None
        self.born = born
        """The count of steps when it was first sent."""
        self.tries = 0


class Producer:
    """One instance of a transactional id. `step` is called now and then."""

    def __init__(
        self, world: World, transactional_id: str, version: int, *, keeps: bool = False
    ) -> None:
        """`keeps`: it takes part in two-phase commits, and keeps what it finds open."""
        self.world = world
        self.keeps = keeps
        self.transactional_id = transactional_id
        self.version = version
        self.id, self.epoch = -1, -1
        self.open: Transaction | None = None
        self.pending: Pending | None = None
        self.dead = False
        self.must_abort = False
        self.fenced_at: int | None = None
        """The count of steps when a newer instance had begun: from then on all is refused."""
        self.sent_at = -1
        """The count of steps when the request was first sent that has been answered last."""
        self._added: set[int] = set()
        self._added_offsets = False
        self._sequences: dict[int, int] = {}
        self._sequences_lost = False
        self._kept = False
        """Whether `open` was begun by another instance."""

    @property
    def is_ready(self) -> bool:
        return self.id >= 0 and not self.dead

    def step(self, rng: random.Random) -> None:
        if self.dead:
            return
        if self.pending is not None:
            self._look(rng)
        elif self.id < 0:
            self._initialize()
        elif self.open is None:
            self.open = self.world.model.begin(self.transactional_id)
            self.world.opened[self.id, self.epoch] = self.open
            self.write(some_indexes(rng))
        elif self._kept:
            self.end(commit=rng.random() < 0.7)
        elif self.must_abort:
            self.end(commit=False)
        else:
            self._go_on(rng)

    def lose(self) -> None:
        """The broker has died."""
        if self.pending is not None:
            self.look_for_answer()
        if self.pending is not None:
            self.pending.asked = None

    def _look(self, rng: random.Random) -> None:
        pending = self.pending
        assert pending is not None
        if pending.asked is None:
            if rng.random() < 0.15:
                self.dead = True
            else:
                self._send(pending)
        else:
            self.look_for_answer()

    def look_for_answer(self) -> None:
        """Take the answer, if it has come."""
        pending = self.pending
        assert pending is not None
        asked = pending.asked
        if asked is not None and asked.is_refused:
            self.world.broken(f"{pending.request} closed the connection")
        if asked is not None and asked.answer is not None:
            self.pending = None
            pending.done(asked.answer)
            if self.pending is None:
                asked.hang_up()

    def _ask(self, request: Message, version: int, done: Callable[[Any], None]) -> None:
        self._send(Pending(request, version, done, self.world.count))

    def _send(self, pending: Pending) -> None:
        pending.tries += 1
        self.pending = pending
        pending.asked = None
        if self.world.is_up:
            pending.asked = self.world.machine.ask(pending.request, pending.version)

    def _repeat(self, request: Message, version: int, done: Callable[[Any], None]) -> None:
        """Later: as if its broker had died."""
        self.pending = Pending(request, version, done, self.world.count)

    def _verdict(self, code: int, again: Callable[[], None]) -> bool:
        """Whether a request was done; else what comes of that."""
        if code == ErrorCode.NONE:
            if self.fenced_at is not None and self.sent_at > self.fenced_at:
                self.world.broken(f"{self.transactional_id}: a zombie was not refused")
            return True
        self.world.refusals[ErrorCode(code).name] = (
            self.world.refusals.get(ErrorCode(code).name, 0) + 1
        )
        if code in DEAD:
            self.dead = True
        elif code in AGAIN:
            again()
        else:
            self.must_abort = True
            self._sequences_lost = True
        return False

    # Beginning

    def _initialize(self, expected: tuple[int, int] = UNKNOWN) -> None:
        request = InitProducerIdRequest(
            transactional_id=self.transactional_id,
            transaction_timeout_ms=TIMEOUT_MS,
            producer_id=expected[0],
            producer_epoch=expected[1],
            enable2_pc=self.keeps,
            keep_prepared_txn=self.keeps,
        )
        version = 6 if self.keeps else 5

        def done(answer: Any) -> None:
            # Who does not say what it had is the newest, whatever came before.
            self.sent_at = -1 if expected == UNKNOWN else born
            if self._verdict(answer.error_code, lambda: self._repeat(request, version, done)):
                self.id, self.epoch = answer.producer_id, answer.producer_epoch
                self._sequences = {}
                self._sequences_lost = False
                self.world.begun(self)
                found = answer.ongoing_txn_producer_id, answer.ongoing_txn_producer_epoch
                if found != UNKNOWN:
                    self._keep(self.world.opened[found])

        born = self.world.count
        self._ask(request, version, done)

    def _keep(self, found: Transaction) -> None:
        """This transaction was open, and its end is up to this instance, unless a newer one was
        told of it before."""
        if (self.id, self.epoch) < self.world.newest[self.transactional_id]:
            self.dead = True
            return
        self.open, self._kept = found, True
        found.is_kept, found.status = True, Status.OPEN
        self.world.totals.kept += 1

    # Within a transaction

    def _go_on(self, rng: random.Random) -> None:
        chance = rng.random()
        if chance < 0.4:
            self.write(some_indexes(rng))
        elif chance < 0.6:
            self.commit_offset()
        elif self.keeps and chance < 0.75:
            self.dead = True  # its transaction is prepared
            self.world.producers.append(
                Producer(self.world, self.transactional_id, self.version, keeps=True)
            )
        elif self._added or self._added_offsets:
            self.end(commit=rng.random() < 0.7)

    def write(self, indexes: list[int]) -> None:
        """A record to each of these partitions."""
        new = [index for index in indexes if index not in self._added]
        if self.version == TV2 or not new:
            self._produce(indexes)
            return
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self.transactional_id,
            v3_and_below_producer_id=self.id,
            v3_and_below_producer_epoch=self.epoch,
            v3_and_below_topics=[Topic(name=TOPIC, partitions=new)],
        )

        def done(answer: Any) -> None:
            codes = {
                entry.partition_error_code
                for topic in answer.results_by_topic_v3_and_below
                for entry in topic.results_by_partition
            }
            self.sent_at = born
            if self._verdict(max(codes), lambda: self._repeat(request, 3, done)):
                self._added.update(new)
                self._produce(indexes)

        born = self.world.count
        self._ask(request, 3, done)

    def _produce(self, indexes: list[int]) -> None:
        assert self.open is not None
        current, version = self.open, 12 if self.version == TV2 else 11
        values = {index: current.value() for index in indexes}
        born = self.world.count
        acknowledged: set[int] = set()
        request = self._produce_request(values)
        tried = 0

        def done(answer: Any) -> None:
            nonlocal tried
            tried += 1
            self.sent_at = born
            again = False

            def later() -> None:
                nonlocal again
                again = True

            for topic in answer.responses:
                for entry in topic.partition_responses:
                    if self._verdict(entry.error_code, later) and entry.index not in acknowledged:
                        acknowledged.add(entry.index)
                        self._added.add(entry.index)
                        place = (TOPIC, entry.index)
                        current.written.append(
                            Written(place, entry.base_offset, values[entry.index])
                        )
            if self.dead:
                return
            if again and not self.must_abort and tried < TRIES_MAX:
                self._repeat(request, version, done)
                return
            if again:
                self.must_abort = self._sequences_lost = True
            for index in acknowledged:
                self._sequences[index] = self._sequences.get(index, 0) + 1

        self._ask(request, version, done)

    def _produce_request(self, values: dict[int, bytes]) -> Message:
        sets = [
            (
                TOPIC,
                index,
                build_batch(
                    [(self.world.machine.now_ms, None, value, ())],
                    producer_id=self.id,
                    producer_epoch=self.epoch,
                    base_sequence=self._sequences.get(index, 0),
                    transactional=True,
                ),
            )
            for index, value in values.items()
        ]
        return produce_request(*sets, transactional_id=self.transactional_id, acks=-1)

    def commit_offset(self) -> None:
        if self.version == TV2 or self._added_offsets:
            self._send_offset()
            return
        request = AddOffsetsToTxnRequest(
            transactional_id=self.transactional_id,
            producer_id=self.id,
            producer_epoch=self.epoch,
            group_id=self.group,
        )

        def done(answer: Any) -> None:
            self.sent_at = born
            if self._verdict(answer.error_code, lambda: self._repeat(request, 3, done)):
                self._added_offsets = True
                self._send_offset()

        born = self.world.count
        self._ask(request, 3, done)

    @property
    def group(self) -> str:
        return f"group-of-{self.transactional_id}"

    def _send_offset(self) -> None:
        assert self.open is not None
        current, version = self.open, 5 if self.version == TV2 else 3
        current.has_sent_offset = True
        entry = TxnOffsetCommitRequest.Topic.Partition(
            partition_index=0,
            committed_offset=current.number,
            committed_metadata=str(current.number),
        )
        request = TxnOffsetCommitRequest(
            transactional_id=self.transactional_id,
            group_id=self.group,
            producer_id=self.id,
            producer_epoch=self.epoch,
            topics=[TxnOffsetCommitRequest.Topic(name=SOURCE, partitions=[entry])],
        )

        def done(answer: Any) -> None:
            self.sent_at = born
            code = answer.topics[0].partitions[0].error_code
            if self._verdict(code, lambda: self._repeat(request, version, done)):
                self._added_offsets = True
                current.offset_place = self.world.offsets_place(self.group)

        born = self.world.count
        self._ask(request, version, done)

    # Ends

    def end(self, *, commit: bool) -> None:
        assert self.open is not None
        current, version = self.open, 5 if self.version == TV2 else 4
        if not commit and not self._added and not self._added_offsets and self.version == TV1:
            self.dead = True  # nothing is known to be open; another instance sees to it
            return
        request = EndTxnRequest(
            transactional_id=self.transactional_id,
            producer_id=self.id,
            producer_epoch=self.epoch,
            committed=commit,
        )
        taken_over = current.is_kept and self.fenced_at is not None
        if commit and not taken_over:
            current.status = Status.ASKED
        unsure = False

        def later() -> None:
            nonlocal unsure
            unsure = True
            self._repeat(request, version, done)

        def done(answer: Any) -> None:
            self.sent_at = born
            first = not unsure and asking.tries == 1
            if self._verdict(answer.error_code, later):
                self.world.told_end(current, commit=commit)
                self._next(answer)
            elif self.pending is None:
                self.dead = True
                if commit and first and not (current.is_kept and self.fenced_at is not None):
                    current.status = Status.OPEN  # it was refused, and never decided

        born = self.world.count
        asking = Pending(request, version, done, born)
        self._send(asking)

    def _next(self, answer: Any) -> None:
        self.open, self.must_abort, self._kept = None, False, False
        self._added, self._added_offsets = set(), False
        if self.version == TV2:
            self.id, self.epoch = answer.producer_id, answer.producer_epoch
            self._sequences = {}
            self._sequences_lost = False
        elif self._sequences_lost:
            expected = self.id, self.epoch
            self.id = -1
            self._initialize(expected)
