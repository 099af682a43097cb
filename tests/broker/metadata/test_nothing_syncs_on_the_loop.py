"""No call that waits for the disk is made on the loop's thread while clients are served."""

from __future__ import annotations

import os
import threading
import traceback
from typing import TYPE_CHECKING, Any

import pytest

from protocol.messages.alter_client_quotas import AlterClientQuotasRequest
from protocol.messages.alter_configs import AlterConfigsRequest
from protocol.messages.alter_user_scram_credentials import AlterUserScramCredentialsRequest
from protocol.messages.create_partitions import CreatePartitionsRequest
from protocol.messages.create_topics import CreateTopicsRequest
from protocol.messages.delete_records import DeleteRecordsRequest
from protocol.messages.delete_topics import DeleteTopicsRequest
from protocol.messages.find_coordinator import FindCoordinatorRequest
from protocol.messages.incremental_alter_configs import IncrementalAlterConfigsRequest
from protocol.messages.init_producer_id import InitProducerIdRequest
from protocol.messages.metadata import MetadataRequest
from protocol.messages.offset_commit import OffsetCommitRequest
from protocol.messages.update_features import UpdateFeaturesRequest
from storage.identity import uuid_text
from tests.support.caller import batch, produce_request
from tests.support.fake_connection import InProcessBroker
from tests.support.in_process_client import Asker

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from protocol.schema import Message

NO_ID = bytes(16)


class Watched:
    """A broker in this thread, and the stacks of the syncs that this thread was held up by."""

    def __init__(self, broker: InProcessBroker, monkeypatch: pytest.MonkeyPatch) -> None:
        self.broker = broker
        self.client = Asker(broker)
        self.synced_elsewhere = 0
        self.on_the_loop: list[str] = []
        loop_thread = threading.get_ident()
        for name in ("fsync", "fdatasync", "sync"):
            real = getattr(os, name)

            def watched(*arguments: Any, real: Any = real) -> None:
                if threading.get_ident() == loop_thread:
                    self.on_the_loop.append("".join(traceback.format_stack(limit=12)))
                else:
                    self.synced_elsewhere += 1
                real(*arguments)

            monkeypatch.setattr(os, name, watched)

    def ask(self, request: Message, version: int | None = None) -> Any:
        """Ask, and see that the loop was not held up."""
        answer = self.client.call(request, version)
        assert not self.on_the_loop, f"{type(request).__name__}:\n{self.on_the_loop[0]}"
        return answer

    def create(self, *names: str, partitions: int = 2) -> None:
        topic = CreateTopicsRequest.Topic
        topics = [
            topic(
                name=name,
                num_partitions=partitions,
                replication_factor=1,
                assignments=[],
                configs=[topic.Config(name="retention.ms", value="60000")],
            )
            for name in names
        ]
        answer = self.ask(CreateTopicsRequest(topics=topics))
        assert {one.error_code for one in answer.topics} == {0}

    def delete(self, *names: str) -> None:
        topics = [DeleteTopicsRequest.Topic(name=name, topic_id=NO_ID) for name in names]
        answer = self.ask(DeleteTopicsRequest(topics=topics, timeout_ms=0))
        assert {one.error_code for one in answer.responses} == {0}


@pytest.fixture
def watched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Watched]:
    settings = {"controller_snapshot_minimum_records": "5"}
    with InProcessBroker(tmp_path / "data", **settings) as broker, monkeypatch.context() as patched:
        yield Watched(broker, patched)


def test_an_administrators_tour_of_all_changes_holds_up_nobody(watched: Watched) -> None:
    watched.create("a", "b")
    grown = CreatePartitionsRequest.Topic(name="a", count=4, assignments=None)
    answer = watched.ask(CreatePartitionsRequest(topics=[grown], timeout_ms=0, validate_only=False))
    assert answer.results[0].error_code == 0
    change_settings(watched)
    change_who_may(watched)
    asked = MetadataRequest(topics=[MetadataRequest.Topic(name="auto")])
    assert watched.ask(asked).topics[0].error_code == 0
    watched.ask(InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1000))
    watched.delete("a", "b")
    watched.create("a")
    watched.broker.turn_until(lambda: bool(watched.broker.running.broker.controller.snapshots.ids))

    assert not watched.on_the_loop, watched.on_the_loop[0]
    assert watched.synced_elsewhere > 10


