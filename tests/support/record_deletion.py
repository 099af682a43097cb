"""DeleteRecords in one go, which the broker does in steps."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from storage.data_dir import DataDirectory


def delete_records(directory: DataDirectory, topic: str, partition: int, offset: int) -> int:
    """Raise a log's start (-1: to its high watermark), durably. Returns the new start.

    The checkpoint is on the disk before the log starts there and files are removed: losing it
    would bring deleted records back. Raises OffsetOutOfRange, StorageError, OSError, and then
    nothing has changed.
    """
    log, announced = directory.logs[topic, partition], directory.starts
    start = log.start_after_deletion(offset)
    if log.recovery_point <= start:
        log.sync()
    starts, stored = {log: start}, False
    try:
        announced.announce(starts).sync()
        stored = True
    finally:
        announced.settle(starts, stored=stored)
    removal = announced.take_out((topic, partition))
    if removal is not None:
        removal.set_aside()
        removal.remove()
        announced.has_left(removal)
    return start
