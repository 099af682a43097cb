"""A disk with faults under a broker: what is refused, what goes on, and what is well again."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from broker.faults.engine import Engine
from broker.faults.files import FaultyFilesystem, place_of
from broker.faults.injection import FaultInjection
from protocol.errors import ErrorCode
from protocol.messages.create_topics import CreateTopicsRequest
from storage.disk import DiskFilesystem
from tests.support.caller import Target, batch, by_partition, fetch_request, produce_request
from tests.support.fake_connection import InProcessBroker
from tests.support.in_process_client import Asker

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

STORAGE_ERROR = ErrorCode.KAFKA_STORAGE_ERROR


@pytest.fixture
def testing() -> FaultInjection:
    return FaultInjection()


@pytest.fixture
def broker(tmp_path: Path, testing: FaultInjection) -> Iterator[InProcessBroker]:
    with InProcessBroker(tmp_path / "data", testing, disk_reserve_bytes="0") as found:
        topic = CreateTopicsRequest.Topic
        topics = [
            topic(name=name, num_partitions=1, replication_factor=1, assignments=[], configs=[])
            for name in ("orders", "bills")
        ]
        answered = Asker(found).call(CreateTopicsRequest(topics=topics, timeout_ms=10_000), 5)
        assert [one.error_code for one in answered.topics] == [0, 0]
        yield found


def produce(asker: Asker, topic: str, acks: int = -1) -> int:
    """The error code of one more record."""
    answered: Any = asker.call(produce_request((topic, 0, batch(b"a")), acks=acks), 12)
    code: int = answered.responses[0].partition_responses[0].error_code
    return code


def end_of(asker: Asker, topic: str) -> int:
    answered = asker.call(fetch_request(Target(topic)), 12)
    end: int = by_partition(answered)[topic, 0].high_watermark
    return end


def test_a_full_disk_is_a_state_and_ends_with_the_fault(
    broker: InProcessBroker, testing: FaultInjection
) -> None:
    asker = Asker(broker)
    assert produce(asker, "orders") == 0
    full = testing.engine.add({"disk": "full"})

    assert produce(asker, "orders") == STORAGE_ERROR
    assert produce(asker, "bills") == STORAGE_ERROR
    assert end_of(asker, "orders") == 1
    assert broker.running.broker.disk.full
    testing.engine.remove(full.number)
    testing.clock.advance(60_000)
    broker.turn_until(lambda: not broker.running.broker.disk.full)

    assert produce(asker, "orders") == 0
    assert end_of(asker, "orders") == 2


def test_a_sync_that_fails_stops_its_partition_alone(
    broker: InProcessBroker, testing: FaultInjection
) -> None:
    asker = Asker(broker)
    fault = testing.engine.add({"disk": "failed_sync", "topic": "orders"})

    assert produce(asker, "bills") == 0
    assert produce(asker, "orders") == STORAGE_ERROR
    assert produce(asker, "orders") == STORAGE_ERROR, "nobody knows what is on the disk"
    assert produce(asker, "bills") == 0
    assert fault.fired == 1


def test_a_write_that_fails_leaves_nothing_and_stops_its_partition(
    broker: InProcessBroker, testing: FaultInjection
) -> None:
    asker = Asker(broker)
    testing.engine.add({"disk": "failed_write", "topic": "orders"})

    codes = [produce(asker, "orders", acks=1) for _ in range(2)]

    assert codes == [STORAGE_ERROR, STORAGE_ERROR]
    assert produce(asker, "bills", acks=1) == 0
    assert end_of(asker, "orders") == 0


def test_a_slow_disk_has_the_thread_wait_that_syncs(tmp_path: Path) -> None:
    engine = Engine(lambda: 0)
    engine.add({"disk": "slow", "delay_ms": 250, "topic": "orders", "times": 2})
    slept: list[float] = []
    files = FaultyFilesystem(DiskFilesystem(), engine, slept.append)
    for topic in ("orders-0", "bills-0"):
        files.make_dir(f"{tmp_path}/{topic}")
        file = files.open_file(f"{tmp_path}/{topic}/log", create=True)
        file.write_at([b"abc"], 0)
        file.sync()
        assert file.pread(3, 0) == b"abc"
    files.sync_dir(f"{tmp_path}/orders-0")

    assert slept == [0.25, 0.25]


def test_a_slow_disk_delays_an_answer_that_waits_for_it(
    broker: InProcessBroker, testing: FaultInjection
) -> None:
    fault = testing.engine.add({"disk": "slow", "delay_ms": 1, "topic": "orders"})

    assert produce(Asker(broker), "orders") == 0
    assert fault.fired >= 1


@pytest.mark.parametrize(
    ("path", "place"),
    [
        ("/data/orders-0/00000000000000000000.log", ("orders", 0)),
        ("/data/my-topic-12", ("my-topic", 12)),
        ("/data/meta.properties", ("", None)),
        ("/data-1x/recovery-point-offset-checkpoint.tmp", ("", None)),
    ],
)
def test_the_place_of_a_file_is_its_partition(path: str, place: tuple[str, int | None]) -> None:
    assert place_of(path) == place
