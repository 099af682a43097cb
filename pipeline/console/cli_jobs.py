"""The jobs as commands: what they are good for, their flags, and which parameters they become."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from pipeline.console import cli_flags as flags
from pipeline.console.cli_flags import Flag
from pipeline.errors import WrongUse

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Mapping

GOES_ON = "the same command goes on from there"
SPARK_ONLY = "nothing was changed"

ARCHIVE = """\
  triglot pipeline archive --from localhost:9092 --topic orders --to lake/orders
  triglot pipeline archive --from localhost:9092 --topics 'orders.*' --to lake/raw --shape batches
  triglot pipeline archive --from localhost:9092 --topic orders --to lake/orders --every 30s
  triglot pipeline archive --path data --topic orders --to lake/orders --table delta
  triglot pipeline archive --from localhost:9092 --topics '.*' --to 'lake/{topic}' --state state \\
      --table delta --partition-by date
  triglot pipeline archive --from localhost:9092 --topic orders --to lake/orders --table iceberg \\
      --name shop.orders --catalog-option type=sql --catalog-option uri=sqlite:///catalog.db
  triglot pipeline archive --from localhost:9092 --topic users --to lake/users --table delta \\
      --mode upsert
  triglot pipeline archive --from localhost:9092 --topic orders --to lake/orders --value avro \\
      --registry http://localhost:8081 --dead-letters lake/orders-dead

Writes topics to Parquet files: a row per record with the columns of Spark's Kafka connector, or
with --shape batches a row per stored batch, still compressed. Each record is there exactly once,
also after a crash: what has been done is kept in _state below the folder (or --state), and the same
command goes on from there. With --mode upsert the table has one row for each key: its newest
record, merged by offset; a record without a value deletes the row.
With --value (and --key) there is a column for each field, beside
Kafka's: docs/values.md.

It never changes the topics, never deletes a file of the archive, and never mixes two archives in a
folder.
"""

AUDIT = """\
  triglot pipeline audit --from old:9092
  triglot pipeline audit --path data --topic orders --json
  triglot pipeline audit --from localhost:9092 --topic orders --rules rules.toml --report run.html
  triglot pipeline audit --archive lake/orders --rules rules.toml

Reads the headers of all batches and says what there is: formats, codecs, checksums that are wrong,
holes in the offsets, timestamps that go backwards, sizes, and what stops these topics from moving
to Apache Kafka 4. Without --topic and --topics it looks at all of them.

With --rules FILE it reads the records instead, of topics or of an archive (--archive DIR), and says
which of them break the rules in that file (docs/rules.md): required fields, ranges, values, what is
unique, gaps in time. It exits with 15 if any do.

With --against-table it compares a table of newest values with its topics instead, up to the
offsets that the table tells, and exits with 13 if they differ.

It never changes anything, and keeps no state.
"""

MIRROR = """\
  triglot pipeline mirror --from old:9092 --to new:9092 --topic orders --state state/orders
  triglot pipeline mirror --from old:9092 --to new:9092 --topics '.*' --state state/all --every 5s
  triglot pipeline mirror --from old:9092 --to new:9092 --topic a --rename 'old.{topic}' --state s

Copies topics from one cluster to another, from brokers of any age, batches as they are: still
compressed, same bytes, same partitions, same order. Topics that are not there are made with the
settings of the source's. Each record arrives exactly once, also after a crash: what has been done
is kept in --state, and the same command goes on from there.

It never changes the source, never writes behind records that are not its own unless told to
--append, and never copies consumer groups. Offsets at the destination are its own.
"""

REPLAY = """\
  triglot pipeline replay --from lake/orders --to localhost:9092
  triglot pipeline replay --from lake/raw --to localhost:9092 --topic a --rename 'again.{topic}'
  triglot pipeline replay --from lake/raw --to localhost:9092 --since 2026-11-01 --until 2026-11-02
  triglot pipeline replay --from lake/raw --to localhost:9092 --transactional-id nightly

Writes an archive back to topics: all of it, or a stretch of time or of offsets. Each partition goes
to the partition of the same number, in order, with its records' times; archived batches go back
without being decompressed. Each record is written exactly once, also after a crash: the same
command goes on, and does nothing once it is done, unless told to do it --again.

With --transactional-id it writes in transactions: readers of committed records see nothing of what
an attempt that was killed had begun, and nothing in the topic has to be compared.

