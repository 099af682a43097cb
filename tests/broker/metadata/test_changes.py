"""Changes of metadata wait for their turn and for the disk, and nobody else for them.

The broker is whole and its disk is real; the thread that syncs and makes folders is the test's.
"""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING

import pytest

from protocol.errors import ErrorCode
from protocol.messages.create_partitions import CreatePartitionsRequest
from protocol.messages.create_topics import CreateTopicsRequest
from protocol.messages.delete_topics import DeleteTopicsRequest
from protocol.messages.find_coordinator import FindCoordinatorRequest
from protocol.messages.incremental_alter_configs import IncrementalAlterConfigsRequest
from protocol.messages.init_producer_id import InitProducerIdRequest
from protocol.messages.metadata import MetadataRequest
from storage.disk import DiskFile, DiskFilesystem
from storage.metadata.loading import load
from tests.support.caller import batch, produce_request
from tests.support.fake_connection import InProcessBroker
from tests.support.in_process_client import Asker
from tests.support.manual_worker import ManualWorker

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


EXISTS = ErrorCode.TOPIC_ALREADY_EXISTS
STORAGE = ErrorCode.KAFKA_STORAGE_ERROR


class Disk:
    """A broker whose changes wait for `worker`."""

    def __init__(self, broker: InProcessBroker, data: Path) -> None:
        self.broker = broker
        self.data = data
        self.worker = ManualWorker()
        self.changes = broker.running.broker.changes
        self._own_worker = self.changes._worker
        self.changes._worker = self.worker  # type: ignore[assignment]

    def client(self) -> Asker:
        return Asker(self.broker)

    def settle(self) -> None:
        """Do all jobs, until no change is left."""
        while len(self.changes):
            self.worker.do_all()
            self.broker.turn()
        self.broker.turn(2)

    def let_go(self) -> None:
        self.settle()
        self.changes._worker = self._own_worker


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Disk]:
    with InProcessBroker(tmp_path / "data") as broker:
        found = Disk(broker, tmp_path / "data")
        yield found
        found.let_go()


def create(*names: str, partitions: int = 1) -> CreateTopicsRequest:
    return CreateTopicsRequest(
        topics=[
            CreateTopicsRequest.Topic(
                name=name,
                num_partitions=partitions,
                replication_factor=1,
                assignments=[],
                configs=[],
            )
            for name in names
        ]
    )


def delete(name: str) -> DeleteTopicsRequest:
    return DeleteTopicsRequest(
        topics=[DeleteTopicsRequest.Topic(name=name, topic_id=bytes(16))], timeout_ms=0
    )


def grow(name: str, count: int) -> CreatePartitionsRequest:
    topic = CreatePartitionsRequest.Topic(name=name, count=count, assignments=None)
    return CreatePartitionsRequest(topics=[topic], timeout_ms=0, validate_only=False)


def configure(name: str, *changes: tuple[str, int, str | None]) -> IncrementalAlterConfigsRequest:
    resource = IncrementalAlterConfigsRequest.Resource
    return IncrementalAlterConfigsRequest(
        resources=[
            resource(
                resource_type=2,
                resource_name=name,
                configs=[
                    resource.Config(name=key, config_operation=operation, value=value)
                    for key, operation, value in changes
                ],
            )
        ],
        validate_only=False,
    )


def ask_for(name: str, *, create_it: bool = True) -> MetadataRequest:
    return MetadataRequest(
        topics=[MetadataRequest.Topic(name=name)], allow_auto_topic_creation=create_it
    )


def codes(asker: Asker) -> list[int]:
    """Of the first topic, or resource, of each answer."""
    found = []
    for answer in asker.answers():
        entries = next(
            getattr(answer, field)
            for field in ("topics", "responses", "results")
            if hasattr(answer, field)
        )
        found.append(entries[0].error_code)
    return found


# Topics


def test_of_two_clients_who_create_one_topic_the_second_is_told_that_it_exists(
    disk: Disk,
) -> None:
    first, second = disk.client(), disk.client()
    first.send(create("t"))
    second.send(create("t"))
    disk.broker.turn(3)
    assert (first.answers(), second.answers()) == ([], [])

    disk.settle()

    assert (codes(first), codes(second)) == ([0], [EXISTS])
    assert len(disk.broker.running.broker.topics.by_name["t"].partitions) == 1


def test_a_topic_is_shown_when_its_folders_are_there_and_not_before(disk: Disk) -> None:
    creator, other = disk.client(), disk.client()
    creator.send(create("t", partitions=3))
    while len(disk.changes):
        disk.broker.turn()
        if not disk.worker.jobs:
            continue
        assert other.call(ask_for("t", create_it=False)).topics[0].error_code == 3
        assert not other.call(MetadataRequest(topics=None)).topics
        assert creator.answers() == []
        disk.worker.do_one()
    disk.broker.turn(2)

    assert codes(creator) == [0]
    assert len(other.call(ask_for("t", create_it=False)).topics[0].partitions) == 3
    assert len(list(disk.data.glob("t-?"))) == 3


