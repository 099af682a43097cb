"""The load of real programs: librdkafka through confluent-kafka, in this process and on its core.

No compression and no idempotence, because the servers are compared, not the client. Every function
returns when the servers have answered for all records.
"""

from __future__ import annotations

import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from bench.servers import Server

#: Records handed to librdkafka in one call, so that Python's share of the load stays small.
CHUNK = 1000
FLUSH_TIMEOUT_S = 120.0


def _failed(error: object, _message: object) -> None:
    if error is not None:
        raise RuntimeError(f"a record was not delivered: {error}")


@contextmanager
def producers(
    server: Server, topic: str, *, count: int = 1, **settings: Any
) -> Iterator[list[Producer]]:
    """Producers that have connected and learnt where the topic is, so that neither is measured.

    Settings are librdkafka's with underscores for points.
    """
    configuration = {
        "bootstrap.servers": server.bootstrap,
        "acks": 1,
        "enable.idempotence": False,
        "delivery.report.only.error": True,
        "on_delivery": _failed,
        "queue.buffering.max.messages": 200_000,
        "queue.buffering.max.kbytes": 200_000,
        "socket.nagle.disable": True,
        "log_level": 3,
        **{name.replace("_", "."): value for name, value in settings.items()},
    }
    loads = [Producer(configuration) for _ in range(count)]
    try:
        for load in loads:
            load.produce(topic, b"warm", partition=0)
            _flush(load)
        yield loads
    finally:
        for load in loads:
            load.close()


#: Fills batches: the linger is longer than filling one takes, and only bytes limit a batch.
FULL_BATCHES = {"batch_num_messages": 1_000_000, "linger_ms": 100}
SINGLE_RECORDS = {"batch_num_messages": 1, "linger_ms": 0}


def produce(
    load: Producer, topic: str, *, records: int, value_bytes: int, partitions: int = 1
) -> None:
    """Hands over so many records as fast as they are taken, and waits for the last answer."""
    chunk = [{"value": bytes(value_bytes)}] * CHUNK
    left = records
    partition = 0
    while left > 0:
        try:
            taken = load.produce_batch(topic, chunk[:left], partition=partition)
        except BufferError:
            taken = 0
        left -= taken
        partition = (partition + 1) % partitions
        load.poll(0 if taken else 0.002)
    _flush(load)


def produce_singly(loads: Sequence[Producer], topic: str, *, records: int, value: bytes) -> None:
    """Deals so many records out to producers that send each in a request of its own."""
    count = len(loads)
    for index in range(records):
        load = loads[index % count]
        while True:
            try:
                load.produce(topic, value, partition=0)
                break
            except BufferError:
                load.poll(0.002)
    for load in loads:
        _flush(load)


def consume(server: Server, topic: str, *, records: int, **settings: Any) -> float:
    """Reads so many records of partition 0 from its start, and drops them.

    Returns records per second from the first that came: finding the server and the topic takes
    the client up to half a second. Settings are librdkafka's with underscores for points.
    """
    load = Consumer(
        {
            "bootstrap.servers": server.bootstrap,
            "group.id": "bench",
            "enable.auto.commit": False,
            "queued.max.messages.kbytes": 65_536,
            "fetch.queue.backoff.ms": 1,
            "log_level": 3,
            **{name.replace("_", "."): value for name, value in settings.items()},
        }
    )
    try:
        load.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
        left = records
        start_s = time.perf_counter()
        while left > 0:
            messages = load.consume(min(left, 10_000) if left < records else 1, timeout=30)
            if not messages:
                raise RuntimeError(f"{server.name} sent nothing for 30 s, {left} records missing")
            for message in (messages[0], messages[-1]):
                if message.error() is not None:
                    raise RuntimeError(f"fetching from {server.name}: {message.error()}")
            if left == records:
                start_s = time.perf_counter()
            left -= len(messages)
        return records / (time.perf_counter() - start_s)
    finally:
        load.close()


def _flush(load: Producer) -> None:
    left = load.flush(FLUSH_TIMEOUT_S)
    if left:
        raise RuntimeError(f"{left} records had no answer after {FLUSH_TIMEOUT_S:.0f} s")