It never changes the archive, and never deletes anything from a topic: it writes behind what is
there.
"""

MAINTAIN = """\
  triglot pipeline maintain --from lake/orders --dry-run
  triglot pipeline maintain --from lake/orders --file-bytes 268435456 --keep 24h

Puts the small files of a Delta or Iceberg table together that archive has written, expires
snapshots, and deletes files that are no longer part of it and older than --keep (7 days). It runs
here, without Spark, and an archive that is running has to be stopped for it.

It never changes a record, and what was archived is neither lost nor archived again.
"""

STREAM = """\
  triglot pipeline stream --from localhost:9092 --topic orders --to counts --to-topic counts
  triglot pipeline stream --from localhost:9092 --topic orders --to counts --to-topic counts \\
      --window 5m --delay 1m --every 10s

An example to copy: records and bytes per key and window of event time, written when a watermark
closes the window, to Parquet files (exactly once) and to a topic (at least once). The code is
pipeline/jobs/stream.py.

It never changes the topics that it reads, and never makes the topic that it writes to.
"""


class Job(NamedTuple):
    """A command."""

    name: str
    line: str
    description: str
    flags: tuple[Flag, ...]
    make: Callable[[Mapping[str, Any]], Any]
    """The job's dataclass with these parameters. Imports what the job needs."""
    stopped: str = GOES_ON
    """What the user is to know after Ctrl-C."""
    on_spark: bool = True
    """Whether it needs Spark at all."""
    all_topics: bool = False
    """Whether it is about all topics where none is named."""

    def refuse(self, given: Mapping[str, Any]) -> None:
        """Raises WrongUse for flags that exclude each other, or of which one is wanted."""
        fields = {flag.field for flag in self.flags}
        for choice, needed in (
            ((flags.FROM, flags.PATH, flags.ARCHIVE), True),
            ((flags.TOPIC, flags.TOPICS), not self.all_topics),
        ):
            known = [flag for flag in choice if flag.field in fields]
            if len(known) < 2:
                continue
            there = [flag.name for flag in known if flag.field in given]
            if len(there) > 1:
                raise WrongUse(f"{' and '.join(there)} exclude each other")
            if needed and not there:
                wanted = " or ".join(f"{flag.name} {flag.metavar}" for flag in known)
                raise WrongUse(f"{self.name} wants {wanted}")

    def parameters(self, arguments: argparse.Namespace) -> dict[str, Any]:
        """The values given, by the names of the job's fields; the rest is left to its defaults."""
        found = {flag.field: getattr(arguments, flag.field) for flag in self.flags}
        return {
            name: tuple(value) if isinstance(value, list) else value
            for name, value in found.items()
            if value is not None and value != []
        }


def _with_catalog(given: Mapping[str, Any]) -> dict[str, Any]:
    """The flags of an Iceberg table as one parameter. Raises WrongUse."""
    from pipeline.tables.table import Catalog

    rest = dict(given)
    identifier = rest.pop("identifier", None)
    name, options = rest.pop("catalog_name", None), dict(rest.pop("catalog_options", ()))
    if identifier is not None:
        rest["catalog"] = Catalog(identifier, name or "default", options)
    elif name is not None or options:
        raise WrongUse("--catalog and --catalog-option are of an Iceberg table: give its --name")
    return rest


def _archive(given: Mapping[str, Any]) -> Any:
    from pipeline.jobs.archive import Archive

    rest = _with_catalog(given)
    values = _values(rest)
    return Archive(**rest, values=values)


def _values(rest: dict[str, Any]) -> Any:
    """What the flags of values say, which are taken out; None where none is given."""
    from pipeline.values.wanted import Decoding, Values

    given = {flag.field: rest.pop(flag.field, None) for flag in flags.VALUES}
    if not any(given.values()):
        return None
    for name in ("key", "value"):
        schema = given.pop(f"{name}_schema")
        if given[name] is not None:
            given[name] = Decoding(given[name], schema)
        elif schema is not None:
            raise WrongUse(f"--{name}-schema needs the format of the {name}: --{name} avro or json")
    return Values(**given)


