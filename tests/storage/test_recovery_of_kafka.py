"""Log directories that Apache Kafka was killed in, opened by us: kafka_killed/README.md.

Beside each is what Kafka itself served from it when it was started again.
"""

from __future__ import annotations

import json
import random
import tarfile
from base64 import b64encode
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from protocol.logdata.offsets import OffsetCommitKey, decode_key, decode_value
from protocol.records.batch import Batch
from protocol.records.layout import CONTROL_BIT
from protocol.records.walk import walk
from storage.data_dir import DataDirectory
from storage.layout import CLEANER_OFFSETS, LEADER_EPOCHS, RECOVERY_POINTS, SNAPSHOT
from tests.storage.logs import NOW_MS, Settings, everything, produce
from tests.support.memory_filesystem import MemoryFilesystem, PowerCut
from tests.support.topic_store import open_topics

if TYPE_CHECKING:
    from storage.log import Log
    from storage.reports import RecoveryReport

PATH = "/data"
ARCHIVES = Path(__file__).parent / "kafka_killed"
NAMES = sorted(path.name.removesuffix(".tar.xz") for path in ARCHIVES.glob("*.tar.xz"))

Json = dict[str, Any]


@cache
def content_of(name: str) -> dict[str, bytes]:
    with tarfile.open(ARCHIVES / f"{name}.tar.xz") as archive:
        found = ((info.name, archive.extractfile(info)) for info in archive)
        return {path: file.read() for path, file in found if file is not None}


def unpacked(name: str) -> tuple[MemoryFilesystem, Json]:
    """The directory, and what Kafka served from it."""
    files = MemoryFilesystem()
    for path, data in content_of(name).items():
        files.write_bytes(f"{PATH}/{path}", data)
    served: Json = json.loads((ARCHIVES / f"{name}.json").read_text())
    return files, served


def opened(files: MemoryFilesystem) -> tuple[DataDirectory, list[RecoveryReport]]:
    directory = DataDirectory.take(files, PATH, node_id=1, new_uuid=lambda: bytes(range(16)))
    topics = open_topics(files, PATH)
    topics.begin_epoch()
    reports = directory.open_logs(topics, lambda _: Settings(), now_ms=NOW_MS)
    return directory, reports


def text(data: Any) -> str | None:
    return None if data is None else b64encode(bytes(data)).decode()


def batches_of(log: Log) -> list[Batch]:
    data = memoryview(everything(log))
    return [Batch(data[at : at + size]) for at, size, _ in walk(data)]


def read(log: Log) -> Json:
    return {
        "start": log.start_offset,
        "end": log.next_offset,
        "stable": log.last_stable_offset,
        "records": [
            [record.offset, text(record.key), text(record.value)]
            for batch in batches_of(log)
            if not batch.attributes & CONTROL_BIT
            for record in batch.records()
            if record.offset >= log.start_offset
        ],
    }


def committed(log: Log) -> dict[str, int]:
    found: dict[str, int] = {}
    for batch in batches_of(log):
        for record in batch.records():
            key = decode_key(bytes(record.key or b""))
            if isinstance(key, OffsetCommitKey) and record.value is not None:
                value: Any = decode_value(key, bytes(record.value))
                found[f"{key.group} {key.topic}-{key.partition}"] = value.offset
    return found


def expect_what_kafka_served(directory: DataDirectory, served: Json) -> None:
    for name, expected in served["topics"].items():
        topic, _, partition = name.rpartition("-")
        assert read(directory.logs[topic, int(partition)]) == expected, name
    assert committed(directory.logs["__consumer_offsets", 0]) == served["committed"]


def states_of(log: Log) -> bytes:
    return log.producers.encode()


def die(directory: DataDirectory, files: MemoryFilesystem) -> None:
    """What is written is there; nothing more is done."""
    for log in directory.logs.values():
        log.write()
    files.kill()


def told(reports: list[RecoveryReport]) -> list[str]:
    """What a start says, but for topics that Kafka had put aside itself."""
    return [one.reason for one in reports if not one.reason.startswith("put aside earlier")]


