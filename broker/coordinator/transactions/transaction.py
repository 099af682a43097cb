"""A transactional id as a machine: requests in, the next state or a refusal out.

    Empty -> Ongoing -> PrepareCommit -> CompleteCommit -> Ongoing or Empty, and the same with Abort

Nothing here writes, waits or reads a clock: whoever calls has what is returned written, and lets it
be the state when that has come about. Two generations share these states.

    TV1  the epoch grows when a producer begins (InitProducerId); partitions are added before they
         are written to. An end leaves the epoch as it is.
    TV2  the epoch grows with every end (KIP-890), so that nothing of the last transaction can be
         taken for part of the next. Who has written nothing may abort all the same.

A producer that takes part in a two-phase commit (KIP-939) has no time-out, and the next instance
may keep the transaction that it finds open, to commit or abort it by what the other parties say.
That instance has an id and epoch of its own, the open transaction those with which it was begun:
`client` tells the one, `producer_id` and `epoch` the other.

An end goes by the version of the client's request. Where no client asks (another instance has come,
the time is up) it goes by the cluster's `transaction.version`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from protocol.errors import ErrorCode, KafkaError
from protocol.logdata.transactions import TransactionLogValue, TransactionState

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

NO_PRODUCER_ID = NO_EPOCH = NO_TIME = -1
LAST_EPOCH = 2**15 - 1
"""Never a producer's own: so that one with the epoch before can still be fenced."""
NO_TIMEOUT_MS = 2**31 - 1
"""Of a producer that takes part in a two-phase commit: time never aborts its transactions."""
TV1, TV2 = 0, 2
"""The generation as `client_transaction_version` tells it."""

Partitions = dict[tuple[str, int], None]
"""Topic and partition, in the order in which they were added. Never changed in place."""

EMPTY, ONGOING = TransactionState.EMPTY, TransactionState.ONGOING
PREPARED = frozenset({TransactionState.PREPARE_COMMIT, TransactionState.PREPARE_ABORT})
COMPLETED = frozenset({TransactionState.COMPLETE_COMMIT, TransactionState.COMPLETE_ABORT})


class Transaction(NamedTuple):
    """A transactional id at one moment. Times in ms, moments since 1970.

    `producer_id` and `epoch` are those of its batches and markers. `next_producer_id` and
    `next_epoch` are what an instance was given that has kept a transaction, while that is open or
    being ended. Without `next_epoch`, `next_producer_id` takes over at the end.

    `last_epoch` is the one that the producer had before it asked for this one, and is not stored.
    The other fields are those of `TransactionLogValue`.
    """

    producer_id: int
    epoch: int
    timeout_ms: int
    update_ms: int
    state: TransactionState = EMPTY
    partitions: Partitions = {}  # noqa: RUF012 - never changed in place
    start_ms: int = NO_TIME
    previous_producer_id: int = NO_PRODUCER_ID
    next_producer_id: int = NO_PRODUCER_ID
    last_epoch: int = NO_EPOCH
    client_version: int = TV1
    next_epoch: int = NO_EPOCH

    @property
    def is_kept(self) -> bool:
        """Whether the transaction was begun by another instance than the one that may end it."""
        return self.next_epoch != NO_EPOCH

    @property
    def client(self) -> tuple[int, int]:
        """The producer id and epoch of the last instance, which it has in its requests."""
        if self.next_epoch != NO_EPOCH:
            return self.next_producer_id, self.next_epoch
        return self.producer_id, self.epoch

    @property
    def is_commit(self) -> bool:
        """Whether the end that was decided is a commit."""
        return self.state in (TransactionState.PREPARE_COMMIT, TransactionState.COMPLETE_COMMIT)

    @property
    def is_exhausted(self) -> bool:
        """Whether no epoch is left for another instance with this id."""
        return is_exhausted(self.client[1])

    def becoming(self, state: TransactionState, now_ms: int, **changes: Any) -> Transaction:
        """The same in another state. The time of the update only grows, whatever the clock says."""
        changes.setdefault("previous_producer_id", self.client[0])
        return self._replace(state=state, update_ms=max(now_ms, self.update_ms), **changes)


class Expected(NamedTuple):
    """The producer id and epoch that an instance says it has (InitProducerId v3, KIP-360)."""

    producer_id: int
    epoch: int


def is_exhausted(epoch: int) -> bool:
    """Whether an epoch is the last that a producer may have."""
    return epoch >= LAST_EPOCH - 1


