"""Stopped data directories, read without a broker: ours, Apache Kafka's, torn and damaged ones."""

from __future__ import annotations

import json
import os
import pickle
import shutil
import struct
import tarfile
from base64 import b64encode
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from client.cluster import EARLIEST, LATEST, Cluster, OffsetOutOfRange, TopicPartition
from pipeline.errors import CorruptData, NoSuchTopic, WrongUse
from pipeline.reading import stored_log
from pipeline.reading.data_directory import DataDirectory
from pipeline.reading.overlay import Overlay, OverlayFile
from pipeline.reading.plan import Range, ending_offsets
from pipeline.reading.ranges import LeftOut, read_range, records_of
from protocol.records.batch import Batch
from protocol.records.builder import build_batch
from protocol.records.layout import CONTROL_BIT
from protocol.records.legacy import build_messages
from protocol.records.walk import walk
from storage import recovery
from storage.locking import DiskLock
from tests.storage.logs import decoded, vectors
from tests.support.broker_process import BrokerProcess

if TYPE_CHECKING:
    from collections.abc import Iterator

ARCHIVES = Path(__file__).parents[1] / "storage" / "kafka_killed"
KILLED = sorted(path.name.removesuffix(".tar.xz") for path in ARCHIVES.glob("*.tar.xz"))
ORDERS = TopicPartition("orders", 0)
BATCHES, RECORDS = 60, 10
"""In orders-0 of our own directory: batches, and records in each."""
VALUE = b"x" * 100

Json = dict[str, Any]


def contents(folder: Path) -> dict[str, tuple[int, bytes]]:
    """All files with time and content, to see that none is touched."""
    return {
        str(path.relative_to(folder)): (path.stat().st_mtime_ns, path.read_bytes())
        for path in folder.rglob("*")
        if path.is_file()
    }


@pytest.fixture(scope="module")
def killed_and_stopped(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path, str]:
    """One directory of ours twice, as a kill left it and as a clean stop did; and its cluster."""
    folder = tmp_path_factory.mktemp("ours")
    broker = BrokerProcess(folder / "stopped", settings={"log.segment.bytes": "20000"})
    with broker, Cluster(broker.bootstrap) as cluster:
        cluster.create_topic("orders", 2)
        cluster.create_topic("items", 1, {"message.format.version": "0.10.0"})
        for number in range(BATCHES):
            rows = [(1000 * number + index, None, VALUE, ()) for index in range(RECORDS)]
            cluster.produce(ORDERS, [build_batch(rows)])
        old = build_messages([(5000, None, b"old", ())] * 3, magic=1, codec=1)
        cluster.produce(TopicPartition("items", 0), [old], magic=1)
        told = cluster.cluster_id()
        assert told
        broker.kill()
        shutil.copytree(folder / "stopped", folder / "killed")
        broker.start()
        broker.stop()
    return folder / "killed", folder / "stopped", told


@pytest.fixture
def ours(killed_and_stopped: tuple[Path, Path, str], tmp_path: Path) -> Path:
    """A clean directory of ours, to be spoilt."""
    return Path(shutil.copytree(killed_and_stopped[1], tmp_path / "data"))


def everything(directory: DataDirectory, partition: TopicPartition) -> Iterator[memoryview]:
    """All entries from start to end."""
    start, end = (directory.offsets([partition], which)[partition] for which in (EARLIEST, LATEST))
    for chunk in read_range(directory, Range(*partition, start, end), patience_s=0):
        for at, size, _ in walk(chunk.entries):
            yield chunk.entries[at : at + size]


def base_offsets(directory: DataDirectory, partition: TopicPartition = ORDERS) -> list[int]:
    return [Batch(entry).base_offset for entry in everything(directory, partition)]


# Ours


@pytest.mark.parametrize("which", [0, 1], ids=["killed", "stopped"])
def test_a_directory_of_ours_is_read_and_not_changed(
    killed_and_stopped: tuple[Path, Path, str], which: int
) -> None:
    path = (killed_and_stopped[0], killed_and_stopped[1])[which]
    before = contents(path)
    with DataDirectory(str(path)) as directory:
        assert directory.topics() == {"items": 1, "orders": 2}
        partitions = directory.partitions(["orders"])
        assert partitions == [ORDERS, TopicPartition("orders", 1)]
        empty = dict.fromkeys(partitions, 0)
        assert directory.offsets(partitions, EARLIEST) == empty
        assert directory.offsets(partitions, LATEST) == empty | {ORDERS: BATCHES * RECORDS}
        assert base_offsets(directory) == list(range(0, BATCHES * RECORDS, RECORDS))
        [wrapper] = everything(directory, TopicPartition("items", 0))
        assert wrapper[16] == 1
        assert directory.cluster_id() == killed_and_stopped[2]
    assert contents(path) == before


