"""Produced sets that take longer to check or to rebuild than the loop can spare.

They are prepared on a thread, one after the other, and then appended on the loop. The connection
starts no other request meanwhile, so a producer's sets are stored in the order it sent them.

What expands further than most sets do goes to a second thread, and nobody but its like waits for
it: a thousand sets of a hundred MiB would else hold up those of a hundred KiB for minutes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from broker import clock, logs
from broker.partitions.disk_state import DISK_FULL
from broker.pending import Waiting
from broker.producing.transactions import no_transactional_id
from broker.workers import MOST_EXPAND_BYTES
from protocol.errors import ErrorCode, KafkaError
from protocol.records.layout import ATTRIBUTES, LENGTH, PRODUCER_ID, TRANSACTIONAL_BIT
from protocol.records.prepare import Prepared, TooMuch, prepare
from storage.errors import StorageError

if TYPE_CHECKING:
    from collections.abc import Callable

    from broker.partitions.disk_state import DiskState
    from broker.partitions.topic import Partition
    from broker.pending import Requester
    from broker.producing.appends import Appends
    from broker.producing.transactions import ProduceTransaction
    from broker.workers import Worker
    from protocol.connection import Request
    from protocol.messages.produce import ProduceResponse
    from protocol.records.layout import Header
    from protocol.single_produce import SingleAnswer

    PartitionResult = ProduceResponse.Topic.Partition


AGAIN_ON_LOOP_BYTES = 262_144
"""A set that has to be prepared once more, since its log has grown, is prepared on the loop up to
here: nobody can append meanwhile."""

TRIES = 3
"""Preparations of a larger one on a thread. Then the loop stands still for it, unless it expands
further than most: the producer of such a one is told to try again."""


def is_new(
    partition: Partition,
    header: Header,
    entry: PartitionResult | SingleAnswer,
    appends: Appends,
    transaction: ProduceTransaction | None,
) -> bool:
    """Whether a batch with a producer id is to be appended. False if its producer has sent it
    before; then the entry tells what it was told that time.

    Raises KafkaError for a batch that is out of sequence, or may not join its transaction.
    """
    if header[ATTRIBUTES] & TRANSACTIONAL_BIT:
        if transaction is None:
            raise no_transactional_id()
        transaction.admit(partition, header)
    if header[PRODUCER_ID] < 0:
        return True
    duplicate = partition.log.producers.check(header)
    if duplicate is None:
        return True
    entry.base_offset = duplicate.base_offset
    if partition.topic.rules.log_append_time:
        entry.log_append_time_ms = duplicate.timestamp
    appends.add(partition, entry, 0)
    return False


def append_prepared(
    partition: Partition,
    prepared: Prepared | None,
    entry: PartitionResult | SingleAnswer,
    now_ms: int,
    appends: Appends,
    disk: DiskState,
    transaction: ProduceTransaction | None = None,
) -> None:
    """Queue a prepared set and fill in its entry of the answer. None stands for an empty set,
    which succeeds without an offset. Raises KafkaError."""
    if prepared is None:
        return
    log = partition.log
    messages = prepared.messages
    if messages is not None:
        if disk.full:
            raise StorageError(DISK_FULL)
        entry.base_offset = log.append_messages(messages, now_ms=now_ms)
        size = messages.size
    else:
        if not is_new(partition, prepared.batches[0][1], entry, appends, transaction):
            return
        if disk.full:
            raise StorageError(DISK_FULL)
        entry.base_offset = log.append_batches(prepared.batches, now_ms=now_ms)
        size = sum(header[LENGTH] + 12 for _, header in prepared.batches)
    if partition.topic.rules.log_append_time:
        entry.log_append_time_ms = now_ms
    appends.rebuilt += prepared.rebuilt
    appends.add(partition, entry, size)


class Preparation(NamedTuple):
    """The parts that preparing uses: `converter` is the thread for most sets, `expander` that for
    sets that expand far."""

    converter: Worker
    expander: Worker
    appends: Appends
    disk: DiskState


class Deferred:
    """One partition's set that waits to be prepared. It is copied, because the connection goes on
    reading into the buffer it came in; a connection has at most one request of these."""

    __slots__ = ("entry", "partition", "prepared", "view")

    def __init__(self, partition: Partition, view: memoryview, entry: PartitionResult) -> None:
        self.partition = partition
        self.view = memoryview(bytearray(view))
        self.entry = entry
        self.prepared: Prepared | KafkaError | TooMuch | None = None


class PrepareWait(Waiting):
    """A Produce request that waits for its deferred sets.

    `response` is the answer whose entries are filled in; `finished` makes the request's result of
    the partitions that were appended to. Whether transactional sets may join their `transaction` is
    asked when they are prepared: it may have ended meanwhile.
    """

    __slots__ = (
        "_deferred",
        "_finished",
        "_gone",
        "_now_ms",
        "_preparation",
        "_refuse",
        "_transaction",
        "_tries",
        "_version",
        "response",
    )

    def __init__(
        self,
        preparation: Preparation,
        response: ProduceResponse,
        deferred: list[Deferred],
        *,
        version: int,
        now_ms: int,
        transaction: ProduceTransaction | None,
        refuse: Callable[[Deferred, KafkaError], None],
        finished: Callable[[list[Partition]], Any],
    ) -> None:
        self._preparation = preparation
        self.response = response
        self._deferred = deferred
        self._version = version
        self._now_ms = now_ms
        self._transaction = transaction
        self._refuse = refuse
        self._finished = finished
        self._gone = False
        self._tries = 0

    def start(self, connection: Requester, request: Request) -> None:
        super().start(connection, request)
        self._run(self._preparation.converter, self._deferred, MOST_EXPAND_BYTES, self._tried)

    def _run(
        self,
        worker: Worker,
        deferred: list[Deferred],
        expand_max: int | None,
        done: Callable[[None], None],
    ) -> None:
        """Prepare these sets on a thread."""
        jobs = [(one, one.partition.log.next_offset) for one in deferred]

        def work() -> float:
            began_s = clock.thread_s()
            for one, next_offset in jobs:
                one.prepared = self._prepare(one, next_offset, expand_max)
            return clock.thread_s() - began_s

        def worked(seconds: float) -> None:
            self.worked(seconds)
            done(None)

        worker.run(work, worked)

    def _tried(self, nothing: None) -> None:
        """Have those prepared at leisure that are larger than most, or append."""
        large = [one for one in self._deferred if isinstance(one.prepared, TooMuch)]
        if large:
            self._run(self._preparation.expander, large, None, self._append)
        else:
            self._append(None)

    def finish(self) -> None:
        """The broker stops: the answer comes when the sets are appended, and not before."""

    def cancel(self) -> None:
        """The client is gone. What it sent was complete, and is stored all the same."""
        self._gone = True

    def _prepare(
        self, one: Deferred, next_offset: int, expand_max: int | None
    ) -> Prepared | KafkaError | TooMuch | None:
        try:
            return prepare(
                one.view,
                one.partition.topic.rules,
                version=self._version,
                now_ms=self._now_ms,
                next_offset=next_offset,
                expand_max=expand_max,
            )
        except TooMuch as error:
            error.__context__ = error.__cause__ = None
            return error.with_traceback(None)
        except KafkaError as error:
            # Without the trace, which would keep all that was expanded.
            error.__context__ = error.__cause__ = None
            return error.with_traceback(None)
        except Exception as error:
            logs.fault_once_a_minute("a set could not be prepared", error, one.partition.topic.name)
            return KafkaError(str(error), code=ErrorCode.UNKNOWN_SERVER_ERROR)

    def _up_to_date(
        self, one: Deferred, expand_max: int | None
    ) -> Prepared | KafkaError | TooMuch | None:
        """The prepared set, or prepared once more. A compressed set of format 0 has its offsets
        inside, and somebody may have appended meanwhile; nobody can while the loop stands still."""
        prepared, next_offset = one.prepared, one.partition.log.next_offset
        if isinstance(prepared, Prepared) and prepared.built_for not in (None, next_offset):
            return self._prepare(one, next_offset, expand_max)
        return prepared

    def _append(self, nothing: None) -> None:
        preparation = self._preparation
        self._tries += 1
        if self._tries < TRIES:
            for one in self._deferred:
                one.prepared = self._up_to_date(one, AGAIN_ON_LOOP_BYTES)
            large = [one for one in self._deferred if isinstance(one.prepared, TooMuch)]
            if large:
                self._run(self._preparation.expander, large, None, self._append)
                return
        appended: list[Partition] = []
        for one in self._deferred:
            # Others were faster each time, or one of this request has gone before it.
            prepared = self._up_to_date(one, MOST_EXPAND_BYTES)
            if isinstance(prepared, TooMuch):
                prepared = KafkaError(
                    "the log kept growing while a compressed set of format 0 was made for its end",
                    code=ErrorCode.REQUEST_TIMED_OUT,
                )
            if isinstance(prepared, KafkaError):
                self._refuse(one, prepared)
                continue
            try:
                append_prepared(
                    one.partition,
                    prepared,
                    one.entry,
                    self._now_ms,
                    preparation.appends,
                    preparation.disk,
                    self._transaction,
                )
                appended.append(one.partition)
            except KafkaError as error:
                self._refuse(one, error)
        result = self._finished(appended)
        if self._gone:
            preparation.appends.write()
        else:
            self.connection.finish_waiting(self.request, result)