def change_settings(watched: Watched) -> None:
    alter, incremental = AlterConfigsRequest.Resource, IncrementalAlterConfigsRequest.Resource
    for kind, name, key, value in (
        (2, "a", "retention.ms", "5000"),
        (4, "1", "log.retention.ms", "500000"),
        (4, "", "log.segment.bytes", "1048576"),
        (32, "g", "consumer.session.timeout.ms", "50000"),
        (16, "m", "interval.ms", "10000"),
    ):
        config = alter.Config(name=key, value=value)
        whole = alter(resource_type=kind, resource_name=name, configs=[config])
        answer = watched.ask(AlterConfigsRequest(resources=[whole], validate_only=False))
        assert answer.responses[0].error_code == 0, answer.responses[0].error_message
        one = incremental.Config(name=key, config_operation=1, value=None)
        part = incremental(resource_type=kind, resource_name=name, configs=[one])
        answer = watched.ask(IncrementalAlterConfigsRequest(resources=[part], validate_only=False))
        assert answer.responses[0].error_code == 0, answer.responses[0].error_message


def change_who_may(watched: Watched) -> None:
    entry = AlterClientQuotasRequest.Entry
    quota = entry(
        entity=[entry.Entity(entity_type="user", entity_name="u")],
        ops=[entry.Op(key="producer_byte_rate", value=1000.0, remove=False)],
    )
    answer = watched.ask(AlterClientQuotasRequest(entries=[quota], validate_only=False))
    assert answer.entries[0].error_code == 0
    user = AlterUserScramCredentialsRequest.Upsertion(
        name="u", mechanism=1, iterations=4096, salt=b"salt", salted_password=b"password"
    )
    answer = watched.ask(AlterUserScramCredentialsRequest(deletions=[], upsertions=[user]))
    assert answer.results[0].error_code == 0
    watched.ask(UpdateFeaturesRequest(feature_updates=[], timeout_ms=0, validate_only=False))


def test_producers_and_groups_hold_up_nobody(watched: Watched) -> None:
    watched.create("t")
    for acks in (1, -1):
        answer = watched.ask(produce_request(("t", 0, batch(b"v")), acks=acks), 9)
        assert answer.responses[0].partition_responses[0].error_code == 0
    found = watched.ask(FindCoordinatorRequest(coordinator_keys=["g"], key_type=0))
    assert found.coordinators[0].error_code == 0
    commit = OffsetCommitRequest.Topic
    offset = commit.Partition(
        partition_index=0, committed_offset=1, committed_leader_epoch=-1, committed_metadata=""
    )
    answer = watched.ask(
        OffsetCommitRequest(
            group_id="g",
            generation_id_or_member_epoch=-1,
            member_id="",
            topics=[commit(name="t", partitions=[offset])],
        ),
        8,
    )
    assert answer.topics[0].partitions[0].error_code == 0
    below = DeleteRecordsRequest.Topic.Partition(partition_index=0, offset=1)
    deleted = DeleteRecordsRequest(
        topics=[DeleteRecordsRequest.Topic(name="t", partitions=[below])], timeout_ms=0
    )
    assert watched.ask(deleted).topics[0].partitions[0].error_code == 0
    watched.broker.running.broker.groups.snapshotting.look()
    watched.broker.running.broker.checkpoints.write()
    watched.broker.turn(5)
    assert not watched.on_the_loop, watched.on_the_loop[0]


def test_a_commit_that_makes_the_offsets_topic_holds_up_nobody(watched: Watched) -> None:
    request = OffsetCommitRequest(
        group_id="g", generation_id_or_member_epoch=-1, member_id="", topics=[]
    )
    watched.ask(request, 8)
    assert "__consumer_offsets" in watched.broker.running.broker.topics.by_name


def test_what_is_left_of_deleted_topics_and_of_others_holds_up_nobody(
    watched: Watched, tmp_path: Path
) -> None:
    """Folders of a topic of the same name that could not be renamed, and of an unknown one."""
    watched.create("t")
    data = tmp_path / "data"
    old_id = uuid_text(watched.broker.running.broker.topics.by_name["t"].topic_id)
    watched.delete("t")
    for number, topic_id in ((0, old_id), (1, "Bq6Z1VEEY_UKSKML5ZwgmA")):
        folder = data / f"t-{number}"
        folder.mkdir()
        (folder / "partition.metadata").write_text(f"version: 0\ntopic_id: {topic_id}")

    watched.create("t")

    assert len(list(data.glob("t-1.*-stray"))) == 1
