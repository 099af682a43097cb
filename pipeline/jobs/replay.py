"""An archive back into topics: all of it, or a stretch of offsets or of time; exactly once.

Each partition goes to the partition of the same number, in order and with its records' times; or
each record to the partition of its key, in transactions, as several tasks then write to one. How
far it has got is noted in a state of its own after every piece, so that a replay that was killed
goes on; one that is done does nothing, until the archive has more files or it is asked for again.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections import defaultdict
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from client.cluster import LATEST, Cluster, TopicPartition
from pipeline.archiving.archive_files import ArchiveFile
from pipeline.archiving.reading import contents
from pipeline.delivering.destination import check_rename, renamed
from pipeline.delivering.pace import SYSTEM_CLOCK, Clock, Schedule
from pipeline.delivering.remade import Selection
from pipeline.delivering.replay_task import ReplayTask, Transactions, aborted_transactions
from pipeline.delivering.transactional import NOTE as RUN
from pipeline.delivering.transactional import Transactions as InTransactions
from pipeline.delivering.transactional import check_prefix
from pipeline.errors import CorruptData, ForeignState, NoSuchTopic, OffsetsGone, Refused, WrongUse
from pipeline.filesystem import locate
from pipeline.jobs.mirror import telling
from pipeline.jobs.replay_turns import ENDS, Reached, offsets_left, turns, worked
from pipeline.outcome import Outcome, Tally
from pipeline.reading.security_options import security_of
from pipeline.state import State
from protocol.errors import ErrorCode
from protocol.records.compression import NAMES
from protocol.records.record import INT64_MAX

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import SparkSession

    from pipeline.outcome import Watch
    from pipeline.tables.table import Catalog

STATES = "_replays"
"""Below the archive, a state for each replay that is not told where to keep it."""
NOTE = "written"
SHIFT = "shift"
PACED = "paced"
COUNTS = "partitions"
"""Of the topics that keys choose a partition of."""

BY_KEY = "by-key"

MAX_MS = INT64_MAX // 1000
"""Parquet has times in microseconds."""


@dataclass(frozen=True)
class Replay:
    """A replay of an archive: what is written back, from where to where.

    Of the archive in the folder `archive` (a local path or URI): all its topics, or `topics`.
    Offsets from `from_offset` up to, and without, `to_offset`; timestamps (ms) from `since_ms` up
    to, and without, `until_ms`, which no record without a timestamp has.
    """

    archive: str
    to: str
    """"host:port,..."."""
    topics: tuple[str, ...] = ()
    rename: str | None = None
    """The name of the topic that is written, with `{topic}` for the one in the archive."""
    from_offset: int = 0
    to_offset: int | None = None
    since_ms: int | None = None
    until_ms: int | None = None
    shift_ms: int | None = None
    """Write all times so much later, or earlier."""
    start_at_ms: int | None = None
    """Or so that the earliest of the stretch becomes this time. A run that goes on has the shift of
    the first one."""
    speed: float | None = None
    """Write each record when its time says: at so many times the pace of the timestamps, those of
    all partitions on one clock, which begins with the earliest that is left. None: at once."""
    longest_wait_ms: int | None = None
    """With `speed`: where no partition has a record for longer than that, go on then."""
    state: str | None = None
    """What has been done; by default in `_replays` in the archive's folder."""
    again: bool = False
    """Forget what has been done, and write all of it once more."""
    codec: str = "lz4"
    """Of archived records, which every client since 0.8.2 reads; batches keep theirs."""
    keep_producers: bool = False
    """Leave producers' ids in archived batches: only for a topic that nobody else writes to."""
    command_config: str | None = None
    """A file with Kafka's client properties, for TLS and SASL, on every machine that runs tasks."""
    on_gap: str = "fail"
    """Or `skip`, where the archive lacks offsets between those that it has, which are counted, or
    the end of a transaction, which is left out."""
    catalog: Catalog | None = None
    """Of an archive that is an Iceberg table, where it is registered; by default as archive noted
    it."""
    transactional_id: str | None = None
    """Write in transactions, whose ids begin with this: the destination then has each record once
    by their means, for readers of committed records."""
    partitions: str | None = None
    """`by-key`: of records, by the hash that Kafka's own producer takes (murmur2). None: as
    archived. Needs `transactional_id`."""

    @property
    def wanted(self) -> Selection:
        end = INT64_MAX if self.to_offset is None else self.to_offset
        return Selection(self.from_offset, end, self.since_ms, self.until_ms)

    def check(self) -> None:
        """Everything that can be known before a JVM starts; makes no topic.

        Raises WrongUse, NoSuchTopic, OffsetsGone, CorruptData, ForeignState, Unreachable, Refused.
        """
        self._check_arguments()
        files = self._wanted_of(self._archived())
        self._check_gaps(files)
        with Cluster(self.to, security=security_of(self.command_config)) as cluster:
            State.check(self._state_path, self._identity(cluster))
            there = cluster.topics()
            for partition in () if self.by_key else files:
                name = renamed(self.rename, partition.topic)
                if partition.partition >= there.get(name, INT64_MAX):
                    raise Refused(
                        f"topic '{name}' on {self.to} has {there[name]} partitions, and the "
                        f"archive has {partition}: give it more, or another name (--rename)"
                    )

    def run(
        self, spark: SparkSession, watch: Watch | None = None, *, clock: Clock = SYSTEM_CLOCK
    ) -> Outcome:
        """Do it, and wait for the end. Raises Failure, or what Spark makes of it."""
        self._check_arguments()
        tally = Tally("replay", watch)
        archived = self._archived()
        files = self._wanted_of(archived)
        self._check_gaps(files)
        schedule = self._schedule(clock)
        with Cluster(self.to, security=security_of(self.command_config)) as cluster:
            state = State.open(self._state_path, self._identity(cluster))
            try:
                if self.again:
                    for note in (NOTE, ENDS, RUN, SHIFT, PACED, COUNTS):
                        state.remove(note)
                transactions = (
                    None
                    if self.transactional_id is None
                    else InTransactions.of_state(self.transactional_id, state)
                )
                doubtful = state.read(NOTE) is not None
                self._check_paced(state)
                shift_ms = self._shift(state, files)
                reached = self._begin(state, cluster, files)
                tally.total(offsets_left(files, reached))
                aborted = {
                    partition: self._aborted(partition, archived[partition])
                    for partition, some in files.items()
                    if some[-1].end > reached[partition].offset
                }
                tell = telling(tally)
                for number, turn in enumerate(turns(state, files, reached, schedule)):
                    began = time.monotonic()
                    tasks = [
                        replace(
                            self._task(partition, files_of, files, reached[partition], clock),
                            aborted=aborted[partition],
                            doubtful=doubtful and turn.is_first,
                            transactions=transactions,
                            shift_ms=shift_ms,
                            pace=turn.pace,
                        )
                        for partition, files_of in turn.files.items()
                    ]
                    done = []
                    for facts in worked(spark, tasks):
                        done.append(facts)
                        partition = TopicPartition(facts["topic"], facts["partition"])
                        reached[partition] = Reached(facts["end"], facts["landed"])
                        _note(state, reached)
                    tell(number, done, time.monotonic() - began)
                    if schedule is not None:
                        schedule.wait_for(
                            facts["next_ms"] for facts in done if facts["next_ms"] is not None
                        )
            finally:
                state.close()
        return tally.outcome()

    def _schedule(self, clock: Clock) -> Schedule | None:
        if self.speed is None:
            return None
        return Schedule(self.speed, longest_wait_ms=self.longest_wait_ms, clock=clock)

    def _check_paced(self, state: State) -> None:
        """Batches are cut in another way with a pace, and what a run that was killed has written is
        recognised only if it is made in the same way. Raises ForeignState."""
        paced = self.speed is not None
        noted = state.read(PACED)
        if noted is None and state.read(NOTE) is not None:
            noted = False  # begun by a version that had no pace
        if noted not in (None, paced):
            raise ForeignState(
                f"this replay was begun {'with' if noted else 'without'} --speed: go on in the "
                "same way (at any speed), begin --again, or give it another --state"
            )
        state.write(PACED, paced)

    def _begin(
        self, state: State, cluster: Cluster, files: dict[TopicPartition, list[ArchiveFile]]
    ) -> dict[TopicPartition, Reached]:
        """Make the topics that are not there, and see where each partition goes on."""
        try:
            reached = {
                TopicPartition(topic, partition): Reached(offset, landing)
                for topic, partition, offset, landing in state.read(NOTE) or ()
            }
        except (TypeError, ValueError):
            raise ForeignState(
                f"{state.location.under(NOTE).path}.json does not tell how far a replay came, as "
                "this version notes it: go on with the version that made it, or begin --again"
            ) from None
        self._make_topics(cluster, files)
        if self.by_key:
            self._check_counts(state, cluster, files)
        new = {
            partition: self._landing_of(partition)
            for partition in files
            if partition not in reached
        }
        ends = cluster.offsets(new.values(), LATEST)
        for partition, place in new.items():
            reached[partition] = Reached(self.from_offset, ends[place])
        _note(state, reached)
        return reached

    @property
    def by_key(self) -> bool:
        """Whether keys choose the partitions."""
        return self.partitions == BY_KEY

    def _landing_of(self, partition: TopicPartition) -> TopicPartition:
        """Where to look for the end that a delivery begins at; by key none is looked for."""
        number = 0 if self.by_key else partition.partition
        return TopicPartition(renamed(self.rename, partition.topic), number)

    def _check_counts(
        self, state: State, cluster: Cluster, files: dict[TopicPartition, list[ArchiveFile]]
    ) -> None:
        """A topic with more partitions than before would have a key in two of them. Raises
        ForeignState."""
        noted: dict[str, int] = state.read(COUNTS) or {}
        for name in {renamed(self.rename, partition.topic) for partition in files}:
            count = len(cluster.partitions([name]))
            if noted.setdefault(name, count) != count:
                raise ForeignState(
                    f"topic '{name}' on {self.to} had {noted[name]} partitions when this replay "
                    f"began, and has {count}: keys would go to other ones than before; "
                    "replay to another topic (--rename), or begin --again"
                )
        state.write(COUNTS, noted)

    def _shift(self, state: State, files: dict[TopicPartition, list[ArchiveFile]]) -> int:
        """What all times are shifted by, in ms: as the first run has noted. Raises WrongUse,
        ForeignState."""
        wanted = self.shift_ms
        noted = state.read(SHIFT)
        if noted is None and state.read(NOTE) is not None:
            noted = 0  # begun by a version that shifted none
        if noted is not None:
            if wanted not in (None, noted) or (
                wanted is None and self.start_at_ms is None and noted
            ):
                raise ForeignState(
                    f"this replay was begun with its times shifted by {noted} ms: go on with the "
                    "same --shift-time, begin --again, or give it another --state"
                )
            return int(noted)
        if wanted is None:
            wanted = 0
            if self.start_at_ms is not None:
                wanted = self.start_at_ms - self._earliest_ms(files)
        state.write(SHIFT, wanted)
        return wanted

    def _earliest_ms(self, files: dict[TopicPartition, list[ArchiveFile]]) -> int:
        if self.since_ms is not None:
            return self.since_ms
        times = [file.earliest_ms for some in files.values() for file in some if file.rows]
        known = [time_ms for time_ms in times if time_ms is not None]
        batches = any(file.shape == "batches" for some in files.values() for file in some)
        if batches or not known:
            raise WrongUse(
                "the archive does not tell its earliest time, which --start-at wants (one of "
                "batches never does): say from when on with --since, or use --shift-time"
            )
        return min(known)

    def _make_topics(
        self, cluster: Cluster, files: dict[TopicPartition, list[ArchiveFile]]
    ) -> None:
        wanted: dict[str, int] = {}
        for partition in files:
            name = renamed(self.rename, partition.topic)
            wanted[name] = max(wanted.get(name, 0), partition.partition + 1)
        there = cluster.topics()
        for name, partitions in wanted.items():
            if name not in there:
                try:
                    cluster.create_topic(name, partitions)
                except Refused as error:
                    if error.code != ErrorCode.TOPIC_ALREADY_EXISTS:
                        raise

    def _archived(self) -> dict[TopicPartition, list[ArchiveFile]]:
        """The files of each partition, in order. Raises NoSuchTopic, CorruptData."""
        found = contents(self.archive, topics=self.topics or None, catalog=self.catalog)
        if not found:
            of = f" of {', '.join(self.topics)}" if self.topics else ""
            raise NoSuchTopic(f"there are no files of an archive{of} in {self.archive}")
        for topic in self.topics:
            if not any(file.topic == topic for file in found):
                raise NoSuchTopic(f"there is nothing of topic '{topic}' in {self.archive}")
        files: dict[TopicPartition, list[ArchiveFile]] = defaultdict(list)
        if self.by_key and any(file.shape == "batches" for file in found):
            raise WrongUse(
                f"{self.archive} has whole batches, with records of many keys: --partitions "
                f"{BY_KEY} is for an archive of records"
            )
        for file in found:
            files[TopicPartition(file.topic, file.partition)].append(file)
        return dict(files)

    def _wanted_of(
        self, archived: dict[TopicPartition, list[ArchiveFile]]
    ) -> dict[TopicPartition, list[ArchiveFile]]:
        """The files that have something of the stretch of offsets."""
        wanted = self.wanted
        chosen = {
            partition: [
                file for file in files if file.start < wanted.end and file.end > wanted.first
            ]
            for partition, files in archived.items()
        }
        return {partition: files for partition, files in chosen.items() if files}

    def _check_gaps(self, files: dict[TopicPartition, list[ArchiveFile]]) -> None:
        """Raises CorruptData for files that overlap, OffsetsGone for a gap between them unless it
        is to be skipped."""
        for partition, some in files.items():
            for before, after in pairwise(some):
                if after.start < before.end:
                    raise CorruptData(
                        f"{before.location.path} and {after.location.path} both hold offset "
                        f"{after.start:,} of {partition}: is there more than one archive in there?"
                    )
                if after.start > before.end and self.on_gap == "fail":
                    raise OffsetsGone(
                        f"the archive in {self.archive} lacks offsets {before.end:,} to "
                        f"{after.start - 1:,} of {partition}; go on without them with "
                        "--on-gap skip"
                    )

    def _aborted(self, partition: TopicPartition, files: list[ArchiveFile]) -> Transactions:
        """Raises OffsetsGone for a transaction whose end is not there, unless it is to be skipped:
        if it was committed, its records would be missing for good."""
        aborted = aborted_transactions(files, self.wanted)
        for _, first, end in aborted:
            if end == INT64_MAX and self.on_gap == "fail":
                raise OffsetsGone(
                    f"the archive in {self.archive} ends before a transaction does that began at "
                    f"offset {first:,} of {partition}: archive more, end before it with "
                    f"--to-offset {first}, or go on without it with --on-gap skip"
                )
        return aborted

    def _task(
        self,
        partition: TopicPartition,
        piece: tuple[ArchiveFile, ...],
        files: dict[TopicPartition, list[ArchiveFile]],
        reached: Reached,
        clock: Clock,
    ) -> ReplayTask:
        every = files[partition]
        lacking = {after.start: after.start - before.end for before, after in pairwise(every)}
        return ReplayTask(
            to=self.to,
            place=TopicPartition(renamed(self.rename, partition.topic), partition.partition),
            files=tuple(
                file._replace(missing=file.missing + lacking.get(file.start, 0)) for file in piece
            ),
            begin=max(piece[0].start, reached.offset),
            aborted=(),
            # A first batch may reach below what was archived, or what is left of it.
            wanted=replace(self.wanted, first=max(self.from_offset, every[0].start)),
            codec=NAMES.index(self.codec),
            keep_producers=self.keep_producers,
            landing=reached.landing,
            doubtful=False,
            by_key=self.by_key,
            security=security_of(self.command_config),
            clock=clock,
        )

    @property
    def _state_path(self) -> str:
        if self.state is not None:
            return self.state
        name = hashlib.sha256(json.dumps(self._selection()).encode()).hexdigest()[:16]
        folder, question, rest = self.archive.partition("?")
        return f"{folder.rstrip('/')}/{STATES}/{name}{question}{rest}"

    def _selection(self) -> dict[str, str]:
        stretch = (self.from_offset, self.to_offset, self.since_ms, self.until_ms)
        return {
            "job": "replay",
            "servers": self.to,
            "topics": ",".join(sorted(self.topics)) or "all",
            "rename": self.rename or "{topic}",
            "stretch": json.dumps(stretch),
        }

    def _identity(self, cluster: Cluster) -> dict[str, str]:
        rest = {key: value for key, value in self._selection().items() if key != "servers"}
        to = cluster.cluster_id() or self.to
        if self.transactional_id is not None:
            # Not in the name of a state: to write all of it once more, be it in another way, is
            # something to ask for.
            rest["transactional id"] = self.transactional_id
        if self.partitions is not None:
            rest["partitions"] = self.partitions
        return {**rest, "archive": locate(self.archive).uri, "to": str(to)}

    def _check_arguments(self) -> None:
        if self.on_gap not in ("fail", "skip"):
            raise WrongUse(f"on-gap is {self.on_gap!r}, wanted fail or skip")
        check_prefix(self.transactional_id, "transactional-id")
        if self.partitions not in (None, BY_KEY):
            raise WrongUse(f"partitions {self.partitions!r}: {BY_KEY} is known, or leave it out")
        if self.by_key and self.transactional_id is None:
            raise WrongUse(
                f"--partitions {BY_KEY} has several tasks write to one partition, which takes "
                "transactions to be exactly once: give a --transactional-id"
            )
        if self.shift_ms is not None and self.start_at_ms is not None:
            raise WrongUse("--shift-time and --start-at exclude each other")
        if self.longest_wait_ms is not None and self.speed is None:
            raise WrongUse("--longest-wait is for a replay with a pace: give its --speed")
        if self.codec not in NAMES:
            raise WrongUse(f"codec {self.codec!r}, known are {', '.join(NAMES)}")
        if self.from_offset < 0 or (
            self.to_offset is not None and self.to_offset <= self.from_offset
        ):
            raise WrongUse(f"there are no offsets from {self.from_offset} to {self.to_offset}")
        if (
            self.since_ms is not None
            and self.until_ms is not None
            and self.until_ms <= self.since_ms
        ):
            raise WrongUse("the stretch of time ends before it begins (--since, --until)")
        for time_ms in (self.since_ms, self.until_ms):
            if time_ms is not None and abs(time_ms) > MAX_MS:
                raise WrongUse(f"{time_ms} is no time in milliseconds (--since, --until)")
        check_rename(self.rename, len(self.topics) or None)


def replay(
    archive: str,
    to: str,
    *,
    topics: Sequence[str] = (),
    spark: SparkSession | None = None,
    watch: Watch | None = None,
    **rest: Any,
) -> Outcome:
    """Write an archive back, and wait for the end: what `Replay` has as fields, by name.

    In the session `spark`, the active one, or a new one. Raises Failure.
    """
    from pipeline.session import session

    job = Replay(archive, to, tuple(topics), **rest)
    job.check()
    with session() as active:
        return job.run(spark or active, watch)


def _note(state: State, reached: dict[TopicPartition, Reached]) -> None:
    state.write(NOTE, [[*partition, *where] for partition, where in sorted(reached.items())])
