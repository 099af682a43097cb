"""What is checked before a produced batch may be stored, and what is put right.

The batch of a Produce request v3 or later is read once, from the bytes it arrived in. The order of
checks, and the code of each, is Kafka's, with these differences: an unknown codec and a payload
that does not decompress are refused as invalid (87) where Kafka fails with an unknown error,
expansion is bounded (10), a timestamp type set by the producer is always refused (32), and
attribute bits that are not a producer's to set are cleared.

Two depths. The header facts and the checksum are always checked, at the price of one `unpack_from`
and one CRC. The records are walked, which costs about a microsecond each and needs decompression,
where something depends on them: keys on a compacted topic, a finite window of timestamps, and
everywhere when `validation.level` is `strict`.

Offsets, leader epoch and append time are not written here: the log places the batch, and for a
topic of LogAppendTime the broker calls `Batch.stamp_log_append_time` between check and append.
"""

from __future__ import annotations

from protocol.errors import ErrorCode
from protocol.records.batch import MAX_DECOMPRESSED_BYTES, Batch
from protocol.records.compression import ZSTD
from protocol.records.crc import crc32c
from protocol.records.errors import CorruptBatch
from protocol.records.errors import InvalidRecord as InvalidRecord
from protocol.records.layout import (
    ATTRIBUTES,
    BASE_OFFSET,
    BASE_TIMESTAMP,
    CHECKED_POSITION,
    CODEC_MASK,
    CONTROL_BIT,
    CRC,
    HEADER,
    HEADER_SIZE,
    LAST_OFFSET_DELTA,
    LENGTH,
    MAX_TIMESTAMP,
    MIN_BATCH_LENGTH,
    MIN_RECORD_SIZE,
    NO_TIMESTAMP,
    PRODUCER_BITS,
    PRODUCER_ID,
    RECORD_COUNT,
    TIMESTAMP_TYPE_BIT,
    TRANSACTIONAL_BIT,
    Header,
)
from protocol.records.record import read_fields, wrap_timestamp
from protocol.records.walk import walk

UNLIMITED_MS = (1 << 63) - 1
"""The default of both timestamp windows: every timestamp passes."""

MAX_RECORD_ERRORS = 1_000
"""Records named in one refusal. A small compressed batch can hold millions of bad ones, and the
answer must stay small."""

_unpack_header = HEADER.unpack_from


class ProduceRules:
    """What one topic asks of the batches produced to it.

    Made once per change of the topic's settings, and used for every batch.

    max_message_bytes       largest batch, its 12 bytes of offset and length included
    compacted               cleanup.policy contains compact: every record needs a key
    log_append_time         message.timestamp.type is LogAppendTime: producers' times do not matter
    before_max_ms           how much older than now a record may be; UNLIMITED_MS for no bound
    after_max_ms            how much newer
    strict                  walk the records of every batch
    max_decompressed_bytes  what a batch may expand to when its records are walked
    zstd_allowed            False for Produce below v7, whose consumers may not know zstd (KIP-110)

    `simple` tells that no record needs to be looked at; `attributes` are the values of a batch's
    attributes with which it needs no second look either.
    """

    __slots__ = (
        "after_max_ms",
        "attributes",
        "before_max_ms",
        "compacted",
        "log_append_time",
        "max_decompressed_bytes",
        "max_message_bytes",
        "simple",
        "strict",
        "windowed",
        "zstd_allowed",
    )

    def __init__(
        self,
        *,
        max_message_bytes: int = 1_048_588,
        compacted: bool = False,
        log_append_time: bool = False,
        before_max_ms: int = UNLIMITED_MS,
        after_max_ms: int = UNLIMITED_MS,
        strict: bool = False,
        max_decompressed_bytes: int = MAX_DECOMPRESSED_BYTES,
        zstd_allowed: bool = True,
    ) -> None:
        self.max_message_bytes = max_message_bytes
        self.compacted = compacted
        self.log_append_time = log_append_time
        self.before_max_ms = before_max_ms
        self.after_max_ms = after_max_ms
        self.strict = strict
        self.max_decompressed_bytes = max_decompressed_bytes
        self.zstd_allowed = zstd_allowed
        self.windowed = not log_append_time and (
            before_max_ms < UNLIMITED_MS or after_max_ms < UNLIMITED_MS
        )
        self.simple = not (compacted or strict or self.windowed)
        codecs = range(ZSTD + 1 if zstd_allowed else ZSTD)
        self.attributes = frozenset(
            codec | transactional for codec in codecs for transactional in (0, TRANSACTIONAL_BIT)
        )