def _audit(given: Mapping[str, Any]) -> Any:
    if "rules" in given:
        from pipeline.jobs.rule_audit import RuleAudit

        if "against_table" in given:
            raise WrongUse("--rules and --against-table exclude each other")
        return RuleAudit(**_with_catalog(given))
    if "archive" in given:
        raise WrongUse("the data of an archive is judged by rules: give --rules FILE")
    _refuse_catalog(given)
    if "against_table" in given:
        from pipeline.jobs.table_audit import TableAudit

        return TableAudit(**given)
    from pipeline.jobs.audit import Audit

    if "committed_only" in given:
        raise WrongUse("--committed is for --against-table and --rules")
    return Audit(**given)


def _refuse_catalog(given: Mapping[str, Any]) -> None:
    for flag in flags.CATALOG:
        if flag.field in given:
            raise WrongUse(f"{flag.name} is of an archive that is an Iceberg table: give --archive")


def _maintain(given: Mapping[str, Any]) -> Any:
    from pipeline.jobs.maintain import Maintain

    return Maintain(**_with_catalog(given))


def _mirror(given: Mapping[str, Any]) -> Any:
    from pipeline.jobs.mirror import Mirror

    return Mirror(**given)


def _replay(given: Mapping[str, Any]) -> Any:
    from pipeline.jobs.replay import Replay

    return Replay(**_with_catalog(given))


def _stream(given: Mapping[str, Any]) -> Any:
    from pipeline.jobs.stream import Stream

    return Stream(**given)


