"""A real disk that is really full, under several processes: all of them refuse, and begin again."""

from __future__ import annotations

import os
import signal
from typing import TYPE_CHECKING

import pytest

from protocol.errors import ErrorCode
from protocol.messages.delete_topics import DeleteTopicsRequest
from storage.layout import RESERVE
from tests.broker.test_metrics_of_processes import metrics_ports
from tests.broker.test_processes import PARTITIONS, TOPIC, Directory, leaders, until
from tests.support.caller import Caller, batch
from tests.support.scraped import counters
from tests.support.small_disk import small_disk

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = pytest.mark.linux

DISK_BYTES = 12 << 20
RESERVE_BYTES = 1 << 20
RECORD_BYTES = 200_000
FILLS = "fills"


@pytest.fixture
def directory(tmp_path: Path) -> Iterator[Directory]:
    """Of two processes, on a small disk, with a topic on both and one on the first."""
    with small_disk(tmp_path / "disk", size_bytes=DISK_BYTES) as disk:
        one = Directory(disk)
        settings = {"disk.reserve.bytes": str(RESERVE_BYTES), "metrics.port": "0"}
        one.start(2, *(word for item in settings.items() for word in ("--set", "=".join(item))))
        with one.connect(0) as controller:
            controller.create_topic(TOPIC, PARTITIONS)
            controller.create_topic(FILLS, 1)
        yield one
        if one.process.poll() is None:
            one.stop()


def outcomes(directory: Directory) -> list[int]:
    """What each process says to a record for each partition that it leads, as error codes."""
    found = []
    for number in (0, 1):
        with directory.connect(number) as caller:
            for partition, leader in enumerate(leaders(caller)):
                if leader == 1 + number:
                    found.append(caller.produce(TOPIC, batch(b"v"), partition=partition).error_code)
    return found


def fill(caller: Caller) -> None:
    """Write until nothing is taken any more."""
    for _ in range(DISK_BYTES // RECORD_BYTES):
        if caller.produce(FILLS, batch(bytes(RECORD_BYTES))).error_code:
            return
    pytest.fail("the disk does not get full")


def test_all_processes_refuse_records_while_the_disk_is_full(directory: Directory) -> None:
    reserve = directory.data / RESERVE
    assert outcomes(directory) == [ErrorCode.NONE] * PARTITIONS
    until(reserve.exists)
    ports = metrics_ports(directory)

    with directory.connect(0) as controller:
        fill(controller)
        until(lambda: [counters(port)["disk_full"] for port in ports] == [1, 1])

        assert outcomes(directory) == [ErrorCode.KAFKA_STORAGE_ERROR] * PARTITIONS
        assert not reserve.exists()
        killed = directory.children()[1]
        os.kill(killed, signal.SIGKILL)
        directory.said("a process serves again")
        assert outcomes(directory) == [ErrorCode.KAFKA_STORAGE_ERROR] * PARTITIONS

        controller.call(DeleteTopicsRequest(topic_names=[FILLS], timeout_ms=10_000), 5)
        directory.said("the disk has room again")
        until(lambda: outcomes(directory) == [ErrorCode.NONE] * PARTITIONS)
    assert reserve.stat().st_size == RESERVE_BYTES
    assert [one.name for one in directory.data.glob(f"{RESERVE}*")] == [RESERVE]
    assert len(directory.said("the disk is full: records and new topics are refused")) == 1
    directory.stop()
    assert not reserve.exists()
    assert (directory.data / ".kafka_cleanshutdown").exists()
