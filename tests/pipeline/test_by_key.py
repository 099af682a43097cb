"""An archive written back with its partitions chosen by key: in order, and each record once."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import confluent_kafka
import confluent_kafka.admin
import pytest

from client.cluster import Cluster, TopicPartition
from client.transactions import TransactionalProducer
from pipeline.errors import ForeignState, WrongUse
from pipeline.jobs.replay import BY_KEY, Replay
from protocol.records.builder import build_batch
from tests.clients.drivers.driver import CALL_TIMEOUT_S
from tests.pipeline.mirroring import archive
from tests.pipeline.test_replay import Killed, run, without_spark
from tests.pipeline.transactional_history import consumed

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from tests.support.broker_process import BrokerProcess

NOW_MS = 1_700_000_000_000
KEYS = [b"key %d" % number for number in range(7)]
PARTITIONS = 5


def fill(bootstrap: str, topic: str, *, rows: int = 60) -> None:
    """A key is in one of two partitions, as producers have it; each batch ends without a key."""
    with Cluster(bootstrap) as cluster:
        cluster.create_topic(topic, 2)
        cluster.create_topic(f"{topic}-anew", PARTITIONS)
        for number in range(rows):
            at = number % len(KEYS)
            batch = [
                (NOW_MS + number, KEYS[at], b"%d" % number, (("n", b"%d" % number),)),
                (NOW_MS + number, None, b"keyless %d" % number, ()),
            ]
            cluster.produce(TopicPartition(topic, at % 2), [build_batch(batch)])


def chosen_by_librdkafka(bootstrap: str) -> dict[bytes, int]:
    """The partition of each key, by another implementation of what Kafka's producer does."""
    with Cluster(bootstrap) as cluster:
        if "chosen" not in cluster.topics():
            cluster.create_topic("chosen", PARTITIONS)
    chosen: dict[bytes, int] = {}

    def delivered(error: object, message: confluent_kafka.Message) -> None:
        chosen[message.key() or b""] = message.partition() or 0

    producer = confluent_kafka.Producer(
        {"bootstrap.servers": bootstrap, "partitioner": "murmur2_random"}
    )
    for key in KEYS:
        producer.produce("chosen", key=key, on_delivery=delivered)
    assert producer.flush(CALL_TIMEOUT_S) == 0
    return chosen


def expect_by_key(bootstrap: str, topic: str, *, rows: int = 60) -> None:
    """What a consumer of committed records sees: all of it, once, where and in what order it should
    be."""
    chosen = chosen_by_librdkafka(bootstrap)
    values: list[bytes] = []
    for partition in range(PARTITIONS):
        of_key: dict[bytes, list[int]] = {}
        for message in consumed(bootstrap, topic, "read_committed", partition):
            key, value = message.key(), message.value() or b""
            values.append(value)
            if key is None:
                continue
            assert chosen[key] == partition
            assert message.timestamp() == (
                confluent_kafka.TIMESTAMP_CREATE_TIME,
                NOW_MS + int(value),
            )
            assert message.headers() == [("n", value)]
            of_key.setdefault(key, []).append(int(value))
        assert all(some == sorted(some) for some in of_key.values())
    wanted = [b"%d" % number for number in range(rows)]
    assert sorted(values) == sorted([*wanted, *(b"keyless " + value for value in wanted)])


def test_a_replay_by_key_that_is_killed_around_commits_has_each_record_once_in_its_keys_partition(
    broker: BrokerProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(broker.bootstrap, "keyed")
    lake = archive(broker.bootstrap, "keyed", tmp_path / "lake", shape="records")
    job = Replay(
        lake, broker.bootstrap, rename="{topic}-anew", transactional_id="keyed", partitions=BY_KEY
    )
    without_spark(monkeypatch)
    monkeypatch.setattr("pipeline.delivering.transactional.TRANSACTION_BYTES", 1)
    monkeypatch.setattr("pipeline.delivering.replay_task.ROWS_AT_ONCE", 9)
    commit = TransactionalProducer.commit
    left = [0]

    def dying(producer: TransactionalProducer) -> None:
        left[0] -= 1
        if left[0] == 0:
            raise Killed
        commit(producer)
        if left[0] == 1:
            raise Killed

    with monkeypatch.context() as patched:
        patched.setattr(TransactionalProducer, "commit", dying)
        for commits in (1, 3, 4):
            left[0] = commits
            with pytest.raises(Killed):
                run(job)
    outcome = run(job)
    assert outcome.details["offsets committed by an earlier attempt"] > 0
    expect_by_key(broker.bootstrap, "keyed-anew")
    assert run(job).line().startswith("replay: nothing to do")


def test_a_topic_that_grows_and_a_replay_that_keeps_partitions_do_not_go_on_with_it(
    broker: BrokerProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(broker.bootstrap, "grows", rows=4)
    lake = archive(broker.bootstrap, "grows", tmp_path / "lake", shape="records")
    job = Replay(
        lake,
        broker.bootstrap,
        rename="{topic}-anew",
        transactional_id="grows",
        partitions=BY_KEY,
        state=str(tmp_path / "state"),
    )
    without_spark(monkeypatch)
    run(job)
    with pytest.raises(ForeignState, match="partitions"):
        run(dataclasses.replace(job, partitions=None))
    admin = confluent_kafka.admin.AdminClient({"bootstrap.servers": broker.bootstrap})
    more = confluent_kafka.admin.NewPartitions("grows-anew", PARTITIONS + 1)
    admin.create_partitions([more])["grows-anew"].result(CALL_TIMEOUT_S)
    with pytest.raises(ForeignState, match="had 5 partitions when this replay began, and has 6"):
        run(job)
    run(dataclasses.replace(job, again=True))


def test_what_cannot_go_by_key_is_one_line(broker: BrokerProcess, tmp_path: Path) -> None:
    fill(broker.bootstrap, "whole", rows=2)
    lake = archive(broker.bootstrap, "whole", tmp_path / "lake", shape="batches")
    for partitions, transactional_id, wanted in (
        (BY_KEY, None, "give a --transactional-id"),
        ("by-value", "whole", "by-key is known"),
        (BY_KEY, "whole", "is for an archive of records"),
    ):
        job = Replay(lake, broker.bootstrap, rename="{topic}-anew", partitions=partitions)
        with pytest.raises(WrongUse, match=wanted):
            dataclasses.replace(job, transactional_id=transactional_id).check()


@pytest.mark.long
def test_spark_replays_by_key(spark: SparkSession, broker: BrokerProcess, tmp_path: Path) -> None:
    fill(broker.bootstrap, "sparked")
    lake = archive(broker.bootstrap, "sparked", tmp_path / "lake", shape="records")
    job = Replay(
        lake, broker.bootstrap, rename="{topic}-anew", transactional_id="s", partitions=BY_KEY
    )
    for _ in range(2):  # written once, also if it is done again
        job.check()
        job.run(spark)
    expect_by_key(broker.bootstrap, "sparked-anew")
