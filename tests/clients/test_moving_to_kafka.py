"""A directory that our broker wrote is Apache Kafka's from now on, and ours again, and Kafka's.

One story for each release of Kafka. Our broker writes and stops. Kafka starts on a copy, serves and
changes it, and stops. Our broker starts on that, adds to it, and is killed. Kafka starts once more.
Each must see all that was there before.

The directory is written once. `TEST_SERVER` does not matter here.
"""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING, NamedTuple

import pytest

from storage.disk import DiskFilesystem
from storage.layout import PARTITION_METADATA
from storage.metadata.loading import load
from tests.clients.moving.kafka import FEW_SHARDS, kafka
from tests.clients.moving.served import Served, assert_carried_over, served
from tests.clients.moving.writing import (
    GROUPS,
    IDEMPOTENT,
    KEEP,
    Sender,
    make_again,
    write_all,
    write_codecs,
)
from tests.support.administrator import SHA_256, TOPIC, Administrator
from tests.support.broker_process import BrokerProcess
from tests.support.dump_log_segments import HOLES, dump
from tests.support.kafka_release import KAFKA_3_9, RELEASES, Release
from tests.support.kafka_tools import METADATA_SHELL, STORAGE_TOOL, run_tool

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.support.kafka_process import KafkaProcess
    from tests.support.server_process import ServerProcess

pytestmark = [pytest.mark.long, pytest.mark.clients, pytest.mark.java, pytest.mark.slow]

#: Kafka 4 takes the leaders from a broker that was killed when it comes again, while that already
#: reads its groups; it reads them once more when it leads again.
LOST_LEADER = "is not online or is no longer the leader"
ONCE_MORE = "once-more"
SNAPSHOTS = {"controller.snapshot.minimum.records": "30"}
#: Said as ERROR of the header and the footer, of snapshots that Kafka wrote as well.
SHELL_ALWAYS = "Ignoring control record with type SNAPSHOT_"
METADATA = "__cluster_metadata-0"


class Ours(NamedTuple):
    """The directory that our broker wrote, its producer, and its answers."""

    data: Path
    sender: Sender
    said: Served


class Story(NamedTuple):
    """The answers of each broker at the end of its turn, and at the beginning of its turn."""

    before: Served
    configs_once_more: dict[str, str | None]
    by_kafka: Served
    left_by_kafka: Served
    by_us: Served
    left_by_us: Served
    by_kafka_again: Served
    #: The offset of what was sent again, of what followed, and the id of a new producer.
    sent_again: tuple[int, int, int]
    sent_again_to_us: tuple[int, int, int]
    sent_at_last: tuple[int, int, int]
    complaints: list[str]
    complaints_after_kill: list[str]


@pytest.fixture(scope="module")
def ours(tmp_path_factory: pytest.TempPathFactory) -> Ours:
    """Written in two lives, so that there is more than one epoch; with snapshots in the first."""
    data = tmp_path_factory.mktemp("moving") / "data"
    with BrokerProcess(data, settings=FEW_SHARDS | SNAPSHOTS) as broker:
        sender = write_all(broker, old_formats=True)
    with BrokerProcess(data, settings=FEW_SHARDS) as broker:
        with Administrator(broker.host, broker.port) as admin:
            sender.send(admin, b"d", b"e")
            make_again(admin, ONCE_MORE, {"max.message.bytes": "54321"})
        said, _ = asked(broker)
    return Ours(data, sender, said)


@pytest.fixture(scope="module", params=RELEASES, ids=lambda release: f"kafka-{release.name}")
def release(request: pytest.FixtureRequest) -> Release:
    chosen: Release = request.param
    return chosen


@pytest.fixture(scope="module")
def story(
    ours: Ours, release: Release, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Story]:
    folder = tmp_path_factory.mktemp(f"kafka-{release.name}")
    shutil.copytree(ours.data, folder / "data")
    theirs = kafka(folder / "kafka", folder / "data", release)
    broker = BrokerProcess(folder / "data", settings=FEW_SHARDS)
    try:
        yield told(ours, theirs, broker)
    finally:
        for server in (theirs, broker):
            if server.run is not None:
                server.kill()


def asked(server: ServerProcess) -> tuple[Served, dict[str, str | None]]:
    """What it says, and the configs of the topic that was made again, which have a test of
    their own."""
    said = served(server, GROUPS)
    return said, said.facts.configs.pop((TOPIC, ONCE_MORE), {})


