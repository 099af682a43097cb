"""The `__consumer_offsets` that our broker writes is Apache Kafka's, and Kafka's is ours.

One story, told once. Kafka 3.9 makes groups of every kind and is killed. Our broker makes groups of
every kind, its topic is compacted, it stops. Kafka goes on with our segments in the place of its
own, with its older coordinator and with its newer; in between it adds groups and stops. What each
says of the groups of the other is what the other said. Kafka's `DumpLogSegments` reads our
segments, too.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

from storage.layout import CLEANER_OFFSETS
from tests.clients.available import end_of_test
from tests.clients.offsets_in_kafka.decoder import Decoded, decoded_by_kafka, decoded_by_us
from tests.clients.offsets_in_kafka.facts import Facts, facts_of
from tests.clients.offsets_in_kafka.folders import adopt, replace_offsets
from tests.clients.offsets_in_kafka.groups_made import (
    LONG_SESSIONS,
    PARTITIONS,
    SHARDS,
    TOPIC,
    Maker,
)
from tests.support import server_process
from tests.support.broker_process import BrokerProcess
from tests.support.compacted import AT_ONCE, wait_until
from tests.support.dump_log_segments import dump
from tests.support.fetched import NotAvailable
from tests.support.group_caller import OFFSETS_TOPIC, Found
from tests.support.kafka_process import KafkaProcess

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = [pytest.mark.long, pytest.mark.clients, pytest.mark.java, pytest.mark.slow]

WIDE, WIDE_PARTITIONS, WIDE_COMMITS = "wide", 2000, 8
OURS = {
    **LONG_SESSIONS,
    **AT_ONCE,
    "log.cleaner.min.cleanable.ratio": "0.01",
    "offsets.topic.segment.bytes": "250000",  # a commit of the wide topic is 100 KB
}
OLDER = {
    **LONG_SESSIONS,
    "offsets.topic.num.partitions": str(SHARDS),
    "log.index.size.max.bytes": "100000",  # else a kill leaves 20 MB of zeros in each folder
    # A broker that was killed may come again when its session is over.
    "broker.session.timeout.ms": "2000",
    "broker.heartbeat.interval.ms": "500",
}
NEWER = {
    **OLDER,
    "group.coordinator.rebalance.protocols": "classic,consumer",
    "group.consumer.migration.policy": "bidirectional",
}
#: The newest lines of Kafka's output that are kept; a start with all partitions prints a thousand.
KAFKA_LINES = 100_000
#: What Kafka warns of whatever it finds.
ALWAYS = ("Performing controller activation", "The new 'consumer' rebalance protocol is enabled")
#: The older coordinator does not know the records of consumer groups.
UNKNOWN_KEYS = "Unknown message key with version"


class Story(NamedTuple):
    """The groups made, their folder, and each broker's view of them."""

    folder: Path
    theirs: Maker
    ours: Maker
    #: Made by Kafka's older coordinator beside our groups.
    added: Maker
    facts_of_theirs: Facts
    facts_of_ours: Facts
    by_older: Facts
    by_newer: Facts
    warnings: list[str]


@pytest.fixture(scope="module")
def story(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Story]:
    folder = tmp_path_factory.mktemp("offsets")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(server_process, "KEPT_LINES", KAFKA_LINES)
        try:
            kafka = KafkaProcess(folder / "kafka", settings=NEWER)
        except NotAvailable as reason:
            end_of_test("java", str(reason))
        try:
            yield told(folder, kafka)
        finally:
            if kafka.run is not None:
                kafka.kill()


