"""A data directory, the broker that serves it, and what its clients were told.

`World` does with storage what the broker does: one loop that appends, reads and answers, and one
worker that takes the steps of syncs and checkpoints one by one, while the loop goes on. Both are
simulated by one thread, so that a seed tells everything. At any call that changes the disk the
power may fail or the process die; `World.crash` starts again and compares.
"""

from __future__ import annotations

import errno
import random
from collections import deque
from contextlib import suppress
from typing import TYPE_CHECKING, NoReturn

from storage import segment
from storage.closing import Cover
from storage.data_dir import DataDirectory
from storage.errors import StorageError
from storage.replacing import discard_all
from tests.simulation.ledger import Ledger
from tests.simulation.settings import Settings
from tests.support.memory_filesystem import MemoryFilesystem, PowerCut
from tests.support.topic_store import open_topics

if TYPE_CHECKING:
    from collections.abc import Generator

    from storage.log import Log
    from storage.removal import Removal
    from storage.reports import RecoveryReport
    from storage.slices import FileSlice
    from storage.syncing import SyncStep

    Job = Generator[None, None, None]
    Part = Generator[None, None, bool]
    Round = tuple[Log, Ledger, list[SyncStep], int]

PATH = "/data"
EPOCH_MS = 1_700_000_000_000
NAMES_IN_ORDER = True


class Violation(AssertionError):
    """Storage broke a promise."""


class SimulatedTopic:
    """A topic as its clients know it."""

    def __init__(self, name: str, topic_id: bytes, partitions: int, settings: Settings) -> None:
        self.name = name
        self.topic_id = topic_id
        self.settings = settings
        self.ledgers = [Ledger() for _ in range(partitions)]
        self.intervals_changed = False

    def grow(self, partitions: int) -> None:
        self.ledgers += [Ledger() for _ in range(partitions - len(self.ledgers))]

    def configure(self, settings: Settings) -> None:
        if settings.index_interval_bytes != self.settings.index_interval_bytes:
            self.intervals_changed = True
        self.settings = settings


class Totals:
    """The sums of a run."""

    __slots__ = (
        "bytes", "clean_stops", "cleanings", "crashes", "faults", "kills", "operations",
        "power_cuts", "retained",
    )  # fmt: skip

    def __init__(self) -> None:
        self.operations = self.crashes = self.power_cuts = self.kills = 0
        self.clean_stops = self.cleanings = self.retained = self.faults = self.bytes = 0

    def add(self, other: Totals) -> None:
        for name in self.__slots__:
            setattr(self, name, getattr(self, name) + getattr(other, name))

    def __str__(self) -> str:
        return (
            f"{self.operations:,} operations, {self.crashes:,} crash points "
            f"({self.power_cuts:,} power cuts, {self.kills:,} kills), "
            f"{self.clean_stops:,} clean stops, {self.cleanings:,} cleanings, "
            f"{self.retained:,} retentions, {self.faults:,} faults, {self.bytes:,} bytes appended"
        )