def told(ours: Ours, theirs: KafkaProcess, broker: BrokerProcess) -> Story:
    sender = Sender(ours.sender.producer_id, sequence=ours.sender.sequence)
    sender.last = ours.sender.last
    theirs.start()
    by_kafka, configs_once_more = asked(theirs)
    sent_again = go_on(theirs, sender)
    change(theirs, "theirs")
    left_by_kafka, _ = asked(theirs)
    theirs.stop()
    complaints = theirs.complaints()

    broker.port = theirs.port  # as clients know it, and the registration of one that was killed
    broker.start()
    by_us, _ = asked(broker)
    sent_again_to_us = go_on(broker, sender)
    change(broker, "ours")
    left_by_us, _ = asked(broker)
    broker.kill()

    theirs.start()
    by_kafka_again, _ = asked(theirs)
    sent_at_last = go_on(theirs, sender)
    theirs.stop()
    return Story(
        ours.said,
        configs_once_more,
        by_kafka,
        left_by_kafka,
        by_us,
        left_by_us,
        by_kafka_again,
        sent_again,
        sent_again_to_us,
        sent_at_last,
        complaints,
        theirs.complaints(),
    )


def go_on(server: ServerProcess, sender: Sender) -> tuple[int, int, int]:
    with Administrator(server.host, server.port, timeout_s=30) as admin:
        again = sender.send_again(admin)
        return again, sender.send(admin, b"and on"), admin.new_producer_id()


def change(server: ServerProcess, name: str) -> None:
    """Something of everything; the name of a topic is new each time."""
    with Administrator(server.host, server.port, timeout_s=30) as admin:
        admin.create(name, 2, configs={**KEEP, "segment.bytes": "2000000"})
        admin.alter(TOPIC, "cut", max_message_bytes=None, retention_bytes="1000000000")
        admin.delete_topic("again")
        admin.create("again", 3, configs=KEEP)
        admin.set_quota({"user": name}, "consumer_byte_rate", 4096.0)
        admin.set_password(name, SHA_256, bytes(32))
        write_codecs(server, name, 1, tag=name)
        write_codecs(server, "orders", 3, tag=name)
        admin.commit_when_ready("simple", {("orders", 0): len(name), (name, 0): 1})


# Kafka's tools


def test_kafkas_dump_tool_finds_no_fault_in_our_files(ours: Ours) -> None:
    found = dump(ours.data)

    assert found.faults == [], "\n".join(found.faults)
    assert without_beginnings(found.holes) == []
    assert found.files[".log"] > 10


def tree(release: Release, snapshot: str, node: str, *, wanted: str, folder: Path) -> str:
    """What the metadata shell shows of a node, with `wanted` in it: it may show what there is
    before anything is loaded, and that of 4.3 nearly always does."""
    words = ("--snapshot", snapshot, "tree", node)
    for _ in range(10):
        shown = run_tool(release, METADATA_SHELL, *words, folder=folder)
        assert (shown.code, shown.err) == (0, "")
        assert all(SHELL_ALWAYS in line for line in shown.logged.splitlines()), shown.logged
        if wanted in shown.out:
            break
    return shown.out


def test_kafkas_tools_read_our_metadata(ours: Ours, release: Release, tmp_path: Path) -> None:
    logs = sorted((ours.data / METADATA).glob("*.log"))
    snapshots = sorted((ours.data / METADATA).glob("*.checkpoint"))
    names = ",".join(str(path) for path in [*logs, *snapshots, ours.data / "bootstrap.checkpoint"])

    words = ("--cluster-metadata-decoder", "--deep-iteration", "--files", names)
    dumped = run_tool(release, release.dump_tool, *words, folder=tmp_path)
    # All of `/image` in one is too much for 3.9: it falls over the quotas of a default entity, in
    # logs of its own as well.
    newest = str(snapshots[-1])
    topics = tree(release, newest, "/image/topics", wanted="orders:", folder=tmp_path)
    configs = tree(release, newest, "/image/configs", wanted="TOPIC:", folder=tmp_path)

    assert (dumped.code, without_beginnings(dumped.err.splitlines()), dumped.logged) == (0, [], "")
    assert dumped.out.count("Dumping ") == names.count(",") + 1
    assert "isvalid: false" not in dumped.out
    for name, topic in ours.said.facts.topics.items():
        assert f'"name":"{name}","topicId":"{topic.topic_id}"' in dumped.out
    for name in ("orders", "compacted", "empty", "grown"):
        topic = ours.said.facts.topics[name]
        assert f"  {name}:\n" in topics
        assert topics.count(f"      {topic.topic_id}\n") == 2
    assert "PartitionRegistration(replicas=[1]" in topics
    assert "TOPIC:compacted:\n  cleanup.policy:\n    compact\n" in configs
    if release is KAFKA_3_9:  # that of 4.3 answers too early, on a busy machine each time
        level = "3.9-IV0"
        features = tree(release, newest, "/image/features", wanted=level, folder=tmp_path)
        assert level in features


