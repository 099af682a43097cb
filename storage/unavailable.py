"""A partition that exists and is not served here: nothing of it is read, written or removed.

Its log stands in for it, so that clients are told KAFKA_STORAGE_ERROR and the checkpoints go on to
say of the partition what they said; or NOT_LEADER_OR_FOLLOWER, where another process of this
directory leads it and looks after its checkpoints. The files of its folder are not touched.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from storage.epochs import LeaderEpochs
from storage.errors import LedElsewhere
from storage.log import Log
from storage.producers import ProducerStates
from storage.segment import Segment
from storage.segments import Segments
from storage.transaction_index import NOTHING

if TYPE_CHECKING:
    from storage.filesystem import Filesystem
    from storage.recovery import LastKnown
    from storage.settings import LogSettings


def unavailable_log(
    files: Filesystem,
    folder: str,
    settings: LogSettings,
    *,
    known: LastKnown,
    leader_epoch: int,
    reason: str,
) -> Log:
    """A log that has failed for this reason; it ends where its recovery point is."""
    start = known.start_offset or 0
    log = _without_files(
        files,
        folder,
        settings,
        start_offset=start,
        end_offset=max(known.recovery_point, start),
        leader_epoch=leader_epoch,
    )
    log.cleaned_to = known.cleaned_to
    log.unavailable = reason
    log.fail(reason)
    return log


def log_elsewhere(
    files: Filesystem, folder: str, settings: LogSettings, *, leader_epoch: int
) -> Log:
    """The log of a partition that another process leads."""
    log = _without_files(
        files, folder, settings, start_offset=0, end_offset=0, leader_epoch=leader_epoch
    )
    log.refusal = LedElsewhere
    log.unavailable = f"{log.name} is led by another process"
    log.fail(log.unavailable)
    return log


def _without_files(
    files: Filesystem,
    folder: str,
    settings: LogSettings,
    *,
    start_offset: int,
    end_offset: int,
    leader_epoch: int,
) -> Log:
    nothing = Segment(files, folder, 0, interval_bytes=settings.index_interval_bytes)
    nothing.size = nothing.written_size = 0
    nothing.loaded = True
    nothing.aborted = NOTHING
    epochs = LeaderEpochs()
    return Log(
        files,
        folder,
        Segments([nothing], epochs),
        settings,
        start_offset=start_offset,
        next_offset=end_offset,
        recovery_point=end_offset,
        leader_epoch=leader_epoch,
        epochs=epochs,
        producers=ProducerStates(),
    )
