"""100,000 transactional ids, and how long after a start they can be asked for.

They are made as clients make them: InitProducerId for each, and in one of the two loads a
transaction of one record, committed. Then the server is stopped, or killed, and started again. The
clock runs from exec until DescribeTransactions, for an id of each partition of the state topic, has
none that is still being loaded, asked anew 10 ms after each answer. What is promised: 1.5 s.

Estimate, on paper: a start of 0.25 s, then 4 us for a record (its batch of its own has a header and
a checksum, then the key and a look at the value): 100,000 of them are 0.4 s, and 0.65 s in all; the
four of an id that has had a transaction 1.6 s, and 1.85 s in all. A clean stop changes nothing of
it.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from bench import frames, group_frames, machine, raw
from bench import transaction_frames as txn
from bench.case import Case, Figure
from bench.offset_load import FillingTriglot, one_of_each_shard
from bench.servers import Started, Triglot
from protocol.messages.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
)
from protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from bench.case import Scale
    from bench.servers import Server

TOPIC = "bench-transactional-ids"
CONNECTIONS = 64
FILL_S, CLEAN, KILLED = "making them s", "ready s, clean stop", "ready s, kill -9"
CPU, RSS = "broker CPU s until ready, clean stop", "RSS MiB, ready"
DESCRIBE_VERSION = 0
PATIENCE_S = 120.0


class Loading(Case):
    """Each round makes the directory anew, beside the server that takes the other loads."""

    group = "Start with 100,000 transactional ids"

    def __init__(self, *, transactions: int, ready_s: float, rss_mib: float) -> None:
        self.name = "each after one transaction" if transactions else "each has begun, no more"
        self.figures = (
            *(Figure(FILL_S, 1), Figure(CLEAN, 2, ready_s), Figure(KILLED, 2, ready_s)),
            *(Figure(CPU, 2, ready_s), Figure(RSS, 0, rss_mib)),
        )
        self._transactions = transactions

    def run(self, server: Server, scale: Scale, folder: Path) -> Mapping[str, float]:
        if not isinstance(server, Started) or not server.name.startswith(("triglot", "kafka")):
            return {}
        found: dict[str, float] = {}
        names = [f"bench-id-{number:06d}" for number in range(scale.transactional_ids)]
        asked = one_of_each_shard(names)
        kind = type(server)
        one: Started = (FillingTriglot if kind is Triglot else kind)(folder / server.name)
        try:
            one.wait_until_ready()
            start_s = time.perf_counter()
            _fill(one, names, self._transactions)
            found[FILL_S] = time.perf_counter() - start_s
            one.stop()
            one = kind(one.data, port=one.port)
            one.answer_after_s()
            found[CLEAN] = _ready_after_s(one, asked)
            found[CPU] = machine.cpu_seconds(one.pid)
            time.sleep(scale.idle_s)
            found[RSS] = machine.resident_mib(one.pid)
            one.kill()
            one = kind(one.data, port=one.port)
            one.answer_after_s()
            found[KILLED] = _ready_after_s(one, asked)
        finally:
            one.stop()
        return found


def _fill(server: Server, names: Sequence[str], transactions: int) -> None:
    once = ("-c", str(min(CONNECTIONS, len(names) - 1)), "-d", "-n", "1", "-t", "240")
    if transactions:
        _run_one_of_each(server, names, once)
        return
    txn.producers(server, names[:1])  # so that there is a coordinator
    begun = [
        group_frames.frame(
            InitProducerIdRequest(transactional_id=name, transaction_timeout_ms=txn.TIMEOUT_MS),
            txn.INIT_PRODUCER_ID_VERSION,
        )
        for name in names[1:]
    ]
    at = group_frames.error_position(
        lambda code: InitProducerIdResponse(error_code=code, producer_epoch=0),
        txn.INIT_PRODUCER_ID_VERSION,
    )
    raw.blast(server, begun, *once, error_position=at)


def _run_one_of_each(server: Server, names: Sequence[str], once: Sequence[str]) -> None:
    server.create_topic(TOPIC)
    batch = frames.record_batch(1, 100)
    requests: list[bytes] = []
    for one in txn.producers(server, names):
        requests += txn.transactions(one, TOPIC, batch, count=1, records=1, generation=txn.TV1)
    again = ("-x", str(txn.CONCURRENT_TRANSACTIONS))
    at = txn.error_positions(TOPIC, txn.TV1)
    raw.blast(server, requests, *once, *again, error_position=at)


def _ready_after_s(server: Started, names: Sequence[str]) -> float:
    """Seconds from exec to the answer in which all of these ids are known."""
    asked = DescribeTransactionsRequest(transactional_ids=list(names))
    request = group_frames.frame(asked, DESCRIBE_VERSION)
    while time.perf_counter() - server.started_at_s < PATIENCE_S:
        answer = raw.ask(server.port, request)
        took_s = time.perf_counter() - server.started_at_s
        body = group_frames.body(answer, DescribeTransactionsResponse, DESCRIBE_VERSION)
        found = DescribeTransactionsResponse.decode(DESCRIBE_VERSION, body).transaction_states
        codes = {each.error_code for each in found}
        if codes == {0}:
            return took_s
        if not codes <= {0} | txn.NOT_YET:
            raise RuntimeError(f"{server.name} met the error codes {codes}")
        time.sleep(0.01)
    raise RuntimeError(f"not ready after {PATIENCE_S:.0f} s:\n{server.output()}")


CASES: tuple[Case, ...] = (
    Loading(transactions=0, ready_s=0.65, rss_mib=90),
    Loading(transactions=1, ready_s=1.85, rss_mib=130),
)
