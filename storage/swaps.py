"""Replacing segments by others, and what a start makes of a replacement that a crash cut short.

Compaction writes `.cleaned` files, renames them to `.swap` when all are on the disk, renames the
old segments to `.deleted`, and gives the new ones their names. Whatever the crash left, either all
old or all new segments are there after `finish_renames`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from storage.layout import CLEANED, DELETED, LOG, SEGMENT_SUFFIXES, SWAP, offset_of
from storage.scan import Scan

if TYPE_CHECKING:
    from storage.filesystem import Filesystem


def finish_renames(files: Filesystem, folder: str, names: list[str]) -> list[str]:
    """Finish or undo replacements of segments that a crash interrupted.

    `.deleted` goes. `.cleaned` is unfinished and goes, and with it every `.swap` of its base or
    a higher one, because a replacement in several parts was not complete. Other `.swap` files
    take their place, after the segments they replace have gone. Returns the names there are now.
    """
    if not any(name.endswith((DELETED, CLEANED, SWAP)) for name in names):
        return names
    unfinished = [
        base
        for name in names
        if name.endswith(CLEANED)
        and (base := offset_of(name[: -len(CLEANED)], LOG)) is not None
    ]  # fmt: skip
    lowest = min(unfinished, default=None)
    swapped = []
    for name in names:
        base = _base_of(name.removesuffix(SWAP)) if name.endswith(SWAP) else None
        if name.endswith((DELETED, CLEANED)) or (
            base is not None and lowest is not None and base >= lowest
        ):
            files.remove(f"{folder}/{name}")
        elif base is not None:
            swapped.append(name)
    _remove_replaced(files, folder, names, swapped)
    for suffix in SEGMENT_SUFFIXES:
        for name in sorted(swapped):
            if name.endswith(suffix + SWAP):
                files.rename(f"{folder}/{name}", f"{folder}/{name.removesuffix(SWAP)}")
    files.sync_dir(folder)
    return files.list_dir(folder)


def _base_of(name: str) -> int | None:
    for suffix in SEGMENT_SUFFIXES:
        base = offset_of(name, suffix)
        if base is not None:
            return base
    return None


def _remove_replaced(files: Filesystem, folder: str, names: list[str], swapped: list[str]) -> None:
    """Remove the segments whose offsets the finished replacements cover."""
    start, end = -1, -1
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
        end = max(end, next_offset)
    for name in names:
        base = _base_of(name)
        if base is not None and start <= base < end:
            files.remove(f"{folder}/{name}")
