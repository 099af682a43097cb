"""Bytes of a log, to be sent without being looked at."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from storage.filesystem import File
    from storage.scan import Entry


class FileSlice:
    """`size` bytes of `file` from `position`: one or more whole batches.

    The slice holds its file open, whatever happens to the segment meanwhile: rolled, deleted,
    its topic gone. `release` gives it back; so does dropping the slice.
    """

    __slots__ = ("_file", "position", "size")

    def __init__(self, file: File, position: int, size: int) -> None:
        self._file: File | None = file
        self.position = position
        self.size = size

    @property
    def file(self) -> File:
        file = self._file
        if file is None:
            raise ValueError("a released slice has no file")
        return file

    @property
    def end(self) -> int:
        """The position after the last byte."""
        return self.position + self.size

    def read(self) -> bytes:
        """All its bytes. For tests, conversion and small answers; large ones are sent by the
        kernel."""
        return self.file.pread(self.size, self.position)

    def release(self) -> None:
        self._file = None

    def __len__(self) -> int:
        return self.size

    def __repr__(self) -> str:
        return f"FileSlice({self._file!r}, position={self.position}, size={self.size})"


class EntrySlice:
    """The headers of consecutive whole entries of one segment, and the open file they are in.

    `entries` is never empty; an entry has `position`, `size`, `magic`, `codec`, first and last
    offset and, in format 2, its whole `header` (record count and control bit are there). The file
    stays open and readable as long as this object or a slice of it lives, as with `FileSlice`.
    """

    __slots__ = ("_file", "_serial", "entries")

    def __init__(self, file: File, entries: list[Entry], serial: int) -> None:
        self._file = file
        self._serial = serial
        self.entries = entries

    @property
    def next_offset(self) -> int:
        """The offset to go on from; what comes there may be in another segment."""
        return self.entries[-1].last_offset + 1

    @property
    def size(self) -> int:
        """Bytes of all entries together."""
        return self.entries[-1].end - self.entries[0].position

    def key(self, entry: Entry) -> tuple[int, int]:
        """Names the stored bytes of an entry within this process, for a cache of what is made of
        them. Nothing ever makes it wrong: stored bytes are not rewritten in place, and a file
        that takes another's place, or a topic of the same name, has a serial of its own.
        """
        return self._serial, entry.position

    def read(self, entry: Entry) -> bytes:
        """The whole bytes of one entry; fewer only if the file was cut by somebody else."""
        return self._file.pread(entry.size, entry.position)

    def part(self, first: int = 0, last: int | None = None) -> FileSlice:
        """The bytes of `entries[first:last]`, which must not be empty, to be sent as they are."""
        chosen = self.entries[first:last]
        position = chosen[0].position
        return FileSlice(self._file, position, chosen[-1].end - position)