def test_one_that_may_not_be_written_to_is_read(ours: Path) -> None:
    for path in (*ours.rglob("*"), ours):
        path.chmod(0o555 if path.is_dir() else 0o444)
    try:
        with DataDirectory(str(ours)) as directory:
            assert len(base_offsets(directory)) == BATCHES
    finally:
        for path in (ours, *ours.rglob("*")):
            path.chmod(0o755 if path.is_dir() else 0o644)


def test_a_time_is_looked_up(ours: Path) -> None:
    with DataDirectory(str(ours)) as directory:
        for asked, found in ((0, 0), (7_000, 70), (7_001, 71), (7_500, 80), (99_999_999, 600)):
            assert directory.offsets([ORDERS], asked) == {ORDERS: found}


def test_a_fetch_begins_with_the_entry_that_has_the_offset(ours: Path) -> None:
    with DataDirectory(str(ours)) as directory:
        fetched = directory.fetch(ORDERS, 155, max_bytes=1)
        assert Batch(fetched.entries).base_offset == 150
        assert (fetched.high_watermark, fetched.log_start_offset) == (600, 0)
        assert fetched.last_stable_offset == 600
        assert len(directory.fetch(ORDERS, 600).entries) == 0
        for outside in (-1, 601):
            with pytest.raises(OffsetOutOfRange):
                directory.fetch(ORDERS, outside)


def test_a_pickled_one_reads_the_same(ours: Path) -> None:
    directory = DataDirectory(str(ours))
    found = base_offsets(directory)
    copy: DataDirectory = pickle.loads(pickle.dumps(directory))
    assert base_offsets(copy) == found
    shutil.rmtree(ours)
    lost: DataDirectory = pickle.loads(pickle.dumps(directory))
    with pytest.raises(WrongUse, match="is no folder on this machine"):
        lost.topics()


def test_few_files_are_open_however_many_segments_there_are(ours: Path) -> None:
    with DataDirectory(str(ours)) as directory:
        before = len(os.listdir("/proc/self/fd"))  # noqa: PTH208
        assert len(list((ours / "orders-0").glob("*.log"))) > 3
        base_offsets(directory)
        assert len(os.listdir("/proc/self/fd")) <= before + 2  # noqa: PTH208


def test_the_settings_of_topics_are_those_of_the_metadata_log(ours: Path) -> None:
    with DataDirectory(str(ours)) as directory:
        assert directory.topic_configs("orders") == {}
        assert directory.topic_configs("items", own=True) == {"message.format.version": "0.10.0"}
        with pytest.raises(NoSuchTopic, match="did you mean 'items'"):
            directory.topic_configs("item")
    [snapshot] = (ours / "__cluster_metadata-0").glob("*.checkpoint")
    snapshot.write_bytes(snapshot.read_bytes()[:-1])
    with DataDirectory(str(ours)) as directory:
        assert directory.topics()
        with pytest.raises(CorruptData, match=r"checkpoint.*restore it from a copy"):
            directory.topic_configs("items")
    shutil.rmtree(ours / "__cluster_metadata-0")
    assert DataDirectory(str(ours)).topic_configs("items") == {}


