"""The client of brokers against our own broker."""

from __future__ import annotations

import pickle
import re
import socket
import threading
import time
from typing import TYPE_CHECKING

import pytest

from client import producing
from client.cluster import EARLIEST, LATEST, Cluster, OffsetOutOfRange, TopicPartition
from client.errors import NoSuchTopic, Refused, Unreachable, WrongUse
from client.routing import addresses
from protocol.records.builder import build_batch
from protocol.records.legacy import build_messages
from protocol.records.walk import last_offset, walk
from tests.support.broker_process import BrokerProcess
from tests.support.server_process import free_port

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

START_MS = 1_700_000_000_000


def batch(first: int, count: int = 1, *, size: int = 10) -> bytes:
    """Records of these numbers, one a second, with values of so many bytes."""
    numbers = range(first, first + count)
    return build_batch([(START_MS + n * 1000, b"k%d" % n, bytes(size), []) for n in numbers])


def messages(count: int, magic: int, codec: int = 0) -> bytes:
    records = [(START_MS, b"k%d" % number, b"v", ()) for number in range(count)]
    return build_messages(records, magic=magic, codec=codec)


def spans(entries: memoryview) -> list[tuple[int, int]]:
    """Magic and last offset of each entry, which are all there is."""
    found = list(walk(entries))
    assert sum(size for _, size, _ in found) == len(entries)
    return [(magic, last_offset(entries, position, magic)) for position, _, magic in found]


@pytest.fixture
def cluster(broker: BrokerProcess) -> Iterator[Cluster]:
    with Cluster(broker.bootstrap, timeout_s=10) as made:
        yield made


@pytest.fixture
def topic(cluster: Cluster, request: pytest.FixtureRequest) -> str:
    name = str(request.node.name).translate({ord("["): "-", ord("]"): None})
    cluster.create_topic(name, 3)
    return name


# Topics.


def test_a_cluster_tells_its_topics_and_its_id(cluster: Cluster, topic: str) -> None:
    assert cluster.topics()[topic] == 3
    assert cluster.partitions([topic, topic]) == [TopicPartition(topic, n) for n in range(3)]
    assert cluster.cluster_id()
    assert str(TopicPartition("orders", 3)) == "orders-3"


def test_internal_topics_are_left_out(cluster: Cluster, topic: str) -> None:
    cluster.commit_offsets("internal", {TopicPartition(topic, 0): 1})
    assert cluster.partitions(["__consumer_offsets"])
    assert "__consumer_offsets" not in cluster.topics()


def test_a_missing_topic_is_told_with_the_nearest_and_not_made(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path) as broker, Cluster(broker.bootstrap) as cluster:
        with pytest.raises(NoSuchTopic, match=r"'orders' on 127\.0\.0\.1:\d+: it has no topics$"):
            cluster.partitions(["orders"])
        cluster.create_topic("invoices", 1)
        with pytest.raises(NoSuchTopic, match=r"it has invoices$"):
            cluster.partitions(["orders"])
        cluster.create_topic("orders", 1)
        with pytest.raises(NoSuchTopic, match=r"did you mean 'orders'\?$"):
            cluster.partitions(["invoices", "oders"])
        for name in "abcd":
            cluster.create_topic(name * 9, 1)
        with pytest.raises(NoSuchTopic, match=r"none of its 6 topics has a similar name$"):
            cluster.partitions(["xyz"])
        assert len(cluster.topics()) == 6


def test_a_topic_is_made_with_settings_and_only_once(cluster: Cluster) -> None:
    cluster.create_topic("made", 2, {"retention.ms": "86400000"})
    assert cluster.topic_configs("made", own=True) == {"retention.ms": "86400000"}
    everything = cluster.topic_configs("made")
    assert everything["retention.ms"] == "86400000"
    assert everything["cleanup.policy"] == "delete"
    with pytest.raises(Refused, match="TOPIC_ALREADY_EXISTS") as raised:
        cluster.create_topic("made", 2)
    assert raised.value.code == 36
    with pytest.raises(Refused, match=r"INVALID_CONFIG \(40\)"):
        cluster.create_topic("other", 2, {"retention.ms": "soon"})
    with pytest.raises(NoSuchTopic):
        cluster.topic_configs("other")