def check_produced(view: memoryview, rules: ProduceRules, now_ms: int) -> Header:
    """The header of the one format 2 batch in `view`, if it may be stored.

    A cut entry after the batch is ignored, so the batch's size is that of its header. The view must
    be writable: foreign attribute bits are cleared and, where records are walked, a wrong max
    timestamp is put right; both with the checksum redone. The header returned is the one after it.

    `now_ms` is what the timestamp window is held against. Raises InvalidRecord with the code for
    the client: 87 INVALID_RECORD unless said otherwise; 2 CORRUPT_MESSAGE for a bad length, magic
    or checksum; 10 MESSAGE_TOO_LARGE; 32 INVALID_TIMESTAMP; 76 UNSUPPORTED_COMPRESSION_TYPE.
    """
    # The common case, in one expression and with the layout's numbers written out, because every
    # produced batch passes here. What does not pass is examined again, in order, to find out why.
    if rules.simple and len(view) > HEADER_SIZE:
        header = _unpack_header(view)
        (
            base_offset,
            length,
            _,
            magic,
            crc,
            attributes,
            last_offset_delta,
            _,
            _,
            producer_id,
            producer_epoch,
            base_sequence,
            count,
        ) = header
        if (
            magic == 2
            and not base_offset
            and length + 12 == len(view) <= rules.max_message_bytes
            and attributes in rules.attributes
            and 0 < count == last_offset_delta + 1
            and count * 7 <= (rules.max_decompressed_bytes if attributes & 7 else length - 49)
            and (producer_id < 0 or (base_sequence >= 0 and producer_epoch >= 0))
            and crc32c(view[21:]) == crc
        ):
            return header
    return _examine(view, rules, now_ms)


def _examine(view: memoryview, rules: ProduceRules, now_ms: int) -> Header:
    view = view[: _size_of_the_only_batch(view)]
    header: Header = HEADER.unpack_from(view)
    crc, attributes = header[CRC], header[ATTRIBUTES]
    if attributes & CODEC_MASK == ZSTD and not rules.zstd_allowed:
        raise InvalidRecord(
            "zstd needs Produce v7 or later", ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
        )
    if header[BASE_OFFSET] != 0:
        raise InvalidRecord(
            f"batch has base offset {header[BASE_OFFSET]}, a producer's must have 0"
        )
    if len(view) > rules.max_message_bytes:
        raise InvalidRecord(
            f"batch of {len(view)} bytes, max.message.bytes allows {rules.max_message_bytes}",
            ErrorCode.MESSAGE_TOO_LARGE,
        )
    computed = crc32c(view[CHECKED_POSITION:])
    if computed != crc:
        raise InvalidRecord(
            f"batch states checksum {crc:#010x}, its bytes have {computed:#010x}",
            ErrorCode.CORRUPT_MESSAGE,
        )
    _check_header(header, rules)
    max_timestamp = (
        header[MAX_TIMESTAMP] if rules.simple else _check_records(view, header, rules, now_ms)
    )
    if attributes & ~PRODUCER_BITS or max_timestamp != header[MAX_TIMESTAMP]:
        # A forged delete horizon would let compaction drop tombstones too early (KIP-534).
        return Batch(view).rewrite(attributes & PRODUCER_BITS, max_timestamp)
    return header


def _size_of_the_only_batch(view: memoryview) -> int:
    """Produce v3 and later carry exactly one batch of format 2; a cut entry after it is dropped."""
    entries: list[tuple[int, int]] = []
    try:
        for _, size, magic in walk(view):
            entries.append((size, magic))
            if len(entries) == 2:
                break
    except CorruptBatch as error:
        raise InvalidRecord(str(error), ErrorCode.CORRUPT_MESSAGE) from None
    if not entries:
        raise InvalidRecord(f"{len(view)} bytes of records hold no complete batch")
    size, magic = entries[0]
    if magic != 2:
        raise InvalidRecord(f"records in format {magic}, this request may carry only format 2")
    if len(entries) > 1:
        raise InvalidRecord("records hold a second batch, this request may carry only one")
    return size


