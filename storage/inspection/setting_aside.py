"""Changing files in a way that a power cut cannot hurt, with what is replaced kept beside it.

What is put aside gets a name that neither we nor Apache Kafka take for anything:
    <name>.damaged                        a whole file
    <base>.log.damaged-<first>-<next>     a piece of a log, where the offsets first..next-1 were;
                                          `end` for next if nothing follows
with `.2`, `.3` after it if there is another file of that name.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from storage.filesystem import parent_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    from storage.filesystem import File, Filesystem

COPIED_AT_ONCE = 4 * 1024 * 1024
SAME_NAME_MAX = 1000
DAMAGED = ".damaged"
TEMPORARY = ".tmp"


class Change:
    """Something that repair does, or would do: one line for people, one object for machines.

    `left` tells that it is not done, because that is for a person to decide.
    """

    __slots__ = ("file", "left", "partition", "what")

    def __init__(self, partition: str, file: str, what: str, *, left: bool = False) -> None:
        self.partition = partition
        self.file = file
        self.what = what
        self.left = left

    def as_json(self) -> dict[str, str | bool]:
        return {
            "partition": self.partition,
            "file": self.file,
            "what": self.what,
            "left": self.left,
        }

    def __str__(self) -> str:
        where = "/".join(part for part in (self.partition, self.file) if part) or "."
        return f"{'left' if self.left else 'repair'}: {where}: {self.what}"

    def __repr__(self) -> str:
        return f"Change({self})"


def free_name(files: Filesystem, path: str, size: int) -> str:
    """The path, or one numbered after it that is not taken.

    A file of the same size is taken for what a repair put aside that was cut short: it gets the
    same content once more.
    """
    found = path
    for number in range(2, SAME_NAME_MAX):
        if not files.exists(found) or (not files.is_dir(found) and files.size_of(found) == size):
            return found
        found = f"{path}.{number}"
    return found


def copy_pieces(
    files: Filesystem, source: File, pieces: Iterable[tuple[int, int]], target: str
) -> None:
    """Put source[position:end] of all pieces, one after the other, into a file, durably."""
    temporary = target + TEMPORARY
    file = files.open_file(temporary, create=True)
    file.truncate(0)
    written = 0
    for position, end in pieces:
        while position < end:
            data = source.pread(min(COPIED_AT_ONCE, end - position), position)
            if not data:
                raise OSError(5, "the file ended while it was copied", target)
            file.write_at([data], written)
            written += len(data)
            position += len(data)
    file.sync()
    file.close()
    files.rename(temporary, target)
    files.sync_dir(parent_of(target))


def put_aside(files: Filesystem, path: str) -> str:
    """Rename a file so that nobody takes it for anything; returns its new name, durably."""
    target = path + DAMAGED
    for number in range(2, SAME_NAME_MAX):
        if not files.exists(target):
            break
        target = f"{path}{DAMAGED}.{number}"
    files.rename(path, target)
    files.sync_dir(parent_of(path))
    return target.rpartition("/")[2]


def keep_copy(files: Filesystem, path: str) -> str:
    """Copy a file aside that is about to be replaced; returns the copy's name, durably."""
    source = files.open_to_read(path)
    size = source.size()
    target = free_name(files, path + DAMAGED, size)
    copy_pieces(files, source, [(0, size)], target)
    source.close()
    return target.rpartition("/")[2]
