"""Exactly once into a partition by transactions: what was written and how far it has got are
committed together, so that nothing of the destination has to be compared.

The progress is an offset of a consumer group, which only the transaction's end makes visible: the
next offset of the source, noted for the partition that is written to, with the run that it is of as
metadata. Group and transactional id have one name, PREFIX-TOPIC-PARTITION of the destination. Who
begins takes the transactional id over. From then on the attempt before it, dead or alive, can write
no more, and what it had left open is aborted before the progress is read.
"""

from __future__ import annotations

import contextlib
import json
import uuid
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from client.cluster import TopicPartition
from client.committing import Committed
from pipeline.errors import Refused, WrongUse

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from client.cluster import Cluster
    from client.transactions import TransactionalProducer
    from pipeline.delivering.destination import Terms
    from pipeline.delivering.record_sets import RecordSet
    from pipeline.state import State

TRANSACTION_BYTES = 64 << 20
"""A transaction is committed once it has so many bytes: readers wait for it no longer than that."""
TRANSACTION_S = 10.0
"""Or once it is open for so long. A broker gives it six times as much (client.transactions)."""
LONGEST_PREFIX = 200

NOTE = "transactions"
"""Of a state: which run it is."""


@dataclass(frozen=True)
class Transactions:
    """What the tasks of a run have in common. Picklable."""

    prefix: str
    run: str
    """One name for all attempts of a run, and another one for another run with the same prefix."""

    @classmethod
    def of_state(cls, prefix: str, state: State) -> Transactions:
        """Those of the run that has this state."""
        noted = state.read(NOTE)
        if noted is None:
            noted = {"run": uuid.uuid4().hex}
            state.write(NOTE, noted)
        return cls(prefix, noted["run"])

    def id_for(self, place: TopicPartition) -> str:
        """The transactional id of the task that writes there, and the group of its progress."""
        return f"{self.prefix}-{place}"


def check_prefix(prefix: str | None, name: str) -> None:
    """Raises WrongUse; `name` is what it is called where it was given."""
    if prefix is not None and not (prefix.strip() == prefix and 0 < len(prefix) <= LONGEST_PREFIX):
        raise WrongUse(
            f"{name} is {prefix[:40]!r}: want 1 to {LONGEST_PREFIX} characters, with no space at "
            "either end"
        )


class TransactionalDelivery:
    """Sends the sets of one range into the partition `place`, unless they name another one of its
    topic, in one transaction after another. Progress is noted for `place` in either case.

    `counts`: `transactions`, and `committed_before`, offsets that the run had committed already.
    """

    def __init__(
        self, cluster: Cluster, producer: TransactionalProducer, place: TopicPartition, run: str
    ) -> None:
        """Takes the transactional id over. Raises Refused, Unreachable."""
        self.counts: Counter[str] = Counter()
        self._producer = producer
        self._group = producer.transactional_id
        self._place = place
        self._run = run
        self._last = -1
        self._bytes = 0
        producer.initialize()
        found = cluster.committed(self._group).get(self._place)
        is_ours = found is not None and found.metadata == self._metadata()
        self._reached = found.offset if found is not None and is_ours else 0

    def _metadata(self) -> str:
        return json.dumps({"run": self._run})

    def start(self, start: int, end: int) -> int:
        """The offset at which to begin with a range: what is before it in there is committed."""
        begin = max(start, min(self._reached, end))
        self.counts["committed_before"] += begin - start
        return begin

    def deliver(self, sets: Iterable[RecordSet]) -> None:
        """Send these behind all before. Raises Refused, Unreachable."""
        for one in sets:
            # Several may have been made of what ends at one offset.
            if self._is_due() and one.last > self._last:
                self._commit(self._last + 1)
            chosen = one.partition
            place = self._place if chosen is None else self._place._replace(partition=chosen)
            self._producer.send(place, one.data)
            self._last = one.last
            self._bytes += len(one.data)

    def finish(self, end: int) -> None:
        """Commit what is open; `end` is the source's offset after the range."""
        if self._bytes:
            self._commit(end)

    def _is_due(self) -> bool:
        return self._bytes >= TRANSACTION_BYTES or self._producer.open_s >= TRANSACTION_S

    def _commit(self, reached: int) -> None:
        self._producer.send_offsets(
            self._group, {self._place: Committed(reached, self._metadata())}
        )
        self._producer.commit()
        self._bytes = 0
        self.counts["transactions"] += 1


def expect_format(place: TopicPartition, asked: Terms) -> None:
    """Raises Refused for a topic that can have no transactions."""
    if asked.magic != 2:
        raise Refused(
            f"topic '{place.topic}' stores record format {asked.magic}, and transactions need "
            "format 2: raise its message.format.version, or write to it without transactions"
        )


@contextlib.contextmanager
def transactional_delivery(
    cluster: Cluster,
    transactions: Transactions,
    place: TopicPartition,
    asked: Terms,
    *,
    named: TopicPartition | None = None,
) -> Iterator[TransactionalDelivery]:
    """A delivery to `place`, with the transactional id for it, or for `named` where deliveries
    share a place. Raises Refused, also for a topic that can have no transactions."""
    expect_format(place, asked)
    with cluster.transactional_producer(transactions.id_for(named or place)) as producer:
        yield TransactionalDelivery(cluster, producer, place, transactions.run)
