"""A broker that may have few file descriptors: more partitions than descriptors, and more clients.

A limit of 256 is what a shell on some systems begins with, and what a service may be left with.
"""

from __future__ import annotations

import resource
import time
from contextlib import ExitStack
from typing import TYPE_CHECKING

import pytest

from config.platforms import PORTABLE_VARIABLE
from protocol.errors import ErrorCode
from protocol.messages.metadata import MetadataRequest
from protocol.registry import APIS
from tests.support.broker_process import BrokerProcess
from tests.support.caller import (
    Caller,
    Target,
    batch,
    by_partition,
    fetch_request,
    produce_request,
    records_in,
)
from tests.support.wire_client import ConnectionClosed

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

LIMIT = 256
PARTITIONS = 400
CLIENTS = 4
TOPIC = "many"


@pytest.fixture
def broker(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> Iterator[BrokerProcess]:
    """It must stop cleanly, and no log may have failed."""
    if hasattr(request, "param"):
        monkeypatch.setenv(PORTABLE_VARIABLE, request.param)
    process = BrokerProcess(tmp_path / "data", open_files=LIMIT)
    process.start()
    yield process
    run = process.run
    assert run is not None
    code = process.stop()
    assert code == 0, run.output()[-3000:]
    for trouble in ("Traceback", "sync failed", "a handler failed", "clean=False"):
        assert trouble not in run.output(), run.output()[-3000:]


def test_more_partitions_than_descriptors_are_written_and_read_by_several_clients(
    broker: BrokerProcess,
) -> None:
    with ExitStack() as stack:
        clients = [
            stack.enter_context(Caller(broker.host, broker.port, timeout_s=30))
            for _ in range(CLIENTS)
        ]
        clients[0].create_topic(TOPIC, partitions=PARTITIONS, segment_bytes="1048576")

        for number, client in enumerate(clients):
            _write_to_each(client, b"one by one %d" % number)
        for number, client in enumerate(clients):
            _write_to_all(client, b"at once %d" % number)

        stored = [_read_all(client) for client in clients]
        wanted = [b"one by one %d" % number for number in range(CLIENTS)]
        wanted += [b"at once %d" % number for number in range(CLIENTS)]
        assert stored == [[wanted] * PARTITIONS] * CLIENTS

    assert "Too many open files" not in broker.output()
    broker.kill()
    broker.start()
    with Caller(broker.host, broker.port, timeout_s=30) as client:
        assert _read_all(client) == [wanted] * PARTITIONS
        _write_to_all(client, b"after a crash")
    assert "Too many open files" not in broker.output()


def _write_to_each(client: Caller, value: bytes) -> None:
    """A request for each partition, all of them sent before the first answer is read."""
    for index in range(PARTITIONS):
        request = produce_request((TOPIC, index, batch(value)))
        client.send_raw(client.frame(request, 9, index))
    for index in range(PARTITIONS):
        (answered,) = client.receive(APIS[0], 9, index).responses
        assert answered.partition_responses[0].error_code == 0


def _write_to_all(client: Caller, value: bytes) -> None:
    """One request for all partitions."""
    answer = client.call(
        produce_request(*((TOPIC, index, batch(value)) for index in range(PARTITIONS))), 9
    )
    assert {
        entry.error_code for topic in answer.responses for entry in topic.partition_responses
    } == {0}


def _read_all(client: Caller) -> list[list[bytes | None]]:
    """All values by partition, every request for all of them from where the last ended."""
    found: list[list[bytes | None]] = [[] for _ in range(PARTITIONS)]
    while True:
        wanted = [Target(TOPIC, len(values), index) for index, values in enumerate(found)]
        entries = by_partition(client.call(fetch_request(*wanted), 12))
        before = sum(map(len, found))
        for (_, index), entry in entries.items():
            assert entry.error_code == 0
            found[index] += [value for _, value in records_in(entry.records)]
        if sum(map(len, found)) == before:
            return found


@pytest.mark.parametrize("broker", ["0", "1"], ids=["linux", "portable"], indirect=True)
def test_clients_beyond_the_descriptors_are_turned_away_and_harm_nobody(
    broker: BrokerProcess,
) -> None:
    with Caller(broker.host, broker.port) as first:
        first.create_topic(TOPIC, partitions=PARTITIONS)
        with ExitStack() as stack:
            crowd = [
                stack.enter_context(Caller(broker.host, broker.port)) for _ in range(2 * LIMIT)
            ]

            _write_to_each(first, b"crowded")
            _write_to_all(first, b"crowded")
            assert _read_all(first) == [[b"crowded"] * 2] * PARTITIONS
            served = [one for one in crowd if _is_served(one)]
            assert LIMIT // 4 < len(served) < LIMIT

        with Caller(broker.host, broker.port) as later:
            assert _is_served(later)
    assert "connection closed" in broker.output()


def test_a_process_that_may_open_nothing_answers_all_stops_no_log_and_goes_on_when_it_may(
    broker: BrokerProcess,
) -> None:
    with ExitStack() as stack:
        first = stack.enter_context(Caller(broker.host, broker.port))
        first.create_topic(TOPIC, partitions=PARTITIONS)
        assert first.produce(TOPIC, batch(b"before")).error_code == 0

        # Fewer than it has open: as with ENFILE, to close one does not help.
        resource.prlimit(broker.pid, resource.RLIMIT_NOFILE, (10, LIMIT))
        codes = {
            first.produce(TOPIC, batch(b"none"), partition=index).error_code
            for index in range(PARTITIONS)
        }
        assert codes <= {ErrorCode.NONE, ErrorCode.KAFKA_STORAGE_ERROR}
        waiting = [stack.enter_context(Caller(broker.host, broker.port)) for _ in range(5)]
        sent = [one.send(MetadataRequest(topics=[]), 12) for one in waiting]
        _wait_for(broker, "no file descriptors are left")

        resource.prlimit(broker.pid, resource.RLIMIT_NOFILE, (LIMIT, LIMIT))
        for one, correlation_id in zip(waiting, sent, strict=True):
            assert one.receive(APIS[3], 12, correlation_id).brokers
        _wait_for(broker, "there are file descriptors again")
        _write_to_all(first, b"after")
        assert all(values[-1] == b"after" for values in _read_all(first))


def _wait_for(broker: BrokerProcess, words: str) -> None:
    """Until the broker has said so."""
    deadline = time.monotonic() + 10
    while words not in broker.output():
        assert time.monotonic() < deadline, broker.output()
        time.sleep(0.02)


def _is_served(client: Caller) -> bool:
    try:
        return bool(client.call(MetadataRequest(topics=[])).brokers)
    except (ConnectionClosed, OSError):
        return False
