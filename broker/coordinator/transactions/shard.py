"""One partition of `__transaction_state` at work: its log and what that says.

One operation is one record. An id that was loaded is kept as its
bytes until somebody asks for it: a start with 100,000 of them decodes those of open transactions.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker import logs
from broker.coordinator.state_log import ResignedLog, StateLog
from broker.coordinator.transactions.transaction import Transaction, from_value, to_value
from protocol.errors import ErrorCode, KafkaError
from protocol.logdata.transactions import (
    ENDS_HEADER,
    FLEXIBLE_VALUE,
    UnknownRecord,
    decode_value,
    encode_ends,
    encode_key,
    encode_value,
)
from protocol.records.builder import build_batch, sole_batch

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from broker.partitions.disk_state import DiskState
    from broker.partitions.topic import Partition
    from broker.producing.appends import Appends
    from protocol.logdata.transactions import End


_ENDS_HEADER = ENDS_HEADER.encode()


class TransactionShard:
    """The transactional ids that fall to one partition. `loaded` when its log has been replayed.

    `states` has what is known of each id. `ending` has the end that was decided for an id and is on
    its way to the disk: until it is there, the state before counts.
    """

    __slots__ = ("_log", "ending", "has_resigned", "loaded", "partition", "states")

    def __init__(self, partition: Partition, *, disk: DiskState, appends: Appends) -> None:
        self._log: StateLog = StateLog(partition, disk=disk, appends=appends)
        self.partition = partition
        self.states: dict[str, Transaction | bytes] = {}
        self.ending: dict[str, Transaction] = {}
        self.loaded = False
        self.has_resigned = False
        """Whether another process has led the partition since."""

    def resign(self) -> None:
        """Write nothing more: another process leads the partition from now on. Whoever still has
        this shard meets NOT_COORDINATOR; it is never loaded again."""
        self.loaded, self.has_resigned = False, True
        self._log = ResignedLog()

    @property
    def epoch(self) -> int:
        """The epoch of this coordinator, which its markers carry."""
        return self.partition.log.leader_epoch

    def get(self, transactional_id: str) -> Transaction | None:
        """The state of an id; None for one that is not known, or whose record makes no sense."""
        found = self.states.get(transactional_id)
        if found is None or isinstance(found, Transaction):
            return found
        try:
            state = from_value(decode_value(found))
        except (UnknownRecord, ValueError) as error:
            logs.warning(
                "the state of a transactional id is not understood, and begins anew",
                transactional_id=transactional_id,
                reason=str(error),
            )
            del self.states[transactional_id]
            return None
        self.states[transactional_id] = state
        return state

    def all(self) -> Iterator[tuple[str, Transaction]]:
        """All ids; what is not read to the end does not mind changes."""
        for transactional_id in list(self.states):
            found = self.get(transactional_id)
            if found is not None:
                yield transactional_id, found

    def write(
        self,
        transactional_id: str,
        now: Transaction,
        *,
        transaction_version: int,
        now_ms: int,
        ends: Sequence[End] | None = None,
    ) -> None:
        """Write the record that says so, in the form that belongs to this level of the feature.
        `ends` are next offsets and leader epochs of the partitions of an end.

        Raises KafkaError as `StateLog`, and INVALID_REQUEST for what no record can hold.
        """
        version = FLEXIBLE_VALUE if transaction_version >= FLEXIBLE_VALUE else 0
        headers = () if ends is None else ((_ENDS_HEADER, encode_ends(ends)),)
        try:
            key, value = encode_key(transactional_id), encode_value(to_value(now), version)
        except ValueError as error:
            raise KafkaError(str(error), code=ErrorCode.INVALID_REQUEST) from error
        self._log.append(sole_batch(now_ms, key, value, headers), now_ms=now_ms)

    def forget(self, transactional_ids: Iterable[str], *, now_ms: int) -> None:
        """Write the tombstones of these ids as one batch, and forget them. Raises KafkaError."""
        gone = list(transactional_ids)
        records = [(now_ms, encode_key(transactional_id), None, ()) for transactional_id in gone]
        self._log.append(bytearray(build_batch(records)), now_ms=now_ms)
        for transactional_id in gone:
            del self.states[transactional_id]
