"""Answers to DescribeConfigs: rows, sources, synonyms."""

from __future__ import annotations

import pytest

from config import BrokerSettings, ConfigError, TopicSettings, load
from config.describe import (
    ALL_BROKERS,
    DEFAULT,
    STATIC,
    THIS_BROKER,
    TOPIC,
    ConfigRow,
    broker_rows,
    topic_rows,
)
from config.dynamic import with_dynamic


def topic_row(broker: BrokerSettings, name: str, own: dict[str, str] | None = None) -> ConfigRow:
    return next(row for row in topic_rows(broker, own or {}) if row.name == name)


def broker_row(broker: BrokerSettings, name: str) -> ConfigRow:
    return next(row for row in broker_rows(broker) if row.name == name)


def test_sources_and_types_have_kafkas_numbers() -> None:
    assert (TOPIC, THIS_BROKER, ALL_BROKERS, STATIC, DEFAULT) == (1, 2, 3, 4, 5)
    broker = load()
    types = {row.name: row.type for row in broker_rows(broker)}
    assert types["auto.create.topics.enable"] == 1
    assert types["listeners"] == 2
    assert types["num.partitions"] == 3
    assert types["offsets.topic.replication.factor"] == 4
    assert types["log.retention.ms"] == 5
    assert types["log.cleaner.min.cleanable.ratio"] == 6
    assert types["log.cleanup.policy"] == 7
    assert types["principal.builder.class"] == 8
    assert types["ssl.key.password"] == 9


def test_a_topic_has_a_row_for_every_key_sorted_and_changeable() -> None:
    rows = topic_rows(load(), {})
    assert [row.name for row in rows] == sorted(TopicSettings.KEYS)
    assert not any(row.read_only or row.sensitive for row in rows)
    assert all(row.documentation for row in rows)


def test_a_default_is_shown_with_the_broker_keys_it_comes_from() -> None:
    row = topic_row(load(), "retention.ms")
    assert (row.value, row.source) == ("604800000", DEFAULT)
    assert row.synonyms == [("log.retention.hours", "168", DEFAULT)]


def test_synonyms_begin_with_what_holds_and_end_with_the_default() -> None:
    broker = with_dynamic(
        load(overrides={"log.retention.hours": "24"}),
        all_brokers={"log.retention.ms": "2000"},
        this_broker={"log.retention.ms": "3000"},
    )
    row = topic_row(broker, "retention.ms", {"retention.ms": " 1000"})
    assert (row.value, row.source) == ("1000", TOPIC)
    assert row.synonyms == [
        ("retention.ms", "1000", TOPIC),
        ("log.retention.ms", "3000", THIS_BROKER),
        ("log.retention.ms", "2000", ALL_BROKERS),
        ("log.retention.hours", "24", STATIC),
        ("log.retention.hours", "168", DEFAULT),
    ]


def test_a_value_from_the_brokers_file_is_in_the_topics_unit_and_static() -> None:
    row = topic_row(load(overrides={"log.retention.hours": "24"}), "retention.ms")
    assert (row.value, row.source) == ("86400000", STATIC)


def test_a_topic_key_without_a_broker_key_has_no_synonyms_unless_it_is_set() -> None:
    row = topic_row(load(), "remote.storage.enable")
    assert (row.value, row.source, row.synonyms) == ("false", DEFAULT, [])
    row = topic_row(load(), "remote.storage.enable", {"remote.storage.enable": "true"})
    assert row.synonyms == [("remote.storage.enable", "true", TOPIC)]


def test_a_timestamp_limit_is_shown_as_it_is_set_not_as_it_works_out() -> None:
    own = {"message.timestamp.difference.max.ms": "10"}
    row = topic_row(load(), "message.timestamp.before.max.ms", own)
    assert row.value == "9223372036854775807"


def test_lists_are_shown_as_kafka_writes_them() -> None:
    row = topic_row(load(), "cleanup.policy", {"cleanup.policy": "compact , delete"})
    assert row.value == "compact,delete"


def test_every_row_of_a_key_without_effect_says_so() -> None:
    row = broker_row(load(), "zookeeper.connect")
    assert row.documentation.startswith("Accepted without effect: there is no ZooKeeper")
    assert (row.value, row.source, row.synonyms) == (None, DEFAULT, [])
    assert "Accepted without effect" in topic_row(load(), "remote.storage.enable").documentation