def _check_header(header: Header, rules: ProduceRules) -> None:
    length, attributes = header[LENGTH], header[ATTRIBUTES]
    last_offset_delta = header[LAST_OFFSET_DELTA]
    producer_id, producer_epoch, base_sequence, count = header[PRODUCER_ID:]
    codec = attributes & CODEC_MASK
    if codec > ZSTD:
        raise InvalidRecord(f"batch has codec {codec}, known are 0 to {ZSTD}")
    if count <= 0 or last_offset_delta != count - 1:
        raise InvalidRecord(
            f"batch has {count} records and last offset delta {last_offset_delta}, "
            f"wanted at least one record and a delta one below their count"
        )
    room = rules.max_decompressed_bytes if codec else length - MIN_BATCH_LENGTH
    if count * MIN_RECORD_SIZE > room:
        raise InvalidRecord(f"batch claims {count} records, which cannot fit in {room} bytes")
    if attributes & CONTROL_BIT:
        raise InvalidRecord("control batches are written by the broker only")
    if producer_id >= 0 and (base_sequence < 0 or producer_epoch < 0):
        raise InvalidRecord(
            f"batch of producer {producer_id} has epoch {producer_epoch} and base sequence "
            f"{base_sequence}, neither may be negative"
        )
    if attributes & TIMESTAMP_TYPE_BIT:
        raise InvalidRecord(
            "the timestamp type LogAppendTime is the broker's to set", ErrorCode.INVALID_TIMESTAMP
        )


def _check_records(view: memoryview, header: Header, rules: ProduceRules, now_ms: int) -> int:
    """Walk every record; returns what the batch's max timestamp has to be.

    A loop over records, because a null key, a time outside the window or a wrong offset can be
    seen in no other way. Offset deltas other than 0, 1, 2, ... are refused. Kafka stores such a
    batch when it is not compressed, and its consumers then see offsets twice; renumbering it would
    be kinder to the producer, and needs the batch to be built anew.
    """
    base_timestamp = header[BASE_TIMESTAMP]
    compacted, windowed = rules.compacted, rules.windowed
    before_max_ms, after_max_ms = rules.before_max_ms, rules.after_max_ms
    max_timestamp = NO_TIMESTAMP
    errors: list[tuple[int, str]] = []
    code = ErrorCode.INVALID_RECORD
    payload = Batch(view).payload(limit=rules.max_decompressed_bytes)
    for index, fields in enumerate(read_fields(payload, header[RECORD_COUNT])):
        timestamp_delta, offset_delta, _, key_size, _, _, _ = fields
        if offset_delta != index:
            raise InvalidRecord(f"record {index} has offset delta {offset_delta}")
        timestamp = wrap_timestamp(base_timestamp + timestamp_delta)
        if timestamp > max_timestamp:
            max_timestamp = timestamp
        if compacted and key_size < 0 and len(errors) < MAX_RECORD_ERRORS:
            errors.append((index, "a record of a compacted topic needs a key"))
        if windowed and timestamp != NO_TIMESTAMP:
            age_ms = now_ms - timestamp
            if age_ms > before_max_ms or -age_ms > after_max_ms:
                code = ErrorCode.INVALID_TIMESTAMP
                if len(errors) < MAX_RECORD_ERRORS:
                    errors.append(
                        (
                            index,
                            f"timestamp {timestamp} is outside {before_max_ms} ms before and "
                            f"{after_max_ms} ms after {now_ms}",
                        )
                    )
    if errors:
        raise InvalidRecord(f"{errors[0][1]} (record {errors[0][0]})", code, errors)
    # The append time will replace it anyway, so the checksum need not be computed twice.
    return header[MAX_TIMESTAMP] if rules.log_append_time else max_timestamp
