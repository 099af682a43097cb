"""What transactions cost besides their ends: batches of 16 KB in them, and reading them.

Producing: the same batches from idempotent and from transactional producers, acks=all both, in
windows that take turns. What is promised: 10 % more CPU. Fetching: 1 MiB a request from the page
cache, read_uncommitted and read_committed in turns; from a log in which nobody ever aborted
(promised are 5 % more), and from logs of 10,000 transactions of one batch that were all committed,
or all aborted (promised are 10 % more). A fetch of one partition has a short way through the
broker; one that names two partitions, of which one is empty, goes the way of all others.
Connections, windows and the empty partition are the same in all columns.

Estimate, on paper: a transactional batch needs a look at its header before the checks, one at the
state of its id and the bookkeeping of what is open in the log: 3 us of the 40 that a batch of 16 KB
costs. Read_committed asks for the last stable offset and whether there are aborts at all: 0.3 us of
250. Of 16 KB batches 64 aborted transactions are in a MiB, 17 bytes each and cut out at once: 3 us.
With 64 producers at once as many again, which end behind it, are looked at: 30 us. Of 100 B records
4,000 are in a MiB: 68 KB, 20 us.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from bench import frames, raw
from bench import transaction_frames as txn
from bench.case import Case, Figure
from bench.group_frames import frame
from bench.servers import Triglot
from protocol.messages.fetch import FetchRequest

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from bench.case import Scale
    from bench.servers import Server

SMALL = 16_384
PRODUCERS, IN_FLIGHT = 4, 5
WINDOWS = 4
FETCH_VERSION, FETCHED_BYTES = 12, 1 << 20
FEW, MANY = 4, 64
"""Producers whose transactions lie between each other's in a log."""


class Producing(Case):
    """Each producer has a connection; all write to one partition."""

    group = "Produce of 16 KB batches, acks=all, 4 producers, 5 requests in flight on each"
    name = "1,000 B records"
    figures = (
        Figure("idempotent CPU us/request", 1, 45),
        *(Figure("TV1 CPU us/request", 1, 48), Figure("TV1 / idempotent", 3, 1.07)),
        *(Figure("TV2 CPU us/request", 1, 48), Figure("TV2 / idempotent", 3, 1.07)),
    )

    def run(self, server: Server, scale: Scale, folder: Path) -> Mapping[str, float]:
        topic = "bench-transactional"
        kinds = {"idempotent": 0, "TV1": txn.TV1}
        if isinstance(server, Triglot):  # Apache Kafka 3.9 has no TV2
            kinds["TV2"] = txn.TV2
        took: dict[str, list[float]] = {kind: [] for kind in kinds}
        server.create_topic(topic)
        try:
            for number in range(WINDOWS):
                # Each kind comes first as often as last.
                for kind in list(kinds)[:: -1 if number % 2 else 1]:
                    took[kind].append(_cpu_us(server, topic, kinds[kind], scale))
        finally:
            server.delete_topic(topic)
        mean = {kind: sum(found) / WINDOWS for kind, found in took.items()}
        found = {f"{kind} CPU us/request": value for kind, value in mean.items()}
        return found | {
            f"{kind} / idempotent": mean[kind] / mean["idempotent"] for kind in list(kinds)[1:]
        }


