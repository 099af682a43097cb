"""The client of brokers against Apache Kafka of every age, each really running.

Of those with a ZooKeeper the oldest is tried each time; `TEST_MOVING_ALL=1` tries all.
"""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING, NamedTuple

import pytest

from client.cluster import EARLIEST, LATEST, Cluster, OffsetOutOfRange, TopicPartition
from client.errors import NoSuchTopic, Refused
from protocol.records.batch import Batch
from protocol.records.builder import build_batch
from protocol.records.legacy import build_messages, read_messages
from protocol.records.walk import walk
from tests.clients.available import end_of_test
from tests.support.fetched import NotAvailable
from tests.support.kafka_process import KafkaProcess
from tests.support.kafka_release import KAFKA_3_9, KAFKA_4
from tests.support.old_kafka import OldKafka

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.support.server_process import ServerProcess

# Inside the first test that wants them, jars may have to be fetched.
pytestmark = [pytest.mark.long, pytest.mark.clients, pytest.mark.java, pytest.mark.timeout(600)]

GZIP, SNAPPY = 1, 2
LARGE = 50_000
PARTITIONS = 2


class Age(NamedTuple):
    """A broker's abilities by its age: formats that it takes and keeps, and its requests."""

    formats: tuple[int, int]
    stored: int
    """The format that it keeps records of formats 0 and 1 in by default; 2 stays 2."""
    makes_topics: bool
    finds_times: bool


AGES = {
    "0.8.2.2": Age((0, 0), 0, makes_topics=False, finds_times=False),
    "0.9.0.1": Age((0, 0), 0, makes_topics=False, finds_times=False),
    "0.10.2.2": Age((0, 1), 1, makes_topics=True, finds_times=True),
    "1.1.1": Age((0, 2), 2, makes_topics=True, finds_times=True),
    "3.9": Age((0, 2), 2, makes_topics=True, finds_times=True),
    "4": Age((2, 2), 2, makes_topics=True, finds_times=True),
}
TRIED = list(AGES) if os.environ.get("TEST_MOVING_ALL") else ["0.8.2.2", "3.9", "4"]


class Peer(NamedTuple):
    age: Age
    server: ServerProcess
    cluster: Cluster


def new_server(version: str, folder: Path) -> ServerProcess:
    settings = {"num.partitions": str(PARTITIONS)}
    if version == KAFKA_3_9.name:
        return KafkaProcess(folder, settings=settings, release=KAFKA_3_9)
    if version == KAFKA_4.name:
        return KafkaProcess(folder, settings=settings, release=KAFKA_4)
    return OldKafka(folder, version=version, settings=settings)


@pytest.fixture(scope="module", params=TRIED)
def peer(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Peer]:
    try:
        server = new_server(request.param, tmp_path_factory.mktemp("kafka") / "data")
    except NotAvailable as reason:
        end_of_test("java", f"Apache Kafka {request.param}: {reason}")
    with server, Cluster(server.bootstrap, timeout_s=20) as cluster:
        yield Peer(AGES[request.param], server, cluster)


@pytest.fixture
def new_topic(peer: Peer) -> Callable[[str], list[TopicPartition]]:
    def make(name: str) -> list[TopicPartition]:
        if isinstance(peer.server, OldKafka) and not peer.age.makes_topics:
            peer.server.create_topic(name)
        else:
            peer.cluster.create_topic(name, PARTITIONS)
        return peer.cluster.partitions([name])

    return make


def entry(magic: int, codec: int, values: list[bytes]) -> bytes:
    now_ms = int(time.time() * 1000)
    if magic == 2:
        return build_batch([(now_ms, b"k", value, []) for value in values], codec=codec)
    return build_messages([(now_ms, b"k", value, ()) for value in values], magic=magic, codec=codec)


def records(entries: memoryview) -> list[tuple[int, bytes | None]]:
    """Offset and value of every record of every entry; a checksum that is wrong raises."""
    found: list[tuple[int, bytes | None]] = []
    for position, size, magic in walk(entries):
        whole = entries[position : position + size]
        if magic < 2:
            found += [(record.offset, record.value) for record in read_messages(whole)]
        else:
            batch = Batch(whole)
            assert batch.is_intact()
            found += [(record.offset, record.value) for record in batch.records()]
    return found


