"""Loading the shards after the start.

A shard that is being loaded is touched by nobody else, so that a thread may fill it; the slices of
its log are cut on the loop, which owns the log. What is small is loaded before the first client
can ask.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker import clock, logs
from broker.coordinator.loading import ShardLoader
from broker.workers import Worker
from protocol.records.errors import CorruptBatch

if TYPE_CHECKING:
    from collections.abc import Callable

    from broker.coordinator.shard import Shard
    from broker.server import Broker
    from storage.slices import FileSlice

AT_ONCE_BYTES = 256 * 1024
"""What all shards together may hold to be loaded without a thread."""
SLICE_BYTES = 1024 * 1024


class Loads:
    """Loads shards one after the other, and counts what was found.

    skipped  records of no known kind, or damaged ones, that were left out
    """

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._worker = Worker(broker.loop, "load")
        self._waiting: list[Shard] = []
        self._done: Callable[[Shard], None]
        self._began_s = 0.0
        self._stopped = False
        self.records = 0
        self.skipped = 0
        self.seconds = 0.0

    def begin(self, shards: list[Shard], done: Callable[[Shard], None]) -> None:
        """Load these; `done` is called for each on the loop when it may be used."""
        self._began_s = clock.monotonic_s()
        self._done = done
        self._waiting = list(reversed(shards))
        if sum(_bytes(shard) for shard in shards) <= AT_ONCE_BYTES:
            for shard in shards:
                self._load_at_once(shard)
            self._waiting = []
        else:
            self._next()

    def stop(self) -> None:
        """What is not loaded stays so."""
        self._stopped = True
        self._worker.stop()

    def _load_at_once(self, shard: Shard) -> None:
        loader = self._loader(shard)
        while (piece := _slice(shard, loader)) is not None:
            _pass_over(shard, loader, _feed(loader, piece))
        self._finish(shard, loader)

    def _next(self) -> None:
        if not self._waiting:
            if self.records:
                logs.info(
                    "groups loaded",
                    records=self.records,
                    skipped=self.skipped,
                    seconds=round(self.seconds, 3),
                )
            return
        shard = self._waiting.pop()
        self._go_on(shard, self._loader(shard))

    def _loader(self, shard: Shard) -> ShardLoader:
        log = shard.partition.log
        return ShardLoader(
            shard.state,
            log.name,
            now_ms=int(self._broker.loop.time() * 1000),
            start_offset=log.start_offset,
            end_offset=log.written_offset,
        )

    def _go_on(self, shard: Shard, loader: ShardLoader) -> None:
        if self._stopped:
            return
        piece = _slice(shard, loader)
        if piece is None:
            self._finish(shard, loader)
            self._next()
            return

        def fed(error: OSError | None) -> None:
            _pass_over(shard, loader, error)
            self._go_on(shard, loader)

        self._worker.run(lambda: _feed(loader, piece), fed)

    def _finish(self, shard: Shard, loader: ShardLoader) -> None:
        report = loader.report()
        self.records += report.records
        self.skipped += report.skipped_count
        self.seconds = clock.monotonic_s() - self._began_s
        for offset, reason in report.skipped:
            logs.warning(
                "a record of groups was skipped",
                log=shard.partition.log.name,
                offset=offset,
                reason=reason,
            )
        shard.loaded = True
        self._done(shard)


def _bytes(shard: Shard) -> int:
    return sum(segment.byte_size() for segment in shard.partition.log.segments)


def _slice(shard: Shard, loader: ShardLoader) -> FileSlice | None:
    """The next piece of the log; None at its end."""
    while True:
        try:
            return shard.partition.log.read(loader.next_offset, SLICE_BYTES)
        except (CorruptBatch, OSError) as error:
            _pass_over(shard, loader, error)


def _pass_over(shard: Shard, loader: ShardLoader, error: Exception | None) -> None:
    """Go on behind what cannot be read: with the next segment, or at the end."""
    if error is None:
        return
    log, offset = shard.partition.log, loader.next_offset
    logs.error("groups may be lost", log=log.name, offset=offset, reason=str(error))
    after = [base for base in log.segments.base_offsets if base > offset]
    loader.next_offset = min(after, default=log.written_offset)


def _feed(loader: ShardLoader, piece: FileSlice) -> OSError | None:
    """Load the piece; what the disk said if it can't be read."""
    try:
        loader.feed(piece.read())
    except OSError as error:
        return error
    return None
