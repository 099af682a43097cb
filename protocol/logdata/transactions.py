"""Keys and values of the records of `__transaction_state`.

    key     int16 version, 0, then the transactional id
    value   int16 version, then the fields; no value at all is a tombstone: the id is forgotten

The last record of an id is its state. Value 0 is what Kafka writes up to 3.9; 1 is flexible and
belongs to `transaction.version` 1 and 2 (KIP-890): its tags tell how a producer id was changed for
another. Kafka says what fields there are in its schemas of the transaction coordinator.

A record that ends a transaction has a header of ours, which Kafka steps over: the next offset and
the leader epoch of each of its partitions, in their order, when the end was decided. What a
producer with this id has open from there on, or since a later leader epoch, belongs to a later
transaction: a log that has lost its end begins again below that offset.
"""

from __future__ import annotations

from enum import IntEnum
from functools import lru_cache
from struct import Struct as Format
from typing import TYPE_CHECKING

from protocol.errors import Malformed
from protocol.schema import Struct, array, int8, int16, int32, int64, string

if TYPE_CHECKING:
    from collections.abc import Iterable

TRANSACTION_LOG_KEY = 0
"""The only version of a key. Kafka 3.9 can't load a partition whose last batch has another."""
FLEXIBLE_VALUE = 1
ENDS_HEADER = "triglot.ends"
KEYS_KEPT = 128
"""Keys that are kept as they were encoded: a transaction has several records of one id."""

_VERSION = Format(">h")
_STATUS = Format(">hqhib")
"""The head of a value, the same in both versions: version, producer id, epoch, time-out, status."""


class UnknownRecord(Malformed):
    """The bytes are no key or value that we know: later Kafka's, or damaged."""


class TransactionState(IntEnum):
    """The states of a transactional id; the number is what is stored."""

    EMPTY = 0
    ONGOING = 1
    PREPARE_COMMIT = 2
    PREPARE_ABORT = 3
    COMPLETE_COMMIT = 4
    COMPLETE_ABORT = 5
    DEAD = 6
    PREPARE_EPOCH_FENCE = 7

    @property
    def title(self) -> str:
        """The name that Kafka's tools know, as in "PrepareCommit"."""
        return self.name.title().replace("_", "")


class TransactionLogKey(Struct, versions="0"):
    """One transactional id."""

    transactional_id: str = string()


class TransactionLogValue(Struct, versions="0-1", flexible="1+"):
    """A transactional id as it is from this record on. Times in ms, moments since 1970.

    `transaction_partitions` is null in state Empty and an empty list in Complete states.
    `previous_producer_id` is that of the state before, `next_producer_id` the one that takes over
    at the end of a transaction whose epochs are used up, `client_transaction_version` what the
    client spoke, 0 or 2. With `next_producer_epoch` (KIP-939; Kafka 4.3 has it in its schema and
    never writes it) the two are what the last instance has, which has kept the transaction.
    """

    class PartitionsSchema(Struct):
        topic: str = string()
        partition_ids: list[int] = array(int32)

    producer_id: int = int64()
    previous_producer_id: int = int64("1+", default=-1, tag=0)
    next_producer_id: int = int64("1+", default=-1, tag=1)
    producer_epoch: int = int16()
    transaction_timeout_ms: int = int32()
    transaction_status: int = int8()
    transaction_partitions: list[PartitionsSchema] | None = array(PartitionsSchema, nullable="")
    transaction_last_update_timestamp_ms: int = int64()
    transaction_start_timestamp_ms: int = int64()
    client_transaction_version: int = int16("1+", default=0, tag=2)
    next_producer_epoch: int = int16("1+", default=-1, tag=3)


@lru_cache(maxsize=KEYS_KEPT)
def encode_key(transactional_id: str) -> bytes:
    """The key of an id's records. Raises ValueError for one that is too long."""
    key = TransactionLogKey(transactional_id=transactional_id)
    return _VERSION.pack(TRANSACTION_LOG_KEY) + key.encode(TRANSACTION_LOG_KEY)


def encode_value(value: TransactionLogValue, version: int) -> bytes:
    """The value in version 0 or 1. Raises ValueError for what it cannot hold."""
    return _VERSION.pack(version) + value.encode(version)


def decode_key(data: bytes | None) -> str:
    """The transactional id. Raises UnknownRecord."""
    if data is None:
        raise UnknownRecord("a record without a key, and only a key says whose it is")
    version = _version_of(data, "key")
    if version != TRANSACTION_LOG_KEY:
        raise UnknownRecord(f"a key of version {version}, known is {TRANSACTION_LOG_KEY}")
    try:
        key = TransactionLogKey.decoder(version)(data, _VERSION.size, len(data))[0]
    except Malformed as error:
        raise UnknownRecord(f"TransactionLogKey v{version}: {error}") from None
    return key.transactional_id


def decode_value(data: bytes) -> TransactionLogValue:
    """The value; what follows its last field means nothing, as to Kafka. Raises UnknownRecord."""
    version = _version_of(data, "value")
    if not TransactionLogValue.valid_versions.holds(version):
        raise UnknownRecord(
            f"TransactionLogValue of version {version}, known are "
            f"{TransactionLogValue.valid_versions}"
        )
    try:
        return TransactionLogValue.decoder(version)(data, _VERSION.size, len(data))[0]
    except Malformed as error:
        raise UnknownRecord(f"TransactionLogValue v{version}: {error}") from None


def glance(data: bytes) -> tuple[int, int]:
    """Producer id and status of a value, whatever else is in it. Raises UnknownRecord."""
    if len(data) < _STATUS.size:
        raise UnknownRecord(f"a value of {len(data)} bytes, its head alone has {_STATUS.size}")
    _, producer_id, _, _, status = _STATUS.unpack_from(data)
    return producer_id, status


End = tuple[int, int]
"""Next offset and leader epoch of a partition."""
_END = Format(">qi")


def encode_ends(ends: Iterable[End]) -> bytes:
    """The content of the header: an int64 and an int32 for each partition."""
    return b"".join(_END.pack(*end) for end in ends)


def decode_ends(data: bytes | None, count: int) -> tuple[End, ...] | None:
    """The same back; None if these are not so many."""
    if data is None or len(data) != _END.size * count:
        return None
    return tuple((offset, epoch) for offset, epoch in _END.iter_unpack(data))


def _version_of(data: bytes, what: str) -> int:
    if len(data) < _VERSION.size:
        raise UnknownRecord(f"a {what} of {len(data)} bytes, the version alone has {_VERSION.size}")
    version: int = _VERSION.unpack_from(data)[0]
    return version
