"""Keys of the broker that change at run time, and the stored ones that are taken."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from config import ConfigError, load
from config.describe import THIS_BROKER, broker_rows, topic_rows
from config.dynamic import fault_of, sound_part, with_dynamic
from config.keys import known_key, known_keys
from config.topic import TopicSettings
from tests.config.test_kafka_keys import OTHER_DEFAULTS, OTHER_TYPES, OURS

DESCRIBED: dict[str, list[dict[str, Any]]] = json.loads(
    Path(__file__).with_name("kafka_3_9_described.json").read_text()
)
"""What a broker of Apache Kafka 3.9.0 answered to DescribeConfigs: tests/clients/capture_configs.py
made it. Of rows that were set by the broker's file only the keys are there."""

OF_THE_TOPIC = {"retention.ms": "5000", "cleanup.policy": "compact,delete"}
OF_THE_FILE = {"log.retention.bytes": "123456789"}
NOT_OURS = {
    "share.coordinator.state.topic.replication.factor",
    "share.coordinator.state.topic.min.isr",
}
TIMES_IN_OTHER_UNITS = {"flush.ms", "retention.ms", "segment.jitter.ms", "segment.ms"}
"""Kafka's synonyms leave out the broker's hours and minutes unless the milliseconds are set; see
config/describe.py."""


def rows_of_kafka(owner: str) -> dict[str, dict[str, Any]]:
    return {row["name"]: row for row in DESCRIBED[owner]}


def test_what_kafka_changes_at_run_time_is_changed_here_or_refused_with_a_reason() -> None:
    for name, row in rows_of_kafka("broker").items():
        key = known_key(name)
        if key is None or row["read_only"]:
            continue
        assert key.dynamic, name


def test_what_kafka_reads_at_the_start_is_read_at_the_start() -> None:
    kafka = rows_of_kafka("broker")
    for name, key in known_keys().items():
        if key.dynamic and key.since != "triglot":
            assert not kafka[name]["read_only"], name


@pytest.mark.parametrize(
    ("name", "of_this", "of_all"),
    [
        ("background.threads", True, True),
        ("log.cleaner.threads", True, True),
        ("num.replica.fetchers", True, True),
        ("ssl.cipher.suites", True, False),
        ("sasl.jaas.config", True, False),
        ("ssl.keystore.location", False, False),
        ("listener.name.plaintext.ssl.keystore.location", True, False),
        ("listener.name.plaintext.num.network.threads", True, True),
        ("listener.name.plaintext.background.threads", True, False),
        ("zookeeper.connect", False, False),
        ("leader.imbalance.per.broker.percentage", False, False),
    ],
)
def test_a_change_without_effect_is_taken_where_kafka_takes_it(
    name: str, of_this: bool, of_all: bool
) -> None:
    assert (fault_of(name, "12") is None, fault_of(name, "12", of_all=True) is None) == (
        of_this,
        of_all,
    )


def test_the_value_of_a_change_without_effect_is_checked() -> None:
    fault = fault_of("background.threads", "many")
    assert fault is not None
    assert "whole number" in fault.reason


def test_a_setting_without_effect_says_so() -> None:
    changed_settings = with_dynamic(load(), all_brokers={}, this_broker={"num.io.threads": "9"})
    rows = {row.name: row for row in broker_rows(changed_settings)}
    row = rows["num.io.threads"]
    assert (row.value, row.source, row.read_only) == ("9", THIS_BROKER, False)
    assert row.documentation == "Accepted without effect: one event loop does this work."


def test_the_brokers_rows_are_those_of_kafka() -> None:
    ours = {row.name: row for row in broker_rows(load(overrides=OF_THE_FILE))}
    kafka = rows_of_kafka("broker")
    assert set(kafka) - set(ours) <= NOT_OURS
    for name, row in kafka.items():
        if name in NOT_OURS or name in OTHER_TYPES:
            continue
        mine = ours[name]
        assert (mine.type, mine.sensitive) == (row["type"], row["sensitive"]), name
        if "value" in row and name not in OTHER_DEFAULTS:
            assert (mine.value, mine.source) == (row["value"], row["source"]), name
            assert [list(one) for one in mine.synonyms] == row["synonyms"], name


