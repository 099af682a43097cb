"""The open transactions of all partitions of a directory, compared with `__transaction_state`.

A transaction *hangs* if it is open in a partition and its coordinator will not end it there. The
state topic alone decides: whether the time of a transaction is up is for the next start to see.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from protocol.logdata.transactions import (
    TransactionLogValue,
    TransactionState,
    UnknownRecord,
    decode_ends,
    decode_value,
)
from storage.inspection.findings import Report
from storage.inspection.transaction_states import PREPARED, STATE_TOPIC
from storage.layout import partition_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from storage.inspection.findings import Finding
    from storage.inspection.partition_check import PartitionCheck
    from storage.inspection.transaction_states import Stored, TransactionStates
    from storage.metadata.image import MetadataImage

    Place = tuple[str, int]

OPEN_MAX = 100_000
"""Open transactions that are compared."""

ONGOING = TransactionState.ONGOING
EPOCH_GROWS_SINCE = 2
"""The generation of clients whose ends have an epoch above that of their batches (KIP-890)."""

BY_TRIGLOT = "a start of triglot ends it, Apache Kafka never does"


class Opened(NamedTuple):
    """Something open in a partition, since an offset."""

    place: Place
    folder: str
    producer_id: int
    epoch: int
    since: int
    led_in: int
    """The leader epoch since when, -1 where that is not known."""


class Decoded(NamedTuple):
    """The last record of a transactional id."""

    value: TransactionLogValue
    state: TransactionState
    places: list[Place]


class TransactionsCheck:
    """Is told of each partition when it has been gone through (`take`); `finish` compares."""

    def __init__(self, now_ms: int | None) -> None:
        """`now_ms` is the time by which a time-out is up; None leaves that out."""
        self._now_ms = now_ms
        self._opened: list[Opened] = []
        self._too_many = False
        self._states: dict[int, tuple[str, TransactionStates]] = {}
        self._all_there = True
        """Whether the state topic was read whole, as far as it is here."""

    def take(self, check: PartitionCheck) -> None:
        """A partition has been gone through."""
        place = partition_of(check.name)
        if place is None:
            return
        if check.states is not None:
            self._states[place[1]] = check.name, check.states
            self._all_there &= check.states.complete and not check.damages
            return
        for producer_id, since in check.watch.open.items():
            known = check.watch.states[producer_id]
            # Of what lies below the log start as a whole a broker may know nothing.
            if max(since, known.last_offset) < check.log_start:
                continue
            if len(self._opened) >= OPEN_MAX:
                self._too_many = True
                return
            led_in = check.watch.led_in.get(producer_id, -1)
            self._opened.append(Opened(place, check.name, producer_id, known.epoch, since, led_in))

    def finish(self, metadata: MetadataImage | None) -> Iterator[Finding]:
        """Compare. `metadata` tells whether the whole state topic is here."""
        owners = self._owners()
        for folder, states in self._states.values():
            yield from self._unfinished(folder, states)
        knows_all = self._all_there and self._is_whole(metadata)
        reports: dict[str, Report] = {}
        for opened in self._opened:
            report = reports.setdefault(opened.folder, Report(opened.folder))
            owner = owners.get(opened.producer_id)
            if owner is None:
                if knows_all:
                    _hangs(opened, "no transactional id has this producer id", report)
            else:
                _compare(opened, *owner, report)
        for report in reports.values():
            report.end_file()
            yield from report.taken()
        if self._too_many:
            report = Report()
            reason = f"more than {OPEN_MAX} transactions are open; the others were not compared"
            report.note("open-transactions", reason)
            yield from report.taken()

    def _owners(self) -> dict[int, tuple[str, TransactionStates]]:
        """The transactional ids by their producer ids. One whose epochs are used up has another
        since its last end."""
        owners: dict[int, tuple[str, TransactionStates]] = {}
        if not self._opened:
            return owners
        for _, states in self._states.values():
            for transactional_id, stored in states.last.items():
                owners[stored.producer_id] = transactional_id, states
        for _, states in self._states.values():
            for transactional_id, ends in states.ends.items():
                for stored in ends:
                    owners.setdefault(stored.producer_id, (transactional_id, states))
        return owners

    def _is_whole(self, metadata: MetadataImage | None) -> bool:
        """Whether all partitions of the state topic are in this directory; none, if nothing was
        ever a transaction of this cluster."""
        if metadata is None:
            return False
        topic = metadata.topics.get(STATE_TOPIC)
        return topic is None or topic.partitions.keys() <= self._states.keys()

    def _unfinished(self, folder: str, states: TransactionStates) -> Iterator[Finding]:
        """The ids whose transaction the next start ends by itself, and those nobody can read."""
        report = Report(folder)
        for transactional_id, stored in states.last.items():
            if stored.state not in PREPARED and stored.state is not ONGOING:
                continue
            try:
                value = decode_value(stored.value)
            except UnknownRecord as error:
                reason = f"'{transactional_id}': {error}; a start passes over it"
                report.warn("transaction-state", reason, offset=stored.offset)
                continue
            if stored.state in PREPARED:
                count = sum(len(one.partition_ids) for one in value.transaction_partitions or ())
                report.note(
                    "unfinished-end",
                    f"'{transactional_id}' is in state {stored.state.title}, in {count} "
                    f"partition{'s'[: count != 1]}: the next start finishes it",
                    offset=stored.offset,
                )
            elif self._is_time_up(value):
                report.note(
                    "time-out",
                    f"'{transactional_id}' has had a transaction open for longer than its "
                    f"{value.transaction_timeout_ms} ms: the next start aborts it",
                    offset=stored.offset,
                )
        report.end_file()
        yield from report.taken()

    def _is_time_up(self, value: TransactionLogValue) -> bool:
        until_ms = value.transaction_start_timestamp_ms + value.transaction_timeout_ms
        return self._now_ms is not None and until_ms < self._now_ms


def _compare(
    opened: Opened, transactional_id: str, states: TransactionStates, report: Report
) -> None:
    """What is open in a partition, with the id that its producer has."""
    now = _decoded(states.last[transactional_id])
    if now is None:
        return  # which has been said
    epoch, state = now.value.producer_epoch, now.state.title
    same_producer = now.value.producer_id == opened.producer_id
    # The epoch of an end that is under way may be one of its own.
    fits = now.state in PREPARED or (now.state is ONGOING and opened.epoch == epoch)
    if same_producer and fits and opened.place in now.places:
        return
    if any(_was_ended(opened, end) for end in states.ends.get(transactional_id, ())):
        report.warn(
            "marker-missing",
            f"the transaction of producer {opened.producer_id}, open since offset {opened.since}, "
            f"was ended by '{transactional_id}' (now {state}) and has no marker: a start of "
            f"triglot writes it, with Apache Kafka readers of committed records stop there",
            offset=opened.since,
        )
    elif same_producer and opened.epoch > epoch:
        _hangs(opened, f"'{transactional_id}' is in epoch {epoch}", report)
    elif same_producer and opened.epoch == epoch:
        what = "names other partitions" if now.state is ONGOING else f"is in state {state}"
        _hangs(opened, f"'{transactional_id}' {what}; {BY_TRIGLOT}", report, taken=True)
    else:
        reason = f"'{transactional_id}' has gone on to epoch {epoch}; {BY_TRIGLOT}"
        _hangs(opened, reason, report, taken=True)


def _was_ended(opened: Opened, end: Stored) -> bool:
    """Whether an end that was decided is that of what is open, by the rule of a start. Apache Kafka
    does not note up to which offset and leader epoch an end reaches; with it an end that is
    complete had all its markers."""
    if end.ends is None or end.producer_id != opened.producer_id:
        return False
    decoded = _decoded(end)
    if decoded is None or opened.place not in decoded.places:
        return False
    value = decoded.value
    grown = value.client_transaction_version >= EPOCH_GROWS_SINCE
    reached = decode_ends(end.ends, len(decoded.places))
    if reached is None or opened.epoch > value.producer_epoch - grown:
        return False
    offset, epoch = reached[decoded.places.index(opened.place)]
    return opened.since < offset and opened.led_in <= epoch


def _decoded(stored: Stored) -> Decoded | None:
    try:
        value = decode_value(stored.value)
    except UnknownRecord:
        return None
    places = [
        (found.topic, index)
        for found in value.transaction_partitions or ()
        for index in found.partition_ids
    ]
    return Decoded(value, stored.state, places)


def _hangs(opened: Opened, why: str, report: Report, *, taken: bool = False) -> None:
    """`taken` is whether a start of ours ends it by itself."""
    command = (
        f"triglot transactions abort --topic-partition {opened.folder} "
        f"--start-offset {opened.since}"
    )
    report.warn(
        "hanging-transaction",
        f"producer {opened.producer_id}, epoch {opened.epoch}, has a transaction open since offset "
        f"{opened.since} that nobody has in hand: {why}" + ("" if taken else f"; {command}"),
        offset=opened.since,
    )
