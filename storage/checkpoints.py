"""The small text files at the top of a data directory that say how far things are.

Offset checkpoints (docs/formats/offset-checkpoints.md): version `0`, the number of entries, then
`topic partition offset` per line.
    recovery-point-offset-checkpoint   everything below is on the disk
    replication-offset-checkpoint      high watermark
    cleaner-offset-checkpoint          compaction has been up to here
    log-start-offset-checkpoint        where a log starts, if not at its first segment
The last entry is `#crc32c 0 <CRC-32C of all before it, ten digits>`. No topic can have that name,
so Apache Kafka passes over it, and leaves it out when it writes the file.

What if one is lost: recovery reads logs from their start; the high watermark is the log's end
anyway; deleted records come back.

Clean shutdown marker (docs/formats/clean-shutdown.md): one line of JSON. It promises
that every file of the directory is whole; it is written last and removed before logs are opened.
"""

from __future__ import annotations

import re
from threading import Lock
from typing import TYPE_CHECKING

from protocol.records.crc import crc32c
from storage.errors import MalformedFile

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from contextlib import AbstractContextManager

    from storage.filesystem import Filesystem
    from storage.syncing import SyncStep

VERSION = 0
OFFSET_MAX = 2**63 - 1
OFFSET_DIGITS = 19

CHECKSUM = "#crc32c"
CHECKSUM_LINE = re.compile(rb"#crc32c 0 (\d{10})\n")
CHECKSUM_LINE_SIZE = 21

Partition = tuple[str, int]


def read_entries(data: bytes, path: str, *, field_count: int) -> list[list[str]]:
    """The lines of a checkpoint file after its two counts, each split into its fields.

    All fields but a leading topic are checked to be whole numbers. Raises MalformedFile.
    """
    if not data.strip():
        return []
    try:
        lines = data.decode("utf-8").split("\n")
    except UnicodeDecodeError as error:
        raise MalformedFile(path, f"byte {error.start} is not UTF-8") from error
    while lines and not lines[-1].strip():
        lines.pop()
    if lines[0].strip() != str(VERSION):
        raise MalformedFile(path, f"line 1 is {lines[0]!r}, wanted version {VERSION}")
    if len(lines) < 2:
        raise MalformedFile(path, "line 2, the number of entries, is missing")
    count = _number(lines[1].strip(), path, 2)
    if count != len(lines) - 2:
        raise MalformedFile(path, f"line 2 promises {count} entries, {len(lines) - 2} follow")
    entries = []
    for number, line in enumerate(lines[2:], start=3):
        fields = line.split()
        if len(fields) != field_count:
            raise MalformedFile(
                path, f"line {number} has {len(fields)} fields, wanted {field_count}"
            )
        for field in fields[-2:]:
            _number(field, path, number)
        entries.append(fields)
    return entries


def _number(text: str, path: str, line: int) -> int:
    digits = text.removeprefix("-")
    if not (digits.isascii() and digits.isdigit()):
        raise MalformedFile(path, f"line {line}: {text!r} is not a number")
    number = int(text) if len(digits) <= OFFSET_DIGITS else OFFSET_MAX + 1
    if abs(number) > OFFSET_MAX:
        raise MalformedFile(path, f"line {line}: {text} does not fit 64 bits")
    return number


def decode_offsets(data: bytes, path: str) -> dict[Partition, int]:
    """Read an offset checkpoint, whatever its checksum. Raises MalformedFile."""
    return dict(decode_rows(data, path))


def decode_rows(data: bytes, path: str) -> list[tuple[Partition, int]]:
    """The entries as they follow each other, a partition perhaps twice. Raises MalformedFile."""
    return [
        ((topic, int(partition)), int(offset))
        for topic, partition, offset in read_entries(data, path, field_count=3)
        if topic != CHECKSUM
    ]


def encode_offsets(offsets: Mapping[Partition, int]) -> bytes:
    lines = [str(VERSION), str(len(offsets) + 1)]
    lines += [f"{topic} {partition} {offset}" for (topic, partition), offset in offsets.items()]
    data = ("\n".join(lines) + "\n").encode()
    return data + _checksum_line(data)


def _checksum_line(data: bytes) -> bytes:
    return b"%s 0 %010d\n" % (CHECKSUM.encode(), crc32c(data))


