"""Loading the shards after the start, each from its snapshot and what its log has after that.

A shard that is being loaded is touched by nobody else, so that a thread may fill it; the slices of
its log are cut on the loop, which owns the log. What is small is loaded before the first client
can ask.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker import clock, logs
from broker.coordinator.loading.replaying import ShardLoader
from broker.workers import Worker
from protocol.records.errors import CorruptBatch

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

    from broker.coordinator.shard import Shard
    from storage.slices import FileSlice

AT_ONCE_BYTES = 256 * 1024
"""All shards together are loaded without a thread up to so many bytes."""
SLICE_BYTES = 1024 * 1024


class Loads:
    """Loads shards one after the other, and counts what was found.

    records   that were replayed
    restored  offsets that snapshots had
    skipped   records of no known kind, or damaged ones, that were left out
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._worker = Worker(loop, "load")
        self._waiting: list[Shard] = []
        self._done: Callable[[Shard], None]
        self._began_s = 0.0
        self._stopped = False
        self.records = 0
        self.restored = 0
        self.skipped = 0
        self.seconds = 0.0

    def begin(self, shards: list[Shard], done: Callable[[Shard], None]) -> None:
        """Load these; `done` is called for each on the loop when it may be used."""
        self._began_s = clock.monotonic_s()
        self._done = done
        # Groups that cannot be read stay unknown: to serve them as new would reset their consumers.
        shards = [shard for shard in shards if shard.partition.log.unavailable is None]
        self._waiting = list(reversed(shards))
        if sum(_bytes(shard) for shard in shards) <= AT_ONCE_BYTES:
            while self._waiting:
                self._load_at_once(self._waiting.pop())
        else:
            self._load_next()

    def stop(self) -> None:
        """Load no more."""
        self._stopped = True
        self._worker.stop()

    def _load_at_once(self, shard: Shard) -> None:
        loading = Loading(shard, self._now_ms())
        loading.run(self._is_stopped)
        self._finish(loading)

    def _load_next(self) -> None:
        if self._stopped:
            return
        if not self._waiting:
            if self.records or self.restored:
                logs.info(
                    "groups loaded",
                    records=self.records,
                    offsets_of_snapshots=self.restored,
                    skipped=self.skipped,
                    seconds=round(self.seconds, 3),
                )
            return
        loading = Loading(self._waiting.pop(), self._now_ms())
        if loading.found is None:
            self._load_slices(loading)
            return

        def restored(reason: str | None) -> None:
            if not self._stopped:
                loading.restored(reason)
                self._load_slices(loading)

        self._worker.run(lambda: loading.restore(self._is_stopped), restored)

    def _now_ms(self) -> int:
        return int(self._loop.time() * 1000)

    def _is_stopped(self) -> bool:
        return self._stopped

    def _load_slices(self, loading: Loading) -> None:
        if self._stopped:
            return
        data = loading.slice()
        if data is None:
            self._finish(loading)
            self._load_next()
            return

        def fed(error: OSError | None) -> None:
            loading.fed(error)
            self._load_slices(loading)

        self._worker.run(lambda: loading.feed(data), fed)

    def _finish(self, loading: Loading) -> None:
        shard, report = loading.shard, loading.loader.report()
        self.records += report.records
        self.restored += loading.restored_offsets
        self.skipped += report.skipped_count
        self.seconds = clock.monotonic_s() - self._began_s
        for offset, reason in report.skipped:
            logs.warning(
                "a record of groups was skipped",
                log=shard.partition.log.name,
                offset=offset,
                reason=reason,
            )
        shard.snapshots.last_ms = self._now_ms()
        shard.loaded = True
        self._done(shard)


class Loading:
    """One shard on its way: from its snapshot, if there is a good one, and then from its log.

    `restore` and `feed` may run on a thread, and nothing else does meanwhile.
    """

    def __init__(self, shard: Shard, now_ms: int) -> None:
        self.shard = shard
        self.restored_offsets = 0
        self._log = shard.partition.log
        self._now_ms = now_ms
        self.found = shard.snapshots.find()
        """The snapshot that is to be used, or has been."""
        self._origin = self.found and shard.snapshots.origin(self.found.end_offset)
        self.loader = self._loader(self._log.start_offset)

    def _loader(self, start_offset: int) -> ShardLoader:
        self.shard.snapshots.bytes_since = 0
        return ShardLoader(
            self.shard.state,
            self._log.name,
            now_ms=self._now_ms,
            start_offset=start_offset,
            end_offset=self._log.written_offset,
        )

    def run(self, is_stopped: Callable[[], bool] = lambda: False) -> None:
        """All of it, here and now."""
        if self.found is not None:
            self.restored(self.restore(is_stopped))
        while (data := self.slice()) is not None:
            self.fed(self.feed(data))

    def restore(self, is_stopped: Callable[[], bool]) -> str | None:
        """Read the snapshot; None, or why it is of no use."""
        shard, found, origin = self.shard, self.found, self._origin
        assert found is not None
        assert origin is not None
        return shard.snapshots.read(
            found, origin, shard.state, now_ms=self._now_ms, is_stopped=is_stopped
        )

    def restored(self, reason: str | None) -> None:
        """After `restore`: go on with the log after the snapshot, or without a snapshot."""
        assert self.found is not None
        if reason is None:
            self.restored_offsets = len(self.shard.state.offsets)
            self.loader = self._loader(self.found.end_offset)
        else:
            self._do_without(reason)

    def _do_without(self, reason: str) -> None:
        assert self.found is not None
        self.shard.snapshots.reject(self.found, reason)
        self.found = None
        self.restored_offsets = 0
        self.shard.state.clear()
        self.loader = self._loader(self._log.start_offset)

    def slice(self) -> FileSlice | None:
        """The next slice of the log; None at its end."""
        while True:
            try:
                return self._log.read(self.loader.next_offset, SLICE_BYTES)
            except (CorruptBatch, OSError) as error:
                self._pass_over(error)
                self._require_all()

    def feed(self, data: FileSlice) -> OSError | None:
        """Load a slice; what the disk said if it can't be read."""
        try:
            self.loader.feed(data.read())
        except OSError as error:
            return error
        self.shard.snapshots.bytes_since += data.size
        return None

    def fed(self, error: OSError | None) -> None:
        """After `feed`: pass over the slice if it could not be read."""
        if error is not None:
            self._pass_over(error)
        self._require_all()

    def _require_all(self) -> None:
        """If the log is not whole after the snapshot, begin anew without it."""
        if self.found is not None and self.loader.has_gaps:
            self._do_without("the log has gaps after it, and may lack removals")

    def _pass_over(self, error: Exception) -> None:
        """Go on behind what cannot be read: with the next segment, or at the end."""
        log, offset = self._log, self.loader.next_offset
        logs.error(
            "a part of __consumer_offsets can't be read: groups may be lost",
            log=log.name,
            offset=offset,
            reason=str(error),
        )
        after = [base for base in log.segments.base_offsets if base > offset]
        self.loader.skip_to(min(after, default=log.written_offset))


def _bytes(shard: Shard) -> int:
    return sum(segment.byte_size() for segment in shard.partition.log.segments)
