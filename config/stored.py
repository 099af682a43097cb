"""A topic's settings as they are stored, made such that the topic can be served.

What another version, Kafka or a damaged disk has left may be unknown or unreadable here. One such
setting keeps neither its topic nor the others from being served: each has a nearest safe meaning.
Where a setting says what may be deleted, that is to delete nothing; a broker's own default might
drop what the topic was to keep.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from config.errors import ConfigError, Problem
from config.kinds import LONG_MAX
from config.topic import SOURCE, TopicSettings

if TYPE_CHECKING:
    from collections.abc import Mapping

    from config.broker import BrokerSettings

SAFE_TEXTS = {
    "cleanup.policy": "",
    "delete.retention.ms": str(LONG_MAX),
    "flush.messages": "1",
    "flush.ms": "0",
    "max.compaction.lag.ms": str(LONG_MAX),
    "min.compaction.lag.ms": str(LONG_MAX),
    "retention.bytes": "-1",
    "retention.min.timestamp": "-1",
    "retention.ms": "-1",
}
"""Values in place of unreadable ones: nothing is deleted or compacted, and what is to be synced is
synced at once. A key that is not here counts as not set."""
AS_SENT = ("compression.type", "producer")
NO_HASTE = ("max.compaction.lag.ms", str(LONG_MAX))
WHERE_CONTRADICTED = {
    "compression.type": AS_SENT,
    "message.format.version": AS_SENT,
    "min.compaction.lag.ms": NO_HASTE,
    "max.compaction.lag.ms": NO_HASTE,
}
"""Values in place of readable ones that contradict each other."""


def readable_topic_part(
    broker: BrokerSettings, stored: Mapping[str, str]
) -> tuple[dict[str, str], list[Problem]]:
    """Settings that `TopicSettings.of` takes for those that a topic was stored with, and a problem
    for each that had to be left out or replaced; its reason says which."""
    readable: dict[str, str] = {}
    problems: list[Problem] = []
    for name, text in stored.items():
        key = TopicSettings.KEYS.get(name)
        if key is None:
            problems.append(Problem(SOURCE, name, None, "there is no such key of a topic"))
            continue
        try:
            key.parse(text)
        except ValueError as error:
            safe = SAFE_TEXTS.get(name)
            problems.append(key.problem(SOURCE, text, f"{error}; it {_taken(safe)}"))
            if safe is not None:
                readable[name] = safe
        else:
            readable[name] = text
    try:
        TopicSettings.of(broker, readable)
    except ConfigError as error:
        for problem in error.problems:
            name, safe = WHERE_CONTRADICTED[problem.key]
            reason = f"{problem.reason}; {name} {_taken(safe)}"
            # It may be another than the one that the contradiction was told of.
            problems.append(problem._replace(key=name, value=readable.get(name), reason=reason))
            readable[name] = safe
    return readable, problems


def _taken(safe: str | None) -> str:
    return "is taken as not set" if safe is None else f"is taken as '{safe}'"
