"""The content of a file, line by line, for people who have no tools of Apache Kafka at hand.

A `Row` is one line: what it is, and its fields by name. Damage is a row as well, so a spoilt file
is shown as far as there is anything in it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from protocol.errors import Malformed
from protocol.records.batch import Batch
from protocol.records.compression import NAMES
from protocol.records.errors import CorruptBatch, InvalidRecord
from protocol.records.layout import (
    ATTRIBUTES,
    BASE_SEQUENCE,
    BASE_TIMESTAMP,
    CONTROL_BIT,
    CRC,
    DELETE_HORIZON_BIT,
    PRODUCER_EPOCH,
    PRODUCER_ID,
    RECORD_COUNT,
    TIMESTAMP_TYPE_BIT,
    TRANSACTIONAL_BIT,
)
from protocol.records.legacy import Message, read_messages
from storage.errors import MalformedFile
from storage.inspection.facts import OPENED_BYTES_MAX
from storage.inspection.index_files import OFFSET_ENTRY, TIME_ENTRY, IndexEntries
from storage.inspection.log_walk import CHECKSUM, ORDER, Damage, LogWalk
from storage.inspection.metadata_rows import control_fields, is_metadata, metadata_fields
from storage.inspection.producer_watch import MARKER_BYTES_MAX, marker_of, read_snapshot
from storage.inspection.text_rows import text_rows
from storage.layout import (
    CLEANED,
    CUT,
    DELETED,
    INDEX,
    LOG,
    SEGMENT_SUFFIXES,
    SNAPSHOT,
    SWAP,
    TIME_INDEX,
    TRANSACTION_INDEX,
    offset_of,
)
from storage.metadata.snapshot_names import CHECKPOINT
from storage.scan import first_entry
from storage.transaction_index import ENTRY as TRANSACTION_ENTRY

if TYPE_CHECKING:
    from collections.abc import Iterator

    from protocol.records.record import Record
    from storage.filesystem import Filesystem
    from storage.scan import Entry

LARGEST_OFFSET = 2**63 - 1
DAMAGED = ".damaged"

Value = str | int | float | bool | None | list["Value"] | dict[str, "Value"]


class Row:
    """One line of a dump."""

    __slots__ = ("fields", "inside", "what")

    def __init__(self, what: str, fields: dict[str, Value], *, inside: bool = False) -> None:
        self.what = what
        self.fields = fields
        self.inside = inside
        """Part of what the row before it shows."""

    def as_json(self) -> dict[str, Value]:
        return {"what": self.what, **self.fields}

    def __str__(self) -> str:
        fields = " ".join(f"{name}={_shown(value)}" for name, value in self.fields.items())
        return f"{'  ' if self.inside else ''}{self.what} {fields}".rstrip()


def _shown(value: Value) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list):
        return "[" + ", ".join(map(_shown, value)) + "]"
    if isinstance(value, dict):
        return "{" + " ".join(f"{name}={_shown(inner)}" for name, inner in value.items()) + "}"
    text = str(value)
    return text if text.isprintable() else text.encode("unicode_escape").decode()


class DumpOptions:
    """The options of a dump: records of batches, values of records, offsets first..last."""

    __slots__ = ("first", "last", "records", "values")

    def __init__(
        self,
        *,
        records: bool = False,
        values: bool = False,
        first: int = 0,
        last: int = LARGEST_OFFSET,
    ) -> None:
        self.records = records or values
        self.values = values
        self.first = first
        self.last = last


def dump(files: Filesystem, path: str, options: DumpOptions) -> Iterator[Row]:
    """The rows of a file, or of all files of a partition's folder. Raises OSError."""
    if not files.is_dir(path):
        files.size_of(path)  # raises if there is no such file
        yield from dump_file(files, path, options)
        return
    names = sorted(files.list_dir(path))
    bases = sorted(base for name in names if (base := offset_of(name, LOG)) is not None)
    for name in sorted(names, key=lambda name: (name[:20].isdigit(), name)):
        base = _base_of(name)
        if base is not None:
            following = [other for other in bases if other > base]
            if base > options.last or (following and following[0] <= options.first):
                continue
        if not files.is_dir(f"{path}/{name}"):
            yield Row("file", {"name": name, "size": files.size_of(f"{path}/{name}")})
            yield from dump_file(files, f"{path}/{name}", options)


def _base_of(name: str) -> int | None:
    for suffix in SEGMENT_SUFFIXES:
        base = offset_of(name, suffix)
        if base is not None:
            return base
    return None


