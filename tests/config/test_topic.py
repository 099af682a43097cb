"""A topic's settings: its own, the broker's where it has none, and what is refused."""

from __future__ import annotations

import pytest

from config import ConfigError, TopicSettings, is_list, load
from config.kinds import LONG_MAX


def topic(broker: dict[str, str] | None = None, **own: str) -> TopicSettings:
    """Settings from broker keys and topic keys, the latter with underscores for dots."""
    overrides = {name.replace("_", "."): text for name, text in own.items()}
    return TopicSettings.of(load(overrides=broker), overrides)


def test_a_topic_without_settings_has_kafkas_defaults() -> None:
    settings = topic()
    assert settings.retention_ms == settings.segment_ms == 604_800_000
    assert settings.retention_bytes == -1
    assert settings.segment_bytes == 1_073_741_824
    assert settings.cleanup_policy == ("delete",)
    assert settings.compression_type == "producer"
    assert settings.max_message_bytes == 1_048_588
    assert settings.flush_messages == settings.flush_ms == LONG_MAX
    assert settings.record_format == 2
    assert settings.message_timestamp_before_max_ms == LONG_MAX
    assert settings.message_timestamp_after_max_ms == LONG_MAX


def test_a_topics_own_setting_holds_over_the_brokers() -> None:
    broker = {"log.segment.bytes": "1000", "log.index.interval.bytes": "100"}
    settings = topic(broker, segment_bytes="2000")
    assert settings.segment_bytes == 2000
    assert settings.index_interval_bytes == 100


@pytest.mark.parametrize(
    ("broker", "retention_ms"),
    [
        ({"log.retention.hours": "2"}, 7_200_000),
        ({"log.retention.hours": "2", "log.retention.minutes": "3"}, 180_000),
        ({"log.retention.hours": "2", "log.retention.minutes": "3", "log.retention.ms": "4"}, 4),
        ({"log.retention.hours": "-1"}, -1),
        ({"log.retention.minutes": "-1"}, -1),
        ({"log.retention.ms": "-1", "log.retention.hours": "2"}, -1),
    ],
)
def test_retention_is_given_in_ms_else_in_minutes_else_in_hours(
    broker: dict[str, str], retention_ms: int
) -> None:
    assert topic(broker).retention_ms == retention_ms


@pytest.mark.parametrize(
    ("broker", "segment_ms", "segment_jitter_ms"),
    [
        ({"log.roll.hours": "2", "log.roll.jitter.hours": "1"}, 7_200_000, 3_600_000),
        ({"log.roll.hours": "2", "log.roll.ms": "5"}, 5, 0),
        ({"log.roll.jitter.hours": "1", "log.roll.jitter.ms": "5"}, 604_800_000, 5),
    ],
)
def test_rolling_is_given_in_ms_else_in_hours(
    broker: dict[str, str], segment_ms: int, segment_jitter_ms: int
) -> None:
    settings = topic(broker)
    assert (settings.segment_ms, settings.segment_jitter_ms) == (segment_ms, segment_jitter_ms)


def test_flushing_falls_back_to_the_schedulers_interval() -> None:
    assert topic({"log.flush.scheduler.interval.ms": "7"}).flush_ms == 7
    both = {"log.flush.scheduler.interval.ms": "7", "log.flush.interval.ms": "8"}
    assert topic(both).flush_ms == 8


def test_the_old_timestamp_limit_stands_in_for_a_limit_that_is_not_set() -> None:
    settings = topic(message_timestamp_difference_max_ms="10", message_timestamp_after_max_ms="20")
    assert settings.message_timestamp_before_max_ms == 10
    assert settings.message_timestamp_after_max_ms == 20
    assert settings.message_timestamp_difference_max_ms == 10


