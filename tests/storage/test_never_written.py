"""A partition that was never written to has a folder with its topic's id, and no segment's files.

The log file comes with the first batch, the index files with their first entries or a clean stop.
"""

from __future__ import annotations

import errno
import random
from contextlib import suppress

import pytest

from storage.data_dir import DataDirectory
from storage.errors import StorageError
from storage.layout import INDEX, LEADER_EPOCHS, LOG, PARTITION_METADATA, TIME_INDEX, file_name
from storage.reports import RecoveryReport
from tests.storage.inspection.directories import findings
from tests.storage.logs import NOW_MS, Settings, batches_in, everything, produce
from tests.support.memory_filesystem import MemoryFilesystem, PowerCut
from tests.support.topic_store import open_topics

PATH = "/data"
FOLDER = f"{PATH}/orders-0"
SETTINGS = Settings(index_interval_bytes=100)


class Broker:
    """What a broker does with a data directory of one topic of one partition."""

    def __init__(self, files: MemoryFilesystem) -> None:
        self.files = files
        self.count = 0
        self.directory = DataDirectory.take(files, PATH, node_id=1, new_uuid=self.new_uuid)
        self.topics = open_topics(files, PATH)
        self.reports: list[RecoveryReport] = self.directory.open_logs(
            self.topics, lambda _: SETTINGS, now_ms=NOW_MS
        )

    def new_uuid(self) -> bytes:
        self.count += 1
        return self.count.to_bytes(16, "big")

    def create(self) -> None:
        topic = self.topics.create("orders", self.new_uuid(), 1, {})
        folders = self.directory.new_folders(topic, 0)
        folders.make()
        self.directory.create_partition(topic, 0, SETTINGS, now_ms=NOW_MS, folders=folders)
        self.log = self.directory.logs["orders", 0]

    def names(self) -> set[str]:
        return set(self.files.list_dir(FOLDER))


def created() -> Broker:
    broker = Broker(MemoryFilesystem())
    broker.create()
    return broker


def started(files: MemoryFilesystem) -> Broker:
    broker = Broker(files)
    broker.log = broker.directory.logs["orders", 0]
    return broker


def test_a_new_partition_has_no_segment_and_is_read_as_empty() -> None:
    broker = created()

    assert broker.names() == {PARTITION_METADATA}
    assert broker.log.read(0, 1000) is None
    assert broker.log.offset_for_timestamp(0) is None
    assert broker.log.offsets_before(NOW_MS, 10, now_ms=NOW_MS) == [0]
    assert broker.names() == {PARTITION_METADATA}


def test_the_first_batch_makes_the_log_file_and_a_clean_stop_the_indexes() -> None:
    broker = created()

    produce(broker.log, b"a")
    assert broker.names() == {PARTITION_METADATA, file_name(0, LOG)}

    assert broker.directory.close()
    made = {file_name(0, suffix) for suffix in (LOG, INDEX, TIME_INDEX)}
    assert broker.names() >= {PARTITION_METADATA, LEADER_EPOCHS, *made}


def test_a_clean_stop_and_a_start_make_no_files_either() -> None:
    broker = created()
    for _ in range(3):
        assert broker.directory.close()
        broker = started(broker.files)
        assert broker.reports == []
        assert broker.names() == {PARTITION_METADATA}
    produce(broker.log, b"a")
    assert broker.directory.close()
    broker = started(broker.files)

    assert broker.reports == []
    assert batches_in(everything(broker.log)) == [(0, 0)]


def test_a_check_finds_nothing_wrong_with_it() -> None:
    broker = created()
    assert broker.directory.close()

    assert findings(broker.files, PATH) == []


def test_a_sync_before_the_first_batch_does_not_stand_for_the_name_of_its_file() -> None:
    broker = created()
    broker.log.sync()
    produce(broker.log, b"a")
    broker.log.sync()

    for seed in range(20):
        after = started(broker.files.power_cut(random.Random(seed)))
        assert batches_in(everything(after.log)) == [(0, 0)]


def test_what_is_acknowledged_stays_wherever_the_power_fails() -> None:
    at_first = created().files.count
    for cut in range(at_first, at_first + 40):
        for seed in range(5):
            broker = created()
            broker.files.cut_at = cut
            acknowledged = 0
            with suppress(PowerCut):
                for _ in range(2):
                    produce(broker.log, b"a")
                    broker.log.sync()
                    acknowledged += 1
                broker.directory.close()
            after = started(broker.files.power_cut(random.Random(seed)))
            found = batches_in(everything(after.log))
            assert found == [(0, 0), (1, 1)][: len(found)]
            assert len(found) >= acknowledged
            produce(after.log, b"b")
            after.log.sync()


@pytest.mark.parametrize("call", [0, 1], ids=["create", "write"])
def test_a_disk_that_refuses_the_file_or_the_batch_costs_that_batch(call: int) -> None:
    broker = created()
    files = broker.files
    files.faults = {files.count + call: errno.ENOSPC}
    with pytest.raises(StorageError):
        produce(broker.log, b"lost")
    files.faults = {}
    assert broker.log.failed is None

    assert broker.directory.close()
    broker = started(files)
    assert broker.reports == []
    produce(broker.log, b"a")
    broker.log.sync()
    after = started(files.power_cut(random.Random(3)))
    assert batches_in(everything(after.log)) == [(0, 0)]
