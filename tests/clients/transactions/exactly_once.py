"""What tests of copies that are made exactly once share: what is copied, the copiers, and a reader.

A test feeds a topic by and by, starts programs that copy or count what is in it, kills them and the
server while they run, and reads what came out, committed records only.
"""

from __future__ import annotations

import os
import threading
import time
from typing import TYPE_CHECKING

import confluent_kafka

from tests.clients.drivers.driver import CALL_TIMEOUT_S
from tests.support.caller import Caller
from tests.support.server_process import RunningProcess

if TYPE_CHECKING:
    import re
    from collections.abc import Callable, Iterable, Sequence
    from pathlib import Path

    from tests.support.server_process import ServerProcess

#: A partition that librdkafka chooses.
ANY = -1

#: The longest that a test waits for what is still to come.
PATIENCE_S = 120.0

JAVA_OPTIONS = (
    "-Xmx256m",
    "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=1",
    "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
)


class Feed(threading.Thread):
    """Writes values to a topic by and by, each once whatever happens to the server."""

    def __init__(
        self,
        bootstrap: str,
        topic: str,
        values: Iterable[tuple[int, str]],
        *,
        per_second: int | None = None,
    ) -> None:
        super().__init__(daemon=True)
        self._topic = topic
        self._values = values
        self._pause_s = 1 / per_second if per_second else 0
        self._failures: list[object] = []
        self._producer = confluent_kafka.Producer(
            {"bootstrap.servers": bootstrap, "enable.idempotence": True, "linger.ms": 5}
        )

    def run(self) -> None:
        for partition, value in self._values:
            self._producer.produce(
                self._topic, value.encode(), partition=partition, on_delivery=self._delivered
            )
            self._producer.poll(0)
            if self._pause_s:
                time.sleep(self._pause_s)
        self._producer.flush(CALL_TIMEOUT_S)

    def finish(self) -> None:
        """Wait for the end of it. All that was written was acknowledged, or this fails."""
        self.join(CALL_TIMEOUT_S)
        assert not self.is_alive()
        assert self._failures == []

    def _delivered(self, error: object, _message: object) -> None:
        if error is not None:
            self._failures.append(error)


def numbered(count: int, partitions: int) -> list[tuple[int, str]]:
    """For a `Feed`: the numbers from 0 on, dealt out to the partitions in turn."""
    return [(number % partitions, str(number)) for number in range(count)]


def dealt(count: int, partitions: int) -> list[list[str]]:
    """By partition, what `numbered` puts there."""
    return [
        [str(number) for number in range(first, count, partitions)] for first in range(partitions)
    ]


class Program:
    """A program that is started and killed.

    It ends with 0 when its work is done. Where it may fail because the server is away, it is
    started again, up to so many starts in all, the test's own among them; else it must not end.
    """

    def __init__(
        self,
        command: Sequence[str],
        folder: Path,
        ready_line: re.Pattern[str],
        *,
        starts_max: int = 0,
    ) -> None:
        folder.mkdir(exist_ok=True)
        self._command = list(command)
        self._folder = folder
        self._ready_line = ready_line
        self._starts_max = starts_max
        self._starts = 0
        self._run: RunningProcess | None = None

    def start(self) -> None:
        """Start it, and do not wait until it is ready."""
        assert self._run is None, "it is running"
        self._starts += 1
        self._run = RunningProcess(
            self._command, cwd=self._folder, environ=os.environ, ready_line=self._ready_line
        )

    def kill(self) -> None:
        """End it by SIGKILL, if it runs."""
        if self._run is not None:
            self._run.kill()
            self._run = None

    def restart(self) -> None:
        self.kill()
        self.start()

    def look_after(self) -> None:
        """Start it again if it has failed. Raises `ServerFailed` if it failed too often."""
        if self._run is None or not self._run.exit_code:
            return
        if self._starts >= self._starts_max:
            raise self._run.failure(f"ended with {self._run.exit_code}")
        self.restart()

    def output(self) -> str:
        """The last lines that it printed."""
        return self._run.output() if self._run is not None else "(not running)"


class Committed:
    """What readers of committed records get of a topic, in the order of each partition."""

    def __init__(
        self, bootstrap: str, topic: str, partitions: int, programs: Sequence[Program] = ()
    ) -> None:
        """The programs, which write to it, are looked after meanwhile."""
        self.keys: list[list[str]] = [[] for _ in range(partitions)]
        self.values: list[list[str]] = [[] for _ in range(partitions)]
        self._programs = programs
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
            [confluent_kafka.TopicPartition(topic, number, 0) for number in range(partitions)]
        )

    @property
    def count(self) -> int:
        return sum(map(len, self.values))

    def read_until(self, count: int) -> None:
        """Read on until there are so many in all; fails after `PATIENCE_S`."""
        deadline = time.monotonic() + PATIENCE_S
        while self.count < count:
            if time.monotonic() >= deadline:
                raise AssertionError(f"{self.count} of {count} came; {self._told()}")
            for one in self._programs:
                one.look_after()
            self._read(0.2)

    def read_to_the_end(self) -> None:
        """Read what is there when nothing is under way any more."""
        while self._read(1.0):
            """There was more."""

    def close(self) -> None:
        self._consumer.close()

    def _read(self, wait_s: float) -> int:
        found = [one for one in self._consumer.consume(500, wait_s) if one.error() is None]
        for message in found:
            partition = message.partition()
            assert partition is not None
            self.keys[partition].append((message.key() or b"").decode())
            self.values[partition].append((message.value() or b"").decode())
        return len(found)

    def _told(self) -> str:
        return "the programs said:\n" + "\n--\n".join(one.output() for one in self._programs)


def read_through(committed: Committed, total: int, *faults: Callable[[], None]) -> None:
    """Read `total` records, and what comes after them; at even distances the faults happen."""
    for number, fault in enumerate(faults, 1):
        committed.read_until(total * number // (len(faults) + 1))
        fault()
    committed.read_until(total)
    committed.read_to_the_end()


def restart(server: ServerProcess) -> None:
    """End it by SIGKILL and start it again."""
    server.kill()
    server.start()


def make_topics(server: ServerProcess, partitions: int, *names: str) -> None:
    with Caller(server.host, server.port) as caller:
        for name in names:
            caller.create_topic(name, partitions)
