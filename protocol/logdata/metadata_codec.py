"""Values of the records of `__cluster_metadata`.

frame version   unsigned varint, 1
api key         unsigned varint, what record it is
version         unsigned varint, of the message
message         with which the value ends
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any

from protocol.errors import Malformed
from protocol.logdata.metadata_levels import METADATA_VERSION, record_version, version_at
from protocol.logdata.metadata_records import (
    RECORD_KEYS,
    BrokerRegistrationChangeRecord,
    MetadataRecord,
)
from protocol.logdata.offsets import UnknownRecord
from protocol.primitives import read_uvarint

if TYPE_CHECKING:
    from collections.abc import Callable

    from protocol.schema import Struct

    Decoder = Callable[[bytes, int, int], tuple[MetadataRecord, int]]
    Encoder = Callable[[Any, bytearray, list[tuple[int, Any]]], None]

FRAME_VERSION = 1
_FRAME_SIZE = 3
"""Bytes of a frame in its shortest form, which is what everybody writes."""

_KEY_OF: dict[type[Struct], int] = {kind: key for key, kind in RECORD_KEYS.items()}
_DECODERS: dict[bytes, Decoder] = {}
"""By the frame; filled as frames are met, with those of known records only."""


def encode_record(record: MetadataRecord, *, level: int = METADATA_VERSION) -> bytes:
    """The value, in the version that fits this level of metadata.version.

    A field that this version lacks is not written. Raises ValueError where the level has no such
    record, or a field holds what the format cannot.
    """
    if type(record) is BrokerRegistrationChangeRecord:
        version = record_version(record, level)
        return _frame(type(record), version) + record.encode(version)
    frame, encode = _writer(type(record), level)
    out = bytearray(frame)
    try:
        encode(record, out, [])
    except Exception:
        return frame + record.encode(record_version(record, level))  # names the field
    return bytes(out)


@lru_cache(maxsize=512)
def _writer(kind: type[MetadataRecord], level: int) -> tuple[bytes, Encoder]:
    version = version_at(kind, level)
    return _frame(kind, version), kind.encoder(version)


def _frame(kind: type[Struct], version: int) -> bytes:
    return bytes((FRAME_VERSION, _KEY_OF[kind], version))


def decode_record(value: bytes | bytearray | memoryview) -> MetadataRecord:
    """The record that this value is, all of it.

    Unlike Kafka this refuses a version that no schema describes: Kafka would read its bytes as
    those of its own newest. Raises UnknownRecord, saying what was found and what is known.
    """
    raw = bytes(value)
    position, end = _FRAME_SIZE, len(raw)
    decode = _DECODERS.get(raw[:_FRAME_SIZE])
    if decode is None:
        decode, position = _decoder_of(raw)
        if position == _FRAME_SIZE:
            _DECODERS[raw[:_FRAME_SIZE]] = decode
    try:
        record, position = decode(raw, position, end)
    except Malformed as error:
        raise UnknownRecord(f"{_name_of(raw)}: {error}") from None
    if position != end:
        raise UnknownRecord(f"{_name_of(raw)}: {end - position} bytes of garbage after the message")
    return record


def _decoder_of(raw: bytes) -> tuple[Decoder, int]:
    """The decoder for the message of this value, and the position where the message begins."""
    frame, key, version, position = _read_frame(raw)
    if frame != FRAME_VERSION:
        raise UnknownRecord(f"a record in a frame of version {frame}, known is {FRAME_VERSION}")
    kind = RECORD_KEYS.get(key)
    if kind is None:
        raise UnknownRecord(f"a record with api key {key}, known are {_KNOWN_KEYS}")
    if not kind.valid_versions.holds(version):
        raise UnknownRecord(
            f"{kind.__name__} of version {version}, known are {kind.valid_versions}"
        )
    return kind.decoder(version), position


def _read_frame(raw: bytes) -> tuple[int, int, int, int]:
    end = len(raw)
    try:
        frame, position = read_uvarint(raw, 0, end)
        key, position = read_uvarint(raw, position, end)
        version, position = read_uvarint(raw, position, end)
    except Malformed as error:
        raise UnknownRecord(f"a record of {end} bytes without a whole frame: {error}") from None
    return frame, key, version, position


def _name_of(raw: bytes) -> str:
    _, key, version, _ = _read_frame(raw)
    return f"{RECORD_KEYS[key].__name__} v{version}"


_KNOWN_KEYS = ", ".join(map(str, RECORD_KEYS))
