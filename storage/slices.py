"""Bytes of a log, to be sent without being looked at."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from storage.filesystem import File


class FileSlice:
    """`size` bytes of `file` from `position`: one or more whole batches.

    The slice holds its file open, whatever happens to the segment meanwhile: rolled, deleted,
    its topic gone. It starts with one holder; each `retain` adds one, and when the last has
    called `release` the file is let go. A slice that is simply dropped lets go as well.
    """

    __slots__ = ("_file", "_holders", "position", "size")

    def __init__(self, file: File, position: int, size: int) -> None:
        self._file: File | None = file
        self._holders = 1
        self.position = position
        self.size = size

    @property
    def file(self) -> File:
        file = self._file
        if file is None:
            raise ValueError("a released slice has no file")
        return file

    def read(self) -> bytes:
        """All its bytes. For tests, conversion and small answers; large ones are sent by the
        kernel."""
        return self.file.pread(self.size, self.position)

    def retain(self) -> FileSlice:
        self._holders += 1
        return self

    def release(self) -> None:
        self._holders -= 1
        if self._holders <= 0:
            self._file = None

    def __len__(self) -> int:
        return self.size

    def __repr__(self) -> str:
        return f"FileSlice({self._file!r}, position={self.position}, size={self.size})"
