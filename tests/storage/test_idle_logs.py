"""Logs that nobody has appended to since the last clean stop, at a start after a crash."""

from __future__ import annotations

from tests.storage.logs import NOW_MS, batches_in, everything, produce
from tests.storage.test_data_dir import SIX, Start, offsets
from tests.support.memory_filesystem import MemoryFilesystem


def test_after_a_crash_logs_that_were_idle_since_the_last_clean_stop_are_not_read() -> None:
    files = MemoryFilesystem()
    start = Start(files)
    for name in ("orders", "idle", "rolled"):
        start.create(name)
        start.fill(name)
    assert start.directory.close()
    start = Start(files)
    start.fill("orders", count=1)
    start.directory.logs["rolled", 0].roll(now_ms=NOW_MS)
    files.locked.clear()
    files.reads.clear()

    start = Start(files)

    assert start.reports == []
    read = {path.split("/")[2] for path, _, _ in files.reads if path.endswith((".log", "index"))}
    assert read - {"__cluster_metadata-0"} == {"orders-0", "rolled-0"}
    assert offsets(start) == [*SIX, (12, 13)]
    idle = start.directory.logs["idle", 0]
    produce(idle, b"next")
    assert batches_in(everything(idle)) == [*SIX, (12, 12)]


def test_after_a_crash_nothing_is_believed_of_a_deleted_topic_that_had_the_name() -> None:
    files = MemoryFilesystem()
    start = Start(files)
    start.create("orders")
    produce(start.directory.logs["orders", 0], bytes(60), b"second")
    assert start.directory.close()
    start = Start(files)
    start.directory.delete_topic(start.topics.remove("orders"))
    start.create("orders")
    log = start.directory.logs["orders", 0]
    size = log.active.byte_size()
    start.fill(count=1)
    files.locked.clear()
    files.reads.clear()

    start = Start(files)

    assert size == 0
    assert any(path == f"{log.folder}/{0:020d}.log" for path, _, _ in files.reads)
    assert offsets(start) == SIX[:1]