JOBS = {
    job.name: job
    for job in (
        Job(
            "archive",
            "topics to Parquet files, or a Delta or Iceberg table",
            ARCHIVE,
            (
                flags.FROM,
                flags.COMMAND_CONFIG,
                flags.PATH,
                flags.TOPIC,
                flags.TOPICS,
                Flag(
                    "--to",
                    "to",
                    "a folder, local or a URI; with {topic} in it one for each topic",
                    "DIR",
                    required=True,
                ),
                Flag(
                    "--shape",
                    "shape",
                    "rows of records (default) or whole batches",
                    choices=("records", "batches"),
                ),
                Flag(
                    "--table",
                    "table",
                    "plain files (parquet, the default), or a table of them",
                    choices=("parquet", "delta", "iceberg"),
                ),
                Flag(
                    "--mode",
                    "mode",
                    "append all records (default), or keep the newest of each key in a table",
                    choices=("append", "upsert"),
                ),
                Flag(
                    "--envelope",
                    "envelope",
                    "with --mode upsert: what values are in; events of Debezium as JSON",
                    choices=("debezium",),
                ),
                *flags.CATALOG,
                Flag(
                    "--partition-by",
                    "partition_by",
                    "folders, and a table's partitions: date or hour of the timestamp in UTC, or a "
                    "column (topic, partition)",
                    "COLUMN",
                ),
                Flag(
                    "--sort-by",
                    "sort_by",
                    "sort rows in each row group; may be given several times; default by offset",
                    "COLUMN",
                    repeated=True,
                ),
                Flag(
                    "--file-bytes",
                    "file_bytes",
                    "end a file that has so many; for larger ones there is maintain",
                    "N",
                    flags.count,
                ),
                flags.STATE,
                flags.EVERY,
                flags.STARTING,
                flags.SINCE,
                flags.UNTIL,
                Flag(
                    "--backfill", "backfill", "older offsets that this archive lacks", switch=True
                ),
                flags.MAX_OFFSETS,
                flags.ON_GAP,
                flags.ON_CORRUPT,
                flags.COMMITTED,
                flags.GROUP,
                Flag("--codec", "codec", "of the files; default zstd", "CODEC"),
                Flag("--level", "level", "of zstd or gzip", "N", flags.whole),
                *flags.VALUES,
            ),
            _archive,
        ),
        Job(
            "replay",
            "an archive back to topics",
            REPLAY,
            (
                Flag("--from", "archive", "the archive's folder or URI", "DIR", required=True),
                Flag("--to", "to", "the brokers to write to", "HOST:PORT", required=True),
                flags.COMMAND_CONFIG,
                flags.TOPIC._replace(help="of the archive; may be given several times"),
                flags.RENAME,
                flags.SINCE,
                flags.UNTIL,
                Flag(
                    "--shift-time",
                    "shift_ms",
                    "write all times so much later",
                    "+7d",
                    flags.shift_ms,
                ),
                Flag(
                    "--start-at",
                    "start_at_ms",
                    "or so that the earliest becomes this, or now",
                    "TIME",
                    flags.start_time_ms,
                ),
                Flag("--from-offset", "from_offset", "from this offset on", "N", flags.offset),
                Flag("--to-offset", "to_offset", "up to, and without, this", "N", flags.offset),
                flags.STATE,
                Flag("--again", "again", "forget what was done, write all once more", switch=True),
                Flag("--codec", "codec", "of records; batches keep theirs; default lz4", "CODEC"),
                Flag(
                    "--keep-producers",
                    "keep_producers",
                    "leave producers' ids in batches, where nobody else writes to the topic",
                    switch=True,
                ),
                flags.ON_GAP._replace(help="offsets that the archive lacks; default fail"),
                *flags.CATALOG,
                flags.TRANSACTIONAL_ID,
            ),
            _replay,
        ),
        Job(
            "mirror",
            "topics from one cluster to another, batches as they are",
            MIRROR,
            (
                flags.FROM._replace(required=True),
                flags.COMMAND_CONFIG,
                Flag("--to", "to", "the brokers to write to", "HOST:PORT", required=True),
                Flag(
                    "--to-command-config",
                    "to_command_config",
                    "the same as --command-config, of the brokers to write to",
                    "FILE",
                    flags.COMMAND_CONFIG.parse,
                ),
                flags.TOPIC,
                flags.TOPICS,
                flags.STATE._replace(required=True),
                flags.RENAME,
                flags.EVERY,
                flags.STARTING,
                flags.SINCE,
                flags.UNTIL,
                flags.MAX_OFFSETS,
                flags.ON_GAP,
                flags.ON_CORRUPT,
                Flag(
                    "--drop-producers",
                    "keep_producers",
                    "take producers' ids out of batches, for a copy that others are to write to",
                    switch=False,
                ),
                Flag("--append", "append", "write behind what is there already", switch=True),
                flags.GROUP,
                flags.TRANSACTIONAL_ID,
            ),
            _mirror,
        ),
        Job(
            "stream",
            "an example: counts per key and window of event time",
            STREAM,
            (
                flags.FROM._replace(required=True),
                flags.COMMAND_CONFIG,
                flags.TOPIC._replace(required=True),
                Flag("--to", "to", "a folder for the files, local or a URI", "DIR", required=True),
                Flag("--to-topic", "to_topic", "a topic that is there", "NAME", required=True),
                Flag("--window", "window_s", "of event time; default 60s", "60s", flags.interval),
                Flag("--delay", "delay_s", "of late records; default 30s", "30s", flags.interval),
                flags.STATE,
                flags.EVERY,
                flags.STARTING,
                flags.MAX_OFFSETS,
            ),
            _stream,
        ),
        Job(
            "maintain",
            "an archive that is a table: small files put together, old ones deleted",
            MAINTAIN,
            (
                Flag("--from", "archive", "the archive's folder or URI", "DIR", required=True),
                *flags.CATALOG,
                flags.STATE._replace(help="the archive's, where it is not in its folder"),
                Flag(
                    "--file-bytes",
                    "file_bytes",
                    "put smaller files together up to that; default 134217728",
                    "N",
                    flags.count,
                ),
                Flag(
                    "--keep",
                    "keep_s",
                    "how long what is no longer in the table can be read; default 168h",
                    "24h",
                    flags.interval,
                ),
                Flag("--dry-run", "dry_run", "tell what would be done", switch=True),
            ),
            _maintain,
            on_spark=False,
        ),
        Job(
            "audit",
            "what is stored in topics, and what stops them from moving to Kafka 4",
            AUDIT,
            (
                flags.FROM,
                flags.COMMAND_CONFIG,
                flags.PATH,
                flags.TOPIC,
                flags.TOPICS._replace(help="or all whose whole name matches"),
                flags.ON_GAP._replace(
                    help="offsets deleted while they are looked at; default skip"
                ),
                Flag(
                    "--against-table",
                    "against_table",
                    "compare a table that archive --mode upsert keeps with its topics",
                    "DIR",
                ),
                Flag(
                    "--rules",
                    "rules",
                    "judge the records by the rules in this file (docs/rules.md)",
                    "FILE",
                ),
                flags.ARCHIVE,
                *flags.CATALOG,
                flags.COMMITTED._replace(
                    help="the table was made with it; or with --rules, committed records alone"
                ),
            ),
            _audit,
            SPARK_ONLY,
            all_topics=True,
        ),
    )
}