def told(folder: Path, kafka: KafkaProcess) -> Story:
    logs = kafka.data / "logs"
    kafka.start()
    with Maker(kafka, "theirs") as theirs:
        theirs.caller.create_topic(TOPIC, partitions=PARTITIONS)
        make_groups(theirs)
        theirs.make_consumer()
        theirs.make_transactions()
    facts_of_theirs = facts_of(kafka, theirs.groups)
    kafka.kill()
    shutil.copytree(logs, folder / "killed")

    adopt(folder / "ours", logs, TOPIC)
    with BrokerProcess(folder / "ours", settings=OURS) as broker, Maker(broker, "ours") as ours:
        ours.caller.create_topic(WIDE, partitions=WIDE_PARTITIONS)
        ours.make_wide(WIDE, WIDE_PARTITIONS, WIDE_COMMITS)
        make_groups(ours)
        ours.make_consumer()
        facts_of_ours = facts_of(broker, ours.groups)
        wait_until((broker.data / CLEANER_OFFSETS).exists, "compaction")
    for path in (folder / "ours").glob(f"{OFFSETS_TOPIC}-*"):
        shutil.copytree(path, folder / "written" / path.name)
    replace_offsets(logs, by=folder / "ours")

    kafka.settings = OLDER
    kafka.start()
    facts_of(kafka, ours.groups)  # that is: everything has been read
    warnings = [line for line in complaints(kafka) if UNKNOWN_KEYS not in line]
    with Maker(kafka, "added") as added:
        make_groups(added)
        added.make_transactions()
    by_older = facts_of(kafka, ours.groups + added.groups)
    kafka.stop()
    shutil.copytree(logs, folder / "stopped")

    kafka.settings = NEWER
    kafka.start()
    by_newer = facts_of(kafka, ours.groups + added.groups)
    warnings += complaints(kafka)
    kafka.kill()
    return Story(
        folder, theirs, ours, added, facts_of_theirs, facts_of_ours, by_older, by_newer, warnings
    )


def make_groups(maker: Maker) -> None:
    maker.make_simple()
    maker.make_deletions()
    maker.make_classic()


def complaints(kafka: KafkaProcess) -> list[str]:
    return [
        line
        for line in kafka.output().splitlines()
        if (" WARN " in line or " ERROR " in line) and not any(text in line for text in ALWAYS)
    ]


def without_consumers(facts: Facts) -> Facts:
    """What Kafka's older coordinator can say: it does not know of groups of KIP-848."""
    return facts._replace(consumers={})


# Our segments in the eyes of Kafka's tool


@pytest.fixture(scope="module")
def decoded(story: Story) -> list[Decoded]:
    return decoded_by_kafka(story.folder / "written")


def test_our_segments_and_indexes_are_in_order(story: Story) -> None:
    found = dump(story.folder / "written")

    assert found.faults == [], "\n".join(found.faults)
    assert found.files[".log"]  # of shards that have had a group
    assert found.index_entries


def test_kafka_decodes_every_record_as_we_do(story: Story, decoded: list[Decoded]) -> None:
    assert decoded == decoded_by_us(story.folder / "written")
    kinds = {(record.key["type"], record.value is None) for record in decoded}
    assert kinds >= {(kind, False) for kind in "12345678"}
    assert kinds >= {(kind, True) for kind in "12578"}
    values = {(record.key["type"], record.value["version"]) for record in decoded if record.value}
    mixed = [
        record.value["data"] for record in decoded if record.key["type"] == "5" and record.value
    ]
    assert any(member["classicMemberMetadata"] for member in mixed)
    assert values == {("1", "1"), ("1", "3"), ("2", "3"), *((kind, "0") for kind in "345678")}


def test_the_topic_was_compacted(decoded: list[Decoded]) -> None:
    by_group: dict[str, int] = {}
    for record in decoded:
        group = record.key["data"].get("group", "")
        by_group[group] = by_group.get(group, 0) + 1
    assert WIDE_PARTITIONS <= by_group["ours-wide"] < WIDE_PARTITIONS * WIDE_COMMITS
    (beside,) = [group for group in by_group if group.startswith("ours-beside-")]
    assert by_group[beside] == 2  # of ten: an offset, and the tombstone of another


