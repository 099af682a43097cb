"""Replacing segments by others, and what a start makes of a replacement that a crash cut short.

Compaction writes `.cleaned` files. When all are on the disk, they are renamed to `.swap`, the old
segments to `.deleted`, and then the new ones get their names. A crash may have kept any of these
renames and lost the others. Our own replacements (`storage.replacing`) have a file that says what
is to come out (`Replacement`), and there either all old or all new segments are after
`finish_renames`. What Apache Kafka left behind is treated as Kafka treats it.

File (`replacement-checkpoint` in the partition's folder), text, there only while segments are
being replaced (docs/formats/replacement.md):
    0
    .log 645 .index 24 .timeindex 36
                                the files of the new segment with their sizes in bytes; nothing if
                                no record stayed
    0 9 17                      base offsets of the segments replaced; the new one has the first
    end

What if it is lost: before the renames nothing has been replaced; amid them, see above for Kafka.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from storage.errors import MalformedFile
from storage.layout import (
    CLEANED,
    DELETED,
    LOG,
    OFFSET_DIGITS,
    REPLACEMENT,
    SEGMENT_SUFFIXES,
    SNAPSHOT,
    SWAP,
    file_name,
    offset_of,
)
from storage.scan import Scan

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from storage.filesystem import Filesystem


class Replacement:
    """A replacement of segments by one, which has the first of `sources` for its base offset and
    files of these sizes, which are on the disk under their `.cleaned` or later names."""

    __slots__ = ("sizes", "sources")

    def __init__(self, sources: Sequence[int], sizes: Mapping[str, int]) -> None:
        self.sources = list(sources)
        self.sizes = dict(sizes)

    def encode(self) -> bytes:
        new = " ".join(f"{suffix} {size}" for suffix, size in self.sizes.items())
        return "\n".join(("0", new, " ".join(map(str, self.sources)), "end", "")).encode()

    @classmethod
    def decode(cls, data: bytes, path: str) -> Replacement:
        """Raises MalformedFile."""
        version, *rest = data.decode("ascii", "replace").split("\n")
        if version != "0" or len(rest) != 4 or rest[2:] != ["end", ""]:
            raise MalformedFile(path, f"{data[:40]!r} does not tell of a replacement")
        new, sources = rest[0].split(), rest[1].split()
        suffixes, sizes = new[::2], new[1::2]
        numbers = [*sizes, *sources]
        if not all(one.isdigit() and len(one) <= OFFSET_DIGITS for one in numbers) or not sources:
            raise MalformedFile(path, f"{numbers} are not sizes and base offsets")
        if not set(suffixes) <= set(SEGMENT_SUFFIXES) or (suffixes and LOG not in suffixes):
            raise MalformedFile(path, f"{suffixes} are not the files of a segment")
        if len(suffixes) != len(sizes):
            raise MalformedFile(path, "a file has no size")
        return cls([int(one) for one in sources], dict(zip(suffixes, map(int, sizes), strict=True)))

    def finish(self, files: Filesystem, folder: str) -> None:
        """Do what is left of it, whatever was done before. Raises OSError.

        It is undone instead where the new .log is gone, and where it would raise the log start:
        DeleteRecords or retention removed what was before a group that leaves no segment.
        """
        if not self._is_whole(files, folder):
            self._undo(files, folder, self.sources)
            return
        head = _head(files, folder)
        if not self.sizes and head in self.sources:
            # What lies below, if set aside as well, was removed from the log and not replaced.
            self._undo(files, folder, [base for base in self.sources if base >= head])
            return
        for base in self.sources:
            for suffix in (*SEGMENT_SUFFIXES, SNAPSHOT):
                path = f"{folder}/{file_name(base, suffix)}"
                if base == self.sources[0] and self.sizes:
                    if suffix == SNAPSHOT:
                        continue
                    if suffix in self.sizes:
                        for unfinished in (path + CLEANED, path + SWAP):
                            if files.exists(unfinished):
                                files.rename(unfinished, path)
                        continue
                files.remove(path)
        forget_replacement(files, folder)

    def _is_whole(self, files: Filesystem, folder: str) -> bool:
        """Whether the new .log is there: somebody may have tidied up."""
        if not self.sizes:
            return True
        path = f"{folder}/{file_name(self.sources[0], LOG)}"
        found = next((one for one in (path + CLEANED, path + SWAP, path) if files.exists(one)), "")
        return bool(found) and files.size_of(found) == self.sizes[LOG]

    def _undo(self, files: Filesystem, folder: str, sources: Sequence[int]) -> None:
        """Give these sources their names again, and forget the replacement."""
        for base in sources:
            for suffix in (*SEGMENT_SUFFIXES, SNAPSHOT):
                path = f"{folder}/{file_name(base, suffix)}"
                if files.exists(path + DELETED) and not files.exists(path):
                    files.rename(path + DELETED, path)
        forget_replacement(files, folder)


def _head(files: Filesystem, folder: str) -> int:
    """The base offset of the first segment; -1 if there is none."""
    bases = (offset_of(name, LOG) for name in files.list_dir(folder))
    return min((base for base in bases if base is not None), default=-1)


def forget_replacement(files: Filesystem, folder: str) -> None:
    """Make the renames last, and only then remove the file that tells of them, for good: what is
    cleaned next in this folder may have the same names. Raises OSError."""
    path = f"{folder}/{REPLACEMENT}"
    if files.exists(path):
        files.sync_dir(folder)
        files.remove(path)
        files.sync_dir(folder)


def finish_renames(files: Filesystem, folder: str, names: list[str]) -> list[str]:
    """Finish or undo replacements of segments that a crash interrupted.

    `.deleted` goes. `.cleaned` is unfinished and goes, and with it every `.swap` of its base or
    a higher one, because a replacement in several parts was not complete. Other `.swap` files
    take their place, after the segments they replace have gone. Returns the names there are now.
    Raises OSError.
    """
    if REPLACEMENT in names:
        path = f"{folder}/{REPLACEMENT}"
        with suppress(MalformedFile):  # nothing of ours wrote that; it is left alone
            Replacement.decode(files.read_bytes(path), path).finish(files, folder)
        names = files.list_dir(folder)
    if not any(name.endswith((DELETED, CLEANED, SWAP)) for name in names):
        return names
    unfinished = [
        base
        for name in names
        if name.endswith(CLEANED) and (base := _base_of(name[: -len(CLEANED)])) is not None
    ]
    lowest = min(unfinished, default=None)
    swapped: list[str] = []
    spoilt: list[str] = []
    for name in names:
        base = _base_of(name.removesuffix(SWAP)) if name.endswith(SWAP) else None
        if base is not None:
            (spoilt if lowest is not None and base >= lowest else swapped).append(name)
    # Those that are undone go before the files that say so: after a second crash amid this, what
    # is left of a replacement must not be taken for a whole one.
    for name in spoilt:
        files.remove(f"{folder}/{name}")
    if spoilt:
        files.sync_dir(folder)
    for name in names:
        if name.endswith((CLEANED, DELETED)):
            files.remove(f"{folder}/{name}")
    _take_places(files, folder, names, swapped)
    files.sync_dir(folder)
    return files.list_dir(folder)


def _base_of(name: str) -> int | None:
    for suffix in SEGMENT_SUFFIXES:
        base = offset_of(name, suffix)
        if base is not None:
            return base
    return None


def _take_places(files: Filesystem, folder: str, names: list[str], swapped: list[str]) -> None:
    """Remove the segments whose offsets the finished replacements cover, and rename these."""
    start, end = -1, -1
    present = set(names)
    for name in swapped:
        base = offset_of(name.removesuffix(SWAP), LOG)
        if base is None:
            continue
        path = f"{folder}/{name}"
        file = files.open_file(path)
        next_offset = base
        for entry in Scan(file, 0, files.size_of(path)):
            next_offset = entry.last_offset + 1
        file.close()
        start = base if start < 0 else min(start, base)
        # What replaces a segment of its own base may be empty.
        end = max(end, next_offset, base + 1)
    for name in names:
        base = _base_of(name)
        if base is None or not start <= base < end:
            continue
        is_new = (
            file_name(base, LOG) + SWAP in present
            and file_name(base, LOG) not in present
            and name + SWAP not in present
        )
        if not is_new:  # it was renamed before the crash, and its segment's .log was not
            files.remove(f"{folder}/{name}")
    if swapped:
        files.sync_dir(folder)
    for suffix in SEGMENT_SUFFIXES:
        for name in sorted(swapped):
            if name.endswith(suffix + SWAP):
                files.rename(f"{folder}/{name}", f"{folder}/{name.removesuffix(SWAP)}")