@pytest.mark.parametrize("name", NAMES)
def test_every_record_that_kafka_served_is_served(name: str) -> None:
    files, served = unpacked(name)

    directory, reports = opened(files)

    assert told(reports) == []
    expect_what_kafka_served(directory, served)


@pytest.mark.parametrize("lost", [(RECOVERY_POINTS, CLEANER_OFFSETS), (CLEANER_OFFSETS,)])
@pytest.mark.parametrize("name", NAMES)
def test_every_record_is_served_from_a_copy_without_its_checkpoints(
    name: str, lost: tuple[str, ...]
) -> None:
    """Then no gap that compaction made is below anything."""
    files, served = unpacked(name)
    for file in lost:
        files.remove(f"{PATH}/{file}")

    directory, reports = opened(files)

    assert told(reports) == []
    expect_what_kafka_served(directory, served)


@pytest.mark.parametrize("name", NAMES)
def test_killed_before_we_noted_anything_every_record_is_still_served(name: str) -> None:
    files, served = unpacked(name)
    for number in range(3):
        directory, _ = opened(files)
        produce(directory.logs["table", 0], b"%d" % number)
        die(directory, files)  # as at a kill

    directory, reports = opened(files)

    assert told(reports) == []
    expected = served["topics"]["table-0"]
    expected["end"] += 3
    expected["stable"] += 3
    expected["records"] += [
        [expected["end"] - 3 + number, None, text(b"%d" % number)] for number in range(3)
    ]
    expect_what_kafka_served(directory, served)


@pytest.mark.parametrize("name", NAMES)
def test_after_a_clean_stop_of_ours_nothing_is_read_again(name: str) -> None:
    files, served = unpacked(name)
    directory, _ = opened(files)
    assert directory.close()

    directory, reports = opened(files)

    assert told(reports) == []
    assert all(log.clean_state is not None for log in directory.logs.values())
    expect_what_kafka_served(directory, served)


@pytest.mark.parametrize("name", NAMES)
def test_the_snapshots_of_producers_say_what_the_batches_say(name: str) -> None:
    files, _ = unpacked(name)
    directory, _ = opened(files)
    die(directory, files)
    expected = {key: states_of(log) for key, log in directory.logs.items()}
    assert expected["deals", 0]
    for folder in (f"{PATH}/deals-0", f"{PATH}/plain-0"):
        for file in files.list_dir(folder):
            if file.endswith(SNAPSHOT):
                files.remove(f"{folder}/{file}")

    directory, _ = opened(files)

    assert {key: states_of(log) for key, log in directory.logs.items()} == expected


@pytest.mark.parametrize("content", [b"0\n1\n0 0\n", b"0\n0\n", None])
@pytest.mark.parametrize("name", [name for name in NAMES if "second-life" in name])
def test_epochs_that_the_file_does_not_know_are_found_in_the_batches(
    name: str, content: bytes | None
) -> None:
    files, _ = unpacked(name)
    directory, _ = opened(files)
    die(directory, files)
    expected = directory.logs["plain", 0].epochs.entries()
    assert len(expected) > 1
    files.remove(f"{PATH}/plain-0/{LEADER_EPOCHS}")
    if content is not None:
        files.write_bytes(f"{PATH}/plain-0/{LEADER_EPOCHS}", content)

    directory, _ = opened(files)

    assert directory.logs["plain", 0].epochs.entries() == expected


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("name", NAMES)
def test_a_power_cut_in_our_first_start_costs_nothing_of_what_kafka_had(
    name: str, seed: int
) -> None:
    files, served = unpacked(name)
    opened(files)
    calls, rng = len(files.calls), random.Random(f"{name} {seed}")
    files, _ = unpacked(name)
    files.cut_at = rng.randrange(calls)
    with pytest.raises(PowerCut):
        opened(files)

    directory, reports = opened(files.power_cut(rng))

    assert told(reports) == [], f"seed {seed}"
    expect_what_kafka_served(directory, served)
