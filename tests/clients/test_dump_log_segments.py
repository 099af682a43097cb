"""Every file we leave behind is one that Apache Kafka's own `DumpLogSegments` finds in order.

A case makes a data directory, and the tool of Apache Kafka 3.9 looks at all of it. Lines of its
output that name a fault fail the test as they are.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest

from protocol.errors import ErrorCode
from protocol.messages.produce import ProduceRequest
from protocol.records.builder import build_batch
from protocol.records.layout import HEADER
from protocol.records.legacy import build_messages
from storage.disk import DiskFilesystem
from storage.recovery import open_log
from tests.clients.available import end_of_test
from tests.clients.drivers.confluent_driver import ConfluentDriver
from tests.clients.drivers.driver import CODECS, KEEP_FOR_EVER
from tests.clients.kill_loads import ConfluentLoad
from tests.clients.records import PARTITIONS, some_records
from tests.storage.logs import Settings
from tests.support.dump_log_segments import Dumped, dump
from tests.support.fetched import NotAvailable
from tests.support.wire_client import WireClient

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.support.server_process import ServerProcess

    NewServer = Callable[..., ServerProcess]

pytestmark = [pytest.mark.clients, pytest.mark.java]

#: By the record format that is stored.
FORMATS = {0: "0.9.0", 1: "0.10.2", 2: "3.0-IV1"}

#: Of each format; every third is not compressed.
SETS = 90

#: A roll every few batches.
SMALL_SEGMENTS = {"segment.bytes": "40000", "max.message.bytes": "39000"}


#: Retention and cleaning at once.
SOON = {
    "log_initial_task_delay_ms": "0",
    "log_retention_check_interval_ms": "200",
    "log_cleaner_backoff_ms": "200",
    "log_segment_delete_delay_ms": "100",
}
COMPACTED = {
    "cleanup.policy": "compact",
    "min.cleanable.dirty.ratio": "0.01",
    "delete.retention.ms": "0",
}
WITHIN_S = 30.0


def looked_at(server: ServerProcess) -> Dumped:
    """What the tool says of the server's directory, or the end of the test."""
    return dumped(server.data)


def dumped(data: Path) -> Dumped:
    try:
        found = dump(data)
    except NotAvailable as reason:
        end_of_test("java", str(reason))
    assert found.batches
    assert found.index_entries
    return found


def assert_in_order(found: Dumped, *, holes: bool = False) -> None:
    assert found.faults == [], "\n".join(found.faults)
    if not holes:
        assert found.holes == [], "\n".join(found.holes)


def fill(server: ServerProcess, topic: str, configs: dict[str, str], *, count: int = 300) -> None:
    """Topics of all three formats, each with all codecs its format has, from idempotent producers
    and from others, and from clients that send sets of several messages or batches.

    Every record has a key, so that the topics can be compacted.
    """
    client = ConfluentDriver()
    for magic, version in FORMATS.items():
        name = f"{topic}-{magic}"
        wanted = {**KEEP_FOR_EVER, **configs, "message.format.version": version}
        client.create_topic(server.bootstrap, name, partitions=PARTITIONS, configs=wanted)
        for seed, codec in enumerate(CODECS):
            if codec == "zstd" and magic < 2:
                continue
            # Only format 2 has room for a producer's id and for headers.
            for idempotent in (False, True) if magic == 2 else (False,):
                records = some_records(count, client.abilities, seed=2 * seed + idempotent)
                records = [record._replace(key=record.key or b"none") for record in records]
                if magic < 2:
                    records = [record._replace(headers=()) for record in records]
                client.produce(server.bootstrap, name, records, codec=codec, idempotent=idempotent)
        send_sets(server, name, magic)


def send_sets(server: ServerProcess, topic: str, magic: int) -> None:
    """Several messages in a set without a codec, and a wrapper, as clients of that age send them;
    times go up and down in a set, so that its largest is in its midst."""
    now_ms = time.time_ns() // 1_000_000
    with WireClient(server.host, server.port) as wire:
        for number in range(SETS):
            times = [now_ms + 1000 * number + (delta * 37) % 100 for delta in range(40)]
            rows = [(ms, b"k%d" % (ms % 7), bytes(100 + ms % 90), ()) for ms in times]
            if magic == 2:
                sent, version = build_batch(rows, codec=number % 3), 8
            else:
                sent, version = build_messages(rows, magic=magic, codec=number % 3), 1 + magic
            partition = ProduceRequest.Topic.Partition(index=0, records=memoryview(sent))
            wanted = ProduceRequest.Topic(name=topic, partition_data=[partition])
            request = ProduceRequest(acks=-1, timeout_ms=10_000, topic_data=[wanted])
            answer = wire.call(request, version)
            code = answer.responses[0].partition_responses[0].error_code
            assert code == ErrorCode.NONE, ErrorCode(code)


def stopped(server: ServerProcess) -> None:
    assert server.stop() == 0


def test_a_plain_load_of_all_formats_and_codecs(new_server: NewServer, topic: str) -> None:
    server = new_server()
    fill(server, topic, {})
    stopped(server)

    found = looked_at(server)

    assert_in_order(found)
    assert found.files[".log"] >= len(FORMATS) * PARTITIONS
    assert found.files[".snapshot"] == found.files[".log"]
    assert found.batches > len(FORMATS) * SETS


