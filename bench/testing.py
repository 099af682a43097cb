"""Brokers of tests: how long a test waits for its own, beside librdkafka's mock and Apache Kafka.

    python -m bench.testing [--rounds N] [--tests N] [--kafka]

Estimate, on paper: the first broker 200 ms (an interpreter 30, imports 130, a start 40), one that
was begun during the test before 1 ms, one that was not 22 ms (fork 2, start 17, sockets 3), one in
the loop of the test 5 ms, a snapshot of a small state 4 ms and the way back to it 30 ms (kill 4,
copy 4, start 22), after a test that has left time for a process to begin with it 12 ms (kill 4,
hand over 1, the rest of a start 7). What a fixture takes for a run's first broker is that one less
what the import of the test module hides: 150 ms. A test that produces one record to a new topic
takes 50 ms of CPU with a broker of its own (its start 20, its work 15, the client 10, pytest 5), so
1,000 of them 30 s on two cores. librdkafka's mock 3 ms, a start of Apache Kafka 5 s.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import re
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

from confluent_kafka import Producer

from bench import machine
from client.cluster import TopicPartition
from protocol.records.builder import build_batch
from testing import AsyncBroker, Broker
from testing.warm import WarmBrokers
from tests.support.broker_process import CHECKOUT
from tests.support.kafka_process import KafkaProcess

if TYPE_CHECKING:
    from collections.abc import Callable

FIRST = (
    "import time; began = time.perf_counter(); from testing import Broker; b = Broker(); b.start();"
    "print(time.perf_counter() - began)"
)
PREPARED_WITHIN_S = 0.2
ORDERS = TopicPartition("orders", 0)
TESTS = """
import pytest
from confluent_kafka import Producer

@pytest.mark.parametrize("number", range({count}))
def test_one({fixture}number):
    producer = Producer({{{settings}}})
    producer.produce("orders", b"one")
    assert producer.flush(30) == 0
