"""A write or a sync that fails: who is told, with which code, and what can still be read."""

from __future__ import annotations

import errno
import struct
from typing import TYPE_CHECKING, Any

import pytest

from broker.partitions.topic import Topic
from broker.partitions.topics import NewTopic
from protocol.errors import ErrorCode
from protocol.messages.fetch import FetchResponse
from protocol.messages.list_offsets import ListOffsetsRequest, ListOffsetsResponse
from protocol.messages.produce import ProduceResponse
from storage import closing
from storage.checkpoints import CheckpointFile
from storage.disk import DiskFile, DiskFilesystem
from storage.steps import run_here
from tests.broker.network.test_connection import framed
from tests.support.caller import Target, batch, fetch_request, produce_request
from tests.support.fake_connection import FakeClient, InProcessBroker
from tests.support.scraped import page_of

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

ACKS_ALL, ACKS_NONE, ACKS_LEADER = -1, 0, 1
GOOD, BAD = "good", "bad"


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[InProcessBroker]:
    with InProcessBroker(tmp_path / "data") as running:
        for name in (GOOD, BAD):
            run_here(running.running.broker.topics.create(name, 1, {}))
        yield running


def answers(client: FakeClient, version: int) -> list[dict[str, tuple[int, int]]]:
    """Of each answer: error code and base offset by topic."""
    sent, position, found = b"".join(client.writes), 0, []
    while position < len(sent):
        size = struct.unpack_from(">i", sent, position)[0]
        start = position + 8 + (version >= 9)
        message = ProduceResponse.decode(version, sent[start : position + 4 + size])
        entries = {
            topic.name: (entry.error_code, entry.base_offset)
            for topic in message.responses
            for entry in topic.partition_responses
        }
        found.append(entries)
        position += 4 + size
    return found


def produce(acks: int, *topics: str, version: int = 9) -> bytes:
    request = produce_request(*((topic, 0, batch(b"v")) for topic in topics), acks=acks)
    return framed(request, version, 1)


@pytest.mark.parametrize("acks", [ACKS_ALL, ACKS_LEADER])
@pytest.mark.parametrize("version", [3, 4, 9])
@pytest.mark.parametrize("topics", [(BAD,), (GOOD, BAD)])
def test_a_failed_write_is_told_for_its_partition_alone_in_a_code_the_client_knows(
    broker: InProcessBroker,
    monkeypatch: pytest.MonkeyPatch,
    acks: int,
    version: int,
    topics: tuple[str, ...],
) -> None:
    fail_writes(monkeypatch)
    client = broker.connect()

    client.feed(produce(acks, *topics, version=version))
    broker.turn_until(lambda: bool(client.writes))

    (answer,) = answers(client, version)
    code = ErrorCode.KAFKA_STORAGE_ERROR if version >= 4 else ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert answer == {BAD: (code, -1), **({GOOD: (0, 0)} if GOOD in topics else {})}


def fail_writes(monkeypatch: pytest.MonkeyPatch) -> None:
    """The system call of every write to the log of BAD fails, as on a full disk."""
    write_at = DiskFile.write_at

    def fail(file: DiskFile, buffers: Any, position: int) -> None:
        if f"/{BAD}-0/" in file.path and file.path.endswith(".log"):
            raise OSError(28, "No space left on device")
        write_at(file, buffers, position)

    monkeypatch.setattr(DiskFile, "write_at", fail)