def first(producer_id: int, timeout_ms: int, now_ms: int) -> Transaction:
    """An id of which nothing is known; it has no epoch before `initialized`."""
    return Transaction(producer_id, NO_EPOCH, timeout_ms, now_ms)


# InitProducerId


def initialized(
    now: Transaction,
    *,
    timeout_ms: int,
    expected: Expected | None,
    new_producer_id: Callable[[], int],
    transaction_version: int,
    now_ms: int,
    keep: bool = False,
) -> Transaction:
    """An instance begins, or goes on after an error: its id and epoch are those of `client`.

    Where a transaction is open the result is its abort, in an epoch that fences whoever opened it;
    the instance has to come again. With `keep` it stays open, for this instance to end. Raises
    KafkaError: PRODUCER_FENCED for an instance that is not the last, CONCURRENT_TRANSACTIONS while
    an end is under way.
    """
    if expected is not None and not _may_be_last(now, expected):
        raise _fenced(now, expected.producer_id, expected.epoch)
    if now.state in PREPARED:
        raise _concurrent()
    if now.state is ONGOING and not keep:
        return fenced(
            now,
            new_producer_id=new_producer_id,
            transaction_version=transaction_version,
            now_ms=now_ms,
        )
    producer_id, epoch = now.client
    if now.is_exhausted and (expected is None or expected.epoch == epoch):
        last_epoch = NO_EPOCH if expected is None else epoch
        producer_id, epoch = new_producer_id(), 0
    else:
        epoch, last_epoch = _next_epoch(now, expected)
    if now.state is ONGOING:
        return now.becoming(
            ONGOING,
            now_ms,
            next_producer_id=producer_id,
            next_epoch=epoch,
            last_epoch=last_epoch,
            # What was prepared is not aborted because who comes for it has less time.
            timeout_ms=max(now.timeout_ms, timeout_ms),
        )
    return now.becoming(
        EMPTY,
        now_ms,
        producer_id=producer_id,
        epoch=epoch,
        last_epoch=last_epoch,
        timeout_ms=timeout_ms,
        partitions={},
        start_ms=NO_TIME,
    )


def _may_be_last(now: Transaction, expected: Expected) -> bool:
    """Whether this id can be that of the last instance. The one before counts where its epochs were
    used up: the answer with the new one may have been lost."""
    return (
        now.epoch == NO_EPOCH
        or expected.producer_id == now.client[0]
        or (expected.producer_id == now.previous_producer_id and is_exhausted(expected.epoch))
    )


def _next_epoch(now: Transaction, expected: Expected | None) -> tuple[int, int]:
    """The epoch of who begins, and the one it had. Raises KafkaError: PRODUCER_FENCED."""
    _, epoch = now.client
    if expected is None:
        return epoch + 1, NO_EPOCH
    if not now.is_exhausted and expected.epoch == epoch:
        return epoch + 1, epoch
    if epoch == NO_EPOCH:
        return 0, NO_EPOCH
    begun = now.state is ONGOING and not now.is_kept  # so the answer with the epoch has come
    if expected.epoch == now.last_epoch and epoch < LAST_EPOCH and not begun:
        return epoch, now.last_epoch  # it asks again, for its answer was lost
    raise _fenced(now, expected.producer_id, expected.epoch)


def fenced(
    now: Transaction,
    *,
    new_producer_id: Callable[[], int],
    transaction_version: int,
    now_ms: int,
) -> Transaction:
    """The abort of an open transaction that its producer has not asked for. The epoch is one that
    no producer has. Where `new_producer_id` gives none (-1), the next instance is given one."""
    if transaction_version < TV2:
        now = now._replace(epoch=min(now.epoch + 1, LAST_EPOCH), last_epoch=NO_EPOCH)
        if now.is_kept:
            now = now._replace(next_epoch=min(now.next_epoch + 1, LAST_EPOCH))
    return _prepared(
        now,
        commit=False,
        version=transaction_version,
        now_ms=now_ms,
        new_producer_id=new_producer_id,
    )


# Partitions


def added(
    now: Transaction,
    producer_id: int,
    epoch: int,
    partitions: Iterable[tuple[str, int]],
    *,
    pending: bool,
    client_version: int,
    now_ms: int,
) -> Transaction | None:
    """Partitions become part of the transaction, which begins with the first; None if they are.

    `pending` is whether an end is on its way to the disk. Raises KafkaError as `verify`.
    """
    verify(now, producer_id, epoch, pending=pending)
    return joined(now, partitions, client_version=client_version, now_ms=now_ms)


