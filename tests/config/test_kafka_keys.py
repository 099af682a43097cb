"""Every key of Apache Kafka 3.9 is known, with its type, and its default unless we say why."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import pytest

from config.accepted import REMOVED
from config.keys import known_key, known_keys
from config.topic import TopicSettings

# Defaults that are not Kafka's, each with the reason.
OTHER_DEFAULTS = {
    "broker.id": "1 like node.id; Kafka's -1 asks ZooKeeper for one",
    "node.id": "1, so that a broker starts without a file; Kafka's -1 is refused by Kafka",
    "listeners": "on this machine only, unless more is asked for",
    "log.dir": "./data; /tmp is emptied by systems at will",
    "controller.listener.names": "the empty list, where Kafka has a string that is null",
    "log.flush.offset.checkpoint.interval.ms": "5 s: after a crash less has to be read",
    "group.initial.rebalance.delay.ms": "0: one member, the usual case, hardly waits",
    "group.coordinator.rebalance.protocols": "both, as in Kafka 4",
    "group.consumer.migration.policy": "bidirectional, as in Kafka 4",
    "offsets.retention.minutes": "-1: the offsets of a quiet group are not lost",
    "offsets.topic.replication.factor": "1: there is one broker",
    "transaction.state.log.replication.factor": "1: there is one broker",
    "transaction.state.log.min.isr": "1: there is one broker",
}
# Keys of a topic that only triglot has.
OURS = {
    "retention.min.timestamp",
    "retention.wait.groups",
    "retention.wait.max.bytes",
    "retention.wait.max.ms",
}
# No keys of Kafka's broker itself.
READ_BY_AUTHORIZERS = {"allow.everyone.if.no.acl.found", "super.users"}
# Kafka calls this a string, though it is a list and is split as one.
OTHER_TYPES = {"controller.listener.names": "list"}


class Known(NamedTuple):
    """A line of kafka_3_9_keys.txt."""

    owner: str
    name: str
    type: str
    default: str | None
    broker: tuple[str, ...]


def kafka_keys() -> list[Known]:
    text = Path(__file__).with_name("kafka_3_9_keys.txt").read_text()
    keys = []
    for line in text.splitlines():
        if not line.startswith("#"):
            owner, name, type_, default, *broker = line.split("\t")
            value = None if default == "null" else default[1:-1]
            fall_backs = tuple(broker[0].split()) if broker else ()
            keys.append(Known(owner, name, type_, value, fall_backs))
    return keys


BROKER = [key for key in kafka_keys() if key.owner == "broker"]
TOPIC = [key for key in kafka_keys() if key.owner == "topic"]


OF_KAFKA_4 = {"transaction.two.phase.commit.enable"}
"""Keys that Kafka has since 4.0 or later, and that have an effect here."""


def test_the_list_is_the_whole_list() -> None:
    assert (len(BROKER), len(TOPIC)) == (328, 36)


@pytest.mark.parametrize("kafka", BROKER, ids=lambda key: key.name)
def test_a_broker_key_of_kafka_is_known_with_its_type_and_default(kafka: Known) -> None:
    key = known_key(kafka.name)
    assert key is not None
    assert key.kind.name == OTHER_TYPES.get(kafka.name, kafka.type)
    if kafka.name in OTHER_DEFAULTS:
        assert key.format(key.default) != kafka.default
    else:
        assert key.format(key.default) == kafka.default


@pytest.mark.parametrize("kafka", TOPIC, ids=lambda key: key.name)
def test_a_topic_key_of_kafka_is_known_with_its_type_default_and_fall_backs(kafka: Known) -> None:
    key = TopicSettings.KEYS[kafka.name]
    assert key.kind.name == kafka.type
    assert key.format(key.default) == kafka.default
    assert key.broker == kafka.broker


def test_topics_have_four_keys_that_kafka_does_not_know() -> None:
    ours = set(TopicSettings.KEYS) - {key.name for key in TOPIC}
    assert ours == OURS
    assert ours == {name for name, key in TopicSettings.KEYS.items() if key.since == "triglot"}


def test_the_keys_of_our_own_are_these() -> None:
    known = {key.name for key in BROKER} | READ_BY_AUTHORIZERS | OF_KAFKA_4
    ours = set(known_keys()) - known
    assert ours == {
        "as.version",
        "as.version.client.ids",
        "broker.processes",
        "cluster.id",
        "connections.backlog.max.bytes",
        "console.host",
        "console.port",
        "console.security.protocol",
        "console.writable",
        "controller.snapshot.minimum.records",
        "clock.jump.wait.ms",
        "connections.authenticating.max",
        "connections.authentication.timeout.ms",
        "conversion.cache.max.bytes",
        "disk.reserve.bytes",
        "log.retention.wait.max.bytes",
        "log.retention.wait.max.ms",
        "log.scrub.interval.ms",
        "sasl.oauthbearer.expected.scope",
        "log.flush.policy",
        "max.decompressed.batch.bytes",
        "max.decompression.ratio",
        "max.replication.lag.ms",
        "metrics.basic.credentials",
        "metrics.bearer.token",
        "metrics.host",
        "metrics.port",
        "metrics.security.protocol",
        "offsets.commit.conditional.enable",
        "read.ahead.max.bytes",
        "read.ahead.max.requests",
        "replication.factor.clamp",
        "validation.level",
    }
    assert ours == {name for name, key in known_keys().items() if key.since == "triglot"}


def test_a_key_without_an_attribute_has_no_effect_and_says_why() -> None:
    silent = [
        name for name, key in known_keys().items() if not key.attribute and len(key.unused) < 10
    ]
    assert silent == []


def test_a_key_with_an_attribute_has_a_sentence_and_a_release() -> None:
    keys = [*known_keys().values(), *TopicSettings.KEYS.values()]
    bare = [key.name for key in keys if key.attribute and not (key.doc.endswith(".") and key.since)]
    assert bare == []


def test_an_attribute_is_the_name_of_its_key_with_underscores() -> None:
    keys = [*known_keys().values(), *TopicSettings.KEYS.values()]
    assert [
        key.name for key in keys if key.attribute and key.attribute != key.name.replace(".", "_")
    ] == []


def test_every_default_passes_the_check_of_its_own_key() -> None:
    for key in (*known_keys().values(), *TopicSettings.KEYS.values()):
        text = key.format(key.default)
        if text is not None:
            assert key.parse(text) == key.default, key.name


def test_no_removed_key_is_known() -> None:
    assert [name for name in REMOVED if known_key(name)] == []