# Offsets.


def test_offsets_are_found_by_time(cluster: Cluster, topic: str) -> None:
    first, second, empty = cluster.partitions([topic])
    cluster.produce(first, [batch(0, 5), batch(5, 5)])
    cluster.produce(second, [batch(100, 3)])
    places = [first, second, empty]
    assert list(cluster.offsets(places, EARLIEST).values()) == [0, 0, 0]
    assert cluster.offsets(places, LATEST) == {first: 10, second: 3, empty: 0}
    found = cluster.offsets(places, START_MS + 6_500)
    assert found == {first: 7, second: 0, empty: 0}
    late = cluster.offsets(places, START_MS + 101_000)
    assert late == {first: 10, second: 1, empty: 0}


def test_the_end_of_the_log_itself_is_told(cluster: Cluster, topic: str) -> None:
    place = TopicPartition(topic, 0)
    cluster.produce(place, [batch(0, 5)])
    assert cluster.appended(place) == 5


def test_offsets_of_a_missing_partition_end_in_one_line(broker: BrokerProcess) -> None:
    with Cluster(broker.bootstrap, timeout_s=0.5) as cluster:
        cluster.create_topic("one-partition", 1)
        places = [TopicPartition("one-partition", 7)]
        with pytest.raises(NoSuchTopic, match="no partition one-partition-7 on"):
            cluster.offsets(places, LATEST)


def test_a_group_commits_from_outside(cluster: Cluster, topic: str) -> None:
    first, second, third = cluster.partitions([topic])
    assert cluster.committed_offsets("outsider", [first]) == {}
    cluster.commit_offsets("outsider", {first: 5, third: 0})
    assert cluster.committed_offsets("outsider", [first, second, third]) == {first: 5, third: 0}


# Reading and writing.


@pytest.mark.parametrize("magic", [0, 1, 2])
def test_entries_of_every_format_come_back(cluster: Cluster, topic: str, magic: int) -> None:
    place = TopicPartition(topic, magic)
    assert cluster.formats(place) == (0, 2)
    sets = [batch(0, 3), batch(3, 2)] if magic == 2 else [messages(3, magic), messages(2, magic)]
    assert cluster.produce(place, sets, magic=magic) == 0
    assert cluster.produce(place, [memoryview(sets[1])], magic=magic) == 5
    fetched = cluster.fetch(place, 0)
    # Our broker keeps everything in format 2.
    assert spans(fetched.entries) == [(2, 2), (2, 4), (2, 6)][magic < 2 :]
    assert fetched[1:] == (7, 0, 7, ())


def test_sets_of_old_formats_are_cut_into_what_a_request_may_carry() -> None:
    plain, wrapper = messages(2, 0), messages(3, 0, codec=1)
    found = producing.sets([plain + plain, plain, wrapper + wrapper, plain], 0)
    assert found == [plain * 3, wrapper, wrapper, plain]
    assert producing.sets([batch(0), batch(1)], 2) == [batch(0), batch(1)]


def test_an_entry_that_holds_the_offset_may_begin_below_it(cluster: Cluster, topic: str) -> None:
    place = TopicPartition(topic, 0)
    cluster.produce(place, [batch(0, 5), batch(5, 5)])
    assert spans(cluster.fetch(place, 3).entries) == [(2, 4), (2, 9)]


def test_a_fetch_ends_with_a_whole_entry(cluster: Cluster, topic: str) -> None:
    place = TopicPartition(topic, 0)
    entries = [batch(number, size=100) for number in range(4)]
    cluster.produce(place, entries)
    some = cluster.fetch(place, 0, max_bytes=2 * len(entries[0]) + 50)
    assert some.entries == cluster.fetch(place, 0).entries[: 2 * len(entries[0])]
    assert spans(some.entries) == [(2, 0), (2, 1)]
    assert spans(cluster.fetch(place, 2, max_bytes=1).entries) == [(2, 2)]