def test_others_produce_and_ask_while_a_topic_is_being_created(disk: Disk) -> None:
    creator, other = disk.client(), disk.client()
    creator.send(create("there"))
    disk.settle()
    creator.send(create("t", partitions=100))
    disk.broker.turn()

    answer = other.call(produce_request(("there", 0, batch(b"v")), acks=1), 9)

    assert answer.responses[0].partition_responses[0].error_code == 0
    assert len(creator.answers()) == 1


def test_a_deletion_right_behind_a_creation_waits_for_it_and_leaves_nothing(disk: Disk) -> None:
    creator, remover = disk.client(), disk.client()
    creator.send(create("t", partitions=2))
    remover.send(delete("t"))
    disk.broker.turn(3)
    assert remover.answers() == []

    disk.settle()

    assert (codes(creator), codes(remover)) == ([0], [0])
    assert "t" not in disk.broker.running.broker.topics.by_name
    assert not list(disk.data.glob("t-?"))


def test_a_creation_right_behind_a_deletion_gives_a_new_topic(disk: Disk) -> None:
    one, two = disk.client(), disk.client()
    one.send(create("t", partitions=2))
    disk.settle()
    before = disk.broker.running.broker.topics.by_name["t"].topic_id
    one.send(delete("t"))
    two.send(create("t", partitions=3))

    disk.settle()

    topic = disk.broker.running.broker.topics.by_name["t"]
    assert (codes(one), codes(two)) == ([0, 0], [0])
    assert topic.topic_id != before
    assert [log.log.next_offset for log in topic.partitions] == [0, 0, 0]


def test_two_growths_of_one_topic_are_made_one_after_the_other(disk: Disk) -> None:
    one, two = disk.client(), disk.client()
    one.send(create("t"))
    disk.settle()
    one.send(grow("t", 3))
    two.send(grow("t", 3))
    disk.broker.turn()
    assert len(disk.broker.running.broker.topics.by_name["t"].partitions) == 1

    disk.settle()

    assert (codes(one)[1:], codes(two)) == ([0], [ErrorCode.INVALID_PARTITIONS])
    assert len(disk.broker.running.broker.topics.by_name["t"].partitions) == 3


def test_two_clients_who_ask_for_a_missing_topic_are_told_of_the_same_one(disk: Disk) -> None:
    one, two = disk.client(), disk.client()
    one.send(ask_for("auto"))
    two.send(ask_for("auto"))
    disk.broker.turn(2)
    assert (one.answers(), two.answers()) == ([], [])

    disk.settle()

    (first,), (second,) = one.answers()[0].topics, two.answers()[0].topics
    assert (first.error_code, second.error_code) == (0, 0)
    assert first.topic_id == second.topic_id


def test_two_clients_who_look_for_a_coordinator_wait_for_one_offsets_topic(disk: Disk) -> None:
    one, two = disk.client(), disk.client()
    for client in (one, two):
        client.send(FindCoordinatorRequest(coordinator_keys=["g"], key_type=0))
    disk.broker.turn(2)
    assert (one.answers(), two.answers()) == ([], [])

    disk.settle()

    assert [one.answers()[0].coordinators[0].error_code for one in (one, two)] == [0, 0]
    assert "__consumer_offsets" in disk.broker.running.broker.topics.by_name


def test_producer_ids_differ_for_clients_who_wait_for_the_same_block(disk: Disk) -> None:
    clients = [disk.client() for _ in range(3)]
    for client in clients:
        client.send(InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1000))
    assert [client.answers() for client in clients] == [[], [], []]

    disk.settle()

    assert [client.answers()[0].producer_id for client in clients] == [0, 1, 2]
    image = disk.broker.running.broker.controller.image
    assert image.next_producer_id == 1000, "one block was reserved"


# Settings


def test_settings_hold_in_the_order_in_which_they_were_asked_for(disk: Disk) -> None:
    clients = [disk.client() for _ in range(4)]
    clients[0].send(create("t"))
    disk.settle()
    clients[0].send(configure("t", ("cleanup.policy", 0, "delete")))
    clients[1].send(configure("t", ("cleanup.policy", 2, "compact")))
    clients[2].send(configure("t", ("retention.ms", 0, "1000")))
    clients[3].send(configure("t", ("retention.ms", 0, "2000")))
    disk.broker.turn(3)
    topic = disk.broker.running.broker.topics.by_name["t"]
    assert topic.overrides == {}, "nothing holds that is not on the disk"

    disk.settle()

    assert [codes(client)[-1] for client in clients] == [0] * 4
    assert topic.overrides == {"cleanup.policy": "delete,compact", "retention.ms": "2000"}
    assert topic.settings.retention_ms == 2000


# Failures


def refuse(*_: object, **__: object) -> None:
    raise OSError(errno.EIO, "Input/output error")


def be_full(*_: object, **__: object) -> None:
    raise OSError(errno.ENOSPC, "No space left on device")


