"""The rules of a topic for produced records, and the checks of a batch of format 2.

The order of checks, and the code of each, is Kafka's (records.md 6.2, 6.6), with these differences:
an unknown codec and a payload that does not decompress are refused as invalid (87) where Kafka
fails with an unknown error, expansion is bounded (10), and a timestamp type set by the producer is
always refused (32).

Three depths (`Validation`). The header facts and the checksum are always checked, at the price of
one `unpack_from` and one CRC; and by default that the batch is consistent with them, at the price
of a walk over the records that needs no decompression. `quick_header` does both for the batches
that need nothing else. The records are walked under compression too where something depends on
them: keys on a compacted topic, a finite window of timestamps, a change of codec or format, frames
that do not fit the header, and everywhere when `validation.level` is `strict`.

Nothing is written here. What `quick_header` leaves, older formats included, goes to `prepare`.
"""

from __future__ import annotations

from enum import IntEnum
from typing import TYPE_CHECKING

from protocol.errors import ErrorCode
from protocol.records.batch import MAX_DECOMPRESSED_BYTES
from protocol.records.compression import (
    ANY_RATIO_BYTES,
    DEFAULT_RATIO,
    MAX_RATIOS,
    NAMES,
    NONE,
    ZSTD,
)
from protocol.records.consistency import is_consistent
from protocol.records.crc import crc32c
from protocol.records.errors import InvalidRecord as InvalidRecord
from protocol.records.layout import (
    ATTRIBUTES,
    ATTRIBUTES_POSITION,
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
    MAGIC_POSITION,
    MESSAGE_ATTRIBUTES_POSITION,
    MIN_BATCH_LENGTH,
    MIN_RECORD_SIZE,
    NO_TIMESTAMP,
    PRODUCER_ID,
    RECORD_COUNT,
    TIMESTAMP_TYPE_BIT,
    TRANSACTIONAL_BIT,
)
from protocol.records.record import INT64_MAX, INT64_MIN, read_fields, wrap_timestamp
from protocol.records.transcode import IMPLEMENTATION, scan_records
from protocol.records.walk import walk

if TYPE_CHECKING:
    from protocol.records.layout import Header
    from protocol.records.loops import RecordScan

UNLIMITED_MS = (1 << 63) - 1
"""The default of both timestamp windows: every timestamp passes."""

MAX_RECORD_ERRORS = 1_000
"""Records named in one refusal. A small compressed batch can hold millions of bad ones, and the
answer must stay small."""

BATCHES_SINCE = 3
"""The first version of Produce that carries nothing but one batch of format 2."""
ZSTD_SINCE = 7
"""The first one that may carry zstd (KIP-110)."""

_unpack_header = HEADER.unpack_from


class Validation(IntEnum):
    """The level of checks for a batch of format 2 that could be stored as it was sent."""

    HEADER = 0
    """Lengths, checksum and all facts of the header."""
    RECORDS = 1
    """And that it is consistent, see `consistency`: every record, unless they are compressed."""
    STRICT = 2
    """Every record, which takes decompression."""


DEFAULT_VALIDATION = Validation.RECORDS if IMPLEMENTATION == "compiled" else Validation.HEADER
"""The strongest that costs less than 15 % of the time of a produce request. In Python a walk takes
a microsecond a record: many times as long as the rest of the request."""


