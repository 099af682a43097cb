"""Log starts that are raised on request, with a disk that takes them or does not."""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING

import pytest

from protocol.errors import ErrorCode
from protocol.messages.delete_records import DeleteRecordsRequest, DeleteRecordsResponse
from storage.checkpoints import decode_offsets
from storage.disk import DiskFilesystem
from storage.steps import run_here
from tests.broker.network.test_connection import framed
from tests.broker.producing.test_failing_disk import ACKS_LEADER, BAD, GOOD, fetch, produce
from tests.support.fake_connection import InProcessBroker

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from broker.partitions.topic import Partition


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[InProcessBroker]:
    with InProcessBroker(tmp_path / "data") as running:
        for name in (GOOD, BAD):
            run_here(running.running.broker.topics.create(name, 1, {}))
        yield running


def delete_records(broker: InProcessBroker, *topics: str) -> dict[str, tuple[int, int]]:
    """Delete all records of each topic: error code and low watermark."""
    asked = DeleteRecordsRequest.Topic.Partition(partition_index=0, offset=-1)
    request = DeleteRecordsRequest(
        topics=[DeleteRecordsRequest.Topic(name=name, partitions=[asked]) for name in topics],
        timeout_ms=0,
    )
    client = broker.connect()
    client.feed(framed(request, 1, 1))
    broker.turn_until(lambda: bool(client.writes))
    message = DeleteRecordsResponse.decode(1, b"".join(client.writes)[8:])
    return {
        topic.name: (entry.error_code, entry.low_watermark)
        for topic in message.topics
        for entry in topic.partitions
    }


def fail_log_starts(monkeypatch: pytest.MonkeyPatch, *, renamed: bool) -> None:
    """The checkpoint of the log starts can't be written, before or after its name is changed."""
    write_atomic = DiskFilesystem.write_atomic

    def fail(files: DiskFilesystem, path: str, data: bytes) -> None:
        if not path.endswith("/log-start-offset-checkpoint"):
            write_atomic(files, path, data)
            return
        if renamed:
            write_atomic(files, path, data)
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(DiskFilesystem, "write_atomic", fail)


@pytest.mark.parametrize("renamed", [False, True])
def test_a_deletion_of_records_that_is_answered_with_an_error_has_no_effect(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, renamed: bool
) -> None:
    with InProcessBroker(tmp_path / "data") as broker:
        run_here(broker.running.broker.topics.create(GOOD, 1, {}))
        client = broker.connect()
        for _ in range(2):
            client.feed(produce(ACKS_LEADER, GOOD))
        with monkeypatch.context() as full:
            fail_log_starts(full, renamed=renamed)

            assert delete_records(broker, GOOD) == {GOOD: (ErrorCode.KAFKA_STORAGE_ERROR, -1)}

        assert broker.running.broker.directory.logs[GOOD, 0].start_offset == 0
        code, records = fetch(broker, GOOD)[GOOD]
        assert (code, records.count(b"v")) == (ErrorCode.NONE, 2)
    with InProcessBroker(tmp_path / "data") as broker:
        assert fetch(broker, GOOD)[GOOD][0] == ErrorCode.NONE, "nor after a restart"
        assert delete_records(broker, GOOD) == {GOOD: (ErrorCode.NONE, 2)}
        assert fetch(broker, GOOD)[GOOD][0] == ErrorCode.OFFSET_OUT_OF_RANGE


def test_deletions_of_records_that_come_together_are_answered_each_and_stored(
    broker: InProcessBroker, tmp_path: Path
) -> None:
    client = broker.connect()
    client.feed(produce(ACKS_LEADER, GOOD, BAD))
    raised: list[dict[Partition, str]] = []
    parts = {name: broker.running.broker.topics.by_name[name].partitions[0] for name in (GOOD, BAD)}

    for name in (GOOD, BAD, GOOD):
        broker.running.broker.log_starts.raise_to({parts[name]: 1}, raised.append)
    broker.turn_until(lambda: len(raised) == 3)

    assert raised == [{}] * 3
    assert [one.log.start_offset for one in parts.values()] == [1, 1]
    noted = (tmp_path / "data/log-start-offset-checkpoint").read_bytes()
    assert decode_offsets(noted, "noted") == {(BAD, 0): 1, (GOOD, 0): 1}
