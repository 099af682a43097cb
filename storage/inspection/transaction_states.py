"""The records of `__transaction_state`, as far as a check needs them: the last of each id.

A start of ours passes over what it does not understand; Apache Kafka 3.9 goes on loading for ever.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from protocol.logdata.transactions import (
    ENDS_HEADER,
    TransactionState,
    UnknownRecord,
    decode_key,
    glance,
)
from protocol.records.batch import Batch
from protocol.records.errors import InvalidRecord
from protocol.records.layout import CONTROL_BIT

if TYPE_CHECKING:
    from collections.abc import Iterator

    from protocol.records.record import Record

STATE_TOPIC = "__transaction_state"

IDS_MAX = 1_000_000
"""Transactional ids of one partition that are followed; some 500 bytes of memory each."""

PREPARED = frozenset({TransactionState.PREPARE_COMMIT, TransactionState.PREPARE_ABORT})
_KNOWN = frozenset(TransactionState)
ENDS_MAX = 16
"""Decided ends of one id that are followed, the last ones."""


class Stored(NamedTuple):
    """The value of a record, not decoded, with the record's offset and what is at its head. `ends`
    is the header with the next offsets of the partitions of an end, None if it has none."""

    offset: int
    producer_id: int
    state: TransactionState
    value: bytes
    ends: bytes | None = None


class TransactionStates:
    """One partition, batch by batch: the last record of each id, and its last decided ends.

    `complete` is False if not all ids could be followed.
    """

    def __init__(self) -> None:
        self.last: dict[str, Stored] = {}
        self.ends: dict[str, list[Stored]] = {}
        self.complete = True

    def feed(self, data: bytes | memoryview) -> Iterator[tuple[int, str]]:
        """Take in a whole, intact batch of format 2. Yields offset and fault of each record that
        makes no sense."""
        batch = Batch(memoryview(data))
        if batch.attributes & CONTROL_BIT:
            return
        try:
            for record in batch.records():
                fault = self._record(record)
                if fault:
                    self.complete = False
                    yield record.offset, fault
        except InvalidRecord as error:
            self.complete = False
            yield batch.base_offset, str(error)

    def _record(self, record: Record) -> str:
        try:
            transactional_id = decode_key(record.key)
            if record.value is None:
                self.last.pop(transactional_id, None)
                self.ends.pop(transactional_id, None)
                return ""
            value = bytes(record.value)
            producer_id, status = glance(value)
        except UnknownRecord as error:
            return str(error)
        if status not in _KNOWN:
            return f"state {status} of '{transactional_id}', known are 0 to 7"
        if transactional_id not in self.last and len(self.last) >= IDS_MAX:
            self.complete = False
            return ""
        state = TransactionState(status)
        stored = Stored(record.offset, producer_id, state, value)
        self.last[transactional_id] = stored
        if state in PREPARED:
            decided = self.ends.setdefault(transactional_id, [])
            decided.append(stored._replace(ends=dict(record.headers).get(ENDS_HEADER)))
            del decided[:-ENDS_MAX]
        return ""
