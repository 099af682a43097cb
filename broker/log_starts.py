"""What follows when log starts were raised, by retention or by DeleteRecords.

First all that lies above a start has to be on the disk, then the starts themselves, in one write
for all of them; only then segments below leave their logs and their files go. None of it happens
on the loop but the bookkeeping: syncs and the checkpoint on the thread that syncs, renames and
removals on those that read.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker import logs
from storage.syncing import take_all

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from broker.partition import Partition
    from broker.server import Broker
    from storage.log import Log
    from storage.removal import Removal
    from storage.syncing import SyncStep

    Failures = dict[Partition, str]
    Done = Callable[[Failures], None]


class LogStarts:
    """Belongs to the loop. Rounds may overlap: the checkpoint keeps its newest content."""

    __slots__ = ("_broker",)

    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    def raised(self, partitions: Iterable[Partition], done: Done) -> None:
        """The log starts of these partitions were raised: note that durably, call `done` with those
        for which it failed, and why; then have the segments below go."""
        raised = list(dict.fromkeys(partitions))

        def synced(failed: dict[Log, str]) -> None:
            failures = {one: failed[one.log] for one in raised if one.log in failed}
            for one in raised:  # the sync was good, but the log failed meanwhile: not noted
                if one.log.recovery_point < one.log.start_offset and one.log.failed is not None:
                    failures.setdefault(one, one.log.failed)
            self._checkpoint([one for one in raised if one not in failures], failures, done)

        # A start above what survives a crash would be ignored then, and a segment may only go when
        # the name of the next one is on the disk.
        behind = [one.log for one in raised if one.log.recovery_point <= one.log.start_offset]
        if behind:
            self._broker.group_commit.wait(behind, synced)
        else:
            synced({})

    def _checkpoint(self, raised: list[Partition], failures: Failures, done: Done) -> None:
        if not raised:
            done(failures)
            return
        steps = self._broker.directory.checkpoint_starts()

        def taken(failed: list[tuple[SyncStep, OSError]]) -> None:
            for _, error in failed:
                if not self._broker.disk.noticed(error):
                    logs.error("log starts not written", reason=str(error))
                failures.update(dict.fromkeys(raised, f"the log start was not stored: {error}"))
            if not failed:
                self._take_out(raised)
            done(failures)

        self._broker.syncer.run(lambda: take_all(steps), taken)

    def _take_out(self, raised: list[Partition]) -> None:
        directory = self._broker.directory
        for partition in raised:
            key = partition.topic.name, partition.index
            if directory.logs.get(key) is not partition.log:
                continue  # the topic was deleted meanwhile
            if self._broker.cleaner.is_replacing(partition.log):
                continue  # the next round of retention finds them
            removal = directory.take_out(key)
            if removal is not None:
                self._remove(removal, partition)

    def _remove(self, removal: Removal, partition: Partition) -> None:
        broker = self._broker
        delay_ms = partition.topic.settings.file_delete_delay_ms
        log = partition.log

        def aside(error: OSError | None) -> None:
            if error is not None:
                logs.warning("segments were left over", log=log.name, reason=str(error))
                return
            broker.directory.has_left(removal)
            logs.info(
                "segments dropped",
                log=log.name,
                count=removal.count,
                bytes=removal.byte_size,
                log_start=log.start_offset,
            )
            broker.disk.remove_later(remove, delay_ms)

        def remove() -> None:
            broker.readers.run(lambda: _tried(removal.remove), removed)

        def removed(error: OSError | None) -> None:
            if error is not None:
                logs.warning("files were left over", log=log.name, reason=str(error))

        broker.readers.run(lambda: _tried(removal.set_aside), aside)


def _tried(step: Callable[[], None]) -> OSError | None:
    try:
        step()
    except FileNotFoundError:
        return None  # the topic was deleted, and all of its files go
    except OSError as error:
        return error
    return None
