"""Loading the shards, each from its snapshot and what its log has after that: all of them after the
start, and one that has come from another process when it is there.

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
    from storage.log import Log
    from storage.slices import FileSlice

AT_ONCE_BYTES = 256 * 1024
"""All shards together are loaded without a thread up to so many bytes."""
SLICE_BYTES = 1024 * 1024


class Loads:
    """Loads shards one after the other, and counts what was found.

    records   that were replayed, of the shards that are loaded together
    restored  offsets that snapshots had, of the same
    skipped   records of no known kind, or damaged ones, that were left out, in all
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._worker = Worker(loop, "load")
        self._waiting: list[Shard] = []
        self._current: Loading | None = None
        """What is under way on the thread."""
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

    def add(self, shard: Shard) -> None:
        """Load one more, which is led here from now on; after `begin`."""
        if self._stopped:
            return
        if self._current is not None:
            self._waiting.insert(0, shard)
            return
        self._began_s, self.records, self.restored = clock.monotonic_s(), 0, 0
        if _bytes(shard) <= AT_ONCE_BYTES:
            self._load_at_once(shard)
        else:
            self._waiting.append(shard)
            self._load_next()

    def give_up(self, shard: Shard) -> None:
        """Load this one no more, for another process leads it from now on. Its log is used until
        `is_at_work_on` says otherwise."""
        if shard in self._waiting:
            self._waiting.remove(shard)
        elif self._current is not None and self._current.shard is shard:
            self._current.given_up = True

    def is_at_work_on(self, log: Log) -> bool:
        """Whether a thread reads it. May be asked on any thread."""
        current = self._current
        return current is not None and current.log is log and not self._stopped

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
        self._current = None
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
        loading = self._current = Loading(self._waiting.pop(), self._now_ms())
        if loading.found is None:
            self._load_slices(loading)
            return

        def restored(reason: str | None) -> None:
            if self._goes_on(loading):
                loading.restored(reason)
                self._load_slices(loading)

        self._worker.run(
            lambda: loading.restore(lambda: self._stopped or loading.given_up), restored
        )

    def _goes_on(self, loading: Loading) -> bool:
        """Whether a shard is to be loaded further; else the next one is."""
        if self._stopped:
            return False
        if loading.given_up:
            self._load_next()
        return not loading.given_up

    def _now_ms(self) -> int:
        return int(self._loop.time() * 1000)

    def _is_stopped(self) -> bool:
        return self._stopped

    def _load_slices(self, loading: Loading) -> None:
        data = loading.slice()
        if data is None:
            self._finish(loading)
            self._load_next()
            return

        def fed(error: OSError | None) -> None:
            if self._goes_on(loading):
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

    `restore` and `feed` may run on a thread, and nothing else does meanwhile. It is `given_up` when
    nobody wants it any more.
    """

    def __init__(self, shard: Shard, now_ms: int) -> None:
        self.shard = shard
        self.given_up = False
        self.restored_offsets = 0
        self.log = shard.partition.log
        self._now_ms = now_ms
        self.found = shard.snapshots.find()
        """The snapshot that is to be used, or has been."""
        self._origin = self.found and shard.snapshots.origin(self.found.end_offset)
        self.loader = self._loader(self.log.start_offset)

    def _loader(self, start_offset: int) -> ShardLoader:
        self.shard.snapshots.bytes_since = 0
        return ShardLoader(
            self.shard.state,
            self.log.name,
            now_ms=self._now_ms,
            start_offset=start_offset,
            end_offset=self.log.written_offset,
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
        self.loader = self._loader(self.log.start_offset)

    def slice(self) -> FileSlice | None:
        """The next slice of the log; None at its end."""
        while True:
            try:
                return self.log.read(self.loader.next_offset, SLICE_BYTES)
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
        log, offset = self.log, self.loader.next_offset
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
