"""A write or a sync that fails: who is told, with which code, and what can still be read."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any

import pytest

from protocol.errors import ErrorCode
from protocol.messages.produce import ProduceResponse
from storage.filesystem import DiskFile
from tests.broker.test_connection import framed
from tests.support.caller import batch, produce_request
from tests.support.fake_connection import FakeClient, InProcessBroker

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

ACKS_ALL, ACKS_NONE, ACKS_LEADER = -1, 0, 1
GOOD, BAD = "good", "bad"


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[InProcessBroker]:
    with InProcessBroker(tmp_path / "data") as running:
        for name in (GOOD, BAD):
            running.running.broker.topics.create(name, 1, {}, now_ms=0)
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

    assert (client.writes, client.transport.closed) == ([], True)


def test_after_a_failed_write_offsets_go_on_where_they_were(
    broker: InProcessBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = broker.connect()
    client.feed(produce(ACKS_LEADER, BAD))
    with monkeypatch.context() as broken:
        fail_writes(broken)
        client.feed(produce(ACKS_LEADER, BAD) + produce(ACKS_LEADER, BAD))

    client.feed(produce(ACKS_LEADER, BAD))

    codes = [answer[BAD] for answer in answers(client, 9)]
    assert codes == [(0, 0), (56, -1), (56, -1), (0, 1)]


@pytest.mark.parametrize("topics", [(BAD,), (GOOD, BAD)])
def test_a_failed_sync_is_told_to_those_who_wait_for_it_and_stops_the_log(
    broker: InProcessBroker, monkeypatch: pytest.MonkeyPatch, topics: tuple[str, ...]
) -> None:
    sync = DiskFile.sync

    def fail(file: DiskFile) -> None:
        if f"/{BAD}-0/" in file.path:
            raise OSError(5, "Input/output error")
        sync(file)

    monkeypatch.setattr(DiskFile, "sync", fail)
    client = broker.connect()

    client.feed(produce(ACKS_ALL, *topics))
    broker.turn_until(lambda: bool(client.writes))
    client.feed(produce(ACKS_LEADER, *topics))

    first, later = answers(client, 9)
    assert first[BAD] == later[BAD] == (56, -1)
    if GOOD in topics:
        assert (first[GOOD], later[GOOD]) == ((0, 0), (0, 1))


def test_those_who_wait_for_another_topic_are_answered_when_one_is_deleted(
    broker: InProcessBroker,
) -> None:
    client, other = broker.connect(), broker.connect()
    client.feed(produce(ACKS_ALL, GOOD))
    other.feed(produce(ACKS_ALL, BAD))

    topics = broker.running.broker.topics
    topics.delete(topics.by_name[BAD])
    broker.turn_until(lambda: bool(client.writes) and bool(other.writes), within_s=2)

    assert answers(client, 9) == [{GOOD: (0, 0)}]
    assert BAD in answers(other, 9)[0]
