"""The flags of `triglot pipeline`: what may be written after each, and what that means.

A flag's value goes to the parameter of the job that has the flag's `field` as its name.
"""

from __future__ import annotations

import argparse
import os
import re
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable

_DURATION = re.compile(r"(\d{1,9}(?:\.\d{1,9})?)(ms|s|m|min|h)")
_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0}
_SHIFT = re.compile(r"([+-]?)(\d{1,9}(?:\.\d{1,9})?)(ms|s|m|min|h|d)")
_SPEED = re.compile(r"(\d{1,6}(?:\.\d{1,6})?)x", re.ASCII)
_SHIFT_SECONDS = {**_SECONDS, "d": 86400.0}


class Flag(NamedTuple):
    """A flag of a job."""

    name: str
    field: str
    help: str
    metavar: str | None = None
    parse: Callable[[str], Any] = str
    choices: tuple[str, ...] | None = None
    repeated: bool = False
    switch: bool | None = None
    """What a flag without a value means."""
    required: bool = False

    def add_to(self, group: argparse._ArgumentGroup) -> None:
        """Let a parser know it; a flag that is not given leaves None, or an empty list."""
        if self.switch is not None:
            group.add_argument(
                self.name,
                dest=self.field,
                action="store_const",
                const=self.switch,
                default=None,
                help=self.help,
            )
            return
        group.add_argument(
            self.name,
            dest=self.field,
            action="append" if self.repeated else "store",
            default=[] if self.repeated else None,
            type=self.parse,
            choices=self.choices,
            metavar=None if self.choices else self.metavar,
            required=self.required,
            help=f"{self.help} (required)" if self.required else self.help,
        )


AS_OPTIONS = {
    "commitGroup": "--group",
    "kafka.bootstrap.servers": "--from",
    "commandConfig": "--command-config",
    "maxOffsetsPerTrigger": "--max-offsets",
    "startingOffsets": "--starting",
    "subscribe": "--topic",
    "subscribePattern": "--topics",
}
"""What the data source calls that which has a flag here."""
_OPTION = re.compile(rf"(?:\boption )?\b({'|'.join(map(re.escape, AS_OPTIONS))})\b")


def in_flags(line: str) -> str:
    """A message of the data source, with flags in the place of its options."""
    return _OPTION.sub(lambda found: AS_OPTIONS[found[1]], line)


def interval(text: str) -> float:
    """Seconds: 10s, 500ms, 2m, 1h. Spark counts in milliseconds."""
    found = _DURATION.fullmatch(text)
    seconds = float(found[1]) * _SECONDS[found[2]] if found is not None else 0.0
    if seconds < 0.001:
        raise argparse.ArgumentTypeError(
            f"wanted an interval like 10s, 500ms or 2m, found '{text}'"
        )
    return seconds


def time_ms(text: str) -> int:
    """Milliseconds since 1970: given as such, or in ISO 8601; without a zone it is UTC."""
    if text.isascii() and text.isdigit() and len(text) >= 10:
        return int(text[:19])
    try:
        moment = datetime.fromisoformat(text)
        if moment.tzinfo is None:
            moment = moment.replace(tzinfo=UTC)
        return round(moment.timestamp() * 1000)
    except (ValueError, OverflowError):
        raise argparse.ArgumentTypeError(
            f"wanted a time like 2026-11-01T08:30Z or 2026-11-01, found '{text}'"
        ) from None


def start_time_ms(text: str) -> int:
    """As `time_ms`, or `now`."""
    if text == "now":
        return round(datetime.now(UTC).timestamp() * 1000)
    return time_ms(text)


def shift_ms(text: str) -> int:
    """Milliseconds later, or earlier: +7d, -90m, 500ms."""
    found = _SHIFT.fullmatch(text)
    if found is None:
        raise argparse.ArgumentTypeError(f"wanted a shift like +7d, -90m or +1h, found '{text}'")
    return round(float(found[2]) * 1000 * _SHIFT_SECONDS[found[3]]) * (-1 if found[1] == "-" else 1)


def speed(text: str) -> float:
    """How many times as fast: 10x, 0.5x, 1x."""
    found = _SPEED.fullmatch(text)
    times = float(found[1]) if found is not None else 0.0
    if times <= 0:
        raise argparse.ArgumentTypeError(f"wanted a speed like 10x, 1x or 0.5x, found '{text}'")
    return times


def milliseconds(text: str) -> int:
    """As `interval`, in whole milliseconds."""
    return round(interval(text) * 1000)


def pair(text: str) -> tuple[str, str]:
    """KEY=VALUE."""
    key, separator, value = text.partition("=")
    if not separator or not key.strip():
        raise argparse.ArgumentTypeError(f"wanted KEY=VALUE, found '{text}'")
    return key.strip(), value.strip()


