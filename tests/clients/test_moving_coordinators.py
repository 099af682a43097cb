"""Partitions of `__consumer_offsets` move between processes of a directory, and one of these is
killed, while groups of both protocols read and commit: every record is delivered, none that was
committed comes again, and members are back within seconds.

`TEST_KILL_ROUNDS` sets how often all partitions move (4), `TEST_KILL_SEED` when one is killed. How
long it took until all groups had gone on is printed.
"""

from __future__ import annotations

import os
import random
import signal
import statistics
import threading
import time
import warnings
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

from tests.clients.test_kill_processes import move, processes_of
from tests.support.broker_process import BrokerProcess
from tests.support.caller import Caller

with warnings.catch_warnings():
    # kafka-python 3.0 reads its own files by a function that Python calls outdated.
    warnings.simplefilter("ignore", DeprecationWarning)
    from kafka import KafkaConsumer
    from kafka.consumer.subscription_state import ConsumerRebalanceListener
    from kafka.errors import KafkaError as KafkaPythonError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from pathlib import Path

    Place = tuple[str, int]

ROUNDS = int(os.environ.get("TEST_KILL_ROUNDS", "4"))
SEED = int(os.environ.get("TEST_KILL_SEED", "0")) or random.SystemRandom().randrange(1, 1 << 31)
PROCESSES, PARTITIONS, SHARDS, TOPIC = 2, 4, 4, "read"
OFFSETS = "__consumer_offsets"
PAUSE_S = 0.005
BACK_WITHIN_S = 30.0

pytestmark = [
    pytest.mark.clients,
    pytest.mark.slow,
    pytest.mark.linux,
    pytest.mark.timeout(180 + 60 * ROUNDS),
]


class Group:
    """What the members of a group have read and committed, by partition."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._lock = threading.Lock()
        self.read: list[set[int]] = [set() for _ in range(PARTITIONS)]
        self.count = 0
        self._committed = [0] * PARTITIONS
        """What the broker has acknowledged."""
        self.wrong: list[str] = []

    def assigned(self, partitions: Iterable[int]) -> dict[int, int]:
        """How far each of these was committed: no record below that may come now."""
        with self._lock:
            return {partition: self._committed[partition] for partition in partitions}

    def took(self, partition: int, offset: int, value: int, least: dict[int, int]) -> None:
        with self._lock:
            if offset < least.get(partition, 0):
                self.wrong.append(f"{partition}: {offset} came, {least[partition]} was committed")
            if offset != value:
                self.wrong.append(f"{partition}: {value} came at offset {offset}")
            self.read[partition].add(value)
            self.count += 1

    def committed(self, partition: int, offset: int) -> None:
        with self._lock:
            self._committed[partition] = max(self._committed[partition], offset)

    def at(self) -> dict[int, int]:
        return self.assigned(range(PARTITIONS))


class Member(threading.Thread):
    """One consumer. It commits what it has read, and waits for the answer each time."""

    def __init__(self, group: Group) -> None:
        super().__init__(daemon=True)
        self.group = group
        self.least: dict[int, int] = {}
        self.unacknowledged: dict[int, int] = {}
        """What it has read and not yet committed, of the partitions that it has."""
        self.ended = threading.Event()
        self.failed: Exception | None = None

    def took(self, partitions: Iterable[int]) -> None:
        """They are assigned to it."""
        self.least.update(self.group.assigned(partitions))

    def gave(self, partitions: Iterable[int]) -> None:
        """They may be another's from now on."""
        for partition in partitions:
            self.unacknowledged.pop(partition, None)

    def run(self) -> None:
        try:
            self.read()
        except Exception as error:
            self.failed = error

    def read(self) -> None:
        raise NotImplementedError


class Librdkafka(Member):
    def __init__(self, group: Group, bootstrap: str, **settings: Any) -> None:
        super().__init__(group)
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": group.name,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "reconnect.backoff.max.ms": 200,
                "log_level": 0,
                **{key.replace("_", "."): value for key, value in settings.items()},
            }
        )

    def _assigned(self, _: Consumer, places: list[TopicPartition]) -> None:
        self.took(place.partition for place in places)

    def _revoked(self, _: Consumer, places: list[TopicPartition]) -> None:
        self.gave([place.partition for place in places])

    def read(self) -> None:
        self._consumer.subscribe(
            [TOPIC], on_assign=self._assigned, on_revoke=self._revoked, on_lost=self._revoked
        )
        after = self.unacknowledged
        while not self.ended.is_set():
            for message in self._consumer.consume(100, timeout=0.05):
                partition, offset, value = message.partition(), message.offset(), message.value()
                if message.error() is not None or value is None:
                    continue
                assert partition is not None
                assert offset is not None
                self.group.took(partition, offset, int(value), self.least)
                after[partition] = offset + 1
            if not after:
                continue
            offsets = [TopicPartition(TOPIC, *one) for one in after.items()]
            try:
                told = self._consumer.commit(offsets=offsets, asynchronous=False)
            except KafkaException:
                continue  # it is not acknowledged
            assert told is not None
            for one in told:
                if one.error is None:
                    self.group.committed(one.partition, one.offset)
                    after.pop(one.partition, None)
        self._consumer.close()


