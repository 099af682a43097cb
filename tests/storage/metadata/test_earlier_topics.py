"""The list of topics of an earlier version becomes records of the metadata log, once and whole."""

from __future__ import annotations

import json
import random
from typing import TYPE_CHECKING, Any

import pytest

from protocol.logdata.metadata import EndTransactionRecord
from storage.identity import encode_partition_metadata, uuid_of, uuid_text
from storage.layout import EARLIER_TOPICS
from storage.metadata.image import PartitionState
from storage.metadata.loading import load
from tests.storage.metadata.metadata_files import BATCHES, PATH, log_path, topic_id
from tests.storage.metadata.opening_metadata import blank, opened, refusal, stored_batches
from tests.support.memory_filesystem import MemoryFilesystem, PowerCut
from tests.support.topic_store import IDENTITY

if TYPE_CHECKING:
    from collections.abc import Sequence

    from storage.metadata.store import MetadataStore

EARLIER = f"{PATH}/{EARLIER_TOPICS}"
LOG = b"".join(BATCHES)

FIRST = 50
IDS = [uuid_text(topic_id(FIRST + number)) for number in range(4)]
LIST = {
    "version": 1,
    "leader_epoch": 4,
    "next_producer_id": 3000,
    "topics": [
        {"name": "orders", "topic_id": IDS[0], "partitions": 3, "configs": {"retention.ms": "9"}},
        {"name": "again", "topic_id": IDS[1], "partitions": 1, "configs": {}},
    ],
    "deleted": [{"name": "again", "topic_id": IDS[2], "partitions": 2, "configs": {"a": "b"}}],
}


def earlier(content: object = LIST) -> MemoryFilesystem:
    files = blank()
    files.write_bytes(EARLIER, json.dumps(content).encode())
    files.write_bytes(
        f"{PATH}/orders-0/partition.metadata", encode_partition_metadata(topic_id(FIRST))
    )
    return files


def require_migrated(store: MetadataStore) -> None:
    image = store.image
    assert sorted(image.topics) == ["again", "orders"]
    directory = uuid_of(IDENTITY.directory_id)
    state = PartitionState((1,), (1,), 1, 4, 0, (directory,))
    assert image.topics["orders"].partitions == dict.fromkeys(range(3), state)
    assert image.topics["orders"].topic_id == topic_id(FIRST)
    assert image.configs == {(2, "orders"): {"retention.ms": "9"}}
    assert image.features == {"metadata.version": 21}
    assert [(t.name, t.topic_id, t.partition_count) for t in store.deleted()] == [
        ("again", topic_id(FIRST + 2), 2)
    ]
    assert image.next_producer_id == 3000


def test_topics_of_an_earlier_version_are_taken_over_and_its_file_is_set_aside() -> None:
    files = earlier()
    before = files.read_bytes(EARLIER)

    require_migrated(opened(files)[0])

    assert not files.exists(EARLIER)
    assert files.read_bytes(f"{EARLIER}.migrated") == before
    require_migrated(opened(files)[0])


def test_a_power_cut_amid_the_migration_loses_and_doubles_nothing() -> None:
    files = earlier()
    files.count = 0
    opened(files)
    calls = files.count
    assert calls > 10
    for cut in range(calls):
        for seed in range(6):
            rng = random.Random(cut * 100 + seed)
            files = earlier()
            files.count, files.cut_at = 0, cut
            with pytest.raises(PowerCut):
                opened(files)
            survivor = files.power_cut(rng)
            require_migrated(opened(survivor)[0])
            assert not survivor.exists(EARLIER), (cut, seed)


def test_a_list_and_a_log_of_different_times_are_refused() -> None:
    files = earlier()
    files.write_bytes(log_path(), LOG)
    told = refusal(files)
    assert EARLIER in told
    assert "orders" in told or "again" in told


SPOILT: list[dict[str, object]] = [
    {"version": 2},
    {"version": None},
    {"leader_epoch": "0"},
    {"leader_epoch": -2},
    {"next_producer_id": -1},
    {"next_producer_id": True},
    {"topics": 5},
    {"topics": [7]},
    {"topics": [{"name": "t"}]},
    {"topics": [{**LIST["topics"][0], "partitions": 0}]},  # type: ignore[index]
    {"topics": [{**LIST["topics"][0], "configs": {"a": 1}}]},  # type: ignore[index]
    {"topics": [{**LIST["topics"][0], "topic_id": "short"}]},  # type: ignore[index]
    {"topics": [LIST["topics"][0]] * 2},  # type: ignore[index]
    {"deleted": [{"name": "t"}]},
]


@pytest.mark.parametrize("spoilt", SPOILT)
def test_a_list_that_can_not_be_read_stops_the_start(spoilt: dict[str, object]) -> None:
    assert EARLIER in refusal(earlier({**LIST, **spoilt}))


@pytest.mark.parametrize("content", [b"", b"{", b"\xff\xfe", b"[]", b"null", b"[" * 100_000])
def test_a_list_that_is_none_stops_the_start(content: bytes) -> None:
    files = blank()
    files.write_bytes(EARLIER, content)
    assert EARLIER in refusal(files)


def test_a_long_list_is_taken_over_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("storage.metadata.metadata_log.BATCH_BYTES", 200_000)
    entries = [
        {"name": f"t{n}", "topic_id": uuid_text(topic_id(n)), "partitions": 50, "configs": {}}
        for n in range(120)
    ]
    files = earlier({**LIST, "topics": entries, "deleted": []})

    store, _ = opened(files)

    assert sum(len(one.partitions) for one in store.image.topics.values()) == 6000
    assert len(stored_batches(files)) > 3, "no batch is larger than allowed"
    assert load(files, PATH).image.topics == store.image.topics


def test_a_power_cut_amid_a_long_list_takes_all_of_it_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("storage.metadata.metadata_log.BATCH_BYTES", 20_000)
    monkeypatch.setattr("storage.metadata.opening.RECORDS_OF_A_BATCH", 100)
    content = {**LIST, "topics": [{**LIST["topics"][0], "partitions": 500}], "deleted": []}  # type: ignore[index]
    files = earlier(content)
    files.count = 0
    opened(files)
    for cut in range(files.count):
        files = earlier(content)
        files.count, files.cut_at = 0, cut
        with pytest.raises(PowerCut):
            opened(files)
        files.kill()
        assert len(opened(files)[0].image.topics["orders"].partitions) == 500


def transactions(batches: Sequence[Any]) -> int:
    return sum(isinstance(one, EndTransactionRecord) for b in batches for one in b.records)


def test_a_migration_is_one_transaction() -> None:
    files = earlier()
    opened(files)
    assert transactions(stored_batches(files)) == 1
    assert isinstance(stored_batches(files)[1].records[-1], EndTransactionRecord)
