"""Fetch and ListOffsets for readers of committed records, in every version that has them.

Nobody can end a transaction over the wire yet, so the log is written into the data directory of a
broker that does not run.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import pytest

from protocol.messages.list_offsets import ListOffsetsRequest
from protocol.records.compression import GZIP, ZSTD
from protocol.records.layout import HEADER
from storage.disk import DiskFilesystem
from storage.recovery import open_log
from tests.storage.logs import Settings
from tests.support.broker_process import BrokerProcess
from tests.support.caller import NOW_MS, Caller, Target, batch, fetch_request, records_in

if TYPE_CHECKING:
    from collections.abc import Iterator

    from storage.log import Log

TOPIC = "payments"
READ_COMMITTED = 1
FETCH_VERSIONS = range(4, 19)

#: Offsets: 0 plain; 1 a, aborted at 3 with 2; 4 b, committed at 6 with 5; 7 a, aborted at 9; 8 b,
#: open; 10 plain. All batches are of codec zstd, which Fetch below v10 cannot read.
STABLE, END = 8, 11
ABORTED = {1: 1, 2: 1, 7: 7}


class Aborted(NamedTuple):
    producer_id: int
    first_offset: int


def write(log: Log) -> None:
    def add(producer_id: int, sequence: int) -> None:
        raw = bytearray(
            batch(
                b"%d" % log.next_offset,
                codec=ZSTD,
                producer_id=producer_id,
                producer_epoch=0 if producer_id >= 0 else -1,
                base_sequence=sequence,
                transactional=producer_id >= 0,
            )
        )
        log.append(memoryview(raw), HEADER.unpack_from(raw), now_ms=NOW_MS)

    def end(producer_id: int, *, commit: bool) -> None:
        log.append_marker(producer_id, 0, commit=commit, coordinator_epoch=0, now_ms=NOW_MS)

    a, b = 70, 71
    add(-1, -1)
    add(a, 0)
    add(a, 1)
    end(a, commit=False)
    add(b, 0)
    add(b, 1)
    end(b, commit=True)
    add(a, 2)
    add(b, 2)
    end(a, commit=False)
    add(-1, -1)
    log.write()


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    process = BrokerProcess(tmp_path_factory.mktemp("committed") / "data")
    process.start()
    with Caller(process.host, process.port) as caller:
        caller.create_topic(TOPIC)
    process.stop()
    log, _ = open_log(DiskFilesystem(), str(process.data / f"{TOPIC}-0"), Settings())
    write(log)
    assert log.close(clean=True) is not None
    with process:
        yield process


@pytest.mark.parametrize("version", FETCH_VERSIONS)
@pytest.mark.parametrize("offset", range(END + 1))
def test_a_reader_gets_what_is_stable_and_is_told_what_of_it_was_aborted(
    caller: Caller, version: int, offset: int
) -> None:
    found = caller.fetch(TOPIC, offset, version=version, isolation_level=READ_COMMITTED)

    assert (found.error_code, found.high_watermark, found.last_stable_offset) == (0, END, STABLE)
    offsets = [at for at, _ in records_in(found.records)]
    assert offsets == list(range(offset, STABLE))[: len(offsets)]
    if version >= 10:
        assert len(offsets) == max(STABLE - offset, 0)
    else:  # an answer has entries as they are stored or entries made anew, never both
        assert offsets or offset >= STABLE
    assert found.aborted_transactions is not None
    told = [Aborted(one.producer_id, one.first_offset) for one in found.aborted_transactions]
    firsts = sorted({first for at, first in ABORTED.items() if at in offsets})
    needed = [Aborted(70, first) for first in firsts]
    assert [one for one in told if one in needed] == needed
    # Of a transaction of which only the marker is still to come it may be told as well.
    assert set(told) <= {Aborted(70, 1), Aborted(70, 7)}
    if offset >= STABLE:
        assert told == []


@pytest.mark.parametrize("version", FETCH_VERSIONS)
@pytest.mark.parametrize("offset", range(END + 1))
def test_a_reader_of_several_partitions_is_told_the_same_as_one_of_a_single_partition(
    caller: Caller, version: int, offset: int
) -> None:
    one = caller.fetch(TOPIC, offset, version=version, isolation_level=READ_COMMITTED)
    named = caller.topic_id(TOPIC) if version >= 13 else TOPIC
    wanted = [Target(named, offset, index) for index in (0, 1)]

    answer = caller.call(fetch_request(*wanted, isolation_level=READ_COMMITTED), version)

    first, second = sorted(answer.responses[0].partitions, key=lambda each: each.partition_index)
    assert first == one
    assert (second.error_code, second.partition_index) == (3, 1)


@pytest.mark.parametrize("version", FETCH_VERSIONS)
def test_others_get_everything_and_are_told_of_nothing(caller: Caller, version: int) -> None:
    found = caller.fetch(TOPIC, version=version)

    assert [at for at, _ in records_in(found.records)] == list(range(END))
    assert found.aborted_transactions is None
    assert found.last_stable_offset == STABLE


@pytest.mark.parametrize("version", FETCH_VERSIONS)
def test_a_small_answer_is_told_of_no_more_than_it_needs(caller: Caller, version: int) -> None:
    found = caller.fetch(TOPIC, 0, version=version, isolation_level=READ_COMMITTED, max_bytes=1)

    assert [at for at, _ in records_in(found.records)] == [0]
    if version < 10:  # made anew as gzip, so where it ends is known exactly
        assert found.records[22] & 7 == GZIP
        assert found.aborted_transactions == []


@pytest.mark.parametrize("version", range(2, 12))
def test_the_latest_offset_is_the_last_stable_one(caller: Caller, version: int) -> None:
    asked = ListOffsetsRequest.Topic.Partition(partition_index=0, timestamp=-1)
    topics = [ListOffsetsRequest.Topic(name=TOPIC, partitions=[asked])]
    for level, latest in ((0, END), (READ_COMMITTED, STABLE)):
        request = ListOffsetsRequest(replica_id=-1, isolation_level=level, topics=topics)
        answer = caller.call(request, version).topics[0].partitions[0]
        assert (answer.error_code, answer.offset) == (0, latest)