"""


def main() -> None:
    """Measure, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--tests", type=int, default=1_000)
    parser.add_argument("--kafka", action="store_true", help="start Apache Kafka too; wants Java")
    words = parser.parse_args()
    for key, value in machine.described().items():
        print(f"{key}: {value}")
    print("\n| | median ms | least ms |\n| --- | ---: | ---: |")
    _row("first broker of a test run", [_first() for _ in range(max(3, words.rounds // 4))])
    _row("first fixture of a test run", [_fixture() for _ in range(max(3, words.rounds // 4))])
    for memory in (False, True):
        where = "in memory" if memory else "on the disk"
        _row(f"next broker, begun before, {where}", _next(words.rounds, memory=memory))
        _row(f"next broker, not begun before, {where}", _cold(words.rounds, memory=memory))
        taken, restored = _snapshots(words.rounds, memory=memory, pause_s=PREPARED_WITHIN_S)
        _row(f"snapshot, {where}", taken)
        _row(f"restore after a test, {where}", restored)
        _row(f"restore at once, {where}", _snapshots(words.rounds, memory=memory)[1])
        _row(f"inline broker, {where}", asyncio.run(_inline(words.rounds, memory=memory)))
    _row("librdkafka's mock, until one record is in it", [_mock() for _ in range(words.rounds)])
    _row("triglot, until one record is in it", _until_one_record(words.rounds))
    if words.kafka:
        _row("Apache Kafka from its jars", [_kafka()])
    print(f"\n| {words.tests:,} tests | s | CPU-s |\n| --- | ---: | ---: |")
    ours = TESTS.format(
        count=words.tests,
        fixture="triglot, ",
        settings='"bootstrap.servers": triglot.bootstrap',
    )
    mock = TESTS.format(count=words.tests, fixture="", settings='"test.mock.num.brokers": 1')
    for name, tests, arguments in (
        ("a broker each", ours, ()),
        ("a broker each, in memory", ours, ("--triglot-memory",)),
        ("a broker each, in memory, two workers", ours, ("--triglot-memory", "-n", "2")),
        ("a mock of librdkafka each", mock, ()),
    ):
        print(f"| {name} | {' | '.join(f'{one:.1f}' for one in _run(tests, arguments))} |")
    print(f"\nload average at the end: {' '.join(f'{one:.2f}' for one in os.getloadavg())}")


def _row(name: str, seconds: list[float]) -> None:
    print(f"| {name} | {statistics.median(seconds) * 1e3:.1f} | {min(seconds) * 1e3:.1f} |")


def _timed(call: Callable[[], object]) -> float:
    began = time.perf_counter()
    call()
    return time.perf_counter() - began


def _first() -> float:
    run = subprocess.run(
        [sys.executable, "-c", FIRST], cwd=CHECKOUT, capture_output=True, text=True, check=True
    )
    return float(run.stdout)


def _next(rounds: int, *, memory: bool) -> list[float]:
    warm, took = WarmBrokers(memory=memory), []
    for _ in range(rounds + 2):
        began = time.perf_counter()
        broker = warm.take({}, another=True)
        took.append(time.perf_counter() - began)
        _produce({"bootstrap.servers": broker.bootstrap})  # what the test does meanwhile
        broker.discard()
    warm.close()
    return took[2:]


def _cold(rounds: int, *, memory: bool) -> list[float]:
    took = []
    for _ in range(rounds):
        broker = Broker(memory=memory)
        took.append(_timed(broker.start))
        broker.discard()
    return took


def _fixture() -> float:
    """Of a module that imports confluent-kafka, as pytest tells it, to 10 ms."""
    told = _pytest(
        TESTS.format(
            count=1, fixture="triglot, ", settings='"bootstrap.servers": triglot.bootstrap'
        ),
        ("--durations=0", "--durations-min=0"),
    )
    found = re.search(r"([0-9.]+)s setup", told)
    assert found is not None, told
    return float(found[1])


def _snapshots(rounds: int, *, memory: bool, pause_s: float = 0) -> tuple[list[float], list[float]]:
    """With so much time between the two, in which a test would do something."""
    taken, restored = [], []
    with Broker(memory=memory) as broker:
        broker.topic("orders").create()
        broker.cluster.produce(ORDERS, [build_batch([(0, None, b"one", ())])])
        broker.cluster.commit_offsets("billing", {ORDERS: 1})
        for _ in range(rounds):
            began = time.perf_counter()
            mark = broker.snapshot()
            taken.append(time.perf_counter() - began)
            time.sleep(pause_s)
            restored.append(_timed(lambda mark=mark: broker.restore(mark)))  # type: ignore[misc]
    return taken, restored


async def _inline(rounds: int, *, memory: bool) -> list[float]:
    took = []
    for _ in range(rounds + 2):
        began = time.perf_counter()
        async with AsyncBroker(memory=memory):
            took.append(time.perf_counter() - began)
    return took[2:]


def _produce(settings: dict[str, object]) -> None:
    producer = Producer({**settings, "log_level": 3})
    producer.produce("orders", b"one")
    assert producer.flush(30) == 0


def _mock() -> float:
    return _timed(lambda: _produce({"test.mock.num.brokers": 1}))


def _until_one_record(rounds: int) -> list[float]:
    warm, took = WarmBrokers(memory=True), []
    for _ in range(rounds + 2):
        began = time.perf_counter()
        broker = warm.take({}, another=True)
        _produce({"bootstrap.servers": broker.bootstrap})
        took.append(time.perf_counter() - began)
        broker.discard()
    warm.close()
    return took[2:]


def _kafka() -> float:
    with tempfile.TemporaryDirectory() as folder:
        kafka = KafkaProcess(Path(folder))
        took = _timed(kafka.start)
        kafka.stop()
    return took


def _run(tests: str, arguments: tuple[str, ...]) -> tuple[float, float]:
    """Seconds, and those of CPU of the run and all that it started."""
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    _pytest(tests, arguments)
    took = time.perf_counter() - began
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return took, cpu


def _pytest(tests: str, arguments: tuple[str, ...]) -> str:
    """What it prints."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "test_it.py").write_text(tests)
        run = subprocess.run(
            [
                *(sys.executable, "-m", "pytest", "-q", "-p", "testing.plugin"),
                *("-p", "no:cacheprovider", "-p", "no:asyncio", *arguments),
            ],
            cwd=folder,
            env={**os.environ, "PYTHONPATH": str(CHECKOUT)},
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            check=True,
        )
    return run.stdout


if __name__ == "__main__":
    main()
