"""The jobs as commands: what they are good for, their flags, and which parameters they become."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from pipeline.console import cli_flags as flags
from pipeline.console.cli_flags import Flag
from pipeline.console.descriptions import ARCHIVE, AUDIT, MAINTAIN, MIRROR, REPLAY, STREAM
from pipeline.errors import WrongUse

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Mapping

GOES_ON = "the same command goes on from there"
SPARK_ONLY = "nothing was changed"


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
        rest_of = {key: given.pop(f"{name}_{key}") for key in ("schema", "message")}
        if given[name] is not None:
            given[name] = Decoding(given[name], **rest_of)
            continue
        for key, one in rest_of.items():
            if one is not None:
                raise WrongUse(
                    f"--{name}-{key} needs the format of the {name}: --{name} "
                    f"{', '.join(flags.FORMATS[:-1])} or {flags.FORMATS[-1]}"
                )
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
                Flag(
                    "--speed",
                    "speed",
                    "write each record when its time says, so many times as fast",
                    "10x",
                    flags.speed,
                ),
                Flag(
                    "--longest-wait",
                    "longest_wait_ms",
                    "with --speed: cut pauses of all partitions down to that",
                    "60s",
                    flags.milliseconds,
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
                Flag(
                    "--partitions",
                    "partitions",
                    "with --transactional-id: choose partitions anew, by murmur2 of the key",
                    choices=("by-key",),
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
