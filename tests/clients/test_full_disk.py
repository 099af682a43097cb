"""A real disk that is really full: a broker in a process of its own, and real clients."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import confluent_kafka
import pytest

from protocol.errors import ErrorCode
from protocol.messages.metadata import MetadataRequest
from tests.clients.drivers.confluent_driver import ConfluentDriver
from tests.clients.drivers.driver import KEEP_FOR_EVER, Refused
from tests.support.broker_process import BrokerProcess
from tests.support.caller import Caller, Timed, batch
from tests.support.scraped import counters
from tests.support.server_process import free_port
from tests.support.small_disk import free_bytes, small_disk

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = pytest.mark.clients

DISK_BYTES = 24 << 20
RESERVE_BYTES = 2 << 20
RECORD_BYTES = 20_000
SEGMENT = {"segment.bytes": "2097152", "file.delete.delay.ms": "60000", **KEEP_FOR_EVER}
KEPT, OTHER = "kept", "other"

client = ConfluentDriver()


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    with small_disk(tmp_path / "disk", size_bytes=DISK_BYTES) as folder:
        yield folder


@pytest.fixture
def broker(disk: Path) -> Iterator[BrokerProcess]:
    """A broker on the small disk, with two topics."""
    settings = {"disk.reserve.bytes": str(RESERVE_BYTES), "metrics.port": str(free_port())}
    server = BrokerProcess(disk / "data", settings=settings)
    server.start()
    for topic in (KEPT, OTHER):
        client.create_topic(server.bootstrap, topic, partitions=1, configs=SEGMENT)
    yield server
    if server.run is not None:
        server.stop()


class Written:
    """Records by number, written by librdkafka until the disk is full."""

    def __init__(self) -> None:
        self.acknowledged: list[tuple[int, bytes]] = []
        self.codes: set[int] = set()
        self._count = 0

    def write(self, server: BrokerProcess, topic: str, *, count: int) -> int:
        """Write so many records without a retry; how many were acknowledged."""
        producer = confluent_kafka.Producer(
            {
                "bootstrap.servers": server.bootstrap,
                "acks": "all",
                "retries": 0,
                "linger.ms": 1,
                "batch.num.messages": 8,
                "log_level": 0,
            }
        )
        before = len(self.acknowledged)
        for _ in range(count):
            value = b"%08d" % self._count + bytes(RECORD_BYTES)
            self._count += 1
            producer.produce(topic, value, partition=0, on_delivery=self._delivered)
            producer.poll(0)
        assert producer.flush(30) == 0
        return len(self.acknowledged) - before

    def fill(self, server: BrokerProcess, topic: str) -> None:
        """Write until nothing is taken any more."""
        for _ in range(100):
            if self.write(server, topic, count=50) == 0:
                return
        pytest.fail("the disk does not get full")

    def _delivered(self, error: confluent_kafka.KafkaError | None, message: Any) -> None:
        if error is None:
            self.acknowledged.append((message.offset(), message.value()[:8]))
        else:
            self.codes.add(error.code())


def stored(server: BrokerProcess, topic: str) -> list[tuple[int, bytes]]:
    """(offset, number) of all records, as librdkafka reads them, with its own check of the CRC."""
    found = client.consume(server.bootstrap, topic)[0]
    return [(offset, (record.value or b"")[:8]) for offset, record in found]


def wait_until_full(server: BrokerProcess) -> None:
    wait_for(server, 1)


def wait_for_room(server: BrokerProcess) -> None:
    wait_for(server, 0)


def wait_for(server: BrokerProcess, wanted: int) -> None:
    """Wait until all processes of the server say this of `disk_full`."""
    first = int(server.settings["metrics.port"])
    deadline = time.monotonic() + 30
    for port in range(first, first + server.processes):
        while counters(port)["disk_full"] != wanted:
            assert time.monotonic() < deadline, server.output()
            time.sleep(0.1)


def reserve(disk: Path) -> int:
    """The size of the reserve file; -1 if there is none."""
    path = disk / "data" / ".triglot-reserve"
    return path.stat().st_size if path.exists() else -1


def test_a_full_disk_refuses_records_quickly_and_serves_everything_else(
    broker: BrokerProcess, disk: Path
) -> None:
    written, other = Written(), Written()
    assert other.write(broker, OTHER, count=300) == 300
    assert reserve(disk) == RESERVE_BYTES

    written.fill(broker, KEPT)

    wait_until_full(broker)
    assert written.codes == {ErrorCode.KAFKA_STORAGE_ERROR}
    assert reserve(disk) == -1
    with Caller(broker.host, broker.port) as caller:
        for acks in (-1, 1) * 10:
            with Timed() as took:
                assert caller.produce(KEPT, batch(b"x"), acks=acks).error_code == 56
            assert took.ms < 200
        assert caller.produce(KEPT, batch(b"x"), version=3).error_code == 6
        asked = MetadataRequest.Topic(name="by-metadata")
        (told,) = caller.call(MetadataRequest(topics=[asked]), 9).topics
        assert told.error_code == ErrorCode.LEADER_NOT_AVAILABLE
    with pytest.raises(Refused) as refused:
        client.create_topic(broker.bootstrap, "one-more", partitions=1, configs={})
    assert refused.value.code == ErrorCode.KAFKA_STORAGE_ERROR
    assert stored(broker, KEPT) == written.acknowledged
    assert stored(broker, OTHER) == other.acknowledged

    client.delete_topic(broker.bootstrap, OTHER)
    wait_for_room(broker)

    assert reserve(disk) == RESERVE_BYTES
    assert written.write(broker, KEPT, count=50) == 50
    client.create_topic(broker.bootstrap, "one-more", partitions=1, configs={})
    assert stored(broker, KEPT) == written.acknowledged
    lines = broker.output()
    assert lines.count("the disk is full: records and new topics are refused") == 1, lines
    assert lines.count("the disk has room again") == 1, lines


def test_deleted_records_make_room_for_new_ones(broker: BrokerProcess, disk: Path) -> None:
    written = Written()
    written.fill(broker, KEPT)
    assert free_bytes(disk) < RESERVE_BYTES + (1 << 20)
    half = written.acknowledged[len(written.acknowledged) // 2][0]

    client.delete_records(broker.bootstrap, KEPT, half)
    wait_for_room(broker)

    assert written.write(broker, KEPT, count=50) == 50
    assert stored(broker, KEPT) == [one for one in written.acknowledged if one[0] >= half]


def test_an_idempotent_producer_waits_until_there_is_room(broker: BrokerProcess) -> None:
    written = Written()
    written.fill(broker, OTHER)
    delivered: list[Any] = []
    producer = confluent_kafka.Producer(
        {"bootstrap.servers": broker.bootstrap, "enable.idempotence": True, "log_level": 0}
    )
    for number in range(10):
        producer.produce(
            KEPT, b"%d" % number, partition=0, on_delivery=lambda *told: delivered.append(told)
        )
    assert producer.flush(1.0) == 10

    client.delete_topic(broker.bootstrap, OTHER)

    assert producer.flush(30) == 0
    assert [error for error, _ in delivered] == [None] * 10
    assert [number for _, number in stored(broker, KEPT)] == [b"%d" % n for n in range(10)]


@pytest.mark.parametrize("ending", ["stop", "kill"])
def test_what_was_acknowledged_outlives_the_end_of_a_broker_whose_disk_is_full(
    broker: BrokerProcess, disk: Path, ending: str
) -> None:
    written, other = Written(), Written()
    assert other.write(broker, OTHER, count=200) == 200
    written.fill(broker, KEPT)
    wait_until_full(broker)

    if ending == "stop":
        assert broker.stop() == 0
        assert (disk / "data" / ".kafka_cleanshutdown").exists()
    else:
        broker.kill()
    broker.start()

    if ending == "stop":
        assert "found in the data directory" not in broker.output()
    assert stored(broker, KEPT) == written.acknowledged
    assert stored(broker, OTHER) == other.acknowledged
    client.delete_topic(broker.bootstrap, OTHER)
    wait_for_room(broker)
    assert written.write(broker, KEPT, count=20) == 20
    assert stored(broker, KEPT) == written.acknowledged