def _cpu_us(server: Server, topic: str, generation: int, scale: Scale) -> float:
    """CPU time of a request in one window, with producers of its own."""
    records = frames.records_in(SMALL, 1000)
    batch = frames.record_batch(records, 1000)
    ids = [f"bench-data-{number}" if generation else None for number in range(PRODUCERS)]
    begun = txn.producers(server, ids)
    at = txn.error_positions(topic, generation or txn.TV1)
    if generation == txn.TV1:
        added = [txn.add_partitions(one, topic, [0]) for one in begun]
        once = ("-c", str(PRODUCERS), "-d", "-n", "1", "-x", str(txn.CONCURRENT_TRANSACTIONS))
        raw.blast(server, added, *once, error_position=at[0])
    count = max(2, scale.produced_bytes_of_large // 3 // len(batch) // PRODUCERS)
    requests = [
        frames.produce_frame(
            *(topic, one.batch(batch, number * records)),
            acks=-1,
            transactional_id=one.transactional_id,
            version=txn.PRODUCE_VERSIONS[generation or txn.TV1],
        )
        for one in begun
        for number in range(count)
    ]
    dealt = ("-c", str(PRODUCERS), "-d", "-n", "1", "-w", str(IN_FLIGHT), "-t", "60")
    ran = raw.blast(server, requests, *dealt, error_position=at[-2])
    if generation:
        ends = [txn.end(one, commit=True, generation=generation) for one in begun]
        one_by_one = ("-c", str(PRODUCERS), "-d", "-n", "1")
        raw.blast(server, ends, *one_by_one, error_position=at[-1])
    return ran.cpu_s / ran.answers * 1e6


class Log:
    """A topic whose partition 0 is filled once for each server; its other partition is empty.

    `commit` is the end of the transactions it is made of; None for batches without producers.
    """

    def __init__(
        self, name: str, *, commit: bool | None, batch_bytes: int, producers: int = FEW
    ) -> None:
        self.topic = f"bench-fetch-{name}"
        self.commit = commit
        self.producers = producers
        self.records = frames.records_in(batch_bytes, 1000 if batch_bytes > 1000 else 100)
        self.batch = frames.record_batch(self.records, 1000 if batch_bytes > 1000 else 100)
        self._filled: set[int] = set()

    def fill(self, server: Server, scale: Scale) -> None:
        if server.pid in self._filled:
            return
        self._filled.add(server.pid)
        server.create_topic(self.topic, partitions=2)
        if self.commit is None:
            request = frames.produce_frame(self.topic, self.batch, acks=1)
            raw.blast(
                *(server, [request], "-n", str(scale.transactions)),
                error_position=frames.produce_error_position(self.topic),
            )
            return
        producers = min(self.producers, scale.transactions)
        requests: list[bytes] = []
        for one in txn.producers(server, [f"{self.topic}-{n}" for n in range(producers)]):
            requests += txn.transactions(
                *(one, self.topic, self.batch),
                count=scale.transactions // producers,
                records=self.records,
                generation=txn.TV1,
                commit=self.commit,
            )
        dealt = ("-c", str(producers), "-d", "-n", "1", "-t", "200")
        raw.blast(
            *(server, requests, *dealt, "-x", str(txn.CONCURRENT_TRANSACTIONS)),
            error_position=txn.error_positions(self.topic, txn.TV1),
        )

    def fetches(self, scale: Scale, *, committed_only: bool, partitions: int) -> list[bytes]:
        """Fetches of 1 MiB each, from the start of the log to its end."""
        offsets = scale.transactions * (self.records + (self.commit is not None))
        size = scale.transactions * (len(self.batch) + (78 if self.commit is not None else 0))
        step = max(1, offsets * FETCHED_BYTES // size)
        return [
            _fetch(self.topic, at, committed_only=committed_only, partitions=partitions)
            for at in range(0, max(1, offsets - step), step)
        ]


def _fetch(topic: str, offset: int, *, committed_only: bool, partitions: int) -> bytes:
    asked = FetchRequest.Topic.Partition
    request = FetchRequest(
        max_wait_ms=500,
        min_bytes=1,
        max_bytes=50 << 20,
        isolation_level=int(committed_only),
        topics=[
            FetchRequest.Topic(
                topic=topic,
                partitions=[
                    asked(
                        partition=index,
                        fetch_offset=0 if index else offset,
                        partition_max_bytes=FETCHED_BYTES,
                    )
                    for index in range(partitions)
                ],
            )
        ],
    )
    return frame(request, FETCH_VERSION)


class Fetching(Case):
    """The same bytes of two kinds: those that are compared, and those they are compared with."""

    group = "Fetch of 1 MiB, raw load, 2 connections, 2 requests in flight on each"

    def __init__(
        self, name: str, base: Log, other: Log, *, partitions: int, both: bool, estimate: float
    ) -> None:
        """`both`: the base is read as read_committed, too."""
        self.name = f"{name}, {partitions} partition{'s' if partitions > 1 else ''} asked for"
        self._base, self._other = base, other
        self._partitions, self._both = partitions, both
        self._names: tuple[str, ...] = (
            ("all committed CPU us/fetch", "all aborted CPU us/fetch", "aborted / committed")
            if both
            else ("uncommitted CPU us/fetch", "committed CPU us/fetch", "committed / uncommitted")
        )
        self.figures = (
            *(Figure(self._names[0], 0), Figure(self._names[1], 0)),
            Figure(self._names[2], 3, estimate),
        )

    def prepare(self, server: Server, scale: Scale) -> None:
        self._base.fill(server, scale)
        self._other.fill(server, scale)

    def run(self, server: Server, scale: Scale, folder: Path) -> Mapping[str, float]:
        cpu_s, fetches = [0.0, 0.0], [0, 0]
        for number in range(2 * WINDOWS):
            # In the order 0 1 1 0 0 1 1 0.
            which = (number + 1) // 2 % 2
            log = self._other if which else self._base
            requests = log.fetches(
                scale, committed_only=bool(which or self._both), partitions=self._partitions
            )
            seconds = ("-t", str(scale.raw_s / 3), "-u", str(scale.raw_s / 15))
            ran = raw.blast(
                *(server, requests, "-c", "2", "-w", "2", *seconds),
                error_position=frames.fetch_error_position(log.topic),
            )
            cpu_s[which] += ran.cpu_s
            fetches[which] += ran.answers
        base, other = (cpu_s[which] / fetches[which] * 1e6 for which in (0, 1))
        return dict(zip(self._names, (base, other, other / base), strict=True))


PLAIN = Log("plain", commit=None, batch_bytes=SMALL)
COMMITTED = Log("committed", commit=True, batch_bytes=SMALL)
ABORTED = Log("aborted", commit=False, batch_bytes=SMALL)
MANY_COMMITTED = Log("committed-64", commit=True, batch_bytes=SMALL, producers=MANY)
MANY_ABORTED = Log("aborted-64", commit=False, batch_bytes=SMALL, producers=MANY)
SMALL_COMMITTED = Log("committed-small", commit=True, batch_bytes=100)
SMALL_ABORTED = Log("aborted-small", commit=False, batch_bytes=100)
_LARGE = "transactions of a 16 KB batch"
_MANY = "the same of 64 producers at once"
_SMALL = "transactions of a 100 B record"

CASES: tuple[Case, ...] = (
    Producing(),
    Fetching("16 KB batches", PLAIN, PLAIN, partitions=1, both=False, estimate=1.01),
    Fetching("16 KB batches", PLAIN, PLAIN, partitions=2, both=False, estimate=1.01),
    Fetching(_LARGE, COMMITTED, ABORTED, partitions=1, both=True, estimate=1.03),
    Fetching(_LARGE, COMMITTED, ABORTED, partitions=2, both=True, estimate=1.03),
    Fetching(_MANY, MANY_COMMITTED, MANY_ABORTED, partitions=1, both=True, estimate=1.15),
    Fetching(_SMALL, SMALL_COMMITTED, SMALL_ABORTED, partitions=1, both=True, estimate=1.1),
    Fetching(_SMALL, SMALL_COMMITTED, SMALL_ABORTED, partitions=2, both=True, estimate=1.1),
)