def test_a_topics_rows_are_those_of_kafka() -> None:
    ours = {row.name: row for row in topic_rows(load(overrides=OF_THE_FILE), OF_THE_TOPIC)}
    kafka = rows_of_kafka("topic")
    assert set(ours) - set(kafka) == OURS
    assert set(kafka) <= set(ours)
    for name, row in kafka.items():
        mine = ours[name]
        assert (mine.type, mine.sensitive) == (row["type"], row["sensitive"]), name
        assert (mine.value, mine.source, mine.read_only) == (
            row["value"],
            row["source"],
            row["read_only"],
        ), name
        synonyms = [list(one) for one in mine.synonyms]
        if name in TIMES_IN_OTHER_UNITS:
            assert synonyms[: len(row["synonyms"])] == row["synonyms"], name
        else:
            assert synonyms == row["synonyms"], name


def test_a_topics_keys_come_from_broker_keys_that_change_at_run_time_where_kafkas_do() -> None:
    kafka = rows_of_kafka("broker")
    for key in TopicSettings.KEYS.values():
        for name in key.broker:
            behind = known_key(name)
            assert behind is not None
            if name in kafka:
                assert behind.dynamic == (not kafka[name]["read_only"]), name


def test_all_that_is_wrong_with_a_change_is_told_at_once() -> None:
    with pytest.raises(ConfigError) as caught:
        with_dynamic(
            load(),
            all_brokers={"num.partitions": "2", "advertised.listeners": "PLAINTEXT://a:1"},
            this_broker={"message.max.bytes": "x", "mesage.max.bytes": "5"},
        )
    assert [problem.key for problem in caught.value.problems] == [
        "num.partitions",
        "advertised.listeners",
        "message.max.bytes",
        "mesage.max.bytes",
    ]


def test_what_was_stored_and_may_not_be_is_left_out_and_named() -> None:
    sound = sound_part(
        load(),
        all_brokers={"num.partitions": "4", "message.max.bytes": "5", "a.plug.in": "x"},
        this_broker={"log.roll.ms": "0", "log.roll.jitter.ms": "7"},
    )
    assert [problem.key for problem in sound.ignored] == [
        "num.partitions",
        "a.plug.in",
        "log.roll.ms",
    ]
    assert sound.settings.message_max_bytes == 5
    assert (sound.settings.log_roll_ms, sound.settings.log_roll_jitter_ms) == (None, 7)


def test_of_stored_settings_that_contradict_each_other_as_many_are_taken_as_fit() -> None:
    started = load(overrides={"max.decompressed.batch.bytes": "2000000"})
    given = {"message.max.bytes": "3000000", "log.segment.bytes": "5000"}

    alone = sound_part(started, all_brokers=given, this_broker={})
    assert [problem.key for problem in alone.ignored] == ["message.max.bytes"]
    assert alone.settings.log_segment_bytes == 5000

    both = sound_part(
        started, all_brokers=given, this_broker={"max.decompressed.batch.bytes": "4000000"}
    )
    assert both.ignored == []
    assert both.settings.message_max_bytes == 3_000_000


def test_settings_that_fit_only_together_are_found_whatever_their_order() -> None:
    started = load(overrides={"max.decompressed.batch.bytes": "2000000"})
    given = {
        "message.max.bytes": "3000000",
        "max.decompressed.batch.bytes": "4000000",
        "log.cleaner.min.compaction.lag.ms": "10",
        "log.cleaner.max.compaction.lag.ms": "5",
    }
    sound = sound_part(started, all_brokers=given, this_broker={})
    assert [problem.key for problem in sound.ignored] == ["log.cleaner.max.compaction.lag.ms"]
    assert sound.settings.message_max_bytes == 3_000_000
