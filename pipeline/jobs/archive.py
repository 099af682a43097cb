"""Topics to Parquet files, as records or as whole batches, plain or as a Delta or Iceberg table.

Tasks fetch and write by themselves, a file for a range of offsets; the driver makes the files of a
micro-batch part of the archive at once, and only once (`archiving.publication`). Event time is the
record's timestamp. What lies in the folder is told in `pipeline.archiving.archive_files`.
"""

from __future__ import annotations

import contextlib
import uuid
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from pipeline.archiving.archive_files import FORMAT, STATE, TABLE_FORMAT
from pipeline.archiving.archive_job import ArchiveJob, ArchiveTask
from pipeline.archiving.by_topic import TOPIC, TopicPublications
from pipeline.archiving.folder import open_folder
from pipeline.archiving.layout import Layout
from pipeline.archiving.owner import catalog_of, claim, noted_catalog, owner_of
from pipeline.archiving.parquet_writer import SCHEMAS, Compression
from pipeline.archiving.publication import NOTE, Publication
from pipeline.errors import ForeignState, NoSuchTopic, WrongUse
from pipeline.filesystem import Location, locate, refusing, try_to_write
from pipeline.jobs.archive_progress import telling
from pipeline.jobs.backfill import fill, missing_ranges
from pipeline.jobs.group_progress import GroupProgress, check_group
from pipeline.jobs.range_runs import backlog, check_interval, first_offsets
from pipeline.jobs.stretch import Times, stretch_of
from pipeline.outcome import Outcome, Tally
from pipeline.reading.options import SourceOptions
from pipeline.schemas import RECORDS_AND_HEADERS
from pipeline.session import cores
from pipeline.spark.micro_batches import planned, reached
from pipeline.state import State
from pipeline.tables.table import check_kind
from pipeline.upserting.current_table import CurrentTable
from pipeline.upserting.debezium import DEBEZIUM
from pipeline.upserting.upsert_job import UpsertJob, UpsertTask

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import SparkSession

    from pipeline.outcome import Watch
    from pipeline.reading.source import Source
    from pipeline.tables.table import Catalog
    from pipeline.values.values_job import ValuesJob
    from pipeline.values.wanted import Values

FILE_OFFSETS = 1_000_000
"""Of records of a hundred bytes, a file of 20 to 100 MB, written in about a second."""
FILES_PER_CORE = 2
"""In a micro-batch, unless it is told how much it may read: a few seconds of work."""

APPEND, UPSERT = MODES = ("append", "upsert")

ID = "archive"


