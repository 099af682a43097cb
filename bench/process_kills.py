"""kill -9 of any of several processes under acks=all: what is lost or doubled, and who waits.

librdkafka and kafka-python each write numbered records to eight partitions, one to each every
10 ms, with idempotence. They wait 100 ms before they connect again, and not longer each time, as
they do for a broker that goes every few seconds; all other settings are as they come. One process
after the other is killed, the controller as often as others. For the partitions of the one that was
killed the longest time without an ack counts; for all others the time from a send to its ack, of
what was sent within 2 s after a kill and of what was sent in the second before it.

    python -m bench.process_kills [--rounds 100] [--processes 2] [--seed N] [--busy 16]

With --busy so many other processes compute beside all of it, without a pause: on a machine that has
more to do than it can, whoever needs the processor for long waits longest. It ends with 1 if a
record is lost or doubled.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
import warnings
from bisect import bisect_left
from contextlib import contextmanager
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

import confluent_kafka

from bench.processes import HOST, PARTITIONS, Served
from protocol.messages.metadata import MetadataRequest
from tests.support.caller import Caller

with warnings.catch_warnings():
    # kafka-python 3.0 reads its own files by a function that Python calls outdated.
    warnings.simplefilter("ignore", DeprecationWarning)
    import kafka

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

EVERY_S = 0.01
AFTER_S, BEFORE_S = 2.0, 1.0
SETTLED_S = 1.5
"""Between the last partition's return and the next kill, for what was sent before it to be told
apart."""
PATIENCE_S = 60.0
RECONNECT_MS = 100


class Ack(NamedTuple):
    """When a record was sent and when that was acknowledged, on the clock of `time.monotonic`."""

    number: int
    sent_s: float
    acked_s: float


class Load:
    """A client that writes from its making to `finish`, in a thread."""

    name: str

    def __init__(self, ports: Sequence[int]) -> None:
        self._bootstrap = ",".join(f"{HOST}:{port}" for port in ports)
        with Caller(HOST, ports[0]) as caller:
            caller.create_topic(self.name, PARTITIONS)
            topics = [MetadataRequest.Topic(name=self.name)]
            asked = MetadataRequest(topics=topics, allow_auto_topic_creation=False)
            (topic,) = caller.call(asked, 9).topics
        self.leaders = {one.partition_index: one.leader_id - 1 for one in topic.partitions}
        self.acks: list[list[Ack]] = [[] for _ in range(PARTITIONS)]
        self.errors: list[str] = []
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def acknowledge(self, partition: int, number: int, sent_s: float) -> None:
        self.acks[partition].append(Ack(number, sent_s, time.monotonic()))

    def finish(self) -> None:
        self._stopping.set()
        self._thread.join(PATIENCE_S)

    def _write(
        self, send: Callable[[int, int, float], None], rest: Callable[[float], object]
    ) -> None:
        """Send a record to each partition, then rest, until the end."""
        number, due_s = 0, time.monotonic()
        while not self._stopping.is_set():
            for partition in range(PARTITIONS):
                send(partition, number, time.monotonic())
            number, due_s = number + 1, due_s + EVERY_S
            rest(max(due_s - time.monotonic(), 0))

    def _run(self) -> None:
        raise NotImplementedError


class Librdkafka(Load):
    name = "librdkafka"

    def _run(self) -> None:
        producer = confluent_kafka.Producer(
            {
                "bootstrap.servers": self._bootstrap,
                "acks": "all",
                "enable.idempotence": True,
                "reconnect.backoff.max.ms": RECONNECT_MS,
                "log_level": 0,
            }
        )

        def send(partition: int, number: int, sent_s: float) -> None:
            def delivered(error: object, _: object) -> None:
                if error is None:
                    self.acknowledge(partition, number, sent_s)
                else:
                    self.errors.append(str(error))

            producer.produce(self.name, b"%d" % number, partition=partition, on_delivery=delivered)

        self._write(send, producer.poll)
        producer.flush(PATIENCE_S)


class KafkaPython(Load):
    name = "kafka-python"

    def _run(self) -> None:
        producer = kafka.KafkaProducer(
            bootstrap_servers=self._bootstrap,
            acks="all",
            enable_idempotence=True,
            reconnect_backoff_ms=RECONNECT_MS,
            reconnect_backoff_max_ms=RECONNECT_MS,
        )

        def send(partition: int, number: int, sent_s: float) -> None:
            sent = producer.send(self.name, b"%d" % number, partition=partition)
            sent.add_callback(lambda _: self.acknowledge(partition, number, sent_s))
            sent.add_errback(lambda error: self.errors.append(repr(error)))

        self._write(send, time.sleep)
        producer.flush(PATIENCE_S)
        producer.close()


class Killed(NamedTuple):
    """A round: whose process, and when."""

    process: int
    at_s: float


def stored(ports: Sequence[int], load: Load) -> list[list[int]]:
    """All numbers of each partition, in their order."""
    consumer = kafka.KafkaConsumer(
        bootstrap_servers=[f"{HOST}:{port}" for port in ports], auto_offset_reset="earliest"
    )
    partitions = [kafka.TopicPartition(load.name, number) for number in range(PARTITIONS)]
    consumer.assign(partitions)
    ends = consumer.end_offsets(partitions)
    found: list[list[int]] = [[] for _ in range(PARTITIONS)]
    while any(consumer.position(one) < ends[one] for one in partitions):
        for one, records in consumer.poll(1000).items():
            found[one.partition] += [int(record.value) for record in records]
    consumer.close()
    return found


def kills(
    served: Served, loads: Sequence[Load], rounds: int, chance: random.Random
) -> list[Killed]:
    """Kill one process after the other, each when all partitions have been back for a while."""
    pids = list(served.children())
    done: list[Killed] = []
    for number in range(rounds):
        wait_for_all(loads)
        time.sleep(SETTLED_S)
        victim = chance.randrange(len(pids))
        done.append(Killed(victim, time.monotonic()))
        os.kill(pids[victim], signal.SIGKILL)
        while len(there := set(served.children())) < len(pids) or pids[victim] in there:
            time.sleep(0.005)
        (pids[victim],) = there - set(pids)
        if (number + 1) % 10 == 0:
            print(f"  {number + 1} kills, load {os.getloadavg()[0]:.1f}", flush=True)
    wait_for_all(loads)
    time.sleep(AFTER_S)
    return done


@contextmanager
def busy(count: int) -> Iterator[None]:
    """So many processes compute meanwhile."""
    command = [sys.executable, "-c", "while True: pass"]
    others = [subprocess.Popen(command) for _ in range(count)]
    try:
        yield
    finally:
        for one in others:
            one.kill()
            one.wait()


def wait_for_all(loads: Sequence[Load]) -> None:
    """Until each partition has been heard of from now on."""
    began_s = time.monotonic()
    while not all(acks and acks[-1].acked_s > began_s for load in loads for acks in load.acks):
        if time.monotonic() > began_s + PATIENCE_S:
            sys.exit("a partition does not come back")
        time.sleep(0.01)


def silences(load: Load, done: Sequence[Killed]) -> list[float]:
    """Of each kill the longest time without an ack of the partitions that it took away."""
    found = []
    for number, one in enumerate(done):
        end_s = done[number + 1].at_s if number + 1 < len(done) else one.at_s + PATIENCE_S
        longest = 0.0
        for partition, leader in load.leaders.items():
            if leader == one.process:
                acks = load.acks[partition]
                first = bisect_left(acks, one.at_s - BEFORE_S, key=lambda ack: ack.acked_s)
                last = bisect_left(acks, end_s, key=lambda ack: ack.acked_s)
                pairs = pairwise(ack.acked_s for ack in acks[first:last])
                longest = max([longest, *(after - before for before, after in pairs)])
        found.append(longest)
    return found


def waits_of_others(
    load: Load, done: Sequence[Killed], begin_s: float, end_s: float
) -> list[float]:
    """From a send to its ack, of partitions that other processes lead; sent within these seconds of
    a kill."""
    found = []
    for one in done:
        for partition, leader in load.leaders.items():
            if leader != one.process:
                acks = load.acks[partition]
                first = bisect_left(acks, one.at_s + begin_s, key=lambda ack: ack.sent_s)
                last = bisect_left(acks, one.at_s + end_s, key=lambda ack: ack.sent_s)
                found += [ack.acked_s - ack.sent_s for ack in acks[first:last]]
    return found


def share(values: Iterable[float], percent: float) -> float:
    ordered = sorted(values)
    return ordered[min(int(len(ordered) * percent / 100), len(ordered) - 1)] if ordered else 0.0


def told(load: Load, done: Sequence[Killed], found: list[list[int]]) -> bool:
    """Print what came of a load; whether all of it is there, once, and in order."""
    acknowledged = [{ack.number for ack in acks} for acks in load.acks]
    lost = sum(len(one - set(there)) for one, there in zip(acknowledged, found, strict=True))
    doubled = sum(len(one) - len(set(one)) for one in found)
    moved = sum(one != sorted(one) for one in found)
    silent = silences(load, done)
    after = waits_of_others(load, done, 0.0, AFTER_S)
    before = waits_of_others(load, done, -BEFORE_S, 0.0)
    print(
        f"{load.name}: {sum(map(len, load.acks))} acknowledged, {lost} lost, {doubled} doubled, "
        f"{moved} partitions out of order, {len(load.errors)} refused\n"
        f"  partitions of the killed process away: p50 {share(silent, 50):.2f} s, "
        f"p99 {share(silent, 99):.2f} s\n"
        f"  an ack of others, p50 and p99: {1000 * share(after, 50):.1f} and "
        f"{1000 * share(after, 99):.1f} ms within {AFTER_S:g} s after a kill, "
        f"{1000 * share(before, 50):.1f} and {1000 * share(before, 99):.1f} ms before it",
        flush=True,
    )
    return not (lost or doubled or moved)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=100)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--seed", type=int, default=random.randrange(1_000_000))
    parser.add_argument("--busy", type=int, default=0)
    arguments = parser.parse_args()
    print(
        f"{arguments.rounds} kills of {arguments.processes} processes, seed {arguments.seed}, "
        f"{arguments.busy} busy beside them, load {os.getloadavg()[0]:.1f}",
        flush=True,
    )
    with tempfile.TemporaryDirectory() as data:
        served = Served(arguments.processes, data)
        try:
            loads = [kind(served.ports) for kind in (Librdkafka, KafkaPython)]
            with busy(arguments.busy):
                done = kills(served, loads, arguments.rounds, random.Random(arguments.seed))
            for load in loads:
                load.finish()
            whole = [told(load, done, stored(served.ports, load)) for load in loads]
        finally:
            served.stop()
    return 0 if all(whole) else 1


if __name__ == "__main__":
    sys.exit(main())
