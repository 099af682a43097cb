"""Topics from one cluster to another, batch by batch, still compressed; exactly once.

From brokers of any age, to triglot or Apache Kafka. A partition goes to the partition of the same
number, in order, and a batch keeps its bytes but for base offset and leader epoch, where a broker
takes it as it is (`delivering.record_sets` has the exceptions). Offsets are not the source's.

Each record is there once, also after a crash, without a producer id of our own, for that would
change the bytes: `delivering.delivery` says how, and what remains. The ids of the source's
producers are in the batches, though, and a broker cannot tell them from its own: one that it gives
out later may be the same. `keep_producers=False` takes them out, for a copy that others are to
write to.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from client.cluster import LATEST, Cluster
from pipeline.delivering.destination import check_rename, make_like, renamed
from pipeline.delivering.mirror_job import Delivered, MirrorJob, MirrorTask
from pipeline.delivering.transactional import Transactions, check_prefix
from pipeline.errors import ForeignState, NoSuchTopic, WrongUse
from pipeline.filesystem import locate
from pipeline.jobs.group_progress import GroupProgress, check_group
from pipeline.jobs.range_runs import backlog, batch_done, check_interval, first_offsets
from pipeline.jobs.stretch import Times, stretch_of
from pipeline.outcome import Outcome, Tally
from pipeline.reading.options import SourceOptions
from pipeline.reading.security_options import security_of
from pipeline.session import cores
from pipeline.state import State

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from pyspark.sql import SparkSession

    from pipeline.delivering.mirror_job import Ends
    from pipeline.outcome import Watch
    from pipeline.reading.source import Source
    from pipeline.spark.range_query import Committed

OFFSETS_PER_CORE = 5_000_000
"""In a micro-batch, unless it is told how much it may read: a few seconds of work where records
have a hundred bytes. With half of it, planning would cost a quarter more CPU."""

REPORTED = {
    "found": "sets that were there already",
    "foreign": "offsets of other writers",
    "producer_refused": "batches sent without their producers, as they were refused with them",
    "cleared": "batches cleared of producers or attributes",
    "rebuilt": "batches made anew",
    "converted": "entries converted from older formats",
    "aborted": "batches of aborted transactions left out",
    "out_of_order": "batches that the destination took before an earlier one",
    "transactions": "transactions committed",
    "committed_before": "offsets committed by an earlier attempt",
}
"""The counts that people are told of, if they are not 0."""


@dataclass(frozen=True)
class Mirror:
    """A mirror of topics: `servers` and `to` are "host:port,..." each; `topics`,
    or all whose whole name a regular expression `pattern` matches, those that are made later too.
    """

    servers: str
    to: str
    state: str
    """A folder: what has been done. The same mirror has to be given the same one."""
    topics: tuple[str, ...] = ()
    pattern: str | None = None
    rename: str | None = None
    """The name of a copy, with `{topic}` for the topic's own, as in "old.{topic}"."""
    every_s: float | None = None
    """Go on for ever, and look so often for more; None: end when all is done that is there now."""
    starting: str = "earliest"
    """Or `latest`, or JSON as in the option startingOffsets; counts for a new state only."""
    since_ms: int | None = None
    """Begin at the first record at or after this time (`pipeline.jobs.stretch`)."""
    until_ms: int | None = None
    """End before the first record at or after this time."""
    ending: str | None = None
    """Where to end, in JSON as in the option endingOffsets; None: at the present ends."""
    max_offsets: int | None = None
    """In a micro-batch; None: OFFSETS_PER_CORE for each core."""
    on_gap: str = "fail"
    """Or `skip`, where offsets were deleted before they were read; what is left out is counted."""
    on_corrupt: str = "fail"
    keep_producers: bool = True
    append: bool = False
    """Begin a new mirror at the ends of topics that have records already."""
    group: str | None = None
    """A consumer group at the source that gets the offsets that the destination has, right after
    each micro-batch: for tools that show lag, and for retention that waits."""
    command_config: str | None = None
    """A file with Kafka's client properties, for TLS and SASL at the source. It has to be on every
    machine that runs tasks."""
    to_command_config: str | None = None
    """The same for the destination."""
    transactional_id: str | None = None
    """Write in transactions, whose ids begin with this. Batches then have our producers' ids."""

    @property
    def options(self) -> dict[str, str]:
        """For `format("triglot")`."""
        given = {
            "kafka.bootstrap.servers": self.servers,
            "commandConfig": self.command_config,
            "subscribe": ",".join(self.topics) if self.topics else None,
            "subscribePattern": self.pattern,
            "startingOffsets": self.starting,
            "endingOffsets": self.ending,
            "maxOffsetsPerTrigger": self.max_offsets,
            "onGap": self.on_gap,
            "onCorrupt": self.on_corrupt,
            "kafka.isolation.level": "read_committed",
        }
        return {name: str(value) for name, value in given.items() if value is not None}

    def check(self) -> None:
        """Everything that can be known before a JVM starts; makes no topic.

        Raises WrongUse, Unreachable, NoSuchTopic, ForeignState, Refused.
        """
        self._check_arguments()
        with self._source() as source, self._destination() as cluster:
            names = self.names(source)
            self._check_clusters(source, cluster, names)
            State.check(self.state, self.identity(source, cluster))
            self._times.check_state(State(locate(self.state)))
            if Delivered.read(State(locate(self.state))) is None:
                there = cluster.topics()
                self._ends(cluster, [name for name in self._copies(names) if name in there])

    def run(self, spark: SparkSession, watch: Watch | None = None) -> Outcome:
        """Do it, and wait for the end. Raises Failure, or what Spark makes of it."""
        from pipeline.spark.range_stream import run_stream

        tally = Tally("mirror", watch)
        self._check_arguments()
        with self._source() as source, self._destination() as cluster:
            names = self.names(source)
            self._check_clusters(source, cluster, names)
            with contextlib.closing(
                State.open(self.state, self.identity(source, cluster))
            ) as state:
                told = self._in_stretch(state, source)
                job = told.job(state, source, cluster, names)
                bounded = self.every_s is None
                tally.total(backlog(source, told._parsed(), state) if bounded else None)
                source.close()
                cluster.close()
                most = self.max_offsets or OFFSETS_PER_CORE * cores(spark)
                with GroupProgress(told._parsed(), self.group, state) as progress:
                    run_stream(
                        spark,
                        job,
                        source={**told.options, "maxOffsetsPerTrigger": str(most)},
                        state=state,
                        every_s=self.every_s,
                        committed=progress.telling(telling(tally)),
                    )
                    progress.catch_up()
        return tally.outcome()

    @property
    def _times(self) -> Times:
        return Times(self.since_ms, self.until_ms)

    def _in_stretch(self, state: State, source: Source) -> Mirror:
        """The same with its times as offsets."""
        found = stretch_of(self._times, state, source, self._parsed(), whole_batches=True)
        starting = self.starting if found.starting is None else found.starting
        return replace(self, starting=starting, ending=found.ending)

    def job(
        self, state: State, source: Cluster, cluster: Cluster, names: Iterable[str]
    ) -> MirrorJob:
        """Make the topics that are not there, and note where the first records are to land.

        Raises Refused, and ForeignState if a new mirror would write behind records that are there.
        """
        make_like(source, cluster, {name: renamed(self.rename, name) for name in names})
        delivered = Delivered.read(state)
        doubtful = delivered is not None
        if delivered is None:
            delivered = Delivered(self._ends(cluster, self._copies(names)))
            delivered.write(state)
        task = MirrorTask(
            source=self._parsed(),
            to=self.to,
            security=security_of(self.to_command_config),
            rename=self.rename,
            keep_producers=self.keep_producers,
            delivered=delivered,
            begins=first_offsets(state, self._parsed()),
            doubtful=doubtful,
            transactions=(
                None
                if self.transactional_id is None
                else Transactions.of_state(self.transactional_id, state)
            ),
        )
        return MirrorJob(task, state)

    def _copies(self, names: Iterable[str]) -> list[str]:
        return [renamed(self.rename, name) for name in names]

    def _ends(self, cluster: Cluster, copies: Iterable[str]) -> Ends:
        """The ends where a new mirror begins. Raises ForeignState if records are there already."""
        ends = cluster.offsets(cluster.partitions(copies), LATEST)
        used = sorted(place for place, end in ends.items() if end)
        if used and not self.append:
            raise ForeignState(
                f"{used[0]} on {self.to} has {ends[used[0]]:,} offsets already, and the state in "
                f"{self.state} is new: give the state of the mirror that wrote them, or "
                "--append to write behind them"
            )
        return {str(place): end for place, end in ends.items()}

    def _parsed(self) -> SourceOptions:
        return SourceOptions.parse({**self.options, "shape": "ranges"}, streaming=True)

    def _source(self) -> Cluster:
        parsed = self._parsed()
        return Cluster(self.servers, timeout_s=parsed.timeout_s, security=parsed.security)

    def _destination(self) -> Cluster:
        return Cluster(self.to, security=security_of(self.to_command_config))

    def _check_arguments(self) -> None:
        if not self.state:
            raise WrongUse("a mirror needs a folder for its state (--state)")
        check_interval(self.every_s)
        self._times.check(starting=self.starting, every_s=self.every_s)
        check_group(self.group)
        check_prefix(self.transactional_id, "transactional-id")
        self._parsed()
        check_rename(self.rename, None if self.pattern is not None else len(self.topics))

    def names(self, source: Source) -> list[str]:
        """The topics that there are to mirror. Raises NoSuchTopic."""
        names = sorted({partition.topic for partition in self._parsed().select(source)})
        if not names:
            raise NoSuchTopic(f"no topic matches {self.pattern!r}")
        return names

    def _check_clusters(self, source: Cluster, cluster: Cluster, names: Iterable[str]) -> None:
        there = cluster.topics()
        own = self.servers == self.to or (
            source.cluster_id() is not None and source.cluster_id() == cluster.cluster_id()
        )
        for name in names:
            if own and renamed(self.rename, name) == name:
                raise WrongUse(
                    f"{self.servers} and {self.to} are one cluster: '{name}' would be mirrored "
                    "into itself; give the copy another name (--rename)"
                )
            if own and self.pattern is not None:
                self._check_pattern(name)
        copies = {name: renamed(self.rename, name) for name in names}
        make_like(source, cluster, {name: copy for name, copy in copies.items() if copy in there})

    def _check_pattern(self, name: str) -> None:
        import re

        assert self.pattern is not None
        copy = renamed(self.rename, name)
        if re.fullmatch(self.pattern, copy):
            raise WrongUse(
                f"the copy '{copy}' of '{name}' in the same cluster matches {self.pattern!r} too "
                "and would be mirrored again: give it a name that does not"
            )

    def identity(self, source: Cluster, cluster: Cluster) -> dict[str, str]:
        """The identity of the job, as its state names it."""
        named = self.transactional_id
        return {
            "job": "mirror",
            "cluster": str(source.cluster_id() or self.servers),
            "to": str(cluster.cluster_id() or self.to),
            "topics": ",".join(sorted(self.topics)) or f"pattern {self.pattern}",
            "rename": self.rename or "{topic}",
            **({} if named is None else {"transactional id": named}),
        }


def telling(watch: Watch) -> Committed:
    """Tells a watch of each micro-batch, from the facts of its tasks."""

    def committed(number: int, results: list[dict[str, Any]], seconds: float) -> None:
        details: Counter[str] = Counter()
        for facts in results:
            for name, count in facts.get("counts", {}).items():
                if name in REPORTED and count:
                    details[REPORTED[name]] += count
        watch.batch(batch_done(number, results, seconds, details))

    return committed


def mirror(
    servers: str,
    to: str,
    *,
    state: str,
    topics: Sequence[str] = (),
    pattern: str | None = None,
    spark: SparkSession | None = None,
    watch: Watch | None = None,
    **rest: Any,
) -> Outcome:
    """Mirror topics, and wait for the end: what `Mirror` has as fields, by name.

    In the session `spark`, the active one, or a new one. Raises Failure.
    """
    from pipeline.session import session

    job = Mirror(servers, to, state, tuple(topics), pattern, **rest)
    job.check()
    with session() as active:
        return job.run(spark or active, watch)