def test_a_fetch_at_the_end_waits_and_has_nothing(cluster: Cluster, topic: str) -> None:
    place = TopicPartition(topic, 0)
    began = time.monotonic()
    fetched = cluster.fetch(place, 0, max_wait_ms=200)
    assert (len(fetched.entries), fetched.high_watermark) == (0, 0)
    assert time.monotonic() - began > 0.15


def test_an_offset_that_the_log_does_not_have_is_told(cluster: Cluster, topic: str) -> None:
    place = TopicPartition(topic, 0)
    with pytest.raises(OffsetOutOfRange, match=r"has no offset 5$") as raised:
        cluster.fetch(place, 5)
    assert (raised.value.partition, raised.value.offset) == (place, 5)
    assert str(pickle.loads(pickle.dumps(raised.value))) == str(raised.value)


def test_sets_of_batches_are_written_in_order_and_the_first_offset_told(
    cluster: Cluster, topic: str
) -> None:
    place = TopicPartition(topic, 0)
    records = 6 * producing.MAX_IN_FLIGHT
    entries = [batch(number, 2) for number in range(0, records, 2)]
    assert cluster.produce(place, entries) == 0
    assert cluster.produce(place, entries) == records
    found = cluster.fetch(place, 0).entries
    keys = [b"k%d" % number for number in range(0, records, 2)] * 2
    at = -1
    for key in keys:
        at = bytes(found).index(key, at + 1)


def test_several_writes_are_begun_before_the_first_is_finished(
    cluster: Cluster, topic: str
) -> None:
    first, second, _ = cluster.partitions([topic])
    begun = [
        cluster.begin_produce(first, [batch(0, 3)]),
        cluster.begin_produce(second, [batch(0, 2), batch(2, 2)]),
        cluster.begin_produce(first, [messages(4, 1)], magic=1),
    ]
    assert cluster.fetch(first, 0, min_bytes=0).high_watermark in range(8)
    assert [cluster.finish_produce(one) for one in (begun[2], begun[0], begun[1])] == [3, 0, 0]
    assert cluster.offsets([first, second], LATEST) == {first: 7, second: 4}


def test_what_a_topic_does_not_take_is_refused_with_its_code(cluster: Cluster) -> None:
    cluster.create_topic("small", 1, {"max.message.bytes": "1000"})
    place = TopicPartition("small", 0)
    with pytest.raises(Refused, match=r"small-0 .*MESSAGE_TOO_LARGE \(10\)") as raised:
        cluster.produce(place, [batch(0, size=2000)])
    assert raised.value.code == 10
    assert "\n" not in str(raised.value)
    damaged = bytearray(batch(0))
    damaged[-1] ^= 1
    with pytest.raises(Refused, match=r"CORRUPT_MESSAGE \(2\)"):
        cluster.produce(place, [damaged])
    with pytest.raises(ValueError, match="no entries"):
        cluster.produce(place, [])
    assert cluster.offsets([place], LATEST) == {place: 0}


def test_a_write_is_not_kept_waiting_by_a_fetch_in_another_thread(
    cluster: Cluster, topic: str
) -> None:
    place = TopicPartition(topic, 0)
    cluster.produce(place, [batch(0)])
    found = []
    fetching = threading.Thread(
        target=lambda: found.append(cluster.fetch(place, 1, max_wait_ms=8000))
    )
    fetching.start()
    began = time.monotonic()
    assert cluster.produce(place, [batch(1)]) == 1
    fetching.join()
    assert time.monotonic() - began < 6
    assert spans(found[0].entries) == [(2, 1)]


# Connections.


def test_a_pickled_copy_connects_anew(cluster: Cluster, topic: str) -> None:
    cluster.topics()
    with pickle.loads(pickle.dumps(cluster)) as copy:
        assert (copy.servers, copy.timeout_s) == (cluster.servers, cluster.timeout_s)
        assert copy.topics()[topic] == 3