def count(text: str) -> int:
    """A whole number above 0."""
    if not (text.isascii() and text.isdigit() and len(text) <= 19 and int(text)):
        raise argparse.ArgumentTypeError(f"wanted a whole number above 0, found '{text[:40]}'")
    return int(text)


def whole(text: str) -> int:
    """A whole number."""
    if not re.fullmatch(r"-?\d{1,19}", text, re.ASCII):
        raise argparse.ArgumentTypeError(f"wanted a whole number, found '{text[:40]}'")
    return int(text)


def offset(text: str) -> int:
    """0 or more."""
    found = whole(text)
    if found < 0:
        raise argparse.ArgumentTypeError(f"wanted an offset, found '{text}'")
    return found


SKIP = ("fail", "skip")

FROM = Flag("--from", "servers", "the brokers to read from", "HOST:PORT")
COMMAND_CONFIG = Flag(
    "--command-config",
    "command_config",
    "Kafka's client properties, for TLS and SASL: security.protocol, sasl.*, ssl.*",
    "FILE",
    os.path.abspath,
)
PATH = Flag("--path", "path", "or a stopped broker's data directory, read as it lies", "DIR")
ARCHIVE = Flag("--archive", "archive", "or an archive's folder or URI, for --rules", "DIR")
TOPIC = Flag("--topic", "topics", "a topic; may be given several times", "NAME", repeated=True)
TOPICS = Flag("--topics", "pattern", "or all whose whole name matches, new ones too", "REGEX")
EVERY = Flag(
    "--every",
    "every_s",
    "go on until stopped, and look so often for more; without it, once",
    "10s",
    interval,
)
STATE = Flag("--state", "state", "where to keep what has been done", "DIR")
MAX_OFFSETS = Flag(
    "--max-offsets", "max_offsets", "read at most so many in a micro-batch", "N", count
)
ON_GAP = Flag(
    "--on-gap", "on_gap", "offsets deleted before they were read; default fail", choices=SKIP
)
ON_CORRUPT = Flag(
    "--on-corrupt", "on_corrupt", "batches that are damaged; default fail", choices=SKIP
)
STARTING = Flag(
    "--starting", "starting", 'earliest (default), latest, or JSON: {"orders":{"0":5}}', "OFFSETS"
)
COMMITTED = Flag(
    "--committed",
    "committed_only",
    "leave out aborted transactions, wait for open ones",
    switch=True,
)
GROUP = Flag(
    "--group", "group", "commit what is durable to this consumer group, right after it is", "NAME"
)
RENAME = Flag("--rename", "rename", "what to call the copy, with {topic} in it", "NAME")
SINCE = Flag("--since", "since_ms", "from this time on (record timestamps)", "TIME", time_ms)
UNTIL = Flag("--until", "until_ms", "up to, and without, this time", "TIME", time_ms)
TRANSACTIONAL_ID = Flag(
    "--transactional-id",
    "transactional_id",
    "write in transactions whose ids begin with this, for readers of committed records",
    "PREFIX",
)
CATALOG = (
    Flag("--name", "identifier", "of an Iceberg table", "NAMESPACE.TABLE"),
    Flag("--catalog", "catalog_name", "of the Iceberg table", "NAME"),
    Flag(
        "--catalog-option",
        "catalog_options",
        "of the Iceberg catalog; may be given several times",
        "KEY=VALUE",
        pair,
        repeated=True,
    ),
)
"""Of an archive that is an Iceberg table. What has been made notes them, but for credentials."""

FORMATS = ("avro", "json", "protobuf")
VALUES = (
    Flag("--value", "value", "a column for each field of the value", choices=FORMATS),
    Flag(
        "--value-schema",
        "value_schema",
        "its schema (.avsc, JSON Schema, Spark's DDL, .proto, descriptors), without a registry",
        "FILE",
    ),
    Flag(
        "--value-message",
        "value_message",
        "of Protobuf: the message that columns are made of (default the first of the schema)",
        "NAME",
    ),
    Flag("--key", "key", "the same for the key, in column _key", choices=FORMATS),
    Flag("--key-schema", "key_schema", "its schema, where there is no registry", "FILE"),
    Flag("--key-message", "key_message", "its message, as --value-message", "NAME"),
    Flag(
        "--registry",
        "registry",
        "a schema registry (Confluent's API), for records with schema ids",
        "URL",
    ),
    Flag(
        "--registry-config",
        "registry_config",
        "properties of its client: basic.auth.user.info, ssl.ca.location, ...",
        "FILE",
    ),
    Flag(
        "--dead-letters",
        "dead_letters",
        "where records go that do not fit: a folder, or topic:NAME; without it they end the run",
        "DIR",
    ),
)
"""Of an archive whose values become columns."""