# What a crash leaves


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The folders of the logs that are opened, and not had from those that are kept."""
    folders: list[str] = []

    def open_log(files: Overlay, folder: str, *rest: Any, **named: Any) -> Any:
        folders.append(Path(folder).name)
        return recovery.open_log(files, folder, *rest, **named)

    monkeypatch.setattr(stored_log, "open_log", open_log)
    return folders


def test_a_process_looks_through_a_log_once_while_its_files_are_the_same(
    killed_and_stopped: tuple[Path, Path, str], tmp_path: Path, opened: list[str]
) -> None:
    path = Path(shutil.copytree(killed_and_stopped[0], tmp_path / "data"))
    before = len(os.listdir("/proc/self/fd"))  # noqa: PTH208
    for _ in range(3):
        with DataDirectory(str(path)) as directory:
            directory.offsets([ORDERS], 1)
            assert base_offsets(directory) == list(range(0, BATCHES * RECORDS, RECORDS))
        assert len(os.listdir("/proc/self/fd")) == before  # noqa: PTH208
    assert opened == ["orders-0"]
    with last_log(path).open("ab") as file:
        file.write(bytes(build_batch([(1, None, b"one more", ())], base_offset=BATCHES * RECORDS)))
    with DataDirectory(str(path)) as directory, DataDirectory(str(path)) as other:
        assert len(base_offsets(directory)) == BATCHES + 1
        directory.close()
        assert len(base_offsets(other)) == BATCHES + 1
    assert opened == ["orders-0"] * 2


def test_few_logs_are_kept(ours: Path, opened: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stored_log, "KEPT_MAX", 2)
    places = [ORDERS, TopicPartition("items", 0), TopicPartition("orders", 1), ORDERS]
    for place in places:
        DataDirectory(str(ours)).offsets([place], LATEST)
    assert opened == [str(place) for place in places]


def last_log(path: Path) -> Path:
    return max((path / "orders-0").glob("*.log"))


def test_a_torn_end_ends_the_log_there(
    killed_and_stopped: tuple[Path, Path, str], tmp_path: Path
) -> None:
    path = Path(shutil.copytree(killed_and_stopped[0], tmp_path / "data"))
    log = last_log(path)
    for name in ("recovery-point-offset-checkpoint", "replication-offset-checkpoint"):
        (path / name).unlink(missing_ok=True)
    with log.open("r+b") as file:
        file.truncate(log.stat().st_size - 5)
    before = contents(path)
    with DataDirectory(str(path)) as directory:
        assert directory.offsets([ORDERS], LATEST) == {ORDERS: 590}
        assert base_offsets(directory)[-1] == 580
    assert contents(path) == before


def test_a_clean_directory_whose_file_was_cut_later_is_looked_through(ours: Path) -> None:
    log = last_log(ours)
    with log.open("r+b") as file:
        file.truncate(log.stat().st_size - 5)
    with DataDirectory(str(ours)) as directory:
        # All of it had been on the disk: so what is missing now is damage, and not a crash's doing.
        assert directory.offsets([ORDERS], LATEST) == {ORDERS: 600}
        with pytest.raises(CorruptData, match=r"orders-0 offset 590: .* is cut"):
            base_offsets(directory)
        left_out = LeftOut()
        chunks = read_range(
            directory, Range(*ORDERS, 570, 600), on_corrupt="skip", left_out=left_out
        )
        assert [chunk.end for chunk in chunks] == [590]
        assert left_out.offsets_corrupt == 10


def test_lost_indexes_are_made_again_in_memory(ours: Path) -> None:
    for path in (ours / "orders-0").iterdir():
        if path.suffix in (".index", ".timeindex", ".snapshot") or "epoch" in path.name:
            path.unlink()
    before = contents(ours)
    with DataDirectory(str(ours)) as directory:
        assert base_offsets(directory) == list(range(0, BATCHES * RECORDS, RECORDS))
        assert directory.offsets([ORDERS], 7_001) == {ORDERS: 71}
    assert contents(ours) == before


def test_damage_amid_a_log_is_stepped_over(ours: Path) -> None:
    log = min((ours / "orders-0").glob("*.log"))
    with log.open("r+b") as file:
        size = len(build_batch([(index, None, VALUE, ()) for index in range(RECORDS)]))
        file.seek(3 * size + 8)
        file.write(bytes(9))
    with DataDirectory(str(ours)) as directory:
        with pytest.raises(CorruptData, match="orders-0 offset 30"):
            base_offsets(directory)
        left_out = LeftOut()
        chunks = read_range(directory, Range(*ORDERS, 0, 600), on_corrupt="skip", left_out=left_out)
        found = [
            Batch(chunk.entries[at : at + size]).base_offset
            for chunk in chunks
            for at, size, _ in walk(chunk.entries)
        ]
        assert found == [0, 10, 20, *range(40, 600, 10)]
        assert (left_out.batches_corrupt, left_out.offsets_corrupt) == (1, 10)


# Apache Kafka's


def read(directory: DataDirectory, partition: TopicPartition) -> Json:
    def text(data: Any) -> str | None:
        return None if data is None else b64encode(bytes(data)).decode()

    end = directory.offsets([partition], LATEST)[partition]
    start = directory.offsets([partition], EARLIEST)[partition]
    return {
        "start": start,
        "end": end,
        "stable": directory.fetch(partition, end, committed_only=True).last_stable_offset,
        "records": [
            [record.offset, text(record.key), text(record.value)]
            for batch in map(Batch, everything(directory, partition))
            if not batch.attributes & CONTROL_BIT
            for record in batch.records()
            if record.offset >= start
        ],
    }


@pytest.mark.parametrize("name", KILLED)
def test_what_kafka_served_is_read_from_what_it_was_killed_in(name: str, tmp_path: Path) -> None:
    with tarfile.open(ARCHIVES / f"{name}.tar.xz") as archive:
        archive.extractall(tmp_path, filter="data")
    served: Json = json.loads((ARCHIVES / f"{name}.json").read_text())
    before = contents(tmp_path)
    with DataDirectory(str(tmp_path)) as directory:
        found = {
            str(partition): read(directory, partition)
            for partition in directory.partitions(directory.topics())
        }
        assert directory.partitions(["__consumer_offsets"])
        assert directory.cluster_id()
    assert found == served["topics"]
    assert contents(tmp_path) == before


def test_committed_records_are_those_of_committed_transactions(tmp_path: Path) -> None:
    """In `deals` every third transaction is aborted, and the last one, from offset 48, is open."""
    with tarfile.open(ARCHIVES / "3.9-at-rest.tar.xz") as archive:
        archive.extractall(tmp_path, filter="data")
    deals = TopicPartition("deals", 0)
    with DataDirectory(str(tmp_path)) as directory:
        assert ending_offsets(directory, [deals]) == {deals: 54}
        assert ending_offsets(directory, [deals], committed_only=True) == {deals: 48}
        assert len(directory.fetch(deals, 48, committed_only=True).entries) == 0
        assert directory.fetch(deals, 0).aborted == ()

        def values(*, committed_only: bool) -> list[bytes]:
            rows = records_of(
                directory, Range(*deals, 0, 48), committed_only=committed_only, fetch_bytes=1024
            )
            return [value.as_py() for batch in rows for value in batch["value"]]

        deal = [b"deal %d" % number for number in range(24)]
        assert values(committed_only=False) == deal
        assert values(committed_only=True) == [one for i, one in enumerate(deal) if i % 3]


@pytest.mark.parametrize("vector", vectors(), ids=lambda vector: str(vector["id"]))
def test_segments_of_all_formats_that_kafka_wrote_are_read(vector: Json, tmp_path: Path) -> None:
    folder = tmp_path / "orders-0"
    folder.mkdir()
    base = vector["base_offset"]
    for suffix in ("log", "index", "timeindex"):
        data = decoded(vector["expect"][suffix])
        (folder / f"{base:020d}.{suffix}").write_bytes(data)
    with DataDirectory(str(tmp_path)) as directory:
        assert directory.cluster_id() is None
        assert directory.offsets([ORDERS], EARLIEST) == {ORDERS: base}
        found = b"".join(everything(directory, ORDERS))
        assert found == decoded(vector["expect"]["log"])
        end = directory.offsets([ORDERS], LATEST)[ORDERS]
        for case in vector["expect"]["first_offset_at_or_after"]:
            offset = case.get("offset")
            found_at = directory.offsets([ORDERS], case["ts"])
            assert found_at == {ORDERS: end if offset is None else offset}


def test_old_directories_are_opened_without_going_through_more_than_their_last_segments(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before Kafka 0.11 there were no producers, leader epochs or, at first, time indexes."""
    folder = tmp_path / "orders-0"
    folder.mkdir()
    (tmp_path / "meta.properties").write_text("version=0\nbroker.id=3\n")
    (tmp_path / "recovery-point-offset-checkpoint").write_text("0\n1\norders 0 4000\n")
    for base in range(0, 4000, 1000):
        messages = bytearray()
        for offset in range(base, base + 1000):
            message = bytearray(build_messages([(1, None, VALUE, ())], magic=0))
            struct.pack_into(">q", message, 0, offset)
            messages += message
        size = len(messages) // 1000
        (folder / f"{base:020d}.log").write_bytes(messages)
        index = b"".join(struct.pack(">ii", at, at * size) for at in range(50, 1000, 50))
        (folder / f"{base:020d}.index").write_bytes(index)
    with DataDirectory(str(tmp_path)) as directory:
        with monkeypatch.context() as patch:
            read: list[int] = []
            pread = OverlayFile.pread

            def counted(file: OverlayFile, size: int, position: int) -> bytes:
                data = pread(file, size, position)
                read.append(len(data))
                return data

            patch.setattr(OverlayFile, "pread", counted)
            assert directory.offsets([ORDERS], LATEST) == {ORDERS: 4000}
        # The last segment, which is looked through by pieces that overlap, and no other.
        assert sum(read) < 2.2 * (folder / f"{0:020d}.log").stat().st_size, "several segments"
        assert directory.cluster_id() is None
        [first, *_] = everything(directory, ORDERS)
        assert first[16] == 0
        assert sum(1 for _ in everything(directory, ORDERS)) == 4000