class ProduceRules:
    """The rules of one topic for the records produced to it.

    Made once per change of the topic's settings, and used for every set.

    magic                    the format the topic stores (message.format.version)
    codec                    the codec it stores, None to keep the producer's (compression.type)
    level                    of that codec; None for its default
    max_message_bytes        largest batch or message, its 12 bytes of offset and length included
    segment_bytes            largest set as it is stored
    compacted                cleanup.policy contains compact: every record needs a key
    log_append_time          message.timestamp.type is LogAppendTime: producers' times do not matter
    before_max_ms            how much older than now a record may be; UNLIMITED_MS for no bound
    after_max_ms             how much newer
    validation               how much of a batch is checked
    max_decompressed_bytes   what a set may expand to when it is opened
    max_decompression_ratio  and how many times its size, see `compression.decompress`
    zstd_allowed             False for Produce below v7 and inter.broker.protocol.version below 2.1:
                             consumers of that age may not know zstd (KIP-110)

    `walked` tells that every record has to be looked at, `consistent` that a batch must at least be
    consistent, `simple` that one of format 2 may be stored without being opened; then `attributes`
    are the values of its attributes, and `simple_bytes` the size, with which it needs no second
    look either.
    """

    __slots__ = (
        "after_max_ms",
        "attributes",
        "before_max_ms",
        "codec",
        "compacted",
        "consistent",
        "level",
        "log_append_time",
        "magic",
        "max_decompressed_bytes",
        "max_decompression_ratio",
        "max_message_bytes",
        "segment_bytes",
        "simple",
        "simple_bytes",
        "walked",
        "windowed",
        "zstd_allowed",
    )

    def __init__(
        self,
        *,
        magic: int = 2,
        codec: int | None = None,
        level: int | None = None,
        max_message_bytes: int = 1_048_588,
        segment_bytes: int = 1_073_741_824,
        compacted: bool = False,
        log_append_time: bool = False,
        before_max_ms: int = UNLIMITED_MS,
        after_max_ms: int = UNLIMITED_MS,
        validation: Validation = Validation.RECORDS,
        max_decompressed_bytes: int = MAX_DECOMPRESSED_BYTES,
        max_decompression_ratio: int = DEFAULT_RATIO,
        zstd_allowed: bool = True,
    ) -> None:
        self.magic = magic
        self.codec = codec
        self.level = level
        self.max_message_bytes = max_message_bytes
        self.segment_bytes = segment_bytes
        self.compacted = compacted
        self.log_append_time = log_append_time
        self.before_max_ms = before_max_ms
        self.after_max_ms = after_max_ms
        self.max_decompressed_bytes = max_decompressed_bytes
        self.max_decompression_ratio = max_decompression_ratio
        self.zstd_allowed = zstd_allowed
        self.windowed = not log_append_time and (
            before_max_ms < UNLIMITED_MS or after_max_ms < UNLIMITED_MS
        )
        looked_at = compacted or self.windowed
        self.walked = looked_at or validation is Validation.STRICT
        self.simple = magic == 2 and not looked_at
        self.simple_bytes = min(max_message_bytes, segment_bytes)
        self.consistent = validation is not Validation.HEADER
        codecs = range(ZSTD + 1 if zstd_allowed else ZSTD)
        self.attributes = frozenset(
            kept | transactional
            for kept in codecs
            if codec is None or codec == kept
            if kept == NONE or validation is not Validation.STRICT
            for transactional in (0, TRANSACTIONAL_BIT)
        )

    def stored_codec(self, sent: int) -> int:
        """The codec in which a set that came with codec `sent` is stored (records.md 5.6)."""
        return sent if self.codec is None else self.codec

    def room_for_expanded(self, codec: int, size: int) -> int:
        """The bytes that a payload of `size` bytes may expand to at most."""
        allowed = max(ANY_RATIO_BYTES, size * self.max_decompression_ratio)
        return min(size * MAX_RATIOS[codec], allowed, self.max_decompressed_bytes)

    def time_window(self, now_ms: int) -> tuple[int, int]:
        """The oldest and the newest timestamp that pass, both included; -1 passes besides."""
        if not self.windowed:
            return INT64_MIN, INT64_MAX
        before, after = self.before_max_ms, self.after_max_ms
        oldest = INT64_MIN if before >= UNLIMITED_MS else max(INT64_MIN, now_ms - before)
        newest = INT64_MAX if after >= UNLIMITED_MS else min(INT64_MAX, now_ms + after)
        return oldest, newest


def quick_header(view: memoryview, rules: ProduceRules) -> Header | None:
    """The header of the one format 2 batch that `view` is, if that is all there is to check.

    For the requests that carry only this format, v3 and later. Such a batch is stored as it is.
    None says nothing against it, only that `prepare` has to look closer.
    """
    # One expression, with the layout's numbers written out, as every produced batch passes here.
    if rules.simple and len(view) > HEADER_SIZE:
        header: Header = _unpack_header(view)
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
            and length + 12 == len(view) <= rules.simple_bytes
            and attributes in rules.attributes
            and 0 < count == last_offset_delta + 1
            and count * 7
            <= (
                rules.room_for_expanded(attributes & 7, length - 49)
                if attributes & 7
                else length - 49
            )
            and (producer_id < 0 or (base_sequence >= 0 and producer_epoch >= 0))
            and crc32c(view[21:]) == crc
            and (not rules.consistent or is_consistent(view))
        ):
            return header
    return None


def first_format(view: memoryview) -> tuple[int, int] | None:
    """Format and attributes of the first entry of a set as they came, whatever else is wrong with
    it; None if they are not there."""
    if len(view) <= ATTRIBUTES_POSITION + 1:
        return None
    magic = view[MAGIC_POSITION]
    # The codec is in the lower of the two bytes that a batch has.
    at = ATTRIBUTES_POSITION + 1 if magic == 2 else MESSAGE_ATTRIBUTES_POSITION
    return magic, view[at]