def dump_file(files: Filesystem, path: str, options: DumpOptions) -> Iterator[Row]:
    """The rows of one file, by its name. Raises OSError."""
    name = bare_name(path.rpartition("/")[2])
    if name.endswith((LOG, CHECKPOINT)) and not name.endswith("-checkpoint"):
        yield from _log(files, path, name, options)
    elif name.endswith(INDEX):
        for base, position, (relative, at) in _entries(files, path, name, INDEX):
            if options.first <= base + relative <= options.last:
                yield Row("index", {"entry": position // 8, "offset": base + relative, "to": at})
    elif name.endswith(TIME_INDEX):
        for base, position, (timestamp, relative) in _entries(files, path, name, TIME_INDEX):
            if options.first <= base + relative <= options.last:
                fields: dict[str, Value] = {"entry": position // 12, "timestamp": timestamp}
                yield Row("time", {**fields, "offset": base + relative})
    elif name.endswith(TRANSACTION_INDEX):
        yield from _transactions(files, path)
    elif name.endswith(SNAPSHOT):
        yield from _snapshot(files, path)
    else:
        yield from (Row(what, dict(fields)) for what, fields in text_rows(files, path, name))


def bare_name(name: str) -> str:
    """The name of a file before it was renamed to be put aside or deleted."""
    head, aside, _ = name.partition(DAMAGED)
    name = head if aside else name
    head, cut, _ = name.partition(LOG + CUT)
    name = head + LOG if cut else name
    for suffix in (DELETED, CLEANED, SWAP, ".part"):
        name = name.removesuffix(suffix)
    return name


# Logs


def _log(files: Filesystem, path: str, name: str, options: DumpOptions) -> Iterator[Row]:
    file = files.open_to_read(path)
    base = offset_of(name, LOG)
    if base is None:
        base = 0 if name.endswith(CHECKPOINT) else int.from_bytes(file.pread(8, 0)[:8], "big")
    walk = LogWalk(file, file.size(), lowest=min(base, LARGEST_OFFSET))
    metadata = is_metadata(path, name)
    for found in walk:
        if isinstance(found, Damage):
            where: dict[str, Value] = {"position": found.position, "size": found.size}
            yield Row("damage", {**where, "after_offset": found.last_offset, "why": found.reason})
            entry = first_entry(file, found.position, found.end)
            if found.kind in (CHECKSUM, ORDER) and entry is not None:
                yield from _shown_entry(entry, walk, options, metadata=metadata)
            continue
        if found.last_offset < options.first:
            continue
        if found.first_offset > options.last:
            break
        yield from _shown_entry(found, walk, options, metadata=metadata)
    file.close()


def _shown_entry(
    entry: Entry, walk: LogWalk, options: DumpOptions, *, metadata: bool
) -> Iterator[Row]:
    yield Row("batch" if entry.magic == 2 else "message", _entry(entry))
    control = entry.header is not None and entry.header[ATTRIBUTES] & CONTROL_BIT
    if control and entry.size <= MARKER_BYTES_MAX:
        marker = marker_of(entry, walk.bytes_of(entry))
        if marker is not None:
            kind = "COMMIT" if marker.commit else "ABORT"
            epoch = marker.coordinator_epoch
            yield Row("marker", {"type": kind, "coordinator_epoch": epoch}, inside=True)
            return
    if options.records:
        for record in _records(entry, walk, options):
            if isinstance(record, Row):
                yield record
            elif control:
                yield _control(record)
            elif metadata and record.key is None:
                yield _of_metadata(record, options)
            else:
                yield Row("record", _record(record, options), inside=True)


def _entry(entry: Entry) -> dict[str, Value]:
    fields: dict[str, Value] = {
        "position": entry.position,
        "size": entry.size,
        "magic": entry.magic,
    }
    codec = NAMES[entry.codec] if entry.codec < len(NAMES) else str(entry.codec)
    header = entry.header
    if header is None:
        fields |= {"offset": entry.last_offset, "timestamp": entry.max_timestamp, "codec": codec}
        return fields | {"crc": f"{entry.stated_crc:#010x}"}
    attributes = header[ATTRIBUTES]
    return fields | {
        "base_offset": entry.first_offset,
        "last_offset": entry.last_offset,
        "records": header[RECORD_COUNT],
        "base_timestamp": header[BASE_TIMESTAMP],
        "max_timestamp": entry.max_timestamp,
        "timestamp_type": "LogAppendTime" if attributes & TIMESTAMP_TYPE_BIT else "CreateTime",
        "codec": codec,
        "leader_epoch": entry.leader_epoch,
        "producer_id": header[PRODUCER_ID],
        "producer_epoch": header[PRODUCER_EPOCH],
        "base_sequence": header[BASE_SEQUENCE],
        "transactional": bool(attributes & TRANSACTIONAL_BIT),
        "control": bool(attributes & CONTROL_BIT),
        "delete_horizon": bool(attributes & DELETE_HORIZON_BIT),
        "crc": f"{header[CRC]:#010x}",
    }


def _records(entry: Entry, walk: LogWalk, options: DumpOptions) -> Iterator[Record | Row]:
    """The records that were asked for, and a row where they end too early."""
    if entry.size > OPENED_BYTES_MAX:
        yield Row("closed", {"why": f"{entry.size} bytes are too many to open"}, inside=True)
        return
    data = walk.bytes_of(entry)
    try:
        if entry.header is not None:
            found: Iterator[Record] = Batch(data).records(limit=OPENED_BYTES_MAX)
        else:
            found = read_messages(data, limit=OPENED_BYTES_MAX)
            if entry.codec and Message(data).value is None:
                return
        for record in found:
            if options.first <= record.offset <= options.last:
                yield record
    except (CorruptBatch, InvalidRecord) as error:
        yield Row("damage", {"why": str(error)}, inside=True)


def _record(record: Record, options: DumpOptions) -> dict[str, Value]:
    fields: dict[str, Value] = {
        "offset": record.offset,
        "timestamp": record.timestamp_ms,
        "key": readable(record.key),
    }
    if options.values:
        fields["value"] = readable(record.value)
    else:
        fields["value_size"] = -1 if record.value is None else len(record.value)
    if record.headers:
        fields["headers"] = [
            f"{name}={readable(value)}" if options.values else name
            for name, value in record.headers
        ]
    return fields


def _control(record: Record) -> Row:
    fields: dict[str, Value] = {"offset": record.offset, "timestamp": record.timestamp_ms}
    try:
        return Row("control", {**fields, **control_fields(record.key, record.value)}, inside=True)
    except Malformed as error:
        raw: dict[str, Value] = {"key": readable(record.key), "value": readable(record.value)}
        return Row("control", {**fields, **raw, "why": str(error)}, inside=True)


def _of_metadata(record: Record, options: DumpOptions) -> Row:
    fields: dict[str, Value] = {"offset": record.offset, "timestamp": record.timestamp_ms}
    try:
        said = metadata_fields(record.value, content=options.values)
        return Row("record", {**fields, **said}, inside=True)
    except Malformed as error:
        return Row("record", {**_record(record, options), "why": str(error)}, inside=True)


def readable(data: bytes | memoryview | None) -> str | None:
    """Text if it is that, otherwise hexadecimal digits after `0x`."""
    if data is None:
        return None
    raw = bytes(data)
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError:
        return f"0x{raw.hex()}"
    return text if text.isprintable() else f"0x{raw.hex()}"


# Indexes and snapshots


def _entries(
    files: Filesystem, path: str, name: str, suffix: str
) -> Iterator[tuple[int, int, tuple[int, ...]]]:
    base = offset_of(name, suffix) or 0
    file = files.open_to_read(path)
    entries = IndexEntries(file, OFFSET_ENTRY if suffix == INDEX else TIME_ENTRY)
    for position, fields in entries:
        yield base, position, fields
    file.close()


def _transactions(files: Filesystem, path: str) -> Iterator[Row]:
    file = files.open_to_read(path)
    for _, fields in IndexEntries(file, TRANSACTION_ENTRY):
        version, producer, first, last, stable = fields
        yield Row(
            "aborted",
            {
                "version": version,
                "producer_id": producer,
                "first_offset": first,
                "last_offset": last,
                "last_stable_offset": stable,
            },
        )
    file.close()


def _snapshot(files: Filesystem, path: str) -> Iterator[Row]:
    try:
        states = read_snapshot(files.read_bytes(path), path)
    except MalformedFile as error:
        yield Row("damage", {"why": str(error)})
        return
    for producer_id, known in sorted(states.items()):
        yield Row(
            "producer",
            {
                "producer_id": producer_id,
                "epoch": known.epoch,
                "last_sequence": known.sequence,
                "last_offset": known.last_offset,
                "offset_delta": known.delta,
                "timestamp": known.timestamp,
                "coordinator_epoch": known.coordinator,
                "open_since_offset": known.opened,
            },
        )
