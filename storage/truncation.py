"""A log cut back to an offset while it is open, as that of a leader is which has lost an election.

A broker that follows nobody never does that to itself: a test asks for it. Kafka's rule is that of
`UnifiedLog.truncateTo`: batches go whole, so the log may end below the offset.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from storage.errors import OffsetOutOfRange
from storage.layout import INDEX, SEGMENT_SUFFIXES, TIME_INDEX
from storage.recovery import LastKnown, open_log

if TYPE_CHECKING:
    from storage.log import Log


def truncated(log: Log, offset: int, *, leader_epoch: int, now_ms: int) -> Log:
    """The log without the batch that holds `offset` and all behind it, on the disk and led in this
    epoch. `log` itself is closed by that; nothing may be queued in it.

    Raises OffsetOutOfRange, with nothing changed, for an offset that is not in it; StorageError,
    OSError.
    """
    place = None
    if log.start_offset <= offset < log.written_offset:
        log.sync()
        place = log.segments.locate(offset)
    if place is None:
        raise OffsetOutOfRange(offset, log.start_offset, log.written_offset)
    files, folder = log.files, log.folder
    cut, position = place
    gaps_below, cleaned_to = log.segments.gaps_below, log.cleaned_to
    later = [one for one in log.segments if one.base_offset > cut.base_offset]
    log.close(clean=False)
    for segment in later:
        for suffix in SEGMENT_SUFFIXES:
            files.remove(segment.path(suffix))
    for suffix in (INDEX, TIME_INDEX):
        files.remove(cut.path(suffix))
    file = files.open_file(cut.path())
    file.truncate(position)
    file.sync()
    file.close()
    files.sync_dir(folder)
    known = LastKnown(
        start_offset=log.start_offset, was_clean=False, gaps_below=gaps_below
    )  # no recovery point: producers, epochs and indexes are taken from what is left
    found, _ = open_log(
        files, folder, log.settings, known=known, leader_epoch=leader_epoch, now_ms=now_ms
    )
    found.segments.gaps_below = gaps_below
    if cleaned_to is not None:
        found.cleaned_to = min(cleaned_to, found.next_offset)
    found.sync()
    return found
