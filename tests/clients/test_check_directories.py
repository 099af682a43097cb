"""`triglot check` of directories that real brokers wrote: ours and Apache Kafka, for real clients.

After a clean stop there is nothing to find. After a kill there is nothing but what is true of a
crash. A check that found more would teach people not to look.
"""

from __future__ import annotations

import json
import random
import shutil
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Any

import confluent_kafka
import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from tests.clients.available import end_of_test
from tests.storage.inspection.directories import contents_of, in_memory, repaired
from tests.style.sources import CHECKOUT
from tests.support.broker_process import BrokerProcess
from tests.support.dump_log_segments import dump
from tests.support.fetched import NotAvailable
from tests.support.kafka_process import KafkaProcess

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.server_process import ServerProcess

pytestmark = [pytest.mark.long, pytest.mark.clients]

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
PLAIN = {"segment.bytes": "100000"}
COMPACTED = {
    "segment.bytes": "20000",
    "cleanup.policy": "compact",
    "min.cleanable.dirty.ratio": "0.01",
}
KAFKA = {"log.cleaner.backoff.ms": "300", "log.initial.task.delay.ms": "500"}


def run_check(path: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "tools", "check", "--json", "--deep", str(path)]
    return subprocess.run(command, cwd=CHECKOUT, capture_output=True, text=True, check=False)


def checked(path: Path) -> tuple[int, list[dict[str, Any]]]:
    """The exit code and the findings of the command, in a process of its own."""
    ended = run_check(path)
    assert ended.stderr == ""
    *found, last = (json.loads(line) for line in ended.stdout.splitlines())
    assert last["summary"]["bytes"] > 10_000
    return ended.returncode, found


def settings_of(server: ServerProcess, **more: object) -> dict[str, Any]:
    return {"bootstrap.servers": server.bootstrap, "log_level": 0, "linger.ms": 1, **more}


def create_topics(server: ServerProcess, topics: dict[str, dict[str, str]]) -> None:
    admin = AdminClient(settings_of(server))
    made = [NewTopic(name, 1, 1, config=config) for name, config in topics.items()]
    for future in admin.create_topics(made).values():
        future.result()


def produce(server: ServerProcess, topics: list[str], rng: random.Random) -> None:
    """A few hundred records of every codec, and some of an idempotent producer."""
    for codec in CODECS:
        idempotent = codec == "lz4"
        producer = confluent_kafka.Producer(
            settings_of(server, **{"compression.type": codec, "enable.idempotence": idempotent})
        )
        for number in range(400):
            value = rng.randbytes(40) * rng.randrange(1, 6)
            for topic in topics:
                producer.produce(topic, value, str(number % 37))
            if number % 20 == 0:
                producer.flush()
        assert producer.flush(20) == 0


def transact(server: ServerProcess, topic: str, rng: random.Random) -> list[Any]:
    """Transactions of three producers at a time, half of them aborted, one left open."""
    producers = [
        confluent_kafka.Producer(settings_of(server, **{"transactional.id": f"tx-{number}"}))
        for number in range(3)
    ]
    for producer in producers:
        producer.init_transactions()
    for _ in range(8):
        for producer in producers:
            producer.begin_transaction()
        for number in range(30):
            producers[number % 3].produce(topic, rng.randbytes(150), str(number))
        for producer in producers:
            producer.flush()
        rng.shuffle(producers)
        for producer in producers:
            if rng.random() < 0.5:
                producer.abort_transaction()
            else:
                producer.commit_transaction()
    producers[0].begin_transaction()
    producers[0].produce(topic, b"open")
    producers[0].flush()
    return producers


def commit(server: ServerProcess, topic: str) -> None:
    consumer = confluent_kafka.Consumer(
        settings_of(server, **{"group.id": "readers", "auto.offset.reset": "earliest"})
    )
    consumer.subscribe([topic])
    assert consumer.consume(10, 20)
    consumer.commit(asynchronous=False)
    consumer.close()


def test_our_directories_are_flawless_after_a_clean_stop_and_whole_after_a_kill(
    tmp_path: Path,
) -> None:
    rng = random.Random(1)
    data = tmp_path / "data"
    topics = {"plain": PLAIN, "old": {"message.format.version": "0.10.0"}, "compact": COMPACTED}
    server = BrokerProcess(data)
    server.start()
    create_topics(server, topics)
    produce(server, list(topics), rng)
    in_use = run_check(data)
    assert (in_use.returncode, in_use.stdout) == (2, "")
    assert "a broker is using" in in_use.stderr
    server.stop()
    assert checked(data) == (0, [])

    server.start()
    produce(server, list(topics), rng)
    server.kill()
    code, found = checked(data)
    assert {finding["kind"] for finding in found} <= {"not-clean", "left-over"}, found
    assert code == 0
    files = in_memory(contents_of(data))
    assert repaired(files) == []


@pytest.mark.java
def test_kafkas_directories_are_flawless_after_a_clean_stop_and_as_a_crash_leaves_them(
    tmp_path: Path,
) -> None:
    rng = random.Random(2)
    data, logs = tmp_path / "kafka", tmp_path / "kafka" / "logs"
    try:
        server = KafkaProcess(data, settings=KAFKA)
    except NotAvailable as reason:
        end_of_test("java", str(reason))
    topics = {"plain": PLAIN, "txn": {"segment.bytes": "30000"}, "compact": COMPACTED}
    server.start()
    try:
        create_topics(server, topics)
        produce(server, ["plain", "compact"], rng)
        open_ones = transact(server, "txn", rng)
        commit(server, "plain")
        wait_for_a_cleaning(logs)
        assert run_check(logs).returncode == 2, "it is in use"
        server.stop()
        code, found = checked(logs)
        assert code == 0
        assert {finding["kind"] for finding in found} <= {"left-over"}, found
        assert len(list((logs / "txn-0").glob("*.txnindex"))) > 1
        assert_a_repair_satisfies_kafkas_own_tool(logs, tmp_path / "broken")

        server.start()
        produce(server, ["plain", "compact"], rng)
        open_ones += transact(server, "txn", rng)
    finally:
        if server.run is not None:
            server.kill()
    # The compaction that runs at that moment may be cut off; nothing else is a warning.
    code, found = checked(logs)
    of_a_crash = {"not-clean", "index-zeros", "left-over"}
    assert [finding for finding in found if finding["kind"] not in of_a_crash] == []
    assert of_a_crash - {finding["kind"] for finding in found} <= {"left-over"}
    assert {finding["severity"] for finding in found if finding["kind"] != "left-over"} == {"note"}


def assert_a_repair_satisfies_kafkas_own_tool(logs: Path, broken: Path) -> None:
    shutil.copytree(logs, broken)
    segment = sorted((broken / "txn-0").glob("*.log"))[0]
    content = bytearray(segment.read_bytes())
    content[len(content) // 2] ^= 1
    segment.write_bytes(content)
    code, found = checked(broken)
    assert code == 1
    assert [f["file"] for f in found if f["kind"] == "checksum"] == [segment.name]

    command = [sys.executable, "-m", "tools", "repair", "--apply", str(broken)]
    ended = subprocess.run(command, cwd=CHECKOUT, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert checked(broken)[0] == 0
    assert dump(broken).faults == []


def wait_for_a_cleaning(logs: Path) -> None:
    deadline = time.monotonic() + 30
    while b"compact 0" not in (logs / "cleaner-offset-checkpoint").read_bytes():
        assert time.monotonic() < deadline, "nothing was compacted"
        time.sleep(0.1)
