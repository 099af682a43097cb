"""Logs in memory and batches to put into them."""

from __future__ import annotations

import json
from base64 import b64decode
from pathlib import Path
from typing import TYPE_CHECKING, Any

from protocol.records.builder import build_batch
from protocol.records.errors import CorruptBatch
from protocol.records.layout import HEADER, Header
from protocol.records.walk import last_offset, walk
from storage.recovery import LastKnown, open_log
from storage.removal import Removal
from tests.support.memory_filesystem import MemoryFilesystem

if TYPE_CHECKING:
    from storage.filesystem import Filesystem
    from storage.log import Log
    from storage.slices import FileSlice

Vector = dict[str, Any]

FOLDER = "/data/orders-0"
NOW_MS = 1_700_000_000_000


class Settings:
    """Settings of a log, with sizes at which things happen in small tests."""

    def __init__(
        self,
        *,
        segment_bytes: int = 1 << 30,
        segment_ms: int = 7 * 24 * 3600 * 1000,
        segment_jitter_ms: int = 0,
        segment_index_bytes: int = 10 << 20,
        index_interval_bytes: int = 4096,
        record_format: int = 2,
    ) -> None:
        self.segment_bytes = segment_bytes
        self.segment_ms = segment_ms
        self.segment_jitter_ms = segment_jitter_ms
        self.segment_index_bytes = segment_index_bytes
        self.index_interval_bytes = index_interval_bytes
        self.record_format = record_format


def batch(
    *values: bytes,
    timestamp_ms: int = 1000,
    producer: tuple[int, int, int] = (-1, -1, -1),
    transactional: bool = False,
) -> bytearray:
    """A batch as a producer sends it: offsets from 0. `producer` is id, epoch, sequence."""
    producer_id, epoch, sequence = producer
    return bytearray(
        build_batch(
            [(timestamp_ms, None, value, ()) for value in values or (b"x",)],
            producer_id=producer_id,
            producer_epoch=epoch,
            base_sequence=sequence,
            transactional=transactional,
        )
    )


def header_of(raw: bytes | bytearray) -> Header:
    fields: Header = HEADER.unpack_from(raw)
    return fields


def append(log: Log, raw: bytes | bytearray, *, now_ms: int = NOW_MS) -> int:
    """Append a copy of a batch; returns its base offset."""
    copy = bytearray(raw)
    return log.append(memoryview(copy), header_of(copy), now_ms=now_ms)


def produce(log: Log, *values: bytes, timestamp_ms: int = 1000) -> int:
    """Append and write one batch of these values; returns its base offset."""
    offset = append(log, batch(*values, timestamp_ms=timestamp_ms))
    log.write()
    return offset


def opened(
    files: Filesystem,
    settings: Settings | None = None,
    *,
    folder: str = FOLDER,
    known: LastKnown | None = None,
    leader_epoch: int = 0,
    now_ms: int = NOW_MS,
) -> Log:
    """Open a log whose recovery has nothing to report."""
    files.make_dir(folder)
    log, reports = open_log(
        files,
        folder,
        settings or Settings(),
        known=known,
        leader_epoch=leader_epoch,
        now_ms=now_ms,
    )
    assert reports == []
    return log


def new_log(settings: Settings | None = None) -> tuple[MemoryFilesystem, Log]:
    files = MemoryFilesystem()
    return files, opened(files, settings)


def taken(piece: FileSlice | None) -> bytes:
    """The bytes of a slice that must be there."""
    assert piece is not None
    data = piece.read()
    assert len(data) == piece.size
    piece.release()
    return data


def batches_in(data: bytes) -> list[tuple[int, int]]:
    """(base offset, last offset) of the whole batches that make up `data`, with nothing left."""
    found, position = [], 0
    for position, size, magic in walk(data):
        base = int.from_bytes(data[position : position + 8], "big")
        found.append((base, last_offset(data, position, magic)))
        position += size
    assert position == len(data), "a batch is cut"
    return found


def everything(log: Log, *, max_bytes: int = 1 << 30) -> bytes:
    """All bytes a consumer gets that reads from the log's start."""
    offset, data = log.start_offset, b""
    while offset < log.written_offset:
        piece = log.read(offset, max_bytes)
        if piece is None:
            break
        got = taken(piece)
        data += got
        offset = batches_in(got)[-1][1] + 1
    return data


def readable(log: Log) -> bytes:
    """All bytes a consumer gets that goes past what is answered with CORRUPT_MESSAGE."""
    offset, data = log.start_offset, b""
    while offset < log.written_offset:
        try:
            piece = log.read(offset, 1 << 30)
        except CorruptBatch:
            offset += 1
            continue
        if piece is None:
            break
        got = taken(piece)
        data += got
        offset = batches_in(got)[-1][1] + 1
    return data


def values_in(data: bytes) -> list[bytes]:
    """The values of all records of format 2 batches."""
    from protocol.records.batch import Batch

    return [
        record.value or b""
        for position, size, _ in walk(data)
        for record in Batch(memoryview(data)[position : position + size]).records()
    ]


def file_of(files: MemoryFilesystem, suffix: str, base_offset: int = 0) -> bytes:
    return files.read_bytes(f"{FOLDER}/{base_offset:020d}{suffix}")


def vectors() -> list[Vector]:
    """Segment files that Apache Kafka wrote, and its answers."""
    content = json.loads((Path(__file__).parent / "vectors" / "segments.json").read_bytes())
    found: list[Vector] = content["vectors"]
    return found


def decoded(text: str) -> bytes:
    return b64decode(text)


def drop_below_start(log: Log) -> int:
    """Have the segments wholly below the log start go, with their files; returns how many."""
    removal = Removal(("orders", 0), log, log.take_segments_below_start())
    removal.set_aside()
    removal.remove()
    return removal.count
