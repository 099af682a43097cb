"""Directories of Apache Kafka whose small files and topic settings were spoilt: a start opens them
or refuses them in words, and takes no record away.

`FUZZ_SEED` gives other inputs, `TEST_FUZZ_FACTOR` more of them.
"""

from __future__ import annotations

import os
import random
import re
from functools import cache
from typing import TYPE_CHECKING

import pytest

from broker.server import StartRefused
from config import TopicSettings, load
from config.stored import readable_topic_part
from protocol.records.builder import build_batch
from storage.data_dir import DataDirectory
from storage.errors import DataDirectoryError
from storage.identity import encode_partition_metadata, uuid_text
from storage.metadata.opening import open_metadata
from tests.storage.inspection.directories import contents_in, ids, in_memory, spoilt
from tests.storage.logs import NOW_MS, Settings
from tests.storage.metadata.metadata_files import BATCHES, DIRECTORY, topic_id
from tests.storage.test_recovery_of_kafka import content_of
from tests.support.fake_connection import InProcessBroker

if TYPE_CHECKING:
    from pathlib import Path

    from storage.topics import Topic
    from tests.storage.inspection.directories import Contents
    from tests.support.memory_filesystem import MemoryFilesystem

SEED = int(os.environ.get("FUZZ_SEED", "20263"))
FACTOR = int(os.environ.get("TEST_FUZZ_FACTOR", "1"))
ROUNDS = 60 * FACTOR
"""Spoilt directories of each kind that storage opens in memory."""
STARTS = 8 * FACTOR
"""Spoilt directories of each kind that a whole broker is started on."""
KINDS = ("3.9-second-life", "4-second-life", "ours")
"""Two that Kafka was killed in, and one of them after a start and a clean stop of ours."""
SMALL = re.compile(
    r"meta\.properties|partition\.metadata|[a-z-]+-checkpoint|quorum-state|\.kafka_cleanshutdown"
    r"|\.pystate\.json|clients\.json|bootstrap\.checkpoint"
)
WORDS = (
    b"", b"=", b"==", b"0", b"-1", b"1", b"2147483648", b"9" * 30, b"9" * 5000, b"NaN", b"null",
    b"[]", b"{}", b"\xff\xfe", b"\0", b"\\u", b"\\", b"\n", b"AAAAAAAAAAAAAAAAAAAAAA", b"version",
    b"topic_id: x",
)  # fmt: skip
RECORDS = re.compile(r"(?!__cluster_metadata)[^/]+-\d+/\d{20}\.log")


@cache
def contents_of(kind: str) -> Contents:
    """The files of a directory. The marker of a clean stop is among them."""
    if kind != "ours":
        marker = b'{"version":0,"brokerEpoch":10}'
        return {".lock": b"", ".kafka_cleanshutdown": marker} | content_of(kind)
    files = in_memory(contents_of(KINDS[0]))
    directory = opened(files)
    assert directory.close()
    return contents_in(files)


def opened(files: MemoryFilesystem, configs: dict[str, str] | None = None) -> DataDirectory:
    """The directory as a start opens it; before that, a topic gets these settings unchecked."""
    directory = DataDirectory.take(files, "/data", node_id=1, new_uuid=ids())
    store, _ = open_metadata(files, "/data", directory.identity, now_ms=lambda: NOW_MS)
    if configs:
        store.set_configs("plain", configs)
    store.begin_epoch()
    broker = load()

    def settings_of(topic: Topic) -> Settings:
        readable, _ = readable_topic_part(broker, topic.configs)
        TopicSettings.of(broker, readable)
        return Settings()

    directory.open_logs(store, settings_of, now_ms=NOW_MS)
    return directory


def records_in(files: MemoryFilesystem) -> Contents:
    """The segments of all partitions, but for empty ones, that a start may add."""
    found = contents_in(files).items()
    return {name: data for name, data in found if RECORDS.fullmatch(name) and data}


@cache
def records_of(kind: str) -> Contents:
    files = in_memory(contents_of(kind))
    opened(files)
    return records_in(files)


