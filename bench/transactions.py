"""Transactions: small ones one after the other, and one over many partitions.

A producer writes one record to one partition, acks=all, and commits; then the next. Just before and
just after, a bare loop appends the bytes of such a batch and calls `fdatasync`, on the broker's
core and on the same disk. What is promised: 0.4 times the rate of that loop and three times Apache
Kafka's, which syncs nothing; a p99 below four times one `fdatasync`; with 64 producers eight times
the rate of one. An answer that the last end is still under way (Kafka tells it before it has
written the markers) is asked again at once, where clients wait 20 ms.

Then transactions over 1,000 partitions, whose end is promised within 20 ms; ours alone.

Estimate, on paper: a commit waits for two syncs, for the record's and for the decision's; a round
trip with one is 0.6 times the bare loop (group-commit), and adding the partition costs 0.1 ms: 0.28
times the loop, and 0.3 for TV2, which adds it with the record. Apache Kafka has no sync, and two
writes by threads of its own between an end and the next transaction: some 1.5 ms. Of 64 producers
the broker's core is the bound: 28 us for the record, 30 us for the other two requests each, and
four batches written: 150 us, 6,500/s. An end over 1,000 partitions is a record of 4 KB and 1,000
markers of 78 bytes, each with a checksum and a `pwrite` of 5 us: 10 ms.
"""

from __future__ import annotations

import statistics
import time
from typing import TYPE_CHECKING, Any

from confluent_kafka import Producer

from bench import frames, machine, raw
from bench import transaction_frames as txn
from bench.case import Case, Figure
from bench.group_commit import bare_loop
from bench.servers import Triglot
from protocol.messages.produce import ProduceRequest
from tests.support.wire_client import WireClient

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from bench.case import Scale
    from bench.servers import Server

TOPIC = "bench-transactions"
VALUE_BYTES = 100
MANY, WIDE = 64, 1_000
ONE_PER_S, MANY_PER_S = 800, 5_000
"""Transactions that are sent for each second that is to be measured."""

AGAIN = "answers CONCURRENT_TRANSACTIONS / commit"
RATE, P50, P99, CPU = "commits/s", "p50 ms", "p99 ms", "broker CPU us/commit"
BARE_RATE, BARE_P99 = "bare loop syncs/s", "one fdatasync p99 ms"
TO_BARE, LONGER = "commits/s / bare loop", "p99 / p99 of one fdatasync"
ALONE_RATE, TO_ONE = "commits/s of one", "commits/s / those of one"
ENDED, ENDED_WORST = "EndTxn answered p50 ms", "EndTxn answered, longest ms"
NEXT, SENT = "next may begin p50 ms", "AddPartitionsToTxn and Produce p50 ms"