def test_a_password_is_never_shown() -> None:
    row = broker_row(load(overrides={"ssl.key.password": "hunter2"}), "ssl.key.password")
    assert row.sensitive
    assert (row.value, row.source) == (None, STATIC)
    assert row.synonyms == [("ssl.key.password", None, STATIC)]


def test_a_broker_key_that_changes_at_run_time_is_not_read_only() -> None:
    broker = load()
    assert not broker_row(broker, "log.retention.ms").read_only
    assert broker_row(broker, "log.retention.hours").read_only
    assert broker_row(broker, "zookeeper.connect").read_only


def test_an_id_given_by_its_older_name_is_shown_under_both() -> None:
    broker = load(overrides={"broker.id": "7"})
    for name in ("broker.id", "node.id"):
        row = broker_row(broker, name)
        assert (row.value, row.source) == ("7", STATIC)


def test_a_broker_key_that_nobody_gave_has_no_synonyms_of_other_names() -> None:
    broker = load(overrides={"log.retention.hours": "24"})
    row = broker_row(broker, "log.retention.ms")
    assert (row.value, row.source, row.synonyms) == (None, DEFAULT, [])
    row = broker_row(broker, "log.retention.hours")
    assert row.synonyms == [
        ("log.retention.hours", "24", STATIC),
        ("log.retention.hours", "168", 5),
    ]


def test_a_broker_key_shows_what_holds_without_it() -> None:
    # As a broker of Kafka 3.9 answered for the same settings.
    broker = with_dynamic(load(), all_brokers={}, this_broker={"log.retention.ms": "3000"})
    row = broker_row(broker, "log.retention.ms")
    assert (row.value, row.source) == ("3000", THIS_BROKER)
    assert row.synonyms == [
        ("log.retention.ms", "3000", THIS_BROKER),
        ("log.retention.hours", "168", DEFAULT),
    ]


def test_a_default_that_grows_with_another_key_is_shown_as_it_has_grown() -> None:
    row = broker_row(
        load(overrides={"message.max.bytes": "200000000"}), "max.decompressed.batch.bytes"
    )
    assert (row.value, row.source) == ("200000000", DEFAULT)
    assert row.synonyms == [("max.decompressed.batch.bytes", "200000000", DEFAULT)]


def test_keys_of_one_listener_are_shown_where_they_are_given() -> None:
    name = "listener.name.internal.ssl.keystore.location"
    assert name not in [row.name for row in broker_rows(load())]
    row = broker_row(load(overrides={name: "/keys"}), name)
    assert (row.value, row.source) == ("/keys", STATIC)


def test_keys_for_kafkas_own_tests_are_shown_only_where_they_are_given() -> None:
    name = "log.initial.task.delay.ms"
    assert name not in [row.name for row in broker_rows(load())]
    assert broker_row(load(overrides={name: "5"}), name).value == "5"


def test_a_change_at_run_time_makes_new_settings_and_leaves_the_old() -> None:
    before = load(overrides={"message.max.bytes": "1000"})
    after = with_dynamic(
        before,
        all_brokers={"message.max.bytes": "2000", "log.segment.bytes": "5000"},
        this_broker={"message.max.bytes": "3000"},
    )
    assert (before.message_max_bytes, after.message_max_bytes) == (1000, 3000)
    assert TopicSettings.of(after, {}).segment_bytes == 5000
    assert with_dynamic(after, all_brokers={}, this_broker={}) == before


def test_what_cannot_change_at_run_time_is_refused() -> None:
    settings = load()
    for name, text, reason in (
        ("num.partitions", "3", "cannot be changed at run time: it is read at the start"),
        ("zookeeper.connect", "h", "cannot be changed at run time: there is no ZooKeeper"),
        ("no.such.key", "3", "there is no such key"),
        ("message.max.bytes", "-1", "wanted at least 0"),
    ):
        with pytest.raises(ConfigError, match=reason):
            with_dynamic(settings, all_brokers={}, this_broker={name: text})
    with_dynamic(settings, all_brokers={}, this_broker={"message.max.bytes": "1"})
    with pytest.raises(ConfigError, match=r"is less than message\.max\.bytes"):
        with_dynamic(load(), all_brokers={}, this_broker={"max.decompressed.batch.bytes": "1000"})
    with pytest.raises(ConfigError, match=r"num\.partitions"):
        with_dynamic(load(), all_brokers={"num.partitions": "2"}, this_broker={})