@pytest.mark.parametrize(("version", "magic"), [("0.9.0", 0), ("0.10.2", 1), ("0.11.0", 2)])
def test_a_topic_has_the_record_format_of_its_version(version: str, magic: int) -> None:
    assert topic(message_format_version=version).record_format == magic
    assert topic({"log.message.format.version": version}).record_format == magic


def test_a_topic_may_store_an_older_format_at_any_inter_broker_version() -> None:
    settings = topic({"inter.broker.protocol.version": "3.9"}, message_format_version="0.8.0")
    assert settings.record_format == 0


@pytest.mark.parametrize(
    ("own", "reason"),
    [
        (
            {"retention.mss": "1"},
            "Unknown topic config name: retention.mss; did you mean retention.ms?",
        ),
        ({"log.retention.ms": "1"}, "Unknown topic config name: log.retention.ms"),
        ({"retention.ms": "-2"}, "retention.ms = '-2': wanted at least -1"),
        ({"retention.ms": "soon"}, "wanted a whole number"),
        ({"segment.bytes": "13"}, "wanted at least 14"),
        ({"cleanup.policy": "compact,shred"}, "wanted compact, delete, both, or an empty list"),
        ({"cleanup.policy": ","}, "wanted compact, delete, both, or an empty list"),
        ({"compression.type": "lzma"}, "wanted one of"),
        ({"compression.gzip.level": "0"}, "wanted 1 to 9, or -1"),
        ({"message.timestamp.type": "createtime"}, "wanted one of CreateTime, LogAppendTime"),
        ({"min.cleanable.dirty.ratio": "1.1"}, "wanted 0 to 1"),
        ({"message.format.version": "5.0"}, "wanted a Kafka version"),
        ({"preallocate": "yes"}, "wanted true or false"),
        ({"compression.type": "zstd", "message.format.version": "0.10.0"}, "with zstd"),
        ({"min.compaction.lag.ms": "2", "max.compaction.lag.ms": "1"}, "may not be above"),
    ],
)
def test_a_setting_that_cannot_be_is_refused(own: dict[str, str], reason: str) -> None:
    with pytest.raises(ConfigError) as caught:
        TopicSettings.of(load(), own)
    assert reason in str(caught.value)
    assert caught.value.key in own


def test_all_wrong_settings_are_reported() -> None:
    with pytest.raises(ConfigError) as caught:
        topic(retention_ms="x", segment_ms="0", no_such="1")
    assert [problem.key for problem in caught.value.problems] == [
        "retention.ms",
        "segment.ms",
        "no.such",
    ]


def test_a_single_setting_is_checked() -> None:
    assert topic(retention_ms="-1").retention_ms == -1
    with pytest.raises(ConfigError) as caught:
        topic(retention_ms="-2")
    assert (caught.value.key, caught.value.value) == ("retention.ms", "-2")
    with pytest.raises(ConfigError, match="Unknown topic config name"):
        topic(num_partitions="1")


def test_only_lists_can_be_appended_to() -> None:
    assert is_list("cleanup.policy")
    assert is_list("leader.replication.throttled.replicas")
    assert is_list("log.cleanup.policy")
    assert is_list("ssl.enabled.protocols")
    assert not is_list("retention.ms")
    assert not is_list("listeners")
    assert not is_list("no.such.key")


def test_topic_settings_are_frozen_and_equal_by_value() -> None:
    own, inherited = topic(segment_bytes="2000"), topic({"log.segment.bytes": "2000"})
    assert own == inherited
    assert own != topic()
    assert hash(own) == hash(inherited)
    with pytest.raises(AttributeError, match="frozen"):
        own.segment_bytes = 5


def test_one_topics_settings_do_not_reach_another_of_the_same_broker() -> None:
    broker = load(overrides={"log.message.timestamp.difference.max.ms": "9"})
    first = TopicSettings.of(broker, {"retention.ms": "1"})
    second = TopicSettings.of(broker, {})
    assert (first.retention_ms, second.retention_ms) == (1, 604_800_000)
    assert second.message_timestamp_before_max_ms == 9