# What is no directory to be read


def test_a_directory_in_use_is_refused(broker: BrokerProcess) -> None:
    with pytest.raises(WrongUse) as raised:
        DataDirectory(str(broker.data))
    assert f"is in use by process {broker.pid}: stop that broker" in str(raised.value)


def test_so_is_one_in_use_by_this_process(ours: Path) -> None:
    lock = DiskLock(str(ours / ".lock"))
    try:
        with pytest.raises(WrongUse, match=f"is in use by process {os.getpid()}"):
            DataDirectory(str(ours))
        with pytest.raises(BlockingIOError):
            DiskLock(str(ours / ".lock"))
    finally:
        lock.release()


def test_a_lock_file_that_a_killed_broker_left_is_no_lock(
    killed_and_stopped: tuple[Path, Path, str],
) -> None:
    assert (killed_and_stopped[0] / ".lock").exists()
    assert DataDirectory(str(killed_and_stopped[0])).topics()


@pytest.mark.parametrize(
    ("name", "line"),
    [
        ("absent", "is no folder on this machine"),
        ("file", "is no folder on this machine"),
        ("empty", "it has neither meta.properties nor a folder of a partition"),
        ("data/orders-0", "it is a partition's folder, name the one above it: "),
    ],
)
def test_what_is_no_data_directory_is_told(tmp_path: Path, name: str, line: str) -> None:
    (tmp_path / "file").write_text("")
    (tmp_path / "empty" / "dbus-1").mkdir(parents=True)
    (tmp_path / "data" / "orders-0").mkdir(parents=True)
    (tmp_path / "data" / "orders-0" / f"{0:020d}.log").write_bytes(b"")
    with pytest.raises(WrongUse) as raised:
        DataDirectory(str(tmp_path / name))
    assert line in str(raised.value)


