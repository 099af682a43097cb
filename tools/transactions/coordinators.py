"""Transactions as their coordinators know them."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from client.committing import TRANSACTION
from protocol.client import said
from protocol.errors import ErrorCode
from protocol.logdata.transactions import TransactionState
from protocol.messages.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
)
from protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from protocol.messages.list_transactions import ListTransactionsRequest, ListTransactionsResponse
from tools.cluster import SOON, TopicPartition
from tools.errors import NotDone

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tools.cluster import Cluster

STATE_TOPIC = "__transaction_state"
ONGOING = "Ongoing"
PREPARED = frozenset({"PrepareCommit", "PrepareAbort", "PrepareEpochFence"})
OPEN = PREPARED | {ONGOING}
"""States in which a transaction has begun and not ended."""

BY_DURATION, BY_PATTERN = 1, 2
"""Versions of ListTransactions from which on a broker filters so."""
NEWEST_PLAIN = 5
"""The newest version of InitProducerId without two-phase commit."""
TIMEOUT_MAX_MS = 60_000
"""Of an id that is taken over only to end its transaction; its producer sets its own again."""


class Listed(NamedTuple):
    """A transactional id. `coordinator` is the address of the broker that keeps it."""

    transactional_id: str
    coordinator: str
    producer_id: int
    state: str


class Described(NamedTuple):
    """A transactional id with its transaction. `start_ms` is -1 where none is open."""

    transactional_id: str
    coordinator: str
    producer_id: int
    producer_epoch: int
    state: str
    timeout_ms: int
    start_ms: int
    partitions: list[TopicPartition]

    @property
    def is_open(self) -> bool:
        """Whether a transaction has begun and not ended."""
        return self.state in OPEN


def list_transactions(
    cluster: Cluster,
    *,
    states: Sequence[str] = (),
    producer_ids: Sequence[int] = (),
    longer_than_ms: int = -1,
    pattern: str | None = None,
) -> list[Listed]:
    """The transactional ids of all brokers, by name; those in one of these states, of one of these
    producers, with a transaction open for longer than that, with a name that a regular expression
    matches. Raises NotDone."""
    request = ListTransactionsRequest(
        state_filters=list(states),
        producer_id_filters=list(producer_ids),
        duration_filter=longer_than_ms,
        transactional_id_pattern=pattern,
    )
    _require(cluster, longer_than_ms >= 0, BY_DURATION, "duration (Kafka 3.8 is the first)")
    _require(cluster, bool(pattern), BY_PATTERN, "pattern (Kafka 4.1 is the first)")
    oldest = BY_PATTERN if pattern else BY_DURATION if longer_than_ms >= 0 else 0
    answers = cluster.on_each_broker(
        lambda connection: connection.call(request, ListTransactionsResponse, oldest=oldest),
        lambda answer: answer.error_code,
    )
    found: list[Listed] = []
    for connection, answer in answers:
        if answer.unknown_state_filters:
            unknown = ", ".join(answer.unknown_state_filters)
            known = ", ".join(state.title for state in TransactionState)
            raise NotDone(f"{connection.address} knows no state '{unknown}'; there are {known}")
        if answer.error_code == ErrorCode.INVALID_REGULAR_EXPRESSION:
            raise NotDone(f"{connection.address} says '{pattern}' is no regular expression (RE2)")
        if answer.error_code:
            raise NotDone(f"{connection.address}: ListTransactions: {said(answer.error_code)}")
        found += [
            Listed(one.transactional_id, connection.address, one.producer_id, one.transaction_state)
            for one in answer.transaction_states
            # A broker takes the time since the epoch for the age of what has not begun.
            if longer_than_ms < 0 or one.transaction_state in OPEN
        ]
    return sorted(found)


def _require(cluster: Cluster, wanted: bool, version: int, what: str) -> None:
    if wanted and not cluster.offers(ListTransactionsRequest, oldest=version):
        raise NotDone(f"this broker does not list transactions by {what}")


def describe(cluster: Cluster, transactional_id: str) -> Described | None:
    """The transactional id as its coordinator knows it; None for one that it does not know."""
    if STATE_TOPIC not in cluster.topics([STATE_TOPIC]):
        return None  # to look for a coordinator would make the topic
    request = DescribeTransactionsRequest(transactional_ids=[transactional_id])
    coordinator, answer = cluster.coordinated(
        transactional_id,
        lambda connection: (
            connection.address,
            connection.call(request, DescribeTransactionsResponse).transaction_states[0],
        ),
        lambda found: found[1].error_code,
        kind=TRANSACTION,
    )
    if answer.error_code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND:
        return None
    if answer.error_code:
        raise NotDone(f"transactional id '{transactional_id}': {said(answer.error_code)}")
    return Described(
        transactional_id=transactional_id,
        coordinator=coordinator,
        producer_id=answer.producer_id,
        producer_epoch=answer.producer_epoch,
        state=answer.transaction_state,
        timeout_ms=answer.transaction_timeout_ms,
        start_ms=answer.transaction_start_time_ms,
        partitions=sorted(
            TopicPartition(topic.topic, index)
            for topic in answer.topics
            for index in topic.partitions
        ),
    )


def take_over(cluster: Cluster, described: Described) -> None:
    """Become the producer of this id (InitProducerId), which fences the one that was, and abort its
    transaction; returns when that has ended. Raises NotDone."""
    request = InitProducerIdRequest(
        transactional_id=described.transactional_id,
        transaction_timeout_ms=max(1, min(described.timeout_ms, TIMEOUT_MAX_MS)),
    )
    answer = cluster.coordinated(
        described.transactional_id,
        lambda connection: connection.call(request, InitProducerIdResponse, newest=NEWEST_PLAIN),
        lambda answer: answer.error_code,
        kind=TRANSACTION,
        # So it is answered until the old transaction has ended.
        soon=SOON | {ErrorCode.CONCURRENT_TRANSACTIONS},
    )
    if answer.error_code:
        what = f"transactional id '{described.transactional_id}'"
        raise NotDone(f"{what}: InitProducerId: {said(answer.error_code)}")