def as_written(data: bytes, path: str) -> bytes:
    """The content of an offset checkpoint with the one bit changed back that its checksum shows to
    be wrong; mostly there is none. Without a checksum it is taken as it is.

    Not to be asked of a file that Apache Kafka may have changed. Raises MalformedFile if more than
    a bit is wrong.
    """
    content, line = data[:-CHECKSUM_LINE_SIZE], data[-CHECKSUM_LINE_SIZE:]
    right = _checksum_line(content)
    if (int.from_bytes(line) ^ int.from_bytes(right)).bit_count() <= 1:
        return content + right
    stated = CHECKSUM_LINE.fullmatch(line)
    if stated is None:
        return data
    from storage.wrong_bit import with_bit_right

    whole = with_bit_right(content, int(stated[1]))
    if whole is None:
        raise MalformedFile(
            path, f"the checksum is {int(stated[1])}, the content has {crc32c(content)}"
        )
    return whole + line


def encode_clean_shutdown(broker_epoch: int) -> bytes:
    return b'{"version":0,"brokerEpoch":%d}' % broker_epoch


class Sharing:
    """How the processes that serve one directory write its checkpoints: each in its turn, and
    each the entries of the partitions that it leads; those of others stay as they are.

    So there is one file, as new as its newest entry, whoever reads it and however many processes
    there will be. A start that is not sure of an entry reads more; none is ever older than what its
    leader has told anybody.
    """

    __slots__ = ("_files", "_is_mine", "_path")

    def __init__(self, files: Filesystem, path: str, is_mine: Callable[[Partition], bool]) -> None:
        """`path` is the file that is held meanwhile. `is_mine` says whether this process leads a
        partition, or has led it and no other does now; any thread may ask."""
        self._files = files
        self._path = path
        self._is_mine = is_mine

    def turn(self) -> AbstractContextManager[object]:
        """A turn to write a checkpoint, for which this waits. Raises OSError."""
        return self._files.held(self._path)

    def joined(self, offsets: Mapping[Partition, int], path: str) -> dict[Partition, int]:
        """These offsets with the entries of others that the checkpoint `path` has. If it makes no
        sense it has none: their leaders write them again within a minute."""
        try:
            found = decode_offsets(as_written(self._files.read_bytes(path), path), path)
        except (FileNotFoundError, MalformedFile):
            found = {}
        others = {key: offset for key, offset in found.items() if not self._is_mine(key)}
        return {**others, **offsets}


class CheckpointFile:
    """One checkpoint file, written by whichever thread has the newest content.

    A worker that is late must not put old offsets over new ones: a log start that goes back
    brings deleted records to life.
    """

    __slots__ = ("_files", "_given", "_lock", "_path", "_sharing", "_stored", "_stored_data")

    def __init__(self, files: Filesystem, path: str, sharing: Sharing | None = None) -> None:
        """`sharing` is for a directory that several processes serve."""
        self._files = files
        self._path = path
        self._sharing = sharing
        self._lock = Lock()
        self._given = self._stored = 0
        self._stored_data: bytes | None = None

    def turn(self) -> int:
        """A place in the order of contents, for one that is about to be gathered."""
        self._given += 1
        return self._given

    def holding(self, offsets: Mapping[Partition, int], turn: int | None = None) -> SyncStep:
        """A step that puts these offsets in place, unless content of a later turn is there by
        then. They are encoded when it is taken and must not change until then."""
        return PutCheckpoint(self, offsets, self.turn() if turn is None else turn)

    def put(self, offsets: Mapping[Partition, int], serial: int) -> None:
        with self._lock:
            if serial <= self._stored:
                return
            if self._sharing is None:
                self._write(encode_offsets(offsets))
            else:
                with self._sharing.turn():
                    self._stored_data = None  # others may have written
                    self._write(encode_offsets(self._sharing.joined(offsets, self._path)))
            self._stored = serial

    def _write(self, data: bytes) -> None:
        if data != self._stored_data:
            self._stored_data = None  # nobody knows what an error leaves
            self._files.write_atomic(self._path, data)
            self._stored_data = data


class PutCheckpoint:
    """The step of `CheckpointFile.holding`."""

    __slots__ = ("_checkpoint", "_offsets", "_serial")

    def __init__(
        self, checkpoint: CheckpointFile, offsets: Mapping[Partition, int], serial: int
    ) -> None:
        self._checkpoint = checkpoint
        self._offsets = offsets
        self._serial = serial

    def sync(self) -> None:
        self._checkpoint.put(self._offsets, self._serial)
