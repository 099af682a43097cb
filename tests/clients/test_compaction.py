"""Compacted topics in every record format, written and read by clients of every age."""

from __future__ import annotations

import os
import random
import time
from functools import partial
from typing import TYPE_CHECKING

import confluent_kafka
import pytest

from tests.clients.available import MARKS, end_of_test
from tests.clients.grid_clients import BY_KEY
from tests.clients.records import FIRST_TIMESTAMP_MS, Record
from tests.support.compacted import AT_ONCE, left_overs, log_bytes, wait_until
from tests.support.fetched import NotAvailable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.clients.grid_clients import GridDrivers
    from tests.support.server_process import ServerProcess

# The first run on a machine fetches every client.
pytestmark = [
    pytest.mark.clients,
    pytest.mark.timeout(600),
    pytest.mark.skipif(
        os.environ.get("TEST_SERVER") == "kafka", reason="Kafka looks for work every 15 s"
    ),
]

COMPACTED = {
    "cleanup.policy": "compact",
    "segment.bytes": "60000",
    "min.cleanable.dirty.ratio": "0.01",
    "retention.ms": "-1",
}
KEYS = 20
RECORD_COUNT = 500
FORMATS = {"0.9.0": 0, "0.10.2": 1, "3.0": 2}

#: Who writes, in which codec, to a topic of which format.
WRITTEN = (
    ("0.9.0", "kafka-python-0.9.5", "gzip"),
    ("0.9.0", "confluent-kafka", "none"),
    ("0.10.2", "kafka-python-1.4.7", "snappy"),
    ("0.10.2", "confluent-kafka", "none"),
    ("3.0", "kafka-python", "gzip"),
    ("3.0", "confluent-kafka", "zstd"),
)
READERS = [
    pytest.param(key, id=key, marks=MARKS[BY_KEY[key].runtime])
    for key in ("confluent-kafka", "kafka-python", "kafka-python-1.4.7", "java-0.8.2", "java-4")
]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    from tests.support.broker_process import BrokerProcess

    if os.environ.get("TEST_BOOTSTRAP"):
        pytest.skip("a server from outside may compact when it likes")
    with BrokerProcess(tmp_path_factory.mktemp("compacted") / "data", settings=AT_ONCE) as broker:
        yield broker


Topics = dict[tuple[str, str, str], tuple[str, list[Record]]]


@pytest.fixture(scope="module")
def topics(server: ServerProcess, grid_drivers: GridDrivers) -> Topics:
    """Name and all records of each topic; compacted when this is done."""
    found: Topics = {}
    for number, written in enumerate(WRITTEN):
        version, writer, codec = written
        name = f"compacted-{number}"
        records = records_for(number)
        configs = {**COMPACTED, "message.format.version": version}
        grid_drivers.admin.create_topic(server.bootstrap, name, partitions=1, configs=configs)
        try:
            for first in range(0, RECORD_COUNT, 100):
                part = records[first : first + 100]
                grid_drivers.write(BY_KEY[writer], server.bootstrap, name, part, codec=codec)
        except NotAvailable:
            continue
        wait_until(partial(is_compacted, server.data, name), "compaction", within_s=60)
        found[written] = name, records
    return found


def records_for(number: int) -> list[Record]:
    """Values that hardly shrink, and now and then a deletion."""
    chance = random.Random(number)
    return [
        Record(
            0,
            FIRST_TIMESTAMP_MS + offset,
            b"key-%d" % chance.randrange(KEYS),
            None if chance.random() < 0.05 else chance.randbytes(chance.randrange(1, 800)),
        )
        for offset in range(RECORD_COUNT)
    ]


def is_compacted(data: Path, topic: str) -> bool:
    """Whether all but the active segment is."""
    active = max(int(path.name[:20]) for path in (data / f"{topic}-0").glob("*.log"))
    noted = data / "cleaner-offset-checkpoint"  # there from the first compaction on
    if not noted.exists() or left_overs(data / f"{topic}-0"):
        return False
    return f"{topic} 0 {active}" in noted.read_text().splitlines()