def joined(
    now: Transaction,
    partitions: Iterable[tuple[str, int]],
    *,
    client_version: int,
    now_ms: int,
) -> Transaction | None:
    """The same without a question who asks for it."""
    new = dict.fromkeys(partitions)
    if now.state is ONGOING and new.keys() <= now.partitions.keys():
        return None
    return now.becoming(
        ONGOING,
        now_ms,
        partitions={**now.partitions, **new},
        start_ms=now.start_ms if now.state is ONGOING else now_ms,
        client_version=client_version,
    )


def verify(now: Transaction, producer_id: int, epoch: int, *, pending: bool) -> Partitions:
    """The partitions of the open transaction of this producer; none if none is open.

    Raises KafkaError: INVALID_PRODUCER_ID_MAPPING, PRODUCER_FENCED, CONCURRENT_TRANSACTIONS,
    INVALID_TXN_STATE for one that was kept, to which nothing is added.
    """
    _check_producer(now, producer_id, epoch)
    if pending or now.state in PREPARED:
        raise _concurrent()
    if now.is_kept:
        raise KafkaError(
            "the transaction was prepared by another instance, and can only be ended",
            code=ErrorCode.INVALID_TXN_STATE,
        )
    return now.partitions


# Ends


def ended(
    now: Transaction,
    producer_id: int,
    epoch: int,
    *,
    commit: bool,
    pending: bool,
    client_version: int,
    new_producer_id: Callable[[], int],
    now_ms: int,
) -> Transaction | None:
    """The decision of EndTxn; None if it has been made and carried out already.

    Raises KafkaError: INVALID_PRODUCER_ID_MAPPING, PRODUCER_FENCED, INVALID_TXN_STATE where this
    end does not fit, CONCURRENT_TRANSACTIONS while one that fits is under way.
    """
    retry = False
    if client_version >= TV2:
        retry = _check_producer_of_tv2(now, producer_id, epoch)
    else:
        _check_producer(now, producer_id, epoch)
    if pending:
        raise _concurrent()
    if now.state is not ONGOING:
        if now.state in PREPARED and now.is_commit == commit:
            raise _concurrent()
        done = now.state in COMPLETED and now.is_commit == commit
        if done and (retry or client_version < TV2):
            return None
        if commit or retry or client_version < TV2 or now.state in PREPARED:
            what = "commit" if commit else "abort"
            raise KafkaError(
                f"a {what} in state {now.state.title}", code=ErrorCode.INVALID_TXN_STATE
            )
    return _prepared(
        now, commit=commit, version=client_version, now_ms=now_ms, new_producer_id=new_producer_id
    )


def _check_producer_of_tv2(now: Transaction, producer_id: int, epoch: int) -> bool:
    """Whether the end was asked for before: the epoch has grown since, or the id is another.

    Raises KafkaError: INVALID_PRODUCER_ID_MAPPING, PRODUCER_FENCED.
    """
    client_id, client_epoch = now.client
    same_id = producer_id == client_id
    after_overflow = (
        producer_id == now.previous_producer_id and epoch == LAST_EPOCH - 1 and client_epoch == 0
    )
    if not same_id and not after_overflow:
        raise _other_producer(now, producer_id)
    after_growth = client_epoch == epoch + 1
    if now.state in PREPARED:
        fits = after_growth or (after_overflow and now.is_kept)
    elif now.state in COMPLETED:
        fits = after_growth or after_overflow or epoch == client_epoch
    else:
        fits = epoch == client_epoch
    if not fits:
        raise _fenced(now, producer_id, epoch)
    return after_growth or after_overflow


def _prepared(
    now: Transaction,
    *,
    commit: bool,
    version: int,
    now_ms: int,
    new_producer_id: Callable[[], int],
) -> Transaction:
    """The decision. In TV2 the epoch of the markers grows, and that of the client: its own, too, if
    it is another."""
    grows = version >= TV2
    next_producer_id, next_epoch = now.next_producer_id, now.next_epoch
    if grows:
        next_producer_id = new_producer_id() if now.is_exhausted else NO_PRODUCER_ID
        if now.is_kept and next_producer_id != NO_PRODUCER_ID:
            next_epoch = 0
        elif now.is_kept:
            next_producer_id, next_epoch = now.next_producer_id, min(next_epoch + 1, LAST_EPOCH)
    return now.becoming(
        TransactionState.PREPARE_COMMIT if commit else TransactionState.PREPARE_ABORT,
        now_ms,
        epoch=min(now.epoch + 1, LAST_EPOCH) if grows else now.epoch,
        last_epoch=now.client[1] if grows else now.last_epoch,
        start_ms=now.start_ms if now.state is ONGOING else now_ms,
        next_producer_id=next_producer_id,
        next_epoch=next_epoch,
        client_version=TV2 if grows else TV1,
    )


