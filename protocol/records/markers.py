"""The marker that ends a transaction: a control batch of one record, 78 bytes in all.

    key     int16 version 0, int16 type     0 ABORT, 1 COMMIT
    value   int16 version 0, int32 epoch of the coordinator that decided

The batch has the producer's id and epoch, and no sequence. Its attributes are those of a
transactional batch and of a control batch.
"""

from __future__ import annotations

from functools import lru_cache
from struct import Struct
from typing import NamedTuple

from protocol.records.batch import Batch
from protocol.records.builder import sole_batch
from protocol.records.errors import InvalidRecord

KEY = Struct(">hh")
VALUE = Struct(">hi")
ABORT, COMMIT = 0, 1
MARKER_SIZE = 78
ENCODED_KEPT = 16
"""Markers that are kept as they were encoded last."""


class Marker(NamedTuple):
    """The content of a marker, besides the producer whose transaction it ends."""

    commit: bool
    coordinator_epoch: int


def encode_marker(
    producer_id: int, producer_epoch: int, *, marker: Marker, timestamp_ms: int
) -> bytearray:
    """The batch, with base offset 0; writable, so that a log can give it its offset."""
    return bytearray(_encoded(producer_id, producer_epoch, *marker, timestamp_ms))


@lru_cache(maxsize=ENCODED_KEPT)
def _encoded(
    producer_id: int, producer_epoch: int, commit: bool, coordinator_epoch: int, timestamp_ms: int
) -> bytes:
    """The same for all partitions of a transaction, of which there may be thousands."""
    kind = COMMIT if commit else ABORT
    key, value = KEY.pack(0, kind), VALUE.pack(0, coordinator_epoch)
    batch = sole_batch(timestamp_ms, key, value, (), producer_id, producer_epoch, True)
    assert len(batch) == MARKER_SIZE
    return bytes(batch)


def decode_marker(batch: bytes | bytearray | memoryview) -> Marker | None:
    """The transaction marker in a control batch.

    None if it says nothing: another kind of control record, or a batch that compaction has
    emptied, which it does when nothing of the transaction is left. Later versions of the key may
    have more fields, as Kafka's rule is for its control records.
    """
    try:
        record = next(iter(Batch(memoryview(batch)).records()), None)
    except InvalidRecord:
        return None
    if record is None or record.key is None or record.value is None:
        return None
    if len(record.key) < KEY.size or len(record.value) < VALUE.size:
        return None
    kind = KEY.unpack_from(record.key)[1]
    if kind not in (ABORT, COMMIT):
        return None
    return Marker(kind == COMMIT, VALUE.unpack_from(record.value)[1])
