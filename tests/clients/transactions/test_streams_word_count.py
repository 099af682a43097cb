"""Kafka Streams of three ages counts words exactly once while it and the broker are killed.

Every count of every word is written, so the result is exact only if for each word 1, 2, 3 ... come
once and in order. `kill -9` of the program twice, of the broker once.
"""

from __future__ import annotations

import collections
import os
import random
import re
import threading
import time
from typing import TYPE_CHECKING

import confluent_kafka
import pytest

from tests.clients.available import end_of_test
from tests.clients.drivers.driver import CALL_TIMEOUT_S
from tests.clients.drivers.program_driver import CLIENTS
from tests.clients.transactions.brokers import ON_KAFKA, REFERENCES, STABLE
from tests.clients.transactions.telling import prepare
from tests.support import fetched
from tests.support.broker_process import BrokerProcess
from tests.support.caller import Caller
from tests.support.fetched import NotAvailable
from tests.support.kafka_process import KafkaProcess
from tests.support.server_process import RunningProcess

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.server_process import ServerProcess

pytestmark = [
    pytest.mark.long,
    pytest.mark.clients,
    pytest.mark.java,
    pytest.mark.timeout(600),
    pytest.mark.skipif(
        "TEST_BOOTSTRAP" in os.environ, reason="a server from outside cannot be killed"
    ),
]

#: By release: 2.8 as it was before KIP-447, with a producer for each task; 4 with epochs that
#: grow at every end (KIP-890).
GUARANTEES = {"2.8.2": "exactly_once", "3.9.2": "exactly_once_v2", "4.3.1": "exactly_once_v2"}
SOURCE, TARGET = "words", "counts"
PARTITIONS = 2
WORDS = [f"word-{number}" for number in range(50)]
RECORDS = 4_000
PER_SECOND = 250
SEED = 17
#: Records that are counted before each of the faults.
PROGRAM_DIES_AT, BROKER_DIES_AT, PROGRAM_DIES_AGAIN_AT = 700, 1_600, 2_600
PATIENCE_S = 240.0

TRIGLOT = "triglot"


class Words(threading.Thread):
    """Writes the words by and by, each once whatever happens to the broker."""

    def __init__(self, bootstrap: str) -> None:
        super().__init__(daemon=True)
        self.counts: collections.Counter[str] = collections.Counter()
        self.failures: list[object] = []
        self._producer = confluent_kafka.Producer(
            {"bootstrap.servers": bootstrap, "enable.idempotence": True, "linger.ms": 5}
        )

    def run(self) -> None:
        chosen = random.Random(SEED)
        for _ in range(RECORDS):
            word = chosen.choice(WORDS)
            self.counts[word] += 1
            self._producer.produce(SOURCE, word.encode(), on_delivery=self._delivered)
            self._producer.poll(0)
            time.sleep(1 / PER_SECOND)
        self._producer.flush(CALL_TIMEOUT_S)

    def _delivered(self, error: object, _message: object) -> None:
        if error is not None:
            self.failures.append(error)


class Counts:
    """Reads what was counted, committed records only."""

    def __init__(self, bootstrap: str) -> None:
        self.seen: dict[str, list[int]] = {}
        self.total = 0
        self._consumer = confluent_kafka.Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": "no-group",
                "isolation.level": "read_committed",
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
            }
        )
        self._consumer.assign(
            [confluent_kafka.TopicPartition(TARGET, number, 0) for number in range(PARTITIONS)]
        )

    def read_until(self, total: int) -> None:
        """Read on until so many were counted; fails after `PATIENCE_S`."""
        deadline = time.monotonic() + PATIENCE_S
        while self.total < total:
            assert time.monotonic() < deadline, f"{self.total} of {total} were counted"
            for message in self._consumer.consume(500, 0.2):
                if message.error() is None:
                    word, count = (message.key() or b"").decode(), int(message.value() or b"0")
                    self.seen.setdefault(word, []).append(count)
                    self.total += 1

    def close(self) -> None:
        self._consumer.close()


class WordCount:
    """The program, with its store in a folder that outlives it."""

    def __init__(self, release: str, bootstrap: str, folder: Path) -> None:
        java = fetched.runtime("java")
        sources = CLIENTS / "java" / "streams"
        jars = fetched.jars(sources / "pom.xml", properties={"kafka.version": release})
        classes = fetched.classes(sources, classpath=jars)
        folder.mkdir()
        self._folder = folder
        self._command = [java, "-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
        self._command += ["-Dorg.slf4j.simpleLogger.defaultLogLevel=warn"]
        self._command += ["-cp", f"{classes}:{jars}/*", "triglot.WordCount"]
        self._command += [bootstrap, "word-count", SOURCE, TARGET, str(folder)]
        self._command += [GUARANTEES[release]]
        self.run: RunningProcess | None = None

    def start(self) -> None:
        self.run = RunningProcess(
            self._command,
            cwd=self._folder,
            environ=os.environ,
            ready_line=re.compile("state RUNNING"),
        )

    def kill(self) -> None:
        if self.run is not None:
            self.run.kill()
            self.run = None


def _server(name: str, folder: Path) -> ServerProcess:
    if name == TRIGLOT:
        return BrokerProcess(folder)
    return KafkaProcess(folder, release=REFERENCES[name].release)


@pytest.mark.parametrize("release", GUARANTEES)
@pytest.mark.parametrize("name", [TRIGLOT, *(STABLE if ON_KAFKA else [])])
def test_words_are_counted_once_though_program_and_broker_are_killed(
    name: str, release: str, tmp_path: Path
) -> None:
    try:
        server = _server(name, tmp_path / "data")
        fetched.runtime("java")
    except NotAvailable as reason:
        end_of_test("java", str(reason))
    with server:
        prepare(server, None if name == TRIGLOT else REFERENCES[name].level_to_set)
        with Caller(server.host, server.port) as caller:
            for topic in (SOURCE, TARGET):
                caller.create_topic(topic, PARTITIONS)
        try:
            program = WordCount(release, server.bootstrap, tmp_path / "store")
        except NotAvailable as reason:
            end_of_test("java", str(reason))
        words, counts = Words(server.bootstrap), Counts(server.bootstrap)
        program.start()
        words.start()
        try:
            counts.read_until(PROGRAM_DIES_AT)
            program.kill()
            program.start()
            counts.read_until(BROKER_DIES_AT)
            server.kill()
            server.start()
            counts.read_until(PROGRAM_DIES_AGAIN_AT)
            program.kill()
            program.start()
            counts.read_until(RECORDS)
            words.join(CALL_TIMEOUT_S)
        finally:
            program.kill()
            counts.close()
    assert words.failures == []
    assert counts.seen == {word: list(range(1, count + 1)) for word, count in words.counts.items()}
