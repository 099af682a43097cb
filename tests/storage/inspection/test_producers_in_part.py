"""Producer snapshots of logs whose past nobody has whole any more: what a start could not know, and
what compaction took, is no damage."""

from __future__ import annotations

from typing import TYPE_CHECKING

from protocol.records.builder import build_batch
from storage.cleaning.cleaning import Cleaning
from storage.cleaning.plan import CleaningLag, CleaningRules, plan_cleaning
from storage.data_dir import DataDirectory
from storage.inspection.producer_watch import Known, read_snapshot, write_snapshot
from storage.layout import LOG_STARTS, SNAPSHOT, file_name
from storage.replacing import cover_sealed
from tests.storage.inspection.directories import (
    ORDERS,
    TOP,
    contents_in,
    errors,
    ids,
    in_memory,
)
from tests.storage.logs import NOW_MS, Settings, append, batch, drop_below_start
from tests.support.memory_filesystem import MemoryFilesystem
from tests.support.replacement import replace_segments
from tests.support.topic_store import open_topics

if TYPE_CHECKING:
    from storage.log import Log

NO_LAG_LIMIT_MS = 2**63 - 1
PRODUCER = 0
RULES = CleaningRules(
    segment_bytes=1 << 20,
    segment_index_bytes=1 << 20,
    index_interval_bytes=4096,
    max_message_bytes=1 << 20,
    delete_retention_ms=0,
    map_bytes=1 << 20,
    max_decompressed_bytes=1 << 20,
    max_decompression_ratio=1000,
)


def new_directory() -> tuple[DataDirectory, Log]:
    """With one partition, `orders` 0, whose topic has no settings of its own."""
    files = MemoryFilesystem()
    directory = DataDirectory.take(files, TOP, node_id=1, new_uuid=ids())
    topics = open_topics(files, TOP)
    topics.begin_epoch()
    topics.next_producer_id()
    directory.open_logs(topics, lambda _: Settings(), now_ms=NOW_MS)
    topic = topics.create("orders", ids(500)(), 1, {})
    return directory, directory.create_partition(topic, 0, Settings(), now_ms=NOW_MS)


def snapshot_of(files: MemoryFilesystem, offset: int) -> Known:
    name = file_name(offset, SNAPSHOT)
    return read_snapshot(files.read_bytes(f"{ORDERS}/{name}"), name)[PRODUCER]


def test_a_marker_above_the_log_start_may_be_all_that_is_known_of_a_producer() -> None:
    # Given a transaction whose records lie below the log start, and its marker above
    directory, log = new_directory()
    append(log, batch(b"a", b"b", timestamp_ms=NOW_MS, producer=(0, 0, 0), transactional=True))
    log.append_marker(PRODUCER, 0, commit=True, coordinator_epoch=0, now_ms=NOW_MS)
    log.raise_start(2)
    assert directory.close()
    files = log.files
    assert isinstance(files, MemoryFilesystem)

    # When the snapshot is one of Apache Kafka, which reads from the log start on
    known = snapshot_of(files, 3)
    assert known.last_offset == 1
    known.sequence = known.last_offset = -1
    known.delta = 0
    files.write_bytes(f"{ORDERS}/{file_name(3, SNAPSHOT)}", write_snapshot({PRODUCER: known}))

    # Then there is nothing to find; above the log start the same is an error
    assert errors(files) == []
    files.remove(f"{TOP}/{LOG_STARTS}")
    assert [found.file for found in errors(files)] == [file_name(3, SNAPSHOT)]


def test_batches_that_an_unfinished_compaction_joined_are_not_missed() -> None:
    # Given a log that begins with a snapshot, and a later one, of a producer that is forgotten
    directory, log = new_directory()
    files = log.files
    assert isinstance(files, MemoryFilesystem)
    for sequence in range(3):
        records = [(NOW_MS, b"k%d" % sequence, b"v", ())]
        append(
            log,
            bytearray(
                build_batch(records, producer_id=0, producer_epoch=0, base_sequence=sequence)
            ),
        )
        if sequence != 1:
            log.roll(now_ms=NOW_MS)
    append(log, batch(b"of nobody", timestamp_ms=NOW_MS))
    log.sync()
    log.raise_start(1)
    drop_below_start(log)
    for now_ms in (NOW_MS, NOW_MS + 1000):
        log.producers.expire(now_ms=now_ms, after_ms=1000)
    assert PRODUCER not in log.producers

    # When compaction joins its batches and ends before it notes how far it has been
    plan = plan_cleaning(log, RULES, CleaningLag(0, NO_LAG_LIMIT_MS, 0.0), now_ms=NOW_MS + 1000)
    assert plan is not None
    cover_sealed(log)
    log.sync()
    for step in directory.checkpoints.gaps(log, plan.end):
        step.sync()
    for group in Cleaning(files, plan).groups():
        assert replace_segments(log, group)
    assert directory.close()
    assert snapshot_of(files, 3).last_offset == 2

    # Then there is nothing to find; a snapshot that is ahead of where compaction was is one
    assert errors(files) == []
    spoilt = in_memory(contents_in(files))
    name = f"{ORDERS}/{file_name(3, SNAPSHOT)}"
    known = snapshot_of(files, 3)
    known.last_offset = 3
    spoilt.write_bytes(name, write_snapshot({PRODUCER: known}))
    assert [found.file for found in errors(spoilt)] == [file_name(3, SNAPSHOT)]
