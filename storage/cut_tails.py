"""The bytes that recovery takes off the end of a log, kept beside it.

File (`<base offset>.log.cut-<offset>`, with `.2`, `.3` after it if there is one of that name):
bytes as they stood in the `.log`, where the record of that offset would have been, or the whole
file of a segment that came after a cut. Nothing reads it but `triglot check` and `dump`; Apache
Kafka takes no notice of such names.

Kept are the newest `FILES_MAX` of a partition, and of the end of one file `BYTES_MAX`. Zeros alone
are not kept: they are the room of records that never came.

What if it is lost: nothing. It is there for people who miss something.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from storage.layout import CUT, LOG, SEGMENT_SUFFIXES, file_name
from storage.reports import HEAD_BYTES, RecoveryReport

if TYPE_CHECKING:
    from storage.filesystem import File, Filesystem
    from storage.segment import Segment

FILES_MAX = 4
BYTES_MAX = 64 * 1024 * 1024
COPIED_AT_ONCE = 1024 * 1024


class Cut:
    """Ends a log at a position of one of its segments. The next record gets `next_offset`."""

    def __init__(
        self, files: Filesystem, folder: str, next_offset: int, high_watermark: int
    ) -> None:
        self._files = files
        self._folder = folder
        self._next_offset = next_offset
        self._high_watermark = high_watermark
        self._reports: list[RecoveryReport] = []

    def run(
        self, segment: Segment, position: int, reason: str, later: list[Segment]
    ) -> list[RecoveryReport]:
        """Cut the segment, and take away those after it. Raises OSError.

        The latter go first, and durably: if they outlived the cut, the next start would take it for
        a gap and serve them, with offsets that were given out again meanwhile.
        """
        if position < segment.byte_size() or not later:
            self._take_off(segment, reason, position)
        for other in later:
            if other.byte_size():
                self._take_off(other, f"follows a cut: {reason}", 0, whole=True)
            for suffix in SEGMENT_SUFFIXES:
                self._files.remove(other.path(suffix))
        if later:
            self._files.sync_dir(self._folder)
        segment.file.truncate(position)
        # Durably too: new batches of the same sizes as the old would end where an old one begins,
        # and after another crash that old one would follow them as if it belonged there.
        segment.file.sync()
        segment.size = segment.written_size = position
        with suppress(OSError):
            thin_kept(self._files, self._folder)
        return self._reports

    def _take_off(
        self, segment: Segment, reason: str, position: int, *, whole: bool = False
    ) -> None:
        """Keep what is about to be cut off a segment, and tell of it."""
        files, folder, base_offset = self._files, self._folder, segment.base_offset
        head, size = segment.file.pread(HEAD_BYTES, position), segment.byte_size() - position
        try:
            if whole:
                kept_as = keep_file(files, folder, base_offset)
            else:
                source, offset = segment.file, self._next_offset
                kept_as = keep_tail(files, folder, source, base_offset, position, offset)
        except OSError as error:
            # A full disk must not keep the log from starting; what goes was never acknowledged.
            kept_as, reason = "", f"{reason}; not kept: {error}"
        self._reports.append(
            RecoveryReport(
                folder.rpartition("/")[2],
                reason,
                file=file_name(base_offset, LOG),
                position=position,
                bytes_cut=size,
                next_offset=self._next_offset,
                offsets_lost=max(self._high_watermark - self._next_offset, 0),
                head=head,
                kept_as=kept_as,
            )
        )


def keep_tail(
    files: Filesystem, folder: str, source: File, base_offset: int, position: int, offset: int
) -> str:
    """Copy what a log file has from a position on, durably; returns the name, or nothing if there
    is nothing but zeros. Raises OSError, with nothing left of the copy."""
    end = min(source.size(), position + BYTES_MAX)
    if _is_zeros(source, position, end):
        return ""
    name = _free_name(files, folder, base_offset, offset)
    path = f"{folder}/{name}"
    try:
        copy = files.open_file(path, create=True)
        at = position
        while at < end:
            piece = source.pread(min(COPIED_AT_ONCE, end - at), at)
            if not piece:
                break
            copy.write_at([piece], at - position)
            at += len(piece)
        copy.sync()
        copy.close()
        files.sync_dir(folder)
    except OSError:
        files.remove(path)
        raise
    return name


def keep_file(files: Filesystem, folder: str, base_offset: int) -> str:
    """Rename a whole log file; the folder is still to be synced. Returns the name."""
    name = _free_name(files, folder, base_offset, base_offset)
    files.rename(f"{folder}/{file_name(base_offset, LOG)}", f"{folder}/{name}")
    return name


def thin_kept(files: Filesystem, folder: str) -> None:
    """Remove all but the newest that are kept."""
    kept = [name for name in files.list_dir(folder) if LOG + CUT in name]
    if len(kept) > FILES_MAX:
        kept.sort(key=lambda name: (files.modified_ms(f"{folder}/{name}"), name))
        for name in kept[:-FILES_MAX]:
            files.remove(f"{folder}/{name}")


def _is_zeros(source: File, position: int, end: int) -> bool:
    while position < end:
        piece = source.pread(min(COPIED_AT_ONCE, end - position), position)
        if piece.count(0) != len(piece):
            return False
        if not piece:
            break
        position += len(piece)
    return True


def _free_name(files: Filesystem, folder: str, base_offset: int, offset: int) -> str:
    name = first = f"{file_name(base_offset, LOG)}{CUT}{offset}"
    number = 2
    while files.exists(f"{folder}/{name}"):
        name = f"{first}.{number}"
        number += 1
    return name