def first_magic(view: memoryview, version: int) -> int | None:
    """The format of a set sent with Produce `version`; None if it has no complete entry.

    From v3 on a set is exactly one complete batch of format 2, which a cut entry may follow. The
    older requests may also carry that (records.md 6.1). Raises CorruptBatch, InvalidRecord.
    """
    entries = walk(view)
    first = next(entries, None)
    if first is None:
        if version >= BATCHES_SINCE:
            raise InvalidRecord(f"{len(view)} bytes of records hold no complete batch")
        return None
    magic = first[2]
    if magic != 2:
        if version >= BATCHES_SINCE:
            raise InvalidRecord(
                f"records in format {magic}, Produce v{version} carries only format 2"
            )
    elif next(entries, None) is not None:
        raise InvalidRecord("records hold a second batch, only one may be sent")
    return magic


def check_batch(view: memoryview, rules: ProduceRules, version: int) -> Header:
    """The header of the batch that `view` is, its checksum and all facts of the header checked.

    `version` is that of the Produce request.

    Raises InvalidRecord with the code for the client: 87 INVALID_RECORD unless said otherwise;
    2 CORRUPT_MESSAGE for a wrong checksum; 10 MESSAGE_TOO_LARGE; 32 INVALID_TIMESTAMP; 76
    UNSUPPORTED_COMPRESSION_TYPE.
    """
    header: Header = HEADER.unpack_from(view)
    if header[ATTRIBUTES] & CODEC_MASK == ZSTD and not (
        rules.zstd_allowed and version >= ZSTD_SINCE
    ):
        raise InvalidRecord(
            "zstd needs Produce v7 or later, and inter.broker.protocol.version 2.1 or later",
            ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
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
    crc, computed = header[CRC], crc32c(view[CHECKED_POSITION:])
    if computed != crc:
        raise InvalidRecord(
            f"batch states checksum {crc:#010x}, its bytes have {computed:#010x}",
            ErrorCode.CORRUPT_MESSAGE,
        )
    _check_facts(header, rules)
    return header


def _check_facts(header: Header, rules: ProduceRules) -> None:
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
    payload_bytes = length - MIN_BATCH_LENGTH
    room = rules.room_for_expanded(codec, payload_bytes) if codec else payload_bytes
    if count * MIN_RECORD_SIZE > room:
        raise InvalidRecord(
            f"batch claims {count} records, which cannot be in {payload_bytes} bytes"
            f"{f' of {NAMES[codec]}' if codec else ''}"
        )
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


def check_records(
    payload: bytes | memoryview, header: Header, rules: ProduceRules, now_ms: int
) -> RecordScan:
    """Walk every record of `payload`, the decompressed records of the batch with this header.

    Returns what `scan_records` found; there `contiguous` is False only if the batch is not
    compressed. Offset deltas other than 0, 1, 2, ... are refused in a compressed batch. In another
    one they have to be put right: Kafka stores them, and its consumers see offsets twice
    (records.md 6.3).
    Raises InvalidRecord: 32 INVALID_TIMESTAMP for a time outside the window, else 87; keys and
    times at fault are named one by one.
    """
    oldest_ms, newest_ms = rules.time_window(now_ms)
    scan = scan_records(
        payload,
        header[RECORD_COUNT],
        header[BASE_TIMESTAMP],
        oldest_ms=oldest_ms,
        newest_ms=newest_ms,
    )
    contiguous, _, null_key_index, bad_time_index, _ = scan
    if (
        bad_time_index >= 0
        or (null_key_index >= 0 and rules.compacted)
        or not (contiguous or not header[ATTRIBUTES] & CODEC_MASK)
    ):
        raise _record_errors(bytes(payload), header, rules, (oldest_ms, newest_ms))
    return scan


def _record_errors(
    payload: bytes, header: Header, rules: ProduceRules, window: tuple[int, int]
) -> InvalidRecord:
    """The error for a batch that is known to have records at fault, with each of them.

    If any time is at fault it gives the code for all, as in Kafka.
    """
    base_timestamp = header[BASE_TIMESTAMP]
    oldest_ms, newest_ms = window
    errors: list[tuple[int, str]] = []
    code = ErrorCode.INVALID_RECORD
    for index, fields in enumerate(read_fields(payload, header[RECORD_COUNT])):
        timestamp_delta, offset_delta, _, key_size, _, _, _ = fields
        if offset_delta != index and header[ATTRIBUTES] & CODEC_MASK:
            return InvalidRecord(f"record {index} has offset delta {offset_delta}")
        if rules.compacted and key_size < 0 and len(errors) < MAX_RECORD_ERRORS:
            errors.append((index, "a record of a compacted topic needs a key"))
        timestamp = wrap_timestamp(base_timestamp + timestamp_delta)
        if timestamp != NO_TIMESTAMP and not oldest_ms <= timestamp <= newest_ms:
            code = ErrorCode.INVALID_TIMESTAMP
            if len(errors) < MAX_RECORD_ERRORS:
                text = f"timestamp {timestamp} is outside {oldest_ms} to {newest_ms}"
                errors.append((index, text))
    return InvalidRecord(f"{errors[0][1]} (record {errors[0][0]})", code, errors)