def without_beginnings(lines: list[str]) -> list[str]:
    """What is said of holes, less that a log does not begin with offset 0."""
    return [
        line
        for line in lines
        if not line.startswith(HOLES) and not line.startswith("  -1 is followed by ")
    ]


def test_kafkas_storage_tool_knows_our_directory(ours: Ours, tmp_path: Path) -> None:
    folder = tmp_path / "kafka"
    theirs = kafka(folder, ours.data, KAFKA_3_9)
    (folder / "server.properties").write_text(
        "".join(f"{key}={value}\n" for key, value in theirs.properties().items())
    )

    words = ("info", "-c", str(folder / "server.properties"))
    info = run_tool(KAFKA_3_9, STORAGE_TOOL, *words, folder=tmp_path)

    assert (info.code, info.logged) == (0, ""), info
    assert f"cluster.id={ours.said.facts.cluster_id}" in info.out
    assert "not formatted" not in info.out


# The story


def test_kafka_starts_without_a_warning_on_what_we_stopped(story: Story) -> None:
    assert story.complaints == []


def test_kafka_takes_partitions_that_were_never_written_to(ours: Ours, story: Story) -> None:
    folders = [folder for folder in ours.data.iterdir() if (folder / PARTITION_METADATA).exists()]
    bare = [folder.name for folder in folders if not list(folder.glob("*.log"))]
    assert any(name.startswith(f"{ONCE_MORE}-") for name in bare), bare
    assert story.by_kafka.records[ONCE_MORE, 0] == []


def test_we_leave_no_leaders_behind_when_we_stop(ours: Ours) -> None:
    image = load(DiskFilesystem(), str(ours.data)).image
    leaders = {
        state.leader for topic in image.topics.values() for state in topic.partitions.values()
    }
    assert leaders == {-1}


def test_kafka_serves_all_that_we_served(story: Story) -> None:
    assert_carried_over(story.before, story.by_kafka)


def test_a_topic_that_was_made_again_has_none_of_its_old_settings(story: Story) -> None:
    assert story.configs_once_more == KEEP


def test_kafka_knows_our_producers(story: Story, ours: Ours) -> None:
    again, next_offset, new_id = story.sent_again
    assert (again, next_offset) == (3, 5)
    assert new_id > ours.sender.producer_id


def test_we_serve_all_that_kafka_left(story: Story) -> None:
    assert_carried_over(story.left_by_kafka, story.by_us)


def test_we_know_kafkas_producers(story: Story) -> None:
    again, next_offset, new_id = story.sent_again_to_us
    assert (again, next_offset) == (5, 6)
    assert new_id > story.sent_again[2]


def test_kafka_serves_all_that_we_left_when_we_were_killed(story: Story) -> None:
    assert_carried_over(story.left_by_us, story.by_kafka_again)
    again, next_offset, new_id = story.sent_at_last
    assert (again, next_offset) == (6, 7)
    assert new_id > story.sent_again_to_us[2]


def test_kafka_complains_of_nothing_after_our_death(story: Story) -> None:
    assert [said for said in story.complaints_after_kill if LOST_LEADER not in said] == []


def test_the_topics_are_those_that_were_meant(ours: Ours) -> None:
    said = ours.said
    assert len(said.records["orders", 0]) == len(said.records["orders", 2]) == 40
    assert [record.offset for record in said.records["cut", 0]] == list(range(20, 40))
    assert len(said.records["mixed", 0]) == 19
    assert len(said.records[IDEMPOTENT, 0]) == 5
    assert said.facts.users == {("alice", SHA_256): 4096}
    assert len(said.facts.quotas) == 2
    assert {group: len(found) for group, found in said.offsets.items()} == {"simple": 2, "noted": 2}
