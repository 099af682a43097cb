"""Scripts of requests get the answers of Apache Kafka, and leave the same records behind."""

from __future__ import annotations

import asyncio
import json
from base64 import b64decode
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from broker.coordinator.transactions import ends
from protocol.logdata.transactions import (
    TransactionState,
    decode_key,
    decode_value,
    encode_key,
    encode_value,
)
from protocol.messages.create_topics import CreateTopicsRequest
from protocol.messages.update_features import UpdateFeaturesRequest
from protocol.records.batch import Batch
from protocol.records.walk import walk
from tests.coordinator.transactions import scripts
from tests.support.fake_connection import InProcessBroker
from tests.support.in_process_client import Asker

if TYPE_CHECKING:
    from collections.abc import Callable

    from protocol.records.record import Record
    from protocol.schema import Message

VECTORS = Path(__file__).parent / "vectors"
SETTINGS = {
    "transaction.state.log.num.partitions": "1",
    "offsets.topic.num.partitions": "1",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "200",
}
METADATA_VERSION_OF_KAFKA_4 = 25

#: An id that was never in a transaction began at -1, so that every duration is exceeded. Kafka 3.9
#: forgets so of an id that was in one.
LISTED_BY_DURATION = "list v1: 0 [] [('other', 'Empty', 1)]"


def kept(name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((VECTORS / f"{name}.json").read_text())
    return found


def records(data: bytes) -> list[Record]:
    return [
        record
        for position, size, _ in walk(data)
        for record in Batch(memoryview(data)[position : position + size]).records()
    ]


def calling(broker: InProcessBroker) -> Callable[[Message, int], Any]:
    """Requests of one client, between which time passes."""
    asker = Asker(broker)

    def call(request: Message, version: int) -> Any:
        broker.loop.run_until_complete(asyncio.sleep(0.002))
        return asker.call(request, version)

    return call


def prepare(broker: InProcessBroker, *, kafka_4: bool) -> Callable[[Message, int], Any]:
    call = calling(broker)
    topic = CreateTopicsRequest.Topic(
        name=scripts.TOPIC, num_partitions=3, replication_factor=1, assignments=[], configs=[]
    )
    call(CreateTopicsRequest(topics=[topic]), 5)
    if kafka_4:
        change = UpdateFeaturesRequest.FeatureUpdate(
            feature="metadata.version", max_version_level=METADATA_VERSION_OF_KAFKA_4
        )
        assert call(UpdateFeaturesRequest(feature_updates=[change]), 1).error_code == 0
    return call


def state_log(broker: InProcessBroker) -> bytes:
    topic = broker.running.broker.topics.by_name["__transaction_state"]
    found = topic.partitions[0].log.read(0, 1 << 20)
    assert found is not None
    return bytes(found.read())


def told(record: Record) -> tuple[Any, ...]:
    """Key and value without their times."""
    assert record.value is not None
    value = decode_value(record.value)
    value.transaction_last_update_timestamp_ms = 0
    if value.transaction_start_timestamp_ms > 0:
        value.transaction_start_timestamp_ms = 1
    for topic in value.transaction_partitions or ():
        topic.partition_ids = sorted(topic.partition_ids)
    return record.key, encode_value(value, record.value[1]).hex()


@pytest.mark.parametrize("name", ["tv1-3.9", "tv1-4", "tv2-4"])
def test_a_script_gets_the_answers_and_leaves_the_records_of_kafka(
    tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Else a state of Complete is not written where another follows soon.
    monkeypatch.setattr(ends, "COMPLETE_WITHIN_S", 0)
    expected = kept(name)
    with InProcessBroker(tmp_path / "data", **SETTINGS) as broker:
        call = prepare(broker, kafka_4=name.endswith("-4"))

        answers = getattr(scripts, name.partition("-")[0])(call)

        if name == "tv1-3.9":
            assert expected["answers"].pop() == LISTED_BY_DURATION
            answers.pop()
        assert answers == expected["answers"]
        ours, kafkas = records(state_log(broker)), records(b64decode(expected["log"]))
        assert [told(one) for one in ours] == [told(one) for one in kafkas]


def test_where_the_epochs_are_used_up_the_answers_are_those_of_kafka(tmp_path: Path) -> None:
    with InProcessBroker(tmp_path / "data", **SETTINGS) as broker:
        call = prepare(broker, kafka_4=True)

        def skip(epoch: int) -> None:
            runtime = broker.running.broker.transactions.runtime
            shard, now = runtime.known("x")
            runtime.ends.write(shard, "x", now._replace(epoch=epoch, last_epoch=epoch - 1))

        assert scripts.exhausted(call, skip) == kept("exhausted-4")["answers"]


@pytest.mark.parametrize("name", ["tv1-3.9", "tv1-4", "tv2-4"])
def test_records_of_kafka_are_written_again_byte_by_byte(name: str) -> None:
    found = records(b64decode(kept(name)["log"]))

    for record in found:
        assert record.key is not None
        assert record.value is not None
        assert encode_key(decode_key(record.key)) == record.key
        assert encode_value(decode_value(record.value), record.value[1]) == record.value
    assert {record.value[1] for record in found if record.value} == {int(name.endswith("-4"))}


def test_the_states_have_the_names_that_kafkas_tools_know() -> None:
    assert [state.title for state in TransactionState] == [
        "Empty",
        "Ongoing",
        "PrepareCommit",
        "PrepareAbort",
        "CompleteCommit",
        "CompleteAbort",
        "Dead",
        "PrepareEpochFence",
    ]