class World:
    """See the module. `topics` are those that clients were told exist; `doubtful` are those whose
    creation or deletion was not answered, or with an error."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.step = -1
        self.files = MemoryFilesystem(recording=False)
        self.now_ms = EPOCH_MS
        self.topics: dict[str, SimulatedTopic] = {}
        self.doubtful: dict[str, SimulatedTopic] = {}
        self.growing: dict[str, int] = {}
        self.producer_ids: set[int] = set()
        self.syncs: deque[Job] = deque()
        self.removals: deque[Job] = deque()
        self.compacting: deque[Job] = deque()
        self.queues = (self.syncs, self.removals, self.compacting)
        self.syncing = False
        self.totals = Totals()
        self.faulty = False
        """Whether an error was injected since the last start."""
        self.held: list[tuple[FileSlice, bytes]] = []
        """Slices that are being sent, and what they are to say."""
        self._ids = random.Random(f"ids {seed}")
        self.last_stop_was_clean = False
        self.reports: list[RecoveryReport] = []
        self.start()

    # What the broker has at hand

    def new_uuid(self) -> bytes:
        return self._ids.randbytes(16)

    def log(self, topic: SimulatedTopic, number: int) -> Log:
        return self.directory.logs[topic.name, number]

    def pass_ms(self, ms: int) -> None:
        self.now_ms += ms
        self.files.mtime_ms = self.now_ms

    def is_open(self, log: Log) -> bool:
        """Whether this is still the log of its partition."""
        return log in self.directory.logs.values()

    def all_logs(self) -> list[tuple[SimulatedTopic, int, Log, Ledger]]:
        return [
            (topic, number, self.log(topic, number), ledger)
            for topic in self.topics.values()
            for number, ledger in enumerate(topic.ledgers)
        ]

    def broken(self, what: str) -> NoReturn:
        raise Violation(f"seed {self.seed}, step {self.step}: {what}")

    def expect(self, true: bool, what: str) -> None:
        if not true:
            self.broken(what)

    # Starting

    def start(self) -> None:
        segment.OPEN.forget(*segment.OPEN)  # a new process has none
        for queue in self.queues:
            queue.clear()
        self.held.clear()
        self.syncing = False
        self.files.mtime_ms = self.now_ms
        self.directory = DataDirectory.take(self.files, PATH, node_id=1, new_uuid=self.new_uuid)
        self.store = open_topics(self.files, PATH)
        self.store.begin_epoch()
        self.reports = self.directory.open_logs(
            self.store, lambda topic: Settings.of(topic.configs), now_ms=self.now_ms
        )
        self.faulty = any(number >= self.files.count for number in self.files.faults)

    # Threads: one takes the steps of syncs, one removes files, one compacts

    def work(self, rng: random.Random, count: int) -> None:
        """Let the threads take some steps."""
        for _ in range(count):
            busy = [queue for queue in self.queues if queue]
            if not busy:
                return
            self._advance(rng.choice(busy))

    def _advance(self, queue: deque[Job]) -> None:
        try:
            next(queue[0])
        except StopIteration:
            queue.popleft()

    def finish_work(self) -> None:
        """As at a stop: what is queued is done, but what compacts is killed."""
        self.drop(self.compacting)
        for _, _, log, _ in self.all_logs():
            with suppress(OSError):
                discard_all(self.files, log.folder)
        for _ in range(100_000):
            for queue in self.queues:
                if queue:
                    self._advance(queue)
            if not any(self.queues):
                return
        raise AssertionError("jobs wait for each other")

    def drop(self, queue: deque[Job]) -> None:
        """The jobs end where they are."""
        while queue:
            job = queue.popleft()
            with suppress(PowerCut, OSError):
                job.close()

    def begin_sync(self, wanted: list[tuple[Log, Ledger]]) -> None:
        """Group commit: a round for these logs."""
        self.syncs.append(self._sync(wanted))

    def _sync(self, wanted: list[tuple[Log, Ledger]]) -> Job:
        while self.syncing:
            yield
        yield from self._take_rounds(self._rounds(wanted))

    def _rounds(self, wanted: list[tuple[Log, Ledger]]) -> list[Round]:
        return [(log, ledger, *log.unsynced()) for log, ledger in wanted if log.failed is None]

    def _take_rounds(self, rounds: list[Round]) -> Part:
        """There is one at a time. Returns whether nothing failed."""
        self.syncing = True
        errors: dict[str, OSError] = {}
        try:
            for log, _, steps, _ in rounds:
                try:
                    for step in steps:
                        step.sync()
                        yield
                except OSError as error:
                    errors[log.name] = error
            yield
        finally:
            self.syncing = False
        for log, ledger, _, up_to in rounds:
            failure = errors.get(log.name)
            if failure is None:
                log.synced(up_to)
                ledger.synced(up_to)
            else:
                log.sync_failed(failure)
                self.follow(log, ledger)
        return not errors

    def synced(self, log: Log, ledger: Ledger) -> Part:
        """A part of a job: wait for a round of its own."""
        while self.syncing:
            yield
        if log.failed is not None:
            return False
        return (yield from self._take_rounds(self._rounds([(log, ledger)])))

    def begin_checkpoint(self) -> None:
        directory = self.directory
        steps = [*directory.checkpoints.everything(), directory.starts.checkpoint()]
        steps += directory.checkpoints.synced()
        self.syncs.append(self._checkpoint(steps))

    def _checkpoint(self, steps: list[SyncStep]) -> Job:
        failed = []
        for step in steps:
            try:
                step.sync()
            except OSError as error:
                failed.append((step, error))
            yield
        for step, why in failed:
            if isinstance(step, Cover):
                step.failed(why)
        for _, _, log, ledger in self.all_logs():
            self.follow(log, ledger)

    def begin_removal(self, folders: list[str]) -> None:
        self.removals.append(self._remove(folders))

    def _remove(self, folders: list[str]) -> Job:
        for folder in folders:
            try:
                self.directory.remove_deleted(folder)
            except OSError:
                continue
            yield

    def begin_raise(self, topic: SimulatedTopic, number: int, offset: int) -> None:
        """Begin what it takes to raise a log start."""
        log, ledger = self.log(topic, number), topic.ledgers[number]
        ledger.start_max = max(ledger.start_max, offset)
        start = log.start_after_deletion(offset)
        self.expect(start >= offset, f"{log.name} starts at {start}")
        self.syncs.append(self._raise(topic, number, log, ledger, start))

    def _raise(
        self, topic: SimulatedTopic, number: int, log: Log, ledger: Ledger, start: int
    ) -> Job:
        """As broker.background.log_starts does it."""
        if log.recovery_point <= start and not (yield from self.synced(log, ledger)):
            return
        if log.recovery_point < start:
            self.expect(log.failed is not None, f"{log.name} was synced, but not up to {start}")
            return
        step, stored = self.directory.starts.announce({log: start}), False
        try:
            step.sync()
            stored = True
            yield
        except OSError:
            return
        finally:
            self.directory.starts.settle({log: start}, stored=stored)
        ledger.start = log.start_offset
        ledger.start_kept = max(ledger.start_kept, start)
        if self.directory.logs.get((topic.name, number)) is log:
            removal = self.directory.starts.take_out((topic.name, number))
            if removal is not None:
                self.removals.append(self._set_aside(removal))

    def _set_aside(self, removal: Removal) -> Job:
        try:
            removal.set_aside()
            yield
            self.directory.starts.has_left(removal)
            yield
            removal.remove()
        except OSError:
            return

    def follow(self, log: Log, ledger: Ledger) -> None:
        """After an error: what the log has taken back is not in the ledger either."""
        if log.next_offset < ledger.next_offset:
            self.expect(
                log.next_offset >= ledger.written,
                f"{log.name} ends at {log.next_offset}; {ledger.written} was written",
            )
            ledger.refuse(log.next_offset)
        self.expect(
            log.next_offset == ledger.next_offset,
            f"{log.name} ends at {log.next_offset}, not {ledger.next_offset}",
        )
        ledger.written = log.written_offset

    def write(self, log: Log, ledger: Ledger) -> None:
        """End a turn of the loop: what is queued goes into the file."""
        try:
            log.write()
        except StorageError:
            self.expect(self.faulty, f"{log.name}: write failed without a fault")
        self.follow(log, ledger)

    # Faults

    def inject(self, rng: random.Random) -> None:
        self.faulty = True
        self.totals.faults += 1
        code = rng.choice((errno.ENOSPC, errno.EIO))
        self.files.faults[self.files.count + rng.randrange(12)] = code

    def fill_disk(self, rng: random.Random) -> None:
        """No room but for a little, until it is made."""
        if self.files.capacity is None:
            self.faulty = True
            self.totals.faults += 1
            used = self.files.used_bytes()
            self.files.capacity = used + rng.randrange(1500)
        else:
            self.files.capacity = None

    def plan_crash(self, rng: random.Random, within: int) -> None:
        if self.files.cut_at is None:
            self.files.cut_at = self.files.count + rng.randrange(within)

    # Ending

    def stop_cleanly(self) -> bool:
        """A stop in good order. Returns whether storage says that it was."""
        self.finish_work()
        try:
            clean = self.directory.close()
        except OSError:
            clean = False
        finally:  # who waited for these syncs is answered before the directory notes them
            for _, _, log, ledger in self.all_logs():
                ledger.synced(log.recovery_point)
        self.expect(clean or self.faulty, "a stop was not clean though nothing went wrong")
        if clean:
            self.totals.clean_stops += 1
            for _, _, log, ledger in self.all_logs():
                self.follow(log, ledger)
                ledger.acked = ledger.next_offset
        return clean

    def crash(self, rng: random.Random) -> bool:
        """The machine or the process dies and is started until it runs. Returns whether the power
        failed: what is found then is on the disk."""
        power_failed = False
        while True:
            self.totals.crashes += 1
            self.files.capacity = None
            self.files.cut_at = 0  # what is dropped now does nothing more
            for queue in self.queues:
                self.drop(queue)
            if rng.random() < 0.65:
                power_failed = True
                self.totals.power_cuts += 1
                self.files = self.files.power_cut(rng, names_in_order=NAMES_IN_ORDER)
            else:
                self.totals.kills += 1
                self.files.kill()
            if rng.random() < 0.25:
                self.files.cut_at = self.files.count + rng.randrange(60)
            try:
                self.start()
            except PowerCut:
                power_failed = False
                continue
            self.files.cut_at = None
            return power_failed