def test_segments_that_were_rolled(new_server: NewServer, topic: str) -> None:
    server = new_server()
    fill(server, topic, SMALL_SEGMENTS, count=150)
    stopped(server)

    found = looked_at(server)

    assert_in_order(found)
    assert found.files[".log"] > 2 * len(FORMATS) * PARTITIONS


def test_logs_whose_first_records_were_deleted(new_server: NewServer, topic: str) -> None:
    client = ConfluentDriver()
    server = new_server()
    fill(server, topic, SMALL_SEGMENTS, count=150)
    logs_before = _count(server, topic, ".log")
    for magic in FORMATS:
        client.delete_records(server.bootstrap, f"{topic}-{magic}", 700)
    stopped(server)

    found = looked_at(server)

    assert_in_order(found)
    assert found.files[".log"] < logs_before


def test_logs_that_retention_shortened_by_size_and_by_time(
    new_server: NewServer, topic: str
) -> None:
    client = ConfluentDriver()
    server = new_server(**SOON)
    fill(server, topic, SMALL_SEGMENTS, count=150)
    logs_before = _count(server, topic, ".log")
    for magic in FORMATS:
        name = f"{topic}-{magic}"
        # The records of the drivers are from 2023; those without a time are as old as their file.
        client.alter_config(server.bootstrap, name, "retention.ms", "86400000")
        client.alter_config(server.bootstrap, name, "retention.bytes", "100000")
    _wait_until(lambda: _count(server, topic, ".log") < logs_before - 3 * len(FORMATS))
    stopped(server)

    found = looked_at(server)

    assert_in_order(found)


def test_logs_that_were_compacted(new_server: NewServer, topic: str) -> None:
    server = new_server(**SOON)
    fill(server, topic, {**SMALL_SEGMENTS, **COMPACTED}, count=150)
    fill(server, f"{topic}-again", {**SMALL_SEGMENTS, **COMPACTED}, count=150)
    checkpoint = server.data / "cleaner-offset-checkpoint"
    wanted = 2 * len(FORMATS)  # partition 0 of each topic has several segments
    _wait_until(lambda: checkpoint.exists() and checkpoint.read_text().count(" 0 ") >= wanted)
    stopped(server)

    found = looked_at(server)

    assert_in_order(found, holes=True)
    assert found.holes, "nothing was compacted"


def test_a_log_with_open_committed_and_aborted_transactions(tmp_path: Path) -> None:
    folder = tmp_path / "data" / "transactions-0"
    folder.mkdir(parents=True)
    log, _ = open_log(DiskFilesystem(), str(folder), Settings(segment_bytes=20_000))
    for number in range(200):
        producer = number % 3
        raw = bytearray(
            build_batch(
                [(number, b"k", bytes(300), ())],
                producer_id=producer,
                producer_epoch=0,
                base_sequence=number // 3,
                transactional=True,
            )
        )
        log.append(memoryview(raw), HEADER.unpack_from(raw))
        if number % 10 > 6:
            commit = number % 4 > 1
            log.append_marker(producer, 0, commit=commit, coordinator_epoch=0, now_ms=number)
        log.write()
    assert log.close(clean=True) is not None

    found = dumped(tmp_path / "data")

    assert_in_order(found)
    assert found.files[".txnindex"] > 1


@pytest.mark.parametrize("end", ["stopped", "killed again"])
def test_what_recovery_makes_of_a_kill_under_load(
    new_server: NewServer, topic: str, end: str
) -> None:
    server = new_server()
    fill(server, topic, SMALL_SEGMENTS, count=100)
    ConfluentDriver().create_topic(
        server.bootstrap,
        f"{topic}-load",
        partitions=6,
        configs={**KEEP_FOR_EVER, "segment.bytes": "200000", "max.message.bytes": "100000"},
    )
    load = ConfluentLoad(server.bootstrap, f"{topic}-load")
    for _ in range(2):
        load.wait_for_acks(3000)
        server.kill()
        server.start()
    assert load.finish() == 0
    server.kill()
    server.start()
    if end == "stopped":
        stopped(server)
    else:
        server.kill()

    found = looked_at(server)

    assert_in_order(found)


def test_a_wrong_index_entry_and_a_torn_log_are_found(new_server: NewServer, topic: str) -> None:
    """That is: the tests above can fail."""
    client = ConfluentDriver()
    server = new_server()
    client.create_topic(server.bootstrap, topic, partitions=1, configs=KEEP_FOR_EVER)
    for seed in range(4):
        records = some_records(200, client.abilities, seed=seed, partitions=1)
        client.produce(server.bootstrap, topic, records, codec="none", idempotent=True)
    stopped(server)
    (index,) = server.data.glob(f"{topic}-0/*.index")
    (log,) = server.data.glob(f"{topic}-0/*.log")
    _add_one(index, position=3)
    with log.open("ab") as file:
        file.write(bytes(5))

    found = looked_at(server)

    assert any("Index offset" in line for line in found.faults), found.faults
    assert any("5 invalid bytes" in line for line in found.faults), found.faults


def _count(server: ServerProcess, topic: str, suffix: str) -> int:
    return sum(1 for _ in server.data.glob(f"{topic}-*/*{suffix}"))


def _wait_until(done: Callable[[], bool]) -> None:
    deadline = time.monotonic() + WITHIN_S
    while not done():
        assert time.monotonic() < deadline, f"not within {WITHIN_S} s"
        time.sleep(0.1)


def _add_one(path: Path, *, position: int) -> None:
    data = bytearray(path.read_bytes())
    data[position] += 1
    path.write_bytes(data)