@dataclass(frozen=True)
class Archive:
    """An archive of topics, from where to where.

    Of `servers` ("host:port,...") or of a stopped data directory `path`; `topics`, or all whose
    whole name a regular expression `pattern` matches, those that are made later too.
    """

    to: str
    """A folder, local or a URI: a new or an empty one, or that of this archive. With `{topic}` in
    it one for each topic."""
    servers: str | None = None
    path: str | None = None
    topics: tuple[str, ...] = ()
    pattern: str | None = None
    shape: str = "records"
    """Or `batches`: as the log has them, still compressed."""
    table: str = "parquet"
    """Or `delta` or `iceberg`, which the files then are a table of."""
    catalog: Catalog | None = None
    """Where an Iceberg table is registered."""
    partition_by: str | None = None
    """`date` or `hour` of the timestamp in UTC, or a column with few values."""
    sort_by: tuple[str, ...] = ()
    """Columns that rows are sorted by in each row group, in place of the offset."""
    file_bytes: int | None = None
    """End a file that has so many; what a micro-batch has less of is not made up for."""
    mode: str = APPEND
    """Or `upsert`: the table, of Delta, has the newest record of each key, and no tombstones."""
    envelope: str | None = None
    """Of values, with mode upsert: `debezium`, whose events tell of rows."""
    state: str | None = None
    """What has been done; by default in `_state` in the folder."""
    every_s: float | None = None
    """Go on for ever, and look so often for more; None: end when all is done that is there now."""
    starting: str = "earliest"
    """Or `latest`, or JSON as in the option startingOffsets; counts for a new state only."""
    since_ms: int | None = None
    """Begin at the first record at or after this time (`pipeline.jobs.stretch`)."""
    until_ms: int | None = None
    """End before the first record at or after this time."""
    backfill: bool = False
    """Archive what this archive lacks of older offsets and the topic still has; nothing newer."""
    ending: str | None = None
    """Where to end, in JSON as in the option endingOffsets; None: at the present ends."""
    max_offsets: int | None = None
    """In a micro-batch; None: FILES_PER_CORE times `file_offsets` for each core."""
    file_offsets: int = FILE_OFFSETS
    """At most so many offsets in a file. Ranges of that size are also what cores share."""
    on_gap: str = "fail"
    """Or `skip`, where offsets were deleted before they were read; what is left out is counted."""
    on_corrupt: str = "fail"
    committed_only: bool = False
    """Leave out aborted transactions, and wait for the end of those that are open."""
    group: str | None = None
    """A consumer group that gets the offsets that are durable here, right after each micro-batch:
    for tools that show lag, and for retention that waits (`retention.wait.groups`)."""
    command_config: str | None = None
    """A file with Kafka's client properties, for TLS and SASL, on every machine that runs tasks."""
    codec: str = "zstd"
    """Of the files: zstd, snappy, gzip, lz4 or none."""
    level: int | None = None
    """Of zstd or gzip; None: the usual one."""
    values: Values | None = None
    """What of keys and values becomes columns; the shape is `values` then."""

    @property
    def options(self) -> dict[str, str]:
        """For `format("triglot")`, without what depends on the session."""
        given = {
            "kafka.bootstrap.servers": self.servers,
            "commandConfig": self.command_config,
            "path": self.path,
            "subscribe": ",".join(self.topics) if self.topics else None,
            "subscribePattern": self.pattern,
            "startingOffsets": self.starting,
            "endingOffsets": self.ending,
            "maxOffsetsPerTrigger": self.max_offsets,
            "maxRecordsPerPartition": self.file_offsets if self.mode == APPEND else None,
            "onGap": self.on_gap,
            "onCorrupt": self.on_corrupt,
            "kafka.isolation.level": "read_committed" if self.committed_only else None,
        }
        return {name: str(value) for name, value in given.items() if value is not None}

    def check(self) -> None:
        """Everything that can be known before a JVM starts.

        Raises WrongUse, NotInstalled, Unreachable, NoSuchTopic, ForeignState (the folder or the
        state is of something else), Refused (the folder cannot be written).
        """
        self._check_arguments()
        if self.values is not None:
            self.values.check(self.parsed())
        with contextlib.closing(self.parsed().source()) as source:
            identity = self.identity(source)
            if not self.parsed().select(source):
                raise NoSuchTopic(f"no topic matches {self.pattern!r}")
        State.check(self._state_path, identity)
        with refusing(f"write to {self.to}"):
            state = State(locate(self._state_path))
            self._check_owner(state)
            if not self.backfill:
                self._times.check_state(state)
            # Of topics, where each has a folder: the one above.
            beside = self.to.partition(TOPIC)[0].rpartition("/")[0] or "."
            try_to_write(locate(beside if self.per_topic else self.to))

    def run(self, spark: SparkSession, watch: Watch | None = None) -> Outcome:
        """Do it, and wait for the end. Raises Failure, or what Spark makes of it."""
        from pipeline.spark.range_stream import run_stream

        tally = Tally("archive", watch)
        self._check_arguments()
        with (
            contextlib.closing(self.parsed().source()) as source,
            contextlib.closing(State.open(self._state_path, self.identity(source))) as state,
        ):
            if self.backfill:
                self._fill(spark, state, source, tally)
                return tally.outcome()
            told = self._in_stretch(state, source)
            job = told.job(state, source.cluster_id())
            bounded = self.every_s is None
            tally.total(backlog(source, told.parsed(), state) if bounded else None)
            source.close()
            options = told.options
            if self.max_offsets is None:
                most = FILES_PER_CORE * self.file_offsets * cores(spark)
                options["maxOffsetsPerTrigger"] = str(most)
            with GroupProgress(told.parsed(), self.group, state) as progress:
                run_stream(
                    spark,
                    job,
                    source=options,
                    state=state,
                    every_s=self.every_s,
                    committed=progress.telling(telling(tally)),
                )
                progress.catch_up()
        return tally.outcome()

    def _fill(self, spark: SparkSession, state: State, source: Source, tally: Tally) -> None:
        job = self.job(state, source.cluster_id())
        assert isinstance(job, ArchiveJob)  # `_check_backfill`
        ranges = missing_ranges(
            job.task.folder,
            source,
            reached(state),
            since_ms=self.since_ms,
            until_ms=self.until_ms,
            file_offsets=self.file_offsets,
        )
        tally.total(sum(range_.size for range_ in ranges))
        fill(spark, job.task, ranges, telling(tally), parallel=cores(spark))

    @property
    def _times(self) -> Times:
        return Times(self.since_ms, self.until_ms)

    def _in_stretch(self, state: State, source: Source) -> Archive:
        """The same with its times as offsets."""
        found = stretch_of(
            self._times, state, source, self.parsed(), whole_batches=self.shape == "batches"
        )
        starting = self.starting if found.starting is None else found.starting
        return replace(self, starting=starting, ending=found.ending)

    def job(self, state: State, cluster: str | None) -> ArchiveJob | UpsertJob | ValuesJob:
        """Take possession of the folder, and finish what the last run began to publish."""
        self._check_owner(state)
        noted = state.read(ID)
        if noted is None:
            noted = {"id": uuid.uuid4().hex}
            state.write(ID, noted)
        owner = self._owner(noted["id"])
        if self.values is not None:
            return self._values_job(owner, state, cluster)
        if self.mode == UPSERT:
            return self._upsert_job(locate(self.to), owner, state)
        return self._append_job(locate(self.to), owner, state, cluster)

    def _append_job(
        self, folder: Location, owner: dict[str, Any], state: State, cluster: str | None
    ) -> ArchiveJob:
        def opened(topic: str | None = None) -> Publication:
            return open_folder(
                folder if topic is None else locate(self.to.replace(TOPIC, topic)),
                state,
                self._owner(owner["state"], topic),
                self.layout,
                cluster=cluster,
                catalog=self._catalog_of(topic),
            )

        publication: Publication | TopicPublications
        publication = TopicPublications(state, opened) if self.per_topic else opened()
        publication.finish()
        by_topic = publication.published() if isinstance(publication, TopicPublications) else {}
        last = max(by_topic.values(), default=-1)
        if isinstance(publication, Publication):
            last = publication.last
        self._expect_planned(state, last)
        task = ArchiveTask(
            source=self.parsed(),
            folder=folder,
            layout=self.layout,
            cluster=cluster,
            compression=Compression(self.codec, self.level),
            published=-1 if self.per_topic else last,
            by_topic=self.to if self.per_topic else None,
            topics_published=by_topic,
            begins=first_offsets(state, self.parsed()),
        )
        return ArchiveJob(task, publication)

    def _upsert_job(self, folder: Location, owner: dict[str, Any], state: State) -> UpsertJob:
        expected = owner_of(folder) is not None
        claim(folder, owner)
        table = CurrentTable.make(folder, RECORDS_AND_HEADERS, owner["state"], expected=expected)
        last = table.last
        self._expect_planned(state, last)
        task = UpsertTask(
            source=self.parsed(),
            folder=folder,
            envelope=self.envelope,
            merged=last,
        )
        return UpsertJob(task, table)

    def _values_job(self, owner: dict[str, Any], state: State, cluster: str | None) -> ValuesJob:
        from pipeline.jobs.value_archive import values_job

        assert self.values is not None
        job = values_job(
            self.values,
            self.parsed(),
            locate(self.to),
            owner=owner,
            layout=self.layout,
            catalog=self.catalog,
            compression=Compression(self.codec, self.level),
            state=state,
            cluster=cluster,
        )
        self._expect_planned(state, job.last)
        return job

    def _expect_planned(self, state: State, last: int) -> None:
        if last >= 0 and not planned(state, last):
            raise ForeignState(
                f"the state in {self._state_path} does not know micro-batch {last}, which is "
                f"in {self.to}: it has been removed or replaced; archive to another folder"
            )

    @property
    def _state_path(self) -> str:
        if self.state is not None:
            return self.state
        folder, question, rest = self.to.partition("?")
        return f"{folder.rstrip('/')}/{STATE}{question}{rest}"

    @property
    def layout(self) -> Layout:
        shape = self.shape if self.values is None else "values"
        return Layout(shape, self.table, self.partition_by, self.sort_by, self.file_bytes)

    def parsed(self) -> SourceOptions:
        return SourceOptions.parse({**self.options, "shape": "ranges"}, streaming=True)

    def _check_arguments(self) -> None:
        if self.values is not None:
            self.values.check_use(shape=self.shape, to=self.to)
        elif self.shape not in SCHEMAS:
            raise WrongUse(f"no such shape: {self.shape!r}; an archive has records or batches")
        if self.mode not in MODES:
            raise WrongUse(f"no such mode: {self.mode!r}; known are {', '.join(MODES)}")
        if self.mode == UPSERT and self.layout != Layout("records", "delta"):
            raise WrongUse(
                "mode upsert merges records into a Delta table: give --table delta, and leave out "
                "--shape, --partition-by, --sort-by and --file-bytes"
            )
        if self.envelope not in (None, DEBEZIUM):
            raise WrongUse(f"no such envelope: {self.envelope!r}; {DEBEZIUM} is known")
        if self.envelope is not None and self.mode != UPSERT:
            raise WrongUse(f"envelope {self.envelope} tells of rows: give --mode upsert with it")
        self._check_per_topic()
        check_interval(self.every_s)
        self._times.check(starting=self.starting, every_s=self.every_s)
        check_group(self.group, self.path)
        if self.path is not None and self.every_s is not None:
            raise WrongUse("a stopped data directory does not grow: archive it once")
        self.parsed()
        check_kind(self.table, self.catalog)
        self.layout.check()
        if self.backfill:
            self._check_backfill()
        Compression(self.codec, self.level).check()
        locate(self.to.replace(TOPIC, "topic"))

    @property
    def per_topic(self) -> bool:
        """Whether each topic has a folder, and a table, of its own."""
        return TOPIC in self.to

    def _check_per_topic(self) -> None:
        named = self.catalog is not None and TOPIC in self.catalog.identifier
        if named != (self.per_topic and self.catalog is not None):
            raise WrongUse(
                f"a table for each topic has {TOPIC} both in the folder and in the table's name"
            )
        if self.per_topic and self.state is None:
            raise WrongUse("folders of topics share a state: say where it is to be kept (state)")
        if self.per_topic and self.mode != APPEND:
            raise WrongUse(f"mode {self.mode} has one table: give a folder without {TOPIC}")
        if self.per_topic and self.backfill:
            raise WrongUse(f"one folder is filled at a time: name it, without {TOPIC}")

    def _catalog_of(self, topic: str | None) -> Catalog | None:
        if topic is None or self.catalog is None:
            return self.catalog
        # A full stop would begin another namespace.
        name = self.catalog.identifier.replace(TOPIC, topic.replace(".", "_"))
        return replace(self.catalog, identifier=name)

    def _check_backfill(self) -> None:
        if self.shape != "records" or self.layout.apart or self.mode != APPEND:
            raise WrongUse(
                "--backfill is for plain archives of records: archive the older stretch of a "
                "table, or of batches, to a folder of its own (--since, --until)"
            )
        if self.every_s is not None or self.starting != "earliest":
            raise WrongUse("--backfill goes with neither --every nor --starting")
        if self.group is not None:
            raise WrongUse("--backfill commits nothing: leave out --group")

    def identity(self, source: Source) -> dict[str, str]:
        cluster = source.cluster_id() or self.servers or self.path
        topics = ",".join(sorted(self.topics)) or f"pattern {self.pattern}"
        return {
            "job": "archive",
            "cluster": str(cluster),
            "topics": topics,
            "shape": self.layout.shape,
            "table": self.table,
            **self._kept_mode,
        }

    @property
    def _kept_mode(self) -> dict[str, str]:
        """The mode and the envelope, where they are not those that all archives had once."""
        mode = {} if self.mode == APPEND else {"mode": self.mode}
        return mode if self.envelope is None else {**mode, "envelope": self.envelope}

    def _owner(self, state_id: str, topic: str | None = None) -> dict[str, Any]:
        owner = {
            "format": TABLE_FORMAT if self.layout.apart else FORMAT,
            "shape": self.layout.shape,
            "table": self.table,
            "state": state_id,
        }
        catalog = self._catalog_of(topic)
        if catalog is not None:
            owner["catalog"] = noted_catalog(catalog)
        if topic is not None:
            owner["topic"] = topic
        if self.partition_by is not None:
            owner["partition_by"] = self.partition_by
        return {**owner, **self._kept_mode}

    def _check_owner(self, state: State) -> None:
        """Whether folder and state belong together, or are both new. Folders of topics are looked
        at when they are opened."""
        if self.per_topic:
            return
        with refusing(f"use {self.to}"):
            told = owner_of(locate(self.to))
        noted = state.read(ID)
        if told is None:
            if state.read(NOTE) is not None:
                raise ForeignState(
                    f"the state in {self._state_path} is of an archive that is not in {self.to}: "
                    "name its folder, or another state"
                )
            return
        if noted is None or told.get("state") != noted["id"]:
            raise ForeignState(
                f"{self.to} is an archive already, and what is in {self._state_path} is not its "
                "state: give it with --state, or archive to another folder"
            )
        self._check_layout(told)

    def _check_layout(self, told: dict[str, Any]) -> None:
        """Files that lie in another way than those before would not be found with them."""
        by = told.get("partition_by")
        if by != self.partition_by:
            raise ForeignState(
                f"{self.to} is partitioned by {by or 'nothing'}, not by "
                f"{self.partition_by or 'nothing'}: add to it as before, or archive to another "
                "folder, with another state"
            )
        if self.table == "parquet" and self.layout.apart != (told["format"] == TABLE_FORMAT):
            raise ForeignState(
                f"{self.to} was begun {'without' if self.layout.apart else 'with'} sorting or a "
                "size of files: add to it as before, or archive to another folder, with another "
                "state"
            )
        earlier = catalog_of(told)
        wanted = self.catalog
        if earlier is not None and wanted is not None and earlier.identifier != wanted.identifier:
            raise ForeignState(
                f"{self.to} is the Iceberg table {earlier.identifier}, not {wanted.identifier}: "
                "give its name, or archive to another folder, with another state"
            )


def archive(
    to: str,
    *,
    servers: str | None = None,
    path: str | None = None,
    topics: Sequence[str] = (),
    pattern: str | None = None,
    spark: SparkSession | None = None,
    watch: Watch | None = None,
    **rest: Any,
) -> Outcome:
    """Archive topics, and wait for the end: what `Archive` has as fields, by name.

    In the session `spark`, the active one, or a new one. Raises Failure.
    """
    from pipeline.session import session

    job = Archive(to, servers, path, tuple(topics), pattern, **rest)
    job.check()
    with session() as active:
        return job.run(spark or active, watch)