def test_what_kafka_decodes_is_what_our_broker_said(story: Story, decoded: list[Decoded]) -> None:
    offsets: dict[str, dict[tuple[str, int], Found]] = {group: {} for group in story.ours.groups}
    groups: dict[str, Any] = {}
    epochs: dict[str, int] = {}
    for (kind, *names), value in newest(decoded).items():
        if kind == "1":
            group, topic, partition = names
            offsets[group][topic, partition] = Found(
                value["offset"], value.get("leaderEpoch", -1), value["metadata"]
            )
        elif kind == "2":
            members = {member["memberId"] for member in value["members"]}
            groups[names[0]] = value["protocolType"], value["protocol"] or "", members
        elif kind == "3":
            epochs[names[0]] = value["epoch"]

    said = story.facts_of_ours
    assert offsets == said.offsets
    described = {group: (*found[2:4], set(found[4])) for group, found in said.described.items()}
    assert groups == {group: described[group] for group in groups}
    assert set(groups) == {group for group, found in described.items() if found[0]}
    assert epochs == {group: said.consumers[group][1] for group in story.ours.consumer_groups}


def newest(decoded: list[Decoded]) -> dict[tuple[Any, ...], Any]:
    """The last value of each key; the key is its type and its fields."""
    values: dict[tuple[Any, ...], Any] = {}
    for record in decoded:
        key = (record.key["type"], *record.key["data"].values())
        values.pop(key, None)
        if record.value is not None:
            values[key] = record.value["data"]
    return values


# Our segments in Kafka


def test_the_older_coordinator_serves_what_we_wrote(story: Story) -> None:
    groups = story.ours.classic_groups + story.ours.deleted_groups
    theirs = without_consumers(story.by_older.of(groups))
    assert theirs == without_consumers(story.facts_of_ours.of(groups))
    offsets = story.by_older.of(story.ours.consumer_groups).offsets
    assert offsets == story.facts_of_ours.of(story.ours.consumer_groups).offsets


def test_the_newer_coordinator_serves_what_we_wrote(story: Story) -> None:
    groups = set(story.ours.groups)
    assert story.by_newer.of(groups) == story.facts_of_ours.of(groups)


def test_kafka_complains_of_nothing_that_we_wrote(story: Story) -> None:
    assert list((story.folder / "written").glob("*/*.checkpoint")), "there is no snapshot to ignore"
    assert story.warnings == []


# Kafka's segments in our broker


def asked_of_us(data: Path, groups: list[str]) -> Facts:
    with BrokerProcess(data, settings=LONG_SESSIONS) as broker:
        return facts_of(broker, groups)


def test_our_broker_serves_what_a_kafka_wrote_that_was_killed(story: Story) -> None:
    ours = asked_of_us(story.folder / "killed", story.theirs.groups)

    assert ours == story.facts_of_theirs
    open_transaction = ours.stable["theirs-transaction-None"]
    assert {place[1] for place, found in open_transaction.items() if found.error_code} == {0, 1}


def test_our_broker_serves_what_a_kafka_wrote_that_stopped(story: Story) -> None:
    """And what was ours before. Our snapshots are still there, and are of a topic of another id."""
    assert list((story.folder / "stopped").glob("*/*.checkpoint"))
    ours = asked_of_us(story.folder / "stopped", story.ours.groups + story.added.groups)

    classic = set(ours.offsets) - set(story.ours.consumer_groups)
    theirs = without_consumers(story.by_older.of(classic))
    assert without_consumers(ours.of(classic)) == theirs
    theirs = story.by_newer.of(story.ours.consumer_groups)
    assert ours.of(story.ours.consumer_groups) == theirs
    # Its older coordinator writes no record that says that a group without members is gone, and
    # its newer one keeps it until it looks for what has expired.
    listed = {entry[0] for entry in story.by_newer.listed}
    assert {entry[0] for entry in ours.listed} == listed - {*story.added.deleted_simple_groups}