def spoil(rng: random.Random, data: bytes) -> tuple[str, bytes]:
    """What was done, and what became of the file."""
    if rng.random() < 0.4:
        return spoilt(rng, data)
    words = [found.span() for found in re.finditer(rb"[^\s=:,\"{}\[\]]+", data)]
    where, word = slice(*rng.choice(words or [(0, 0)])), rng.choice(WORDS)
    return f"{data[where]!r} became {word[:20]!r}", data[: where.start] + word + data[where.stop :]


def spoilt_directory(rng: random.Random, kind: str) -> tuple[str, Contents, dict[str, str]]:
    """What was done, the files, and the settings that a topic is to get."""
    contents, configs, done = dict(contents_of(kind)), dict[str, str](), [kind]
    small = sorted(name for name in contents if SMALL.fullmatch(name.rpartition("/")[2]))
    for _ in range(rng.choice((1, 1, 2))):
        if rng.random() < 0.2:
            key = rng.choice([*TopicSettings.KEYS, "unknown.key"])
            configs[key] = rng.choice(WORDS)[:1000].decode("latin-1")
            done.append(f"{key}={configs[key]!r}")
            continue
        name = rng.choice(small)
        if rng.random() < 0.1:
            contents.pop(name, None)
            done.append(f"{name} removed")
        else:
            what, contents[name] = spoil(rng, contents.get(name, b""))
            done.append(f"{name}: {what}")
    return "; ".join(done), contents, configs


@pytest.mark.parametrize("kind", KINDS)
def test_a_spoilt_directory_is_opened_with_all_records_or_refused_in_words(kind: str) -> None:
    rng = random.Random(f"{SEED} {kind}")
    refused = 0
    for _ in range(ROUNDS):
        done, contents, configs = spoilt_directory(rng, kind)
        files = in_memory(contents)
        try:
            opened(files, configs)
        except DataDirectoryError as error:
            refused += 1
            why = str(error)
            assert "/data" in why, (done, why)
            assert "\n" not in why, (done, why)
        except Exception as error:
            raise AssertionError(done) from error
        assert records_in(files) == records_of(kind), done
    assert refused < ROUNDS / 2


@pytest.mark.parametrize("kind", KINDS)
def test_a_broker_starts_on_a_spoilt_directory_or_refuses_it_in_words(
    kind: str, tmp_path: Path
) -> None:
    rng = random.Random(f"{SEED} start {kind}")
    for number in range(STARTS):
        done, contents, _ = spoilt_directory(rng, kind)
        data = tmp_path / str(number)
        for name, content in contents.items():
            path = data / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
        broker = InProcessBroker(data)
        try:
            with broker:
                pass
        except StartRefused as error:
            broker.loop.close()
            why = str(error)
        except Exception as error:
            raise AssertionError(done) from error
        else:
            why = ""
        assert "\n" not in why, (done, why)


def test_a_directory_as_a_tool_writes_it_by_hand_is_served() -> None:
    """Ids with padding, and a metadata log that begins with its first record, at offset 1: both
    are taken by Apache Kafka 4.3.1."""
    identity = uuid_text(DIRECTORY)
    batch = build_batch([(NOW_MS, None, b"value", ())], base_offset=0, leader_epoch=0)
    files = in_memory(
        {
            "meta.properties": f"cluster.id=c\ndirectory.id={identity}==\nnode.id=1\n"
            "version=1\n".encode(),
            ".kafka_cleanshutdown": b'{"version":0,"brokerEpoch":10}',
            f"__cluster_metadata-0/{0:020d}.log": b"".join(BATCHES[1:]),
            f"t0-0/{0:020d}.log": batch,
            "t0-0/partition.metadata": encode_partition_metadata(topic_id(0)) + b"==",
        }
    )
    for _ in range(2):
        directory = opened(files)

        assert directory.identity.directory_id == identity
        assert directory.logs["t0", 0].next_offset == 1
        assert directory.close()
