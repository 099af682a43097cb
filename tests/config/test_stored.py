"""Replacements for a topic's stored settings that cannot be used as they are."""

from __future__ import annotations

import os
import random

import pytest

from config import TopicSettings, load
from config.kinds import LONG_MAX
from config.stored import readable_topic_part

SEED = int(os.environ.get("FUZZ_SEED", "20262"))
FACTOR = int(os.environ.get("TEST_FUZZ_FACTOR", "1"))
TEXTS = 60 * FACTOR
"""Garbage texts for each key."""
CHARACTERS = "0123456789-+.,eE_ \t\0abcdelpmotcnz\u0660\U0001f600"


def test_settings_that_can_be_used_are_left_as_they_are() -> None:
    stored = {"cleanup.policy": "", "retention.ms": " 5 ", "segment.bytes": "50"}
    assert readable_topic_part(load(), stored) == (stored, [])


def test_a_setting_that_nobody_knows_is_left_out() -> None:
    readable, (problem,) = readable_topic_part(load(), {"of.kafka.9": "x", "segment.bytes": "50"})
    assert readable == {"segment.bytes": "50"}
    assert problem.key == "of.kafka.9"


@pytest.mark.parametrize(
    ("name", "text", "attribute", "taken"),
    [
        ("cleanup.policy", "shred", "cleanup_policy", ()),
        ("cleanup.policy", "delete,shred", "cleanup_policy", ()),
        ("retention.ms", "soon", "retention_ms", -1),
        ("retention.ms", "-2", "retention_ms", -1),
        ("retention.bytes", "1 GB", "retention_bytes", -1),
        ("retention.min.timestamp", "", "retention_min_timestamp", -1),
        ("delete.retention.ms", "1.5", "delete_retention_ms", LONG_MAX),
        ("min.compaction.lag.ms", "x", "min_compaction_lag_ms", LONG_MAX),
        ("max.compaction.lag.ms", "0", "max_compaction_lag_ms", LONG_MAX),
        ("flush.messages", "0", "flush_messages", 1),
        ("flush.ms", "-1", "flush_ms", 0),
    ],
)
def test_an_unreadable_setting_deletes_nothing_and_delays_no_sync(
    name: str, text: str, attribute: str, taken: object
) -> None:
    broker = load(overrides={"log.retention.ms": "1", "log.retention.bytes": "1"})

    readable, (problem,) = readable_topic_part(broker, {name: text})

    assert getattr(TopicSettings.of(broker, readable), attribute) == taken
    assert (problem.key, problem.value) == (name, text)
    assert "it is taken as '" in problem.reason


def test_an_unreadable_setting_that_deletes_nothing_counts_as_not_set() -> None:
    broker = load(overrides={"log.segment.bytes": "5000"})

    readable, (problem,) = readable_topic_part(broker, {"segment.bytes": "13"})

    assert readable == {}
    assert TopicSettings.of(broker, readable).segment_bytes == 5000
    assert problem.reason == "wanted at least 14; it is taken as not set"


@pytest.mark.parametrize(
    ("stored", "taken"),
    [
        (
            {"compression.type": "zstd", "message.format.version": "0.10.0"},
            {"compression.type": "producer", "message.format.version": "0.10.0"},
        ),
        (
            {"min.compaction.lag.ms": "5", "max.compaction.lag.ms": "1"},
            {"min.compaction.lag.ms": "5", "max.compaction.lag.ms": str(LONG_MAX)},
        ),
        (
            {"min.compaction.lag.ms": "?", "max.compaction.lag.ms": "1"},
            {"min.compaction.lag.ms": str(LONG_MAX), "max.compaction.lag.ms": str(LONG_MAX)},
        ),
    ],
)
def test_settings_that_contradict_each_other_are_served_with_one_of_them_replaced(
    stored: dict[str, str], taken: dict[str, str]
) -> None:
    readable, problems = readable_topic_part(load(), stored)

    assert readable == taken
    replaced = {name for name, text in taken.items() if stored[name] != text}
    assert {problem.key for problem in problems} == replaced


def test_a_setting_that_contradicts_the_brokers_is_replaced() -> None:
    broker = load(overrides={"log.message.format.version": "0.10.0"})

    readable, (problem,) = readable_topic_part(broker, {"compression.type": "zstd"})

    assert readable == {"compression.type": "producer"}
    assert "compression.type is taken as 'producer'" in problem.reason


def test_whatever_is_stored_a_topic_can_be_served_with_what_is_made_of_it() -> None:
    rng = random.Random(SEED)
    broker = load()
    names = [*TopicSettings.KEYS, "unknown.key"]
    for _ in range(TEXTS * len(names)):
        stored = {name: _garbage(rng) for name in rng.sample(names, rng.randrange(1, 5))}
        readable, problems = readable_topic_part(broker, stored)

        settings = TopicSettings.of(broker, readable)

        told = {problem.key for problem in problems}
        for name, text in stored.items():
            assert readable.get(name) == text or name in told
        if "cleanup.policy" in told:
            assert settings.cleanup_policy == ()
        if "retention.ms" in told:
            assert settings.retention_ms == -1


def _garbage(rng: random.Random) -> str:
    if rng.random() < 0.3:
        return rng.choice(["delete", "compact", "zstd", "0.9.0", "true", str(rng.randrange(2**70))])
    return "".join(rng.choice(CHARACTERS) for _ in range(rng.randrange(12)))