def test_a_sync_that_fails_changes_nothing_and_no_change_follows_it_before_a_restart(
    disk: Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    client, waiting = disk.client(), disk.client()
    client.send(create("before"))
    disk.settle()
    with monkeypatch.context() as broken:
        broken.setattr(DiskFile, "sync", refuse)
        client.send(create("t"))
        waiting.send(create("u"))
        disk.settle()

    broker = disk.broker.running.broker
    assert (codes(client), codes(waiting)) == ([0, STORAGE], [STORAGE])
    assert list(broker.topics.by_name) == list(broker.controller.image.topics) == ["before"]
    assert not list(disk.data.glob("[tu]-?"))
    assert broker.controller.partition.high_watermark < broker.controller.partition.log.next_offset
    client.send(ask_for("before"))
    assert client.answers()[-1].topics[0].error_code == 0


def test_a_write_that_is_refused_changes_nothing_and_the_next_change_is_made(
    disk: Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    client, waiting = disk.client(), disk.client()
    client.send(create("t"))
    disk.settle()
    with monkeypatch.context() as full:
        full.setattr(DiskFile, "write_at", be_full)
        client.send(configure("t", ("retention.ms", 0, "1")))
        disk.settle()
    waiting.send(configure("t", ("retention.ms", 0, "2")))

    disk.settle()

    assert (codes(client)[1:], codes(waiting)) == ([STORAGE], [0])
    assert disk.broker.running.broker.topics.by_name["t"].settings.retention_ms == 2


def test_folders_that_the_thread_can_not_make_leave_no_topic_and_can_be_made_later(
    disk: Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = disk.client()
    make = DiskFilesystem.make_dir

    def fail(files: DiskFilesystem, path: str) -> None:
        if path.endswith("/t-1"):
            refuse()
        make(files, path)

    with monkeypatch.context() as broken:
        broken.setattr(DiskFilesystem, "make_dir", fail)
        client.send(create("s", "t", "u", partitions=2))
        disk.settle()
    (answer,) = client.answers()
    assert [topic.error_code for topic in answer.topics] == [0, STORAGE, 0]
    broker = disk.broker.running.broker
    assert list(broker.topics.by_name) == list(broker.controller.image.topics) == ["s", "u"]
    assert not list(disk.data.glob("t-*"))

    client.send(create("t", partitions=2))
    disk.settle()

    assert codes(client)[1:] == [0]


# Clients that go, and a broker that does


def test_what_a_client_asked_for_is_done_although_it_has_gone(disk: Disk) -> None:
    gone, next_one = disk.client(), disk.client()
    gone.send(create("t", partitions=2))
    next_one.send(create("u"))
    disk.broker.turn()
    gone.fake.lose()

    disk.settle()

    assert codes(next_one) == [0]
    assert sorted(disk.broker.running.broker.topics.by_name) == ["t", "u"]
    assert gone.answers() == []


def test_a_change_that_is_under_way_at_the_stop_is_whole_at_the_next_start(tmp_path: Path) -> None:
    with InProcessBroker(tmp_path) as broker:
        disk = Disk(broker, tmp_path)
        client, behind = disk.client(), disk.client()
        client.send(create("t", partitions=3))
        behind.send(create("u"))
        broker.turn()
        disk.worker.do_one()  # synced, its folders are still to be made
        client.fake.lose()
        behind.fake.lose()
    names = set(load(DiskFilesystem(), str(tmp_path)).image.topics)
    assert names == {"t"}, "the second one had not begun"

    with InProcessBroker(tmp_path) as broker:
        assert len(broker.running.broker.topics.by_name["t"].partitions) == 3


def test_a_stop_answers_the_changes_that_wait(tmp_path: Path) -> None:
    with InProcessBroker(tmp_path) as broker:
        clients = [Asker(broker) for _ in range(5)]
        for number, client in enumerate(clients):
            client.send(create(f"t{number}"))
        for open_one in broker.running.broker.connections:
            open_one.close()
        broker.turn_until(lambda: all(client.fake.transport.closed for client in clients))
        assert [codes(client) for client in clients] == [[0]] * 5


def test_topics_of_a_log_that_was_synced_and_not_followed_by_folders_are_made_at_the_next_start(
    disk: Disk, tmp_path: Path
) -> None:
    """A crash between the two."""
    disk.client().send(create("t", partitions=2))
    disk.broker.turn()
    disk.worker.do_one()

    found = load(DiskFilesystem(), str(disk.data))

    assert len(found.image.topics["t"].partitions) == 2
    assert not list(disk.data.glob("t-?"))


# Followers and snapshots


def test_a_follower_sees_a_change_when_it_is_on_the_disk_and_a_snapshot_has_none_of_it_before(
    disk: Disk,
) -> None:
    controller = disk.broker.running.broker.controller
    before = controller.partition.high_watermark
    disk.client().send(create("t", partitions=2))
    disk.broker.turn()
    assert controller.partition.log.written_offset > before
    assert controller.partition.high_watermark == before
    controller.look()

    disk.worker.do_one()

    assert controller.partition.high_watermark == before + 3
