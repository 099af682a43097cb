"""A sync fails, the process ends, the next one reads what the kernel's cache shows.

The kernel calls clean what it could not write (the model is tests/support/memory_disk.py): the next
process reads it, its syncs of the same file succeed, and the bytes are not on the disk. So a start
must not move the recovery point past a file because a sync of it succeeded.
"""

from __future__ import annotations

import errno
import os
import random

import pytest

from storage.errors import StorageError
from storage.layout import INDEX, SNAPSHOT, TIME_INDEX, TRANSACTION_INDEX
from storage.recovery import LastKnown, open_log
from storage.transaction_index import AbortedTransaction
from tests.storage.logs import FOLDER, NOW_MS, Settings, append, batch, batches_in, everything
from tests.storage.logs import opened as open_without_reports
from tests.support.memory_filesystem import MemoryFilesystem

SETTINGS = Settings(index_interval_bytes=100)
SUFFIXES = (INDEX, TIME_INDEX, SNAPSHOT, TRANSACTION_INDEX)


class FailingSyncs(MemoryFilesystem):
    """Syncs of files with this suffix fail."""

    suffix = ""

    def about_to(self, what: str, path: str) -> None:
        super().about_to(what, path)
        if self.suffix and what == "sync" and path.endswith(self.suffix):
            raise OSError(errno.EIO, os.strerror(errno.EIO), path)


def in_transaction(sequence: int) -> bytearray:
    return batch(bytes(90), timestamp_ms=NOW_MS, producer=(7, 0, sequence), transactional=True)


def aborted(files: MemoryFilesystem, offset: int) -> list[AbortedTransaction]:
    """What readers are told to leave out, as of an index that is believed below the offset."""
    log, reports = open_log(
        files, FOLDER, SETTINGS, known=LastKnown(recovery_point=offset), now_ms=NOW_MS
    )
    assert reports == []
    assert batches_in(everything(log)) == [(offset, offset) for offset in range(6)]
    return list(log.aborted_transactions(0, log.written_offset))


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_what_a_failed_sync_lost_is_on_the_disk_before_the_recovery_point_passes_it(
    suffix: str,
) -> None:
    # Given a log whose files were all written, and one of which could not be synced
    files = FailingSyncs()
    log = open_without_reports(files, SETTINGS)
    files.sync_all()
    for sequence in range(2):
        append(log, in_transaction(sequence))
    log.append_marker(7, 0, commit=False, coordinator_epoch=0, now_ms=NOW_MS)
    log.roll(now_ms=NOW_MS)
    for sequence in range(2, 5):
        append(log, in_transaction(sequence))
    log.write()
    files.suffix = suffix
    with pytest.raises(StorageError):
        log.sync()

    # When the process ends, and another one syncs everything before the power fails
    files.suffix = ""
    files.kill()
    again, reports = open_log(
        files, FOLDER, SETTINGS, known=LastKnown(recovery_point=0), now_ms=NOW_MS
    )
    assert {report.file.rpartition(".")[2] for report in reports} <= {"snapshot"}
    again.sync()
    assert again.recovery_point == 6
    found = files.power_cut(random.Random(0))

    # Then the next start, which believes what is below the recovery point, misses nothing
    assert aborted(found, 6) == [AbortedTransaction(7, 0, 2, 3)]
