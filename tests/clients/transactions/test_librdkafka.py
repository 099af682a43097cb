"""What librdkafka does of its own in transactions: errors that ask for an abort, purges, and ends.

An error of a call says whether the call may be made again, the transaction must be aborted, or the
producer is done for. Each is met here as brokers cause it.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import confluent_kafka
import pytest

from tests.clients.drivers.driver import CALL_TIMEOUT_S
from tests.clients.transactions.conversation import until
from tests.clients.transactions.exactly_once import Committed, make_topics, restart
from tests.support.caller import Caller

if TYPE_CHECKING:
    from tests.support.server_process import ServerProcess

pytestmark = [pytest.mark.clients, pytest.mark.timeout(300)]

TOPIC, SOURCE = "target", "source"
PARTITIONS = 3

TRANSACTIONS = 150
#: After so many commits.
SERVER_DIES_AT = (40, 90)


class Producer:
    """A transactional producer that keeps what became of its records."""

    def __init__(self, server: ServerProcess, transactional_id: str, **settings: object) -> None:
        self.failed: list[int] = []
        self.client = confluent_kafka.Producer(
            {
                "bootstrap.servers": server.bootstrap,
                "transactional.id": transactional_id,
                "linger.ms": 0,
                "log_level": 0,
                **{key.replace("_", "."): value for key, value in settings.items()},
            }
        )
        self.client.init_transactions(CALL_TIMEOUT_S)

    def begin(self) -> None:
        self.client.begin_transaction()

    def write(self, *values: str, topic: str = TOPIC, partition: int = 0) -> None:
        for value in values:
            self.client.produce(
                topic, value.encode(), partition=partition, on_delivery=self._delivered
            )

    def flush(self) -> None:
        assert self.client.flush(CALL_TIMEOUT_S) == 0

    def commit(self) -> None:
        self.client.commit_transaction(CALL_TIMEOUT_S)

    def abort(self) -> None:
        self.client.abort_transaction(CALL_TIMEOUT_S)

    def write_and_commit(self, value: str) -> None:
        self.begin()
        self.write(value)
        self.commit()

    def _delivered(self, error: Any, _message: object) -> None:
        if error is not None:
            self.failed.append(error.code())


def committed(server: ServerProcess, count: int) -> list[list[str]]:
    """What readers get of the topic when there should be so much."""
    found = Committed(server.bootstrap, TOPIC, PARTITIONS)
    try:
        found.read_until(count)
        found.read_to_the_end()
    finally:
        found.close()
    return found.values


def refusal(refused: pytest.ExceptionInfo[BaseException]) -> Any:
    """The error of librdkafka, which it raises in the midst of another callback at times."""
    cause = refused.value.__cause__ if isinstance(refused.value, SystemError) else refused.value
    assert isinstance(cause, confluent_kafka.KafkaException)
    return cause.args[0]


REFUSED = (confluent_kafka.KafkaException, SystemError)


def test_a_record_that_is_refused_asks_for_an_abort_and_so_does_the_gap_that_it_leaves(
    killed_server: ServerProcess,
) -> None:
    with Caller(killed_server.host, killed_server.port) as caller:
        caller.create_topic(TOPIC, PARTITIONS, max_message_bytes="1000")
    producer = Producer(killed_server, "refused")
    producer.begin()
    producer.write("small")
    producer.flush()
    producer.write("large" * 1_000)
    producer.flush()
    assert producer.failed == [confluent_kafka.KafkaError.MSG_SIZE_TOO_LARGE]
    with pytest.raises(REFUSED) as refused:
        producer.commit()
    assert refusal(refused).txn_requires_abort()
    producer.abort()
    # It counts on behind the record that was refused, and gets a new epoch only now.
    with pytest.raises(REFUSED) as refused:
        producer.write_and_commit("behind the gap")
    assert refusal(refused).code() == confluent_kafka.KafkaError.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert refusal(refused).txn_requires_abort()
    producer.abort()
    producer.write_and_commit("next")
    assert committed(killed_server, 1) == [["next"], [], []]


def test_offsets_of_a_generation_that_is_over_ask_for_an_abort(
    killed_server: ServerProcess,
) -> None:
    make_topics(killed_server, PARTITIONS, TOPIC, SOURCE)
    producer = Producer(killed_server, "generation")
    first, second = (member(killed_server) for _ in range(2))
    try:
        first.subscribe([SOURCE])
        assert until(lambda: first.poll(0.1) is None and len(first.assignment()) == PARTITIONS)
        outdated = first.consumer_group_metadata()
        second.subscribe([SOURCE])
        both = (first, second)
        assert until(lambda: all(one.poll(0.1) is None and one.assignment() for one in both))
        offsets = [confluent_kafka.TopicPartition(SOURCE, 0, 7)]
        producer.begin()
        producer.write("outdated")
        with pytest.raises(REFUSED) as refused:
            producer.client.send_offsets_to_transaction(offsets, outdated, CALL_TIMEOUT_S)
        assert refusal(refused).txn_requires_abort()
        producer.abort()

        producer.begin()
        producer.write("of this generation")
        present = first.consumer_group_metadata()
        producer.client.send_offsets_to_transaction(offsets, present, CALL_TIMEOUT_S)
        producer.commit()
        (found,) = first.committed(offsets, CALL_TIMEOUT_S)
        assert found.offset == 7
    finally:
        first.close()
        second.close()
    assert committed(killed_server, 1) == [["of this generation"], [], []]


def member(server: ServerProcess) -> Any:
    return confluent_kafka.Consumer(
        {"bootstrap.servers": server.bootstrap, "group.id": "g", "enable.auto.commit": False}
    )


def test_what_is_purged_asks_for_an_abort_and_is_never_seen(killed_server: ServerProcess) -> None:
    make_topics(killed_server, PARTITIONS, TOPIC)
    producer = Producer(killed_server, "purged", linger_ms=30_000)
    producer.begin()
    producer.write("purged")
    producer.client.purge()
    producer.client.poll(0)
    assert producer.failed == [confluent_kafka.KafkaError._PURGE_QUEUE]
    with pytest.raises(REFUSED) as refused:
        producer.commit()
    assert refusal(refused).txn_requires_abort()
    producer.abort()
    # An abort purges by itself.
    producer.begin()
    producer.write("waiting")
    producer.abort()
    assert producer.failed == [confluent_kafka.KafkaError._PURGE_QUEUE] * 2
    producer.write_and_commit("next")
    assert committed(killed_server, 1) == [["next"], [], []]


def test_a_producer_that_is_fenced_is_done_for(killed_server: ServerProcess) -> None:
    make_topics(killed_server, PARTITIONS, TOPIC)
    zombie = Producer(killed_server, "fenced")
    zombie.begin()
    zombie.write("zombie")
    zombie.flush()
    successor = Producer(killed_server, "fenced")
    for _ in range(2):
        with pytest.raises(REFUSED) as refused:
            zombie.commit()
        error = refusal(refused)
        assert error.fatal()
        assert error.code() in (
            confluent_kafka.KafkaError._FENCED,
            confluent_kafka.KafkaError._FATAL,
        )
    successor.write_and_commit("successor")
    assert committed(killed_server, 1) == [["successor"], [], []]


def test_a_transaction_that_has_timed_out_cannot_be_committed(
    killed_server: ServerProcess,
) -> None:
    make_topics(killed_server, PARTITIONS, TOPIC)
    producer = Producer(killed_server, "late", transaction_timeout_ms=1_000)
    producer.begin()
    producer.write("late")
    producer.flush()
    host, port = killed_server.host, killed_server.port
    with Caller(host, port) as any_broker, any_broker.leader_of(TOPIC) as caller:
        assert until(lambda: caller.fetch(TOPIC, isolation_level=1).last_stable_offset == 2)
    with pytest.raises(REFUSED) as refused:
        producer.commit()
    assert not refusal(refused).retriable()
    Producer(killed_server, "late").write_and_commit("next")
    assert committed(killed_server, 1) == [["next"], [], []]


def test_a_commit_that_is_asked_for_while_the_broker_is_away_is_made_when_it_is_back(
    killed_server: ServerProcess,
) -> None:
    make_topics(killed_server, PARTITIONS, TOPIC)
    producer = Producer(killed_server, "away")
    producer.begin()
    producer.write("a", "b")
    producer.flush()
    killed_server.kill()
    # It waits a while, and may be called again.
    with pytest.raises(REFUSED) as refused:
        producer.client.commit_transaction(0.5)
    assert refusal(refused).retriable()
    killed_server.start()
    producer.commit()
    producer.write_and_commit("c")
    assert committed(killed_server, 3) == [["a", "b", "c"], [], []]


@pytest.mark.long
def test_transactions_go_on_though_the_broker_is_killed_at_any_moment_of_them(
    killed_server: ServerProcess,
) -> None:
    make_topics(killed_server, PARTITIONS, TOPIC)
    producer = Producer(killed_server, "killed", reconnect_backoff_max_ms=200)
    done = threading.Semaphore(0)
    errors: list[BaseException] = []

    def write_all() -> None:
        try:
            for number in range(TRANSACTIONS):
                producer.begin()
                for partition in range(PARTITIONS):
                    producer.write(str(number), partition=partition)
                producer.commit()
                done.release()
        except BaseException as error:
            errors.append(error)
            raise

    writer = threading.Thread(target=write_all, daemon=True)
    writer.start()
    count = 0
    for moment in SERVER_DIES_AT:
        while count < moment:
            assert done.acquire(timeout=CALL_TIMEOUT_S), errors
            count += 1
        restart(killed_server)
    writer.join(CALL_TIMEOUT_S)
    assert errors == []
    numbers = [str(number) for number in range(TRANSACTIONS)]
    assert committed(killed_server, TRANSACTIONS * PARTITIONS) == [numbers] * PARTITIONS