def test_an_unknown_topic_is_told_with_the_nearest(ours: Path) -> None:
    with DataDirectory(str(ours)) as directory:
        with pytest.raises(NoSuchTopic, match=r"no topic 'order' in .*: did you mean 'orders'\?$"):
            directory.partitions(["order"])
        with pytest.raises(NoSuchTopic, match="has no partition orders-7"):
            directory.fetch(TopicPartition("orders", 7), 0)


# The file system below


def test_changes_stay_in_the_overlay(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"0123456789")
    (tmp_path / "b").write_bytes(b"bbb")
    before = contents(tmp_path)
    files, folder = Overlay(), str(tmp_path)
    a = files.open_file(f"{folder}/a")
    a.truncate(4)
    assert (a.pread(99, 2), files.size_of(f"{folder}/a")) == (b"23", 4)
    a.write_at([b"x", b"y"], 5)
    assert files.read_bytes(f"{folder}/a") == b"0123\0xy"
    files.rename(f"{folder}/a", f"{folder}/c")
    files.remove(f"{folder}/b")
    files.write_atomic(f"{folder}/d", b"d")
    assert files.list_dir(folder) == ["c", "d"]
    assert not files.exists(f"{folder}/a")
    assert files.exists(f"{folder}/d")
    with pytest.raises(FileNotFoundError):
        files.open_file(f"{folder}/b")
    new = files.open_file(f"{folder}/b", create=True)
    new.write_at([b"new"], 0)
    assert files.read_bytes(f"{folder}/b") == b"new"
    assert contents(tmp_path) == before