def test_acks_0_closes_when_the_write_fails(
    broker: InProcessBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    fail_writes(monkeypatch)
    client = broker.connect()

    client.feed(produce(ACKS_NONE, BAD))
    broker.turn()

    assert (client.writes, client.transport.closed) == ([], True)


def test_after_a_failed_write_offsets_go_on_where_they_were(
    broker: InProcessBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = broker.connect()
    client.feed(produce(ACKS_LEADER, BAD))
    broker.turn()
    with monkeypatch.context() as broken:
        fail_writes(broken)
        client.feed(produce(ACKS_LEADER, BAD) + produce(ACKS_LEADER, BAD))
        broker.turn()
    broker.turn_until(lambda: not broker.running.broker.disk.full)

    client.feed(produce(ACKS_LEADER, BAD))
    broker.turn()

    codes = [answer[BAD] for answer in answers(client, 9)]
    assert codes == [(0, 0), (56, -1), (56, -1), (0, 1)]


@pytest.mark.parametrize("version", [3, 4, 9])
@pytest.mark.parametrize("topics", [(BAD,), (GOOD, BAD)])
def test_a_failed_sync_is_told_to_those_who_wait_for_it_and_stops_the_log(
    broker: InProcessBroker,
    monkeypatch: pytest.MonkeyPatch,
    topics: tuple[str, ...],
    version: int,
) -> None:
    sync = DiskFile.sync

    def fail(file: DiskFile) -> None:
        if f"/{BAD}-0/" in file.path:
            raise OSError(5, "Input/output error")
        sync(file)

    monkeypatch.setattr(DiskFile, "sync", fail)
    client = broker.connect()

    client.feed(produce(ACKS_ALL, *topics, version=version))
    broker.turn_until(lambda: bool(client.writes))
    client.feed(produce(ACKS_LEADER, *topics, version=version))
    broker.turn()

    first, later = answers(client, version)
    code = ErrorCode.KAFKA_STORAGE_ERROR if version >= 4 else ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert first[BAD] == later[BAD] == (code, -1)
    if GOOD in topics:
        assert (first[GOOD], later[GOOD]) == ((0, 0), (0, 1))


def test_those_who_wait_for_another_topic_are_answered_when_one_is_deleted(
    broker: InProcessBroker,
) -> None:
    client, other = broker.connect(), broker.connect()
    client.feed(produce(ACKS_ALL, GOOD))
    other.feed(produce(ACKS_ALL, BAD))

    topics = broker.running.broker.topics
    run_here(topics.delete(topics.by_name[BAD]))
    broker.turn_until(lambda: bool(client.writes) and bool(other.writes), within_s=2)

    assert answers(client, 9) == [{GOOD: (0, 0)}]
    assert BAD in answers(other, 9)[0]


def test_a_log_that_failed_is_still_read(
    broker: InProcessBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = broker.connect()
    client.feed(produce(ACKS_LEADER, BAD))
    with monkeypatch.context() as broken:
        fail_syncs(broken)
        client.feed(produce(ACKS_ALL, BAD))
        broker.turn_until(lambda: len(client.writes) == 2)
    log = broker.running.broker.directory.logs[BAD, 0]
    assert log.failed is not None

    fetched = fetch(broker, BAD)

    assert fetched[BAD][0] == ErrorCode.NONE
    assert b"v" in fetched[BAD][1]


def fail_syncs(monkeypatch: pytest.MonkeyPatch) -> None:
    sync = DiskFile.sync

    def fail(file: DiskFile) -> None:
        if f"/{BAD}-0/" in file.path:
            raise OSError(errno.EIO, "Input/output error")
        sync(file)

    monkeypatch.setattr(DiskFile, "sync", fail)


def fail_reads(monkeypatch: pytest.MonkeyPatch) -> None:
    pread = DiskFile.pread

    def fail(file: DiskFile, size: int, position: int) -> bytes:
        if f"/{BAD}-0/" in file.path:
            raise OSError(errno.EIO, "Input/output error")
        return pread(file, size, position)

    monkeypatch.setattr(DiskFile, "pread", fail)


def fetch(
    broker: InProcessBroker, *topics: str, offset: int = 0, version: int = 9
) -> dict[str, tuple[int, bytes]]:
    """Of each topic: error code and the bytes of its records."""
    client = broker.connect()
    wanted = [Target(topic, offset) for topic in topics]
    client.feed(framed(fetch_request(*wanted), version, 1))
    broker.turn_until(lambda: bool(client.writes) and not client.connection._sender.busy)
    sent = b"".join(client.writes)
    message = FetchResponse.decode(version, sent[8 + (version >= 12) :])
    return {
        topic.topic: (entry.error_code, bytes(entry.records or b""))
        for topic in message.responses
        for entry in topic.partitions
    }


@pytest.mark.parametrize(("version", "code"), [(5, 6), (9, 56)])
def test_what_cannot_be_read_is_told_for_its_partition_alone_and_stops_its_log(
    broker: InProcessBroker, monkeypatch: pytest.MonkeyPatch, version: int, code: int
) -> None:
    client = broker.connect()
    for _ in range(3):
        client.feed(produce(ACKS_LEADER, GOOD, BAD))
    fail_reads(monkeypatch)

    fetched = fetch(broker, BAD, GOOD, offset=1, version=version)

    assert fetched[BAD] == (code, b"")
    assert fetched[GOOD][0] == ErrorCode.NONE
    assert len(fetched[GOOD][1]) > 0
    logs = broker.running.broker.directory.logs
    assert "read failed" in (logs[BAD, 0].failed or "")
    assert logs[GOOD, 0].failed is None
    page = page_of(broker.running.broker.metric_sources())
    assert "\ntriglot_failed_logs 1\n" in page
    assert f'\ntriglot_failed_log{{topic="{BAD}",partition="0"}} 1\n' in page


def test_a_search_by_time_that_cannot_read_is_told_for_its_partition_alone(
    broker: InProcessBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = broker.connect()
    client.feed(produce(ACKS_LEADER, GOOD, BAD))
    fail_reads(monkeypatch)
    asked = ListOffsetsRequest.Topic.Partition(partition_index=0, timestamp=1)
    topics = [ListOffsetsRequest.Topic(name=name, partitions=[asked]) for name in (BAD, GOOD)]
    other = broker.connect()

    other.feed(framed(ListOffsetsRequest(replica_id=-1, topics=topics), 5, 1))

    message = ListOffsetsResponse.decode(5, b"".join(other.writes)[8:])
    codes = {topic.name: topic.partitions[0].error_code for topic in message.topics}
    assert codes == {BAD: ErrorCode.KAFKA_STORAGE_ERROR, GOOD: ErrorCode.NONE}


def test_records_that_cannot_be_read_when_they_are_sent_end_the_connection(
    broker: InProcessBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = broker.connect()
    client.feed(produce(ACKS_LEADER, BAD))
    assert fetch(broker, BAD, version=12)[BAD][0] == ErrorCode.NONE
    client.feed(produce(ACKS_LEADER, BAD))
    fail_reads(monkeypatch)  # where the second batch is was seen with the first

    client.feed(framed(fetch_request(Target(BAD, 1)), 12, 2))

    broker.turn_until(lambda: client.transport.aborted, within_s=1)


def test_an_index_that_cannot_be_synced_does_not_keep_other_logs_from_being_noted(
    broker: InProcessBroker, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(closing, "INDEX_LAG_ENTRIES", 0)
    client = broker.connect()
    client.feed(produce(ACKS_ALL, GOOD, BAD))
    broker.turn_until(lambda: bool(client.writes))
    logs = broker.running.broker.directory.logs
    fail_syncs(monkeypatch)

    for _ in range(2):
        broker.running.broker.checkpoints.write()
        broker.turn_until(lambda: logs[BAD, 0].failed is not None)
        broker.turn_until(lambda: logs[GOOD, 0].covered_point == 1)
    points = tmp_path / "data" / "recovery-point-offset-checkpoint"

    broker.turn_until(lambda: points.exists() and f"{GOOD} 0 1\n" in points.read_text())
    assert f"{BAD} 0 0\n" in points.read_text()


def test_a_topic_that_could_not_be_made_leaves_nothing_and_can_be_made_later(
    broker: InProcessBroker, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    running = broker.running.broker
    make = running.directory.create_partition

    def fail(topic: Any, number: int, *rest: Any, **more: Any) -> Any:
        if number == 2:
            raise OSError(errno.ENOSPC, "No space left on device")
        return make(topic, number, *rest, **more)

    with monkeypatch.context() as full:
        full.setattr(running.directory, "create_partition", fail)
        with pytest.raises(OSError, match="No space"):
            run_here(running.topics.create("half", 3, {}))
    assert "half" not in running.topics.by_name
    assert running.controller.store.get("half") is None
    assert not list((tmp_path / "data").glob("half-*"))

    topic = run_here(running.topics.create("half", 3, {}))

    assert len(topic.partitions) == 3


def test_topics_made_together_fail_each_by_itself_and_leave_nothing_half_made(
    broker: InProcessBroker, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    running = broker.running.broker
    make = running.directory.create_partition
    wanted = [NewTopic(f"t{number}", 2, {}) for number in range(5)]

    def fail(topic: Any, number: int, *rest: Any, **more: Any) -> Any:
        if topic.name in ("t1", "t3") and number == 1:
            raise OSError(errno.ENOSPC, "No space left on device")
        return make(topic, number, *rest, **more)

    with monkeypatch.context() as full:
        full.setattr(running.directory, "create_partition", fail)
        made = run_here(running.topics.create_all(wanted))

    there = ["t0", "t2", "t4"]
    assert [isinstance(one, OSError) for one in made] == [False, True, False, True, False]
    assert [name for name in running.topics.by_name if name.startswith("t")] == there
    store = running.controller.store
    assert [topic.name for topic in store.topics() if topic.name.startswith("t")] == there
    assert list(store.deleted()) == []
    folders = sorted(path.name for path in (tmp_path / "data").glob("t?-*"))
    assert folders == [f"{name}-{number}" for name in there for number in range(2)]

    again = run_here(running.topics.create_all([wanted[1], wanted[3]]))

    assert [len(topic.partitions) for topic in again if isinstance(topic, Topic)] == [2, 2]


def test_topics_are_not_made_where_the_metadata_log_can_not_be_written(
    broker: InProcessBroker, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    running = broker.running.broker
    wanted = [NewTopic(f"t{number}", 2, {}) for number in range(3)]

    def fail(*_: Any, **__: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as full:
        full.setattr(running.controller.store.log, "_write", fail)
        with pytest.raises(OSError, match="No space"):
            run_here(running.topics.create_all(wanted))

    assert not any(one.name in running.topics.by_name for one in wanted)
    assert not list((tmp_path / "data").glob("t?-*"))
    assert len(run_here(running.topics.create_all(wanted))) == 3


def test_topics_deleted_together_go_even_if_the_folders_of_one_can_not_be_renamed(
    broker: InProcessBroker, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    running = broker.running.broker
    made = run_here(running.topics.create_all([NewTopic(f"t{n}", 2, {}) for n in range(3)]))
    topics = [one for one in made if isinstance(one, Topic)]
    rename = DiskFilesystem.rename

    def fail(files: DiskFilesystem, old: str, new: str) -> None:
        if "/t1-1" in old:
            raise OSError(errno.EIO, "Input/output error")
        rename(files, old, new)

    with monkeypatch.context() as broken:
        broken.setattr(DiskFilesystem, "rename", fail)
        gone = run_here(running.topics.delete_all(topics))

    assert [isinstance(one, OSError) for one in gone] == [False, True, False]
    assert not any(topic.name in running.topics.by_name for topic in topics)
    assert [topic.name for topic in running.controller.store.deleted()] == ["t1"]
    assert [path.name for path in (tmp_path / "data").glob("t?-?")] == ["t1-1"]

    again = run_here(running.topics.create("t1", 2, {}))  # what is left of the old one goes

    assert again.partitions[1].log.next_offset == 0


def test_a_topic_that_could_not_grow_is_given_its_partitions_later(
    broker: InProcessBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    running = broker.running.broker
    topic = run_here(running.topics.create("small", 1, {}))
    make = running.directory.create_partition

    def fail(stored: Any, number: int, *rest: Any, **more: Any) -> Any:
        if number == 2:
            raise OSError(errno.ENOSPC, "No space left on device")
        return make(stored, number, *rest, **more)

    with monkeypatch.context() as full:
        full.setattr(running.directory, "create_partition", fail)
        with pytest.raises(OSError, match="No space"):
            run_here(running.topics.grow(topic, 3))
    assert len(topic.partitions) == 2

    run_here(running.topics.grow(topic, 3))

    assert len(topic.partitions) == 3


def test_a_topic_is_deleted_although_the_checkpoints_have_no_room(
    broker: InProcessBroker, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    running = broker.running.broker
    client = broker.connect()
    client.feed(produce(ACKS_ALL, BAD))
    broker.turn_until(lambda: bool(client.writes))
    put = CheckpointFile.put

    def fail(file: CheckpointFile, data: bytes, serial: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as full:
        full.setattr(CheckpointFile, "put", fail)
        run_here(running.topics.delete(running.topics.by_name[BAD]))
        with pytest.raises(OSError, match="No space"):
            run_here(running.topics.create(BAD, 1, {}))
    assert [one.name for one in (tmp_path / "data").glob(f"{BAD}-0.*-delete")]
    assert put is CheckpointFile.put

    run_here(running.topics.create(BAD, 1, {}))

    for name in ("recovery-point", "replication"):
        text = (tmp_path / "data" / f"{name}-offset-checkpoint").read_text()
        assert f"{BAD} 0 1" not in text, "the new topic must not take the old one's offsets"