def test_a_closed_cluster_connects_again_when_it_is_asked(cluster: Cluster, topic: str) -> None:
    cluster.topics()
    cluster.close()
    assert cluster.topics()[topic] == 3


def test_a_cluster_that_was_never_there_fails_at_once() -> None:
    ports = free_port(), free_port()
    servers = ",".join(f"127.0.0.1:{port}" for port in ports)
    began = time.monotonic()
    with Cluster(servers) as cluster, pytest.raises(Unreachable) as raised:
        cluster.topics()
    assert time.monotonic() - began < 5
    refused = [f"cannot connect to 127.0.0.1:{port}: connection refused" for port in ports]
    assert str(raised.value) == "; ".join(refused)


def test_addresses_are_tried_in_turn(broker: BrokerProcess) -> None:
    servers = f"a..b, 127.0.0.1:{free_port()}, {broker.bootstrap}"
    with Cluster(servers) as cluster:
        assert cluster.cluster_id()


def test_a_broker_that_restarts_is_waited_for(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path) as broker, Cluster(broker.bootstrap, timeout_s=20) as cluster:
        cluster.create_topic("orders", 1)
        place = TopicPartition("orders", 0)
        cluster.produce(place, [batch(0)])
        assert len(cluster.fetch(place, 0).entries) > 0
        copy = pickle.loads(pickle.dumps(cluster))
        broker.kill()
        starting = threading.Timer(0.3, broker.start)
        starting.start()
        try:
            assert spans(cluster.fetch(place, 0).entries) == [(2, 0)]
            assert copy.offsets([place], LATEST) == {place: 1}
            assert cluster.produce(place, [batch(1)]) == 1
        finally:
            starting.join()
            copy.close()


def test_a_patient_client_waits_for_a_broker_that_is_only_starting(tmp_path: Path) -> None:
    server = BrokerProcess(tmp_path)
    server.port = free_port()
    starting = threading.Timer(0.3, server.start)
    starting.start()
    try:
        with Cluster(server.bootstrap, timeout_s=20, patient=True) as cluster:
            assert cluster.topics() == {}
    finally:
        starting.join()
        server.stop()


class OverIpv6(BrokerProcess):
    READY_LINE = re.compile(r"listening on ::1:(?P<port>\d+)")


def has_ipv6() -> bool:
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError:
        return False
    return True


@pytest.mark.skipif(not has_ipv6(), reason="no IPv6 on this machine")
def test_a_broker_is_reached_over_ipv6(tmp_path: Path) -> None:
    settings = {"listeners": "PLAINTEXT://[::1]:0"}
    with (
        OverIpv6(tmp_path, settings=settings) as broker,
        Cluster(f"[::1]:{broker.port}") as cluster,
    ):
        cluster.create_topic("orders", 1)
        assert cluster.produce(TopicPartition("orders", 0), [batch(0)]) == 0


@pytest.mark.parametrize(
    ("servers", "expected"),
    [
        ("localhost:9093", [("localhost", 9093)]),
        ("localhost", [("localhost", 9092)]),
        (" a:1, b:2 ", [("a", 1), ("b", 2)]),
        ("[::1]:9093,[fe80::1]", [("::1", 9093), ("fe80::1", 9092)]),
        ("PLAINTEXT://a:1", [("a", 1)]),
    ],
)
def test_addresses_are_read_as_people_write_them(
    servers: str, expected: list[tuple[str, int]]
) -> None:
    assert addresses(servers) == expected


@pytest.mark.parametrize(
    "servers", ["", "a:", "a:b", "a:0", "a:65536", ":9092", "a,,b", "::1:9092", "SSL://a:1", "[]:1"]
)
def test_what_is_no_address_is_wrong_use(servers: str) -> None:
    with pytest.raises(WrongUse, match="is no address of a broker: wanted host:port"):
        Cluster(servers)