class Committing(Case):
    """`generation` 2 is for our broker alone: Kafka 3.9 does not speak it."""

    group = f"Transactions of one {VALUE_BYTES} B record, acks=all"

    def __init__(
        self,
        *,
        producers: int,
        generation: int,
        of_bare: float,
        longer: float,
        partitions: int = 1,
        of_one: float = 0,
    ) -> None:
        many = producers > 1
        self._producers, self._partitions = producers, partitions
        self._generation = generation
        spread = f", {partitions} partition{'s' if partitions > 1 else ''}" if many else ""
        self.name = f"TV{generation}, {producers} producer{'s' if many else ''}{spread}"
        against = (Figure(ALONE_RATE, 0), Figure(TO_ONE, 1, of_one)) if many else ()
        self.figures = (
            *(Figure(RATE, 0), Figure(P50), Figure(P99), Figure(CPU, 0), Figure(AGAIN, 2, 0)),
            *(Figure(BARE_RATE, 0), Figure(BARE_P99, 3)),
            *(Figure(TO_BARE, 2, of_bare), Figure(LONGER, 1, longer), *against),
        )

    def run(self, server: Server, scale: Scale, folder: Path) -> Mapping[str, float]:
        if self._generation == txn.TV2 and not isinstance(server, Triglot):
            return {}
        batch = frames.record_batch(1, VALUE_BYTES)
        took_s = bare_loop(batch, folder, scale.latency_s / 2)
        server.create_topic(TOPIC, partitions=self._partitions)
        found: dict[str, float] = {}
        try:
            alone = self._committed(server, batch, 1, scale) if self._producers > 1 else None
            ran = self._committed(server, batch, self._producers, scale)
        finally:
            server.delete_topic(TOPIC)
        took_s += bare_loop(batch, folder, scale.latency_s / 2)
        took_s.sort()
        commits = ran.answers / self._steps
        bare_rate, bare_p99_ms = len(took_s) / sum(took_s), took_s[len(took_s) * 99 // 100] * 1000
        found |= {RATE: commits / ran.seconds, CPU: ran.cpu_s / commits * 1e6}
        found |= {P50: ran.p50_us / 1000, P99: ran.p99_us / 1000, AGAIN: ran.retries / commits}
        found |= {BARE_RATE: bare_rate, BARE_P99: bare_p99_ms}
        found |= {TO_BARE: found[RATE] / bare_rate, LONGER: found[P99] / bare_p99_ms}
        if alone is not None:
            found[ALONE_RATE] = alone.answers / self._steps / alone.seconds
            found[TO_ONE] = found[RATE] / found[ALONE_RATE]
        return found

    @property
    def _steps(self) -> int:
        """Requests of one transaction."""
        return len(txn.error_positions(TOPIC, self._generation))

    def _committed(self, server: Server, batch: bytes, producers: int, scale: Scale) -> raw.Blasted:
        """Each producer commits the same number of transactions, as fast as it can."""
        begun = txn.producers(server, [f"bench-{number}" for number in range(producers)])
        per_s = ONE_PER_S if producers == 1 else MANY_PER_S
        count = max(2, int(per_s * scale.latency_s) // producers)
        requests: list[bytes] = []
        for number, one in enumerate(begun):
            requests += txn.transactions(
                *(one, TOPIC, batch),
                count=count,
                records=1,
                generation=self._generation,
                partition=number % self._partitions,
            )
        dealt = ("-c", str(producers), "-d", "-n", "1", "-s", "-t", "120")
        return raw.blast(
            *(server, requests, *dealt, "-x", str(txn.CONCURRENT_TRANSACTIONS)),
            error_position=txn.error_positions(TOPIC, self._generation),
        )


class ByLibrdkafka(Case):
    """A real client, with its own patience: begin, one record, commit, and the next."""

    group = f"Transactions of one {VALUE_BYTES} B record, librdkafka, 1 producer"
    name = "default settings, linger.ms=0"
    figures = (Figure(RATE, 0, 700), Figure(P50, 2, 1.3), Figure(P99, 2, 4.0), Figure(CPU, 0))

    def run(self, server: Server, scale: Scale, folder: Path) -> Mapping[str, float]:
        server.create_topic(TOPIC)
        took_s: list[float] = []
        try:
            producer = Producer(
                {
                    "bootstrap.servers": server.bootstrap,
                    "transactional.id": "bench-librdkafka",
                    "linger.ms": 0,
                }
            )
            producer.init_transactions(60)
            value = bytes(VALUE_BYTES)
            _committed_by(producer, value)  # the first has what is only done once
            cpu_s = machine.cpu_seconds(server.pid)
            start_s = last_s = time.perf_counter()
            while not took_s or last_s < start_s + scale.latency_s:
                _committed_by(producer, value)
                now_s = time.perf_counter()
                took_s.append(now_s - last_s)
                last_s = now_s
            cpu_s = machine.cpu_seconds(server.pid) - cpu_s
        finally:
            server.delete_topic(TOPIC)
        commits = len(took_s)
        took_s.sort()
        return {
            RATE: commits / (last_s - start_s),
            P50: took_s[commits // 2] * 1000,
            P99: took_s[commits * 99 // 100] * 1000,
            CPU: cpu_s / commits * 1e6,
        }


def _committed_by(producer: Producer, value: bytes) -> None:
    producer.begin_transaction()
    producer.produce(TOPIC, value, partition=0)
    producer.commit_transaction(60)


class OverMany(Case):
    """One record to each of 1,000 partitions, in one request, then the end. Of our broker alone."""

    group = f"A transaction over {WIDE:,} partitions"
    name = "TV1, one record in each"
    figures = (
        *(Figure(SENT, 1), Figure(ENDED, 1, 10.0), Figure(ENDED_WORST, 1, 14.0)),
        Figure(NEXT, 1, 10.2),
    )

    def run(self, server: Server, scale: Scale, folder: Path) -> Mapping[str, float]:
        if not isinstance(server, Triglot):
            return {}
        partitions = range(min(WIDE, scale.partitions))
        batch = frames.record_batch(1, VALUE_BYTES)
        server.create_topic(TOPIC, partitions=len(partitions))
        sent_s: list[float] = []
        ended_s: list[float] = []
        next_s: list[float] = []
        try:
            (producer,) = txn.producers(server, ["bench-over-many"])
            with WireClient("127.0.0.1", server.port, timeout_s=60) as client:
                for number in range(3 + int(4 * scale.latency_s)):
                    start_s = time.perf_counter()
                    _added(client, producer, partitions)
                    _produced(client, producer, batch, partitions, number)
                    sent_s.append(time.perf_counter() - start_s)
                    start_s = time.perf_counter()
                    _ended(client, producer, commit=True)
                    ended_s.append(time.perf_counter() - start_s)
                    _added(client, producer, [0])
                    next_s.append(time.perf_counter() - start_s)
                    _ended(client, producer, commit=False)
        finally:
            server.delete_topic(TOPIC)
        found = {SENT: sent_s, ENDED: ended_s, NEXT: next_s}
        # The first has what is only done once, of files and of code.
        medians = {name: statistics.median(took[1:]) * 1000 for name, took in found.items()}
        return {**medians, ENDED_WORST: max(ended_s[1:]) * 1000}


def _asked(client: WireClient, frame: bytes) -> bytes:
    """The answer to a frame, behind its header."""
    client.send_raw(frame)
    return client.recv_frame()


def _added(client: WireClient, producer: txn.Producer, partitions: Sequence[int]) -> None:
    """The partitions are added, as soon as the last end is no longer under way."""
    frame, at = txn.add_partitions(producer, TOPIC, partitions), txn.error_positions(TOPIC, 1)[0]
    while (code := int.from_bytes(_asked(client, frame)[at : at + 2], "big")) in txn.NOT_YET:
        pass
    if code:
        raise RuntimeError(f"partitions were not added: error {code}")


def _ended(client: WireClient, producer: txn.Producer, *, commit: bool) -> None:
    at = txn.error_positions(TOPIC, 1)[-1]
    frame = txn.end(producer, commit=commit)
    while (code := int.from_bytes(_asked(client, frame)[at : at + 2], "big")) in txn.NOT_YET:
        pass
    if code:
        raise RuntimeError(f"a transaction did not end: error {code}")


def _produced(
    client: WireClient,
    producer: txn.Producer,
    batch: bytes,
    partitions: Sequence[int],
    sequence: int,
) -> None:
    """The same batch to each of these partitions, in one request."""
    records = memoryview(producer.batch(batch, sequence))
    sent = [ProduceRequest.Topic.Partition(index=index, records=records) for index in partitions]
    request = ProduceRequest(
        transactional_id=producer.transactional_id,
        acks=-1,
        timeout_ms=30_000,
        topic_data=[ProduceRequest.Topic(name=TOPIC, partition_data=sent)],
    )
    answer: Any = client.call(request, txn.PRODUCE_VERSIONS[txn.TV1])
    codes = {one.error_code for one in answer.responses[0].partition_responses}
    if codes != {0}:
        raise RuntimeError(f"records were refused: errors {codes}")


CASES: tuple[Case, ...] = (
    Committing(producers=1, generation=txn.TV1, of_bare=0.28, longer=4.0),
    Committing(producers=1, generation=txn.TV2, of_bare=0.3, longer=4.0),
    Committing(producers=MANY, generation=txn.TV1, of_bare=2.0, longer=20.0, of_one=6.0),
    Committing(producers=MANY, generation=txn.TV2, of_bare=2.4, longer=16.0, of_one=7.0),
    Committing(
        producers=MANY, generation=txn.TV1, partitions=MANY, of_bare=1.4, longer=28.0, of_one=5.0
    ),
    ByLibrdkafka(),
    OverMany(),
)
