"""Many clients at once, slow ones, and ones that go away in the middle of an answer."""

from __future__ import annotations

import asyncio
import os
import socket
import struct
import time
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

import aiokafka
import pytest

from protocol.messages.fetch import FetchRequest
from protocol.registry import APIS
from tests.clients.drivers.confluent_driver import ConfluentDriver
from tests.clients.drivers.driver import KEEP_FOR_EVER
from tests.clients.records import Record, assert_stored, some_records
from tests.support.broker_process import BrokerProcess
from tests.support.wire_client import WireClient

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.support.server_process import ServerProcess

pytestmark = pytest.mark.clients

CLIENT_COUNT = 20
RECORDS_EACH = 300

#: Enough that no socket buffer holds an answer with all of it.
LARGE_TOPIC_BYTES = 24 * 1024 * 1024

FETCH_VERSION = 11


async def test_twenty_producers_and_twenty_consumers_at_once(bootstrap: str, topic: str) -> None:
    ConfluentDriver().create_topic(bootstrap, topic, partitions=CLIENT_COUNT, configs={})

    read = await _write_and_read_at_once(bootstrap, topic)

    wanted = [b"%d" % number for number in range(RECORDS_EACH)]
    assert read == [wanted] * CLIENT_COUNT


async def _write_and_read_at_once(bootstrap: str, topic: str) -> list[list[bytes]]:
    """What each consumer read; all of them are waiting before the first record is written."""
    waiting = asyncio.Semaphore(0)

    async def read(partition: int) -> list[bytes]:
        consumer = aiokafka.AIOKafkaConsumer(
            bootstrap_servers=bootstrap, auto_offset_reset="earliest", fetch_max_wait_ms=5_000
        )
        await consumer.start()
        try:
            consumer.assign([aiokafka.TopicPartition(topic, partition)])
            waiting.release()
            return [(await consumer.getone()).value for _ in range(RECORDS_EACH)]
        finally:
            await consumer.stop()

    async def write(partition: int) -> None:
        producer = aiokafka.AIOKafkaProducer(bootstrap_servers=bootstrap, acks="all")
        await producer.start()
        try:
            for _ in range(CLIENT_COUNT):
                await asyncio.wait_for(waiting.acquire(), 30)
                waiting.release()
            for number in range(RECORDS_EACH):
                ack = await producer.send(topic, b"%d" % number, partition=partition)
                if number % 10 == 0:
                    await ack
        finally:
            await producer.stop()

    async with asyncio.timeout(60):
        reads = asyncio.gather(*(read(partition) for partition in range(CLIENT_COUNT)))
        await asyncio.gather(*(write(partition) for partition in range(CLIENT_COUNT)))
        return await reads


def test_a_reader_that_does_not_read_holds_up_nobody(bootstrap: str, topic: str) -> None:
    _write_large_topic(bootstrap, topic)
    with _slow_reader(bootstrap) as slow:
        correlation_id = slow.send(_fetch_all(topic), FETCH_VERSION)
        time.sleep(0.2)
        client = ConfluentDriver()
        records = some_records(1_000, client.abilities)
        other = f"{topic}-other"
        client.create_topic(bootstrap, other, partitions=3, configs=KEEP_FOR_EVER)

        started = time.monotonic()
        client.produce(bootstrap, other, records, codec="none", idempotent=True)
        assert_stored(records, client.consume(bootstrap, other))
        assert time.monotonic() - started < 10

        # And what it was promised comes whole when it reads at last.
        answer = slow.receive(APIS[FetchRequest.key], FETCH_VERSION, correlation_id)
        partition = answer.responses[0].partitions[0]
        assert partition.error_code == 0
        assert len(partition.records) > LARGE_TOPIC_BYTES


def test_slow_readers_do_not_fill_the_memory(
    new_server: Callable[..., ServerProcess], topic: str
) -> None:
    server = new_server()
    if not isinstance(server, BrokerProcess):
        pytest.skip("a statement about our broker's memory")
    _write_large_topic(server.bootstrap, topic)
    before_bytes = _resident_bytes(server.pid)

    with ExitStack() as readers:
        for _ in range(CLIENT_COUNT):
            reader = readers.enter_context(_slow_reader(server.bootstrap))
            reader.send(_fetch_all(topic), FETCH_VERSION)
        time.sleep(1)
        grown_bytes = _resident_bytes(server.pid) - before_bytes

    assert grown_bytes < 2 * LARGE_TOPIC_BYTES


def test_clients_that_leave_in_the_middle_of_an_answer_leave_nothing_behind(
    new_server: Callable[..., ServerProcess], topic: str
) -> None:
    server = new_server()
    _write_large_topic(server.bootstrap, topic)
    with _slow_reader(server.bootstrap) as reader:
        _read_a_little(reader, topic)
    _wait_until_files_are_closed(server.pid, at_most=_open_files(server.pid))
    before = _open_files(server.pid)

    for number in range(CLIENT_COUNT):
        with _slow_reader(server.bootstrap) as reader:
            _read_a_little(reader, topic)
            if number % 2:
                # A reset in place of a polite end.
                at_once = struct.pack("ii", 1, 0)
                reader.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, at_once)

    _wait_until_files_are_closed(server.pid, at_most=before)
    stored = ConfluentDriver().consume(server.bootstrap, topic)[0]
    assert sum(len(record.value or b"") for _, record in stored) == LARGE_TOPIC_BYTES


def _write_large_topic(bootstrap: str, topic: str) -> None:
    """One partition with `LARGE_TOPIC_BYTES` of values that do not compress."""
    size = 64 * 1024
    value = os.urandom(size)
    records = [Record(0, 1_700_000_000_000, None, value)] * (LARGE_TOPIC_BYTES // size)
    client = ConfluentDriver()
    client.create_topic(bootstrap, topic, partitions=1, configs=KEEP_FOR_EVER)
    client.produce(bootstrap, topic, records, codec="none", idempotent=True)


def _fetch_all(topic: str) -> FetchRequest:
    """As much as there is, in one answer."""
    partition = FetchRequest.Topic.Partition(
        partition=0, fetch_offset=0, partition_max_bytes=2 * LARGE_TOPIC_BYTES
    )
    return FetchRequest(
        max_wait_ms=100,
        min_bytes=1,
        max_bytes=2 * LARGE_TOPIC_BYTES,
        topics=[FetchRequest.Topic(topic=topic, partitions=[partition])],
    )


def _slow_reader(bootstrap: str) -> WireClient:
    """A client whose socket takes in little at a time."""
    host, _, port = bootstrap.rpartition(":")
    reader = WireClient(host, int(port))
    reader.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 16 * 1024)
    return reader


def _read_a_little(reader: WireClient, topic: str) -> None:
    reader.send(_fetch_all(topic), FETCH_VERSION)
    assert len(reader.socket.recv(1_000)) > 0


def _resident_bytes(pid: int) -> int:
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def _open_files(pid: int) -> int:
    return len(list(Path(f"/proc/{pid}/fd").iterdir()))


def _wait_until_files_are_closed(pid: int, *, at_most: int) -> None:
    deadline = time.monotonic() + 10
    while _open_files(pid) > at_most:
        assert time.monotonic() < deadline, f"{_open_files(pid)} open files, {at_most} wanted"
        time.sleep(0.05)
