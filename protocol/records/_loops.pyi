"""What `_loops.c` has. None is for "something is wrong: ask the twin in `loops`"."""

from array import array
from collections.abc import Sequence

from protocol.logdata.commit_runs import CommitRow
from protocol.records.loops import Data
from protocol.records.record_rows import Row
from protocol.records.sole_records import SoleRecord

def scan_messages(
    data: Data, magic: int, *, max_entry_bytes: int, oldest_ms: int, newest_ms: int
) -> tuple[int, int, int, bool, bool, int, int, int, int, int] | None: ...
def scan_records(
    data: Data, count: int, base_timestamp: int, *, oldest_ms: int, newest_ms: int
) -> tuple[bool, int, int, int, bool] | None: ...
def sound_records(data: Data, count: int) -> tuple[int, int] | None: ...
def messages_from_records(
    data: Data,
    count: int,
    *,
    base_offset: int,
    base_timestamp: int,
    magic: int,
    append_time_ms: int | None,
    min_offset: int,
) -> tuple[bytes, int] | None: ...
def messages_from_messages(
    data: Data,
    *,
    source_magic: int,
    magic: int,
    offset: int,
    renumber: bool,
    append_time_ms: int | None,
    min_offset: int,
) -> tuple[bytes, int] | None: ...
def records_from_messages(
    data: Data, position: int, *, magic: int, max_bytes: int
) -> tuple[bytes, int, int, int, int] | None: ...
def place_messages(view: memoryview, base_offset: int) -> int | None: ...
def skip_messages(data: Data, min_offset: int) -> int | None: ...
def keys_of_records(
    data: Data, count: int, base_offset: int
) -> tuple[bytes, bytes, bytes, bytes] | None: ...
def keys_of_messages(
    data: Data, position: int, magic: int
) -> tuple[bytes, bytes, bytes, bytes] | None: ...
def enter_keys(
    digests: bytes,
    offsets: bytes,
    row: int,
    low: int,
    high: int,
    tables: list[bytearray],
    rooms: array[int],
) -> int | None: ...
def newest_offsets(digests: bytes, tables: list[bytearray]) -> bytes | None: ...
def sole_records(data: bytes, position: int) -> tuple[int, int, list[SoleRecord]] | None: ...
def record_rows(
    data: bytes, count: int, base_offset: int, base_timestamp: int, append_time_ms: int | None, /
) -> list[Row] | None: ...
def sole_batch(
    timestamp_ms: int,
    key: bytes | None,
    value: bytes | None,
    headers: tuple[tuple[bytes, bytes | None], ...] = ...,
    producer_id: int = ...,
    producer_epoch: int = ...,
    is_marker: bool = ...,
    /,
) -> bytearray | None: ...
def ordinary_commits(
    data: bytes, position: int
) -> tuple[int, int, int, list[CommitRow]] | None: ...
def groups_in(starts: bytes, data: bytes) -> tuple[bytes, list[int], int] | None: ...
def place_groups(
    blocks: Sequence[tuple[bytes, bytes, bytes]], filled_bytes: int
) -> list[tuple[bytes, list[bytearray], int]] | None: ...
def record_starts(data: Data, spans: bytes) -> bytes | None: ...
def entry_rows(data: Data) -> bytes | None: ...
def is_consistent(batch: Data) -> bool: ...
