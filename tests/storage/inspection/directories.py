"""Data directories in memory, to be spoilt, checked and repaired."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from protocol.records.walk import walk
from storage.data_dir import DataDirectory
from storage.inspection.directory_check import check
from storage.inspection.repair import repair
from storage.layout import LOG, offset_of
from tests.storage.logs import NOW_MS, Settings, append, batch
from tests.support.checkpoints import write_checkpoints
from tests.support.memory_filesystem import MemoryFilesystem
from tests.support.topic_store import open_topics

if TYPE_CHECKING:
    import random

    from storage.inspection.findings import Finding
    from storage.inspection.setting_aside import Change
    from storage.reports import RecoveryReport

TOP = "/data"
ORDERS = f"{TOP}/orders-0"
LOG_0 = f"{ORDERS}/{0:020d}.log"

Contents = dict[str, bytes]
"""Path below the directory -> bytes."""


def contents_of(folder: Path) -> Contents:
    """Every file of a directory on the disk."""
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def in_memory(contents: Contents) -> MemoryFilesystem:
    """A file system that has these files below `/data`, all of them durable."""
    files = MemoryFilesystem()
    files.write_all({f"{TOP}/{name}": data for name, data in contents.items()})
    return files


def contents_in(files: MemoryFilesystem, path: str = TOP) -> Contents:
    """The other way round."""
    found: Contents = {}
    for name in sorted(files.list_dir(path)):
        below = f"{path}/{name}"
        if files.is_dir(below):
            found |= contents_in(files, below)
        else:
            found[below.removeprefix(f"{TOP}/")] = files.read_bytes(below)
    return found


def findings(files: MemoryFilesystem, path: str = TOP, *, deep: bool = True) -> list[Finding]:
    """What a check says, without the notes."""
    return [found for found in check(files, path, deep=deep) if found.severity != "note"]


def is_found(files: MemoryFilesystem, *, deep: bool = True) -> bool:
    """Whether `findings` has any; the check goes no further than the first."""
    return any(found.severity != "note" for found in check(files, TOP, deep=deep))


def errors(files: MemoryFilesystem, path: str = TOP) -> list[Finding]:
    return [found for found in check(files, path, deep=True) if found.severity == "error"]


def notes(files: MemoryFilesystem, path: str = TOP) -> list[Finding]:
    return [found for found in check(files, path, deep=True) if found.severity == "note"]


def repaired(files: MemoryFilesystem) -> list[Change]:
    return list(repair(files, TOP, apply=True))


def opened(
    files: MemoryFilesystem, settings: Settings | None = None
) -> tuple[DataDirectory, list[RecoveryReport]]:
    """The directory as a broker opens it, and what that had to report."""
    topics = open_topics(files, TOP)
    directory = DataDirectory.take(files, TOP, node_id=1, new_uuid=ids())
    topics.begin_epoch()
    reports = directory.open_logs(topics, lambda _: settings or Settings(), now_ms=NOW_MS)
    return directory, reports


def ids(start: int = 1):  # type: ignore[no-untyped-def]
    numbers = iter(range(start, start + 1000))
    return lambda: bytes([9] * 14) + next(numbers).to_bytes(2, "big")


def ten_batches(*, clean: bool, segment_bytes: int = 1 << 30, producer: bool = False) -> Contents:
    """The fixture of the table of cases: ten batches of two records, offsets 0..19, epoch 5."""
    files = MemoryFilesystem()
    directory = DataDirectory.take(files, TOP, node_id=1, new_uuid=ids())
    topics = open_topics(files, TOP)
    settings = Settings(index_interval_bytes=150, segment_bytes=segment_bytes)
    directory.open_logs(topics, lambda _: settings, now_ms=NOW_MS)
    new_id = ids(500)()
    if producer:
        topics.next_producer_id()
    topic = topics.create("orders", new_id, 1, {})
    for _ in range(5):
        topics.begin_epoch()
    log = directory.create_partition(topic, 0, settings, now_ms=NOW_MS)
    for number in range(10):
        values = (b"first %d" % number, b"second %d" % number)
        sent = batch(
            *values,
            timestamp_ms=1000 + number,
            producer=(0, 0, 2 * number) if producer else (-1, -1, -1),
        )
        append(log, sent)
        log.write()
    log.sync()
    write_checkpoints(directory)
    if clean:
        assert directory.close()
    files.sync_all()
    return contents_in(files)


def entries_of(contents: Contents) -> dict[str, list[bytes]]:
    """Every batch and message of every partition, by folder, as they are in the files."""
    found: dict[str, list[bytes]] = {}
    for name, data in sorted(contents.items()):
        folder, _, file = name.rpartition("/")
        if offset_of(file, LOG) is not None:
            found.setdefault(folder, []).extend(
                data[position : position + size] for position, size, _ in walk(data)
            )
    return found


def spoilt(rng: random.Random, data: bytes) -> tuple[str, bytes]:
    """What was done to the bytes, and what became of them; never the same."""
    kind = rng.choice(("flip", "flip", "flip", "cut", "zero", "append", "garbage"))
    changed = bytearray(data)
    place = rng.randrange(len(data)) if data else 0
    if kind == "flip" and data:
        bit = rng.randrange(8)
        changed[place] ^= 1 << bit
        return f"bit {bit} of byte {place} flipped", bytes(changed)
    if kind == "cut" and data:
        return f"cut at {place}", bytes(changed[:place])
    length = rng.randrange(1, 100)
    if kind in ("zero", "garbage") and data:
        length = min(length, len(data) - place)
        new = bytes(length) if kind == "zero" else rng.randbytes(length)
        changed[place : place + length] = new
        if bytes(changed) != data:
            return f"{kind} of {length} bytes at {place}", bytes(changed)
    tail = rng.randbytes(length) if rng.random() < 0.5 else bytes(length)
    return f"{length} bytes appended", data + tail