class KafkaPython(Member):
    def __init__(self, group: Group, bootstrap: str) -> None:
        super().__init__(group)
        self._consumer = KafkaConsumer(
            bootstrap_servers=bootstrap,
            group_id=group.name,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
        )

    def read(self) -> None:
        member = self

        class Listener(ConsumerRebalanceListener):  # type: ignore[misc]
            def on_partitions_revoked(self, revoked: Any) -> None:
                member.gave([one.partition for one in revoked])

            def on_partitions_assigned(self, assigned: Any) -> None:
                member.took([one.partition for one in assigned])

        self._consumer.subscribe([TOPIC], listener=Listener())
        after = self.unacknowledged
        while not self.ended.is_set():
            # One that ends while it joins may lose what it was assigned: kafka-python 3.0.
            for place, records in self._consumer.poll(timeout_ms=1000).items():
                for record in records:
                    value = int(record.value)
                    self.group.took(place.partition, record.offset, value, self.least)
                    after[place.partition] = record.offset + 1
            if after:
                try:
                    self._consumer.commit()
                except KafkaPythonError:
                    continue
                for partition, offset in after.items():
                    self.group.committed(partition, offset)
                after.clear()
        self._consumer.close()


class Writing(threading.Thread):
    """Numbers the records of each partition."""

    def __init__(self, bootstrap: str) -> None:
        super().__init__(daemon=True)
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "enable.idempotence": True,
                "message.timeout.ms": 120_000,
                "reconnect.backoff.max.ms": 200,
            }
        )
        self.ended = threading.Event()
        self.sent = 0

    def run(self) -> None:
        while not self.ended.wait(PAUSE_S):
            for partition in range(PARTITIONS):
                self._producer.produce(TOPIC, b"%d" % self.sent, partition=partition)
            self.sent += 1
            self._producer.poll(0)
        self._producer.flush()


def members(bootstrap: str) -> Iterator[Member]:
    classic, newer, python = Group("classic"), Group("newer"), Group("python")
    for _ in range(2):
        yield Librdkafka(classic, bootstrap, session_timeout_ms=10_000)
        yield Librdkafka(newer, bootstrap, group_protocol="consumer")
        yield KafkaPython(python, bootstrap)


def until(question: Callable[[], bool], what: Callable[[], Any]) -> float:
    """Wait for it; the seconds that it took."""
    began_s = time.monotonic()
    while not question():
        assert time.monotonic() - began_s < BACK_WITHIN_S, what()
        time.sleep(0.01)
    return time.monotonic() - began_s


def stored(bootstrap: str, group: str) -> dict[int, int]:
    """What the broker says that a group has committed."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group})
    places = [TopicPartition(TOPIC, partition) for partition in range(PARTITIONS)]
    found = consumer.committed(places, timeout=BACK_WITHIN_S)
    consumer.close()
    return {one.partition: max(one.offset, 0) for one in found}  # below 0: none


def test_groups_go_on_where_they_were_when_their_coordinators_move(tmp_path: Path) -> None:
    chance = random.Random(SEED)
    print(f"TEST_KILL_SEED={SEED}")
    settings = {"broker.processes": str(PROCESSES), "offsets.topic.num.partitions": str(SHARDS)}
    with BrokerProcess(tmp_path / "data", settings=settings) as broker:
        with Caller(broker.host, broker.port) as caller:
            caller.create_topic(TOPIC, PARTITIONS)
            writing = Writing(broker.bootstrap)
            writing.start()
            everybody = list(members(broker.bootstrap))
            groups = list({id(one.group): one.group for one in everybody}.values())
            for member in everybody:
                member.start()

            def now() -> list[Any]:
                """How far all are, for who wonders why one is not."""
                failed = [member.failed for member in everybody]
                return [writing.sent, *((one.name, one.count, one.at()) for one in groups), failed]

            until(lambda: all(min(group.at().values()) for group in groups), now)
            until(lambda: all(member.least for member in everybody), now)
            away_s: list[float] = []
            for number in range(ROUNDS):
                move(caller, OFFSETS, {shard: (shard + number) % 2 for shard in range(SHARDS)})
                if number % 2:
                    time.sleep(chance.random() * 0.2)
                    os.kill(processes_of(broker)[1], signal.SIGKILL)
                before = [group.count for group in groups]
                asked = [group.at() for group in groups]
                away_s.append(
                    until(
                        lambda before=before: all(  # type: ignore[misc]
                            group.count > count + 100
                            for group, count in zip(groups, before, strict=True)
                        ),
                        now,
                    )
                )
                for group, least in zip(groups, asked, strict=True):
                    found = stored(broker.bootstrap, group.name)
                    assert all(found[at] >= least[at] for at in least), (group.name, found, least)
            writing.ended.set()
            writing.join()
            until(
                lambda: all(min(group.at().values()) == writing.sent for group in groups),
                now,
            )
            for member in everybody:
                member.ended.set()
            for member in everybody:
                member.join(BACK_WITHIN_S)
        faults = [line for line in broker.output().splitlines() if "Traceback" in line]
    print(f"back: median {statistics.median(away_s):.2f} s, longest {max(away_s):.2f} s")

    assert [member.failed for member in everybody] == [None] * len(everybody)
    assert faults == []
    for group in groups:
        assert group.wrong == [], group.name
        assert group.read == [set(range(writing.sent))] * PARTITIONS