def test_what_a_broker_of_every_age_takes_comes_back(
    peer: Peer, new_topic: Callable[[str], list[TopicPartition]]
) -> None:
    place, empty = new_topic("taken")
    cluster = peer.cluster
    assert cluster.formats(place) == peer.age.formats
    values: list[bytes] = []
    for magic in range(peer.age.formats[0], peer.age.formats[1] + 1):
        for codec in (0, GZIP, SNAPPY):
            more = [b"%d-%d-%d" % (magic, codec, number) for number in range(20)]
            sets = [entry(magic, codec, more[:12]), entry(magic, codec, more[12:])]
            assert cluster.produce(place, sets, magic=magic) == len(values)
            values += more
    fetched = cluster.fetch(place, 0, committed_only=True)
    assert records(fetched.entries) == list(enumerate(values))
    assert {magic for _, _, magic in walk(fetched.entries)} == {peer.age.stored}
    assert fetched.high_watermark == fetched.last_stable_offset == len(values)
    assert cluster.offsets([place], LATEST, committed_only=True) == {place: len(values)}
    assert len(cluster.fetch(empty, 0, max_wait_ms=50).entries) == 0
    with pytest.raises(OffsetOutOfRange):
        cluster.fetch(place, len(values) + 1)


def test_offsets_are_told_by_brokers_of_every_age(
    peer: Peer, new_topic: Callable[[str], list[TopicPartition]]
) -> None:
    place, empty = new_topic("offsets")
    magic = peer.age.formats[1]
    peer.cluster.produce(place, [entry(magic, 0, [b"a", b"b", b"c"])], magic=magic)
    after_ms = int(time.time() * 1000) + 60_000
    assert peer.cluster.offsets([place, empty], EARLIEST) == {place: 0, empty: 0}
    assert peer.cluster.offsets([place, empty], LATEST) == {place: 3, empty: 0}
    assert peer.cluster.offsets([place], after_ms) == {place: 3}
    assert peer.cluster.offsets([place], 1000) == {place: 0}
    assert peer.cluster.appended(place) == 3
    peer.cluster.commit_offsets("outsider", {place: 2})
    assert peer.cluster.committed_offsets("outsider", [place, empty]) == {place: 2}


def test_a_record_that_is_larger_than_asked_for_comes_whole(
    peer: Peer, new_topic: Callable[[str], list[TopicPartition]]
) -> None:
    place = new_topic("large")[0]
    magic = peer.age.formats[1]
    for _ in range(2):
        peer.cluster.produce(place, [entry(magic, 0, [bytes(LARGE)])], magic=magic)
    fetched = peer.cluster.fetch(place, 1, max_bytes=1000)
    assert records(fetched.entries) == [(1, bytes(LARGE))]
    both = peer.cluster.fetch(place, 0, max_bytes=LARGE + 1000)
    assert records(both.entries) == [(0, bytes(LARGE))]


def test_topics_are_told_and_none_is_made_by_asking(
    peer: Peer, new_topic: Callable[[str], list[TopicPartition]]
) -> None:
    place = new_topic("orders")[0]
    peer.cluster.commit_offsets("outsider", {place: 0})
    with pytest.raises(NoSuchTopic, match=r"did you mean 'orders'\?$"):
        peer.cluster.partitions(["order"])
    topics = peer.cluster.topics()
    assert topics["orders"] == PARTITIONS
    assert not {"order", "__consumer_offsets"} & topics.keys()
    settings = peer.cluster.topic_configs("orders")
    assert (settings.get("cleanup.policy") == "delete") == (peer.age.formats[1] == 2)
    assert (peer.cluster.cluster_id() is not None) == peer.age.makes_topics


def test_what_is_too_new_or_too_old_is_refused_before_it_is_sent(
    peer: Peer, new_topic: Callable[[str], list[TopicPartition]]
) -> None:
    place = new_topic("refusing")[0]
    oldest, newest = peer.age.formats
    for magic in {0, 2} - set(range(oldest, newest + 1)):
        with pytest.raises(Refused, match=f"takes no records of format {magic}"):
            peer.cluster.produce(place, [entry(magic, 0, [b"v"])], magic=magic)
    if not peer.age.makes_topics:
        with pytest.raises(Refused, match="makes no topics when asked to"):
            peer.cluster.create_topic("never", 1)
