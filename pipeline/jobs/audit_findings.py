"""Findings on a topic's move to Apache Kafka 4, from its facts.

Kafka 4 reads what is stored in formats 0 and 1 and does not write it, has no setting for formats
(KIP-724), speaks with no client older than 2.1 (KIP-896), and refuses records of a time more than
an hour ahead (message.timestamp.after.max.ms, KIP-937 and KIP-1030). Retention by time goes by the
records' timestamps alone there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from pipeline.jobs.audit_facts import Facts

STOPS, LOSES, NOTE = "stops", "loses", "note"
"""Kinds: it does not work there before this is mended; records would go; good to know."""

AHEAD_MS = 3_600_000
"""message.timestamp.after.max.ms of Kafka 4."""
MAX_MESSAGE_BYTES = 1_048_588
"""max.message.bytes where nothing else is set."""
FORMAT_2_SINCE = (0, 11)
FORMAT_SETTING = "message.format.version"
OUR_SETTINGS = {"retention.min.timestamp": "-1", "retention.wait.groups": ""}
"""What only triglot has, and the value by which it tells of other topics that there is none."""


class Finding(NamedTuple):
    """One line about a topic."""

    kind: str
    topic: str
    line: str


def old_before_ms(configs: Mapping[str, str], now_ms: int) -> int | None:
    """Before which time records go by retention.ms; None where none do, or nothing is told."""
    if "delete" not in configs.get("cleanup.policy", "delete"):
        return None
    retention = configs.get("retention.ms", "")
    if not retention.lstrip("-").isdecimal() or int(retention) < 0:
        return None
    return now_ms - int(retention)


def findings(facts: Facts, configs: Mapping[str, str], now_ms: int) -> Iterator[Finding]:
    """The findings on a topic; `facts` are those of all its partitions together, `configs` its
    settings as far as they are known."""
    topic = facts.topic
    if facts.left_out.batches_corrupt:
        yield Finding(
            STOPS,
            topic,
            f"{facts.left_out.batches_corrupt:,} corrupt entries, where every reader stops: copy "
            "the topic without them (mirror --on-corrupt skip). This audit went on without "
            f"{facts.left_out}",
        )
    yield from _formats(facts, configs)
    yield from _times(facts, configs, now_ms)
    for name, none in OUR_SETTINGS.items():
        if configs.get(name, none) != none:
            yield Finding(STOPS, topic, f"setting {name}, which only triglot has: remove it")
    limit = configs.get("max.message.bytes", "")
    if facts.largest > (int(limit) if limit.isdecimal() else MAX_MESSAGE_BYTES):
        yield Finding(
            STOPS,
            topic,
            f"an entry of {facts.largest:,} bytes is above max.message.bytes: a copy by producing "
            "is refused there unless the limit is raised",
        )
    if facts.offsets_in_holes and "compact" not in configs.get("cleanup.policy", "compact"):
        yield Finding(
            NOTE,
            topic,
            f"{facts.offsets_in_holes:,} offsets are missing in {facts.holes:,} places, although "
            "the topic is not compacted now",
        )


def _formats(facts: Facts, configs: Mapping[str, str]) -> Iterator[Finding]:
    topic = facts.topic
    setting = configs.get(FORMAT_SETTING, "")
    version = tuple(int(part) for part in setting.split("-")[0].split(".") if part.isdecimal())
    if version and version[:2] < FORMAT_2_SINCE:
        yield Finding(
            STOPS,
            topic,
            f"setting {FORMAT_SETTING}={setting}: Kafka 4 has none and writes format 2: remove it "
            "and see who cannot read",
        )
    old = {number: count for number, count in facts.formats.items() if number != "2"}
    if not old:
        return
    share = sum(facts.format_bytes[number] for number in old) / max(facts.bytes, 1)
    if facts.last_format != 2:
        yield Finding(
            STOPS,
            topic,
            f"the last entry of a partition has format {facts.last_format}: who produces there is "
            "older than Kafka 2.1, or made to write for such readers, and is not served by Kafka 4",
        )
    yield Finding(
        NOTE,
        topic,
        f"{share:.1%} of the bytes are of formats {' and '.join(sorted(old))}, which Kafka 4 reads "
        "and never writes; an archive and a replay make format 2 of them",
    )


def _times(facts: Facts, configs: Mapping[str, str], now_ms: int) -> Iterator[Finding]:
    topic = facts.topic
    if facts.too_old:
        yield Finding(
            LOSES,
            topic,
            f"{facts.too_old:,} of {facts.entries:,} entries are older than retention.ms="
            f"{configs.get('retention.ms')}: Kafka deletes their segments soon after its start; "
            "raise retention.ms first if they are wanted",
        )
    if facts.latest_ms is not None and facts.latest_ms > now_ms + AHEAD_MS:
        yield Finding(
            STOPS,
            topic,
            f"timestamps are up to {(facts.latest_ms - now_ms) // 1000:,} s ahead of now: Kafka 4 "
            "refuses such records (message.timestamp.after.max.ms); set the producer's clock right",
        )
    if facts.without_time:
        yield Finding(
            NOTE,
            topic,
            f"{facts.without_time:,} entries have no timestamp: Kafka cannot find them by time",
        )