def next_of(decided: Transaction) -> tuple[int, int]:
    """The producer id and epoch that the client has after an end that was prepared."""
    used_up = decided.client_version >= TV2 and decided.next_producer_id != NO_PRODUCER_ID
    return (decided.next_producer_id, 0) if used_up and not decided.is_kept else decided.client


def completed(now: Transaction, *, now_ms: int) -> Transaction:
    """All partitions have the marker of the end that was prepared."""
    assert now.state in PREPARED
    producer_id, epoch = next_of(now)
    previous_producer_id = now.previous_producer_id if now.is_kept else now.client[0]
    return now.becoming(
        TransactionState.COMPLETE_COMMIT if now.is_commit else TransactionState.COMPLETE_ABORT,
        now_ms,
        producer_id=producer_id,
        epoch=epoch,
        previous_producer_id=previous_producer_id,
        next_producer_id=NO_PRODUCER_ID,
        next_epoch=NO_EPOCH,
        partitions={},
    )


def is_expired(now: Transaction, *, now_ms: int, after_ms: int) -> bool:
    """Whether an id that nobody has used for so long may be forgotten."""
    return (now.state is EMPTY or now.state in COMPLETED) and now.update_ms <= now_ms - after_ms


# Refusals


def _check_producer(now: Transaction, producer_id: int, epoch: int) -> None:
    client_id, client_epoch = now.client
    if producer_id != client_id:
        raise _other_producer(now, producer_id)
    if epoch != client_epoch:
        raise _fenced(now, producer_id, epoch)


def _other_producer(now: Transaction, producer_id: int) -> KafkaError:
    return KafkaError(
        f"the producer id is {now.client[0]}, not {producer_id}",
        code=ErrorCode.INVALID_PRODUCER_ID_MAPPING,
    )


def _fenced(now: Transaction, producer_id: int, epoch: int) -> KafkaError:
    client_id, client_epoch = now.client
    return KafkaError(
        f"producer {producer_id} has epoch {epoch}, another instance has {client_epoch} "
        f"of producer {client_id}",
        code=ErrorCode.PRODUCER_FENCED,
    )


def _concurrent() -> KafkaError:
    return KafkaError(
        "the end of the last transaction is under way", code=ErrorCode.CONCURRENT_TRANSACTIONS
    )


# Records


def to_value(now: Transaction) -> TransactionLogValue:
    """The value of the record that says so."""
    partitions = None
    if now.state is not EMPTY:
        topics: dict[str, list[int]] = {}
        for topic, index in now.partitions:
            topics.setdefault(topic, []).append(index)
        schema = TransactionLogValue.PartitionsSchema
        partitions = [schema(topic=name, partition_ids=each) for name, each in topics.items()]
    return TransactionLogValue(
        producer_id=now.producer_id,
        previous_producer_id=now.previous_producer_id,
        next_producer_id=now.next_producer_id,
        producer_epoch=now.epoch,
        transaction_timeout_ms=now.timeout_ms,
        transaction_status=now.state,
        transaction_partitions=partitions,
        transaction_last_update_timestamp_ms=now.update_ms,
        transaction_start_timestamp_ms=now.start_ms,
        client_transaction_version=now.client_version,
        next_producer_epoch=now.next_epoch,
    )


def from_value(value: TransactionLogValue) -> Transaction:
    """The state that a record tells. Raises ValueError for a status that there is not."""
    return Transaction(
        value.producer_id,
        value.producer_epoch,
        value.transaction_timeout_ms,
        value.transaction_last_update_timestamp_ms,
        TransactionState(value.transaction_status),
        {
            (found.topic, index): None
            for found in value.transaction_partitions or ()
            for index in found.partition_ids
        },
        value.transaction_start_timestamp_ms,
        value.previous_producer_id,
        value.next_producer_id,
        NO_EPOCH,
        value.client_transaction_version,
        value.next_producer_epoch,
    )
