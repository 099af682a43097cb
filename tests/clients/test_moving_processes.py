"""A directory that several processes serve is Apache Kafka's from now on, and theirs again.

    two processes -> Kafka -> four processes, which are killed -> Kafka -> two processes

In each turn a client writes to all partitions, in transactions: one it commits, one it aborts, and
one it leaves open for the next turn, which ends it. A group that reads what is committed finds what
was committed in that turn and nothing else.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from confluent_kafka import Consumer, Producer

from tests.clients.moving.kafka import FEW_SHARDS, kafka
from tests.support.broker_process import BrokerProcess
from tests.support.caller import Caller
from tests.support.kafka_release import KAFKA_3_9, KAFKA_4, Release

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.server_process import ServerProcess

pytestmark = [
    pytest.mark.long,
    pytest.mark.clients,
    pytest.mark.java,
    pytest.mark.slow,
    pytest.mark.linux,
]

TOPIC, PARTITIONS, GROUP = "orders", 8, "billing"
RECORDS = 40
WITHIN_S = 60.0
PROCESSES = "broker.processes"


def write(server: ServerProcess, turn: int) -> list[str]:
    """To all partitions; what was committed."""
    values = [f"{turn}-{number}" for number in range(RECORDS)]
    producer = Producer({"bootstrap.servers": server.bootstrap, "transactional.id": "billing"})
    producer.init_transactions(WITHIN_S)
    for end in (producer.commit_transaction, producer.abort_transaction, None):
        producer.begin_transaction()
        for number, value in enumerate(values):
            sent = value if end == producer.commit_transaction else f"{value} of none"
            producer.produce(TOPIC, sent.encode(), partition=number % PARTITIONS)
        assert producer.flush(WITHIN_S) == 0
        if end is not None:
            end(WITHIN_S)
    return sorted(values)


def read(server: ServerProcess, group: str, count: int) -> list[str]:
    """So many records that a group has not read yet, and all that come with them."""
    consumer = Consumer(
        {
            "bootstrap.servers": server.bootstrap,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )
    consumer.subscribe([TOPIC])
    found: list[str] = []
    while len(found) < count:
        for message in consumer.consume(100, timeout=0.5):
            error, value = message.error(), message.value()
            assert error is None or error.retriable(), str(error)
            if value is not None and error is None:
                found.append(value.decode())
    consumer.commit(asynchronous=False)
    consumer.close()
    return sorted(found)


@pytest.mark.parametrize("release", [KAFKA_3_9, KAFKA_4], ids=lambda release: release.name)
def test_processes_and_kafka_take_turns(release: Release, tmp_path: Path) -> None:
    data = tmp_path / "data"
    ours = BrokerProcess(data, settings={**FEW_SHARDS, PROCESSES: "2"})
    theirs = kafka(tmp_path / "kafka", data, release)
    written: list[str] = []
    turns: list[ServerProcess] = [ours, theirs, ours, theirs, ours]
    try:
        for turn, server in enumerate(turns):
            if turn == 2:
                ours.settings[PROCESSES] = "4"
            if turn == 4:
                ours.settings[PROCESSES] = "2"
            server.start()
            if not written:
                with Caller(server.host, server.port) as caller:
                    caller.create_topic(TOPIC, PARTITIONS)
            new = write(server, turn)
            assert read(server, GROUP, len(new)) == new
            written += new
            if turn == 2:
                ours.kill()
                continue
            if turn == 1:
                assert theirs.complaints() == []
            if turn == 4:
                assert read(server, "another", len(written)) == sorted(written)
            server.stop()
    finally:
        for server in (ours, theirs):
            if server.run is not None:
                server.kill()

    assert not list(data.glob("*-stray"))
