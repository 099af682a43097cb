"""A partition that exists and is not served: nothing of it is read, written or removed.

Its log stands in for it, so that clients are told KAFKA_STORAGE_ERROR and the checkpoints go on to
say of the partition what they said. The files of its folder are not touched.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from storage.epochs import LeaderEpochs
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
    nothing = Segment(files, folder, 0, interval_bytes=settings.index_interval_bytes)
    nothing.size = nothing.written_size = 0
    nothing.loaded = True
    nothing.aborted = NOTHING
    start = known.start_offset or 0
    end = max(known.recovery_point, start)
    epochs = LeaderEpochs()
    log = Log(
        files,
        folder,
        Segments([nothing], epochs),
        settings,
        start_offset=start,
        next_offset=end,
        recovery_point=end,
        leader_epoch=leader_epoch,
        epochs=epochs,
        producers=ProducerStates(),
    )
    log.cleaned_to = known.cleaned_to
    log.unavailable = reason
    log.fail(reason)
    return log