@pytest.mark.parametrize("reader", READERS)
def test_every_client_reads_what_compaction_left(
    reader: str, server: ServerProcess, topics: Topics, grid_drivers: GridDrivers
) -> None:
    assert topics
    try:
        grid_drivers.name(BY_KEY[reader])
    except NotAvailable as reason:
        end_of_test(BY_KEY[reader].runtime, str(reason))
    for (version, writer, codec), (name, records) in topics.items():
        if codec not in BY_KEY[reader].reads:
            continue
        where = f"{writer} in {codec} to {version}"
        (stored,) = grid_drivers.read(
            BY_KEY[reader], server.bootstrap, name, {0: RECORD_COUNT}
        ).values()
        offsets = [offset for offset, _ in stored]
        assert offsets == sorted(set(offsets)), where
        assert len(offsets) < RECORD_COUNT / 2, where
        for offset, record in stored:
            sent = records[offset]
            assert (record.key, record.value) == (sent.key, sent.value), f"{where}, {offset}"
            if FORMATS[version] and BY_KEY[reader].timestamps and BY_KEY[writer].timestamps:
                assert record.timestamp_ms == sent.timestamp_ms, f"{where}, {offset}"
        newest = {record.key: offset for offset, record in enumerate(records)}
        assert set(newest.values()) <= set(offsets), where


def test_a_consumer_in_a_hole_goes_on_behind_it(server: ServerProcess, topics: Topics) -> None:
    for name, records in topics.values():
        every = read(server.bootstrap, name, 0)
        present = [offset for offset, _ in every]
        holes = [offset for offset in range(RECORD_COUNT) if offset not in present]
        for start in (holes[0], holes[len(holes) // 2], holes[-1]):
            found = read(server.bootstrap, name, start)
            assert found == [one for one in every if one[0] >= start], (name, start)
        assert all(records[offset].value == value for offset, value in every)


def read(bootstrap: str, topic: str, start: int) -> list[tuple[int, bytes | None]]:
    """Offsets and values from there to the end, by librdkafka."""
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "none",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "fetch.message.max.bytes": 3000,
        }
    )
    found: list[tuple[int, bytes | None]] = []
    try:
        consumer.assign([confluent_kafka.TopicPartition(topic, 0, start)])
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            message = consumer.poll(1.0)
            if message is None:
                continue
            error, offset = message.error(), message.offset()
            if error is not None:
                assert error.code() == confluent_kafka.KafkaError._PARTITION_EOF
                return found
            assert offset is not None
            found.append((offset, message.value()))
        raise AssertionError(f"no end of {topic} after {len(found)} records")
    finally:
        consumer.close()


def test_a_consumer_that_reads_while_segments_are_replaced_sees_no_seam(
    new_server: Callable[..., ServerProcess], grid_drivers: GridDrivers
) -> None:
    server = new_server(**{"log_cleaner_backoff_ms": "10"})
    grid_drivers.admin.create_topic(
        server.bootstrap, "seam", partitions=1, configs={**COMPACTED, "delete.retention.ms": "0"}
    )
    producer = confluent_kafka.Producer(
        {"bootstrap.servers": server.bootstrap, "acks": "1", "batch.num.messages": 20}
    )
    chance = random.Random(3)
    sent: list[tuple[bytes, bytes]] = []
    end = time.monotonic() + 8
    rounds = 0
    while time.monotonic() < end:
        for _ in range(200):
            row = b"key-%d" % chance.randrange(KEYS), chance.randbytes(300)
            sent.append(row)
            producer.produce("seam", row[1], row[0], partition=0)
        assert producer.flush(30) == 0
        promised = len(sent)
        found = read(server.bootstrap, "seam", 0)
        offsets = [offset for offset, _ in found]
        assert offsets == sorted(set(offsets))
        assert all(sent[offset][1] == value for offset, value in found)
        newest = {key: offset for offset, (key, _) in enumerate(sent[:promised])}
        assert set(newest.values()) <= set(offsets)
        rounds += 1
    assert rounds > 3
    assert log_bytes(server.data / "seam-0") < 100_000
    assert server.run is not None
    assert server.run.output().count("compacted ") > 3
