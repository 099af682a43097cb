"""The pages in docs/formats show real bytes: this partition's."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from storage.data_dir import DataDirectory
from tests.storage.logs import NOW_MS, Settings, append, batch
from tests.support.memory_filesystem import MemoryFilesystem
from tests.support.topic_store import open_topics

PAGES = Path(__file__).parents[2] / "docs" / "formats"
SETTINGS = Settings(index_interval_bytes=100)


@pytest.fixture(scope="module")
def example() -> MemoryFilesystem:
    """One partition with three batches of producer 0, stopped in good order."""
    files, ids = MemoryFilesystem(), iter(range(1, 99))
    stem = bytes.fromhex("9d130e7a41c841079e7b29c815d15b")

    def new_uuid() -> bytes:
        return stem + bytes([next(ids)])

    directory = DataDirectory.take(files, "/data", node_id=1, new_uuid=new_uuid)
    topics = open_topics(files, "/data")
    topics.begin_epoch()
    directory.open_logs(topics, lambda _: SETTINGS, now_ms=NOW_MS)
    topic = topics.create("orders", new_uuid(), 1, {"retention.ms": "3600000"})
    log = directory.create_partition(topic, 0, SETTINGS, now_ms=NOW_MS)
    assert topics.next_producer_id() == 0
    append(log, batch(b"first", timestamp_ms=NOW_MS, producer=(0, 0, 0)))
    append(log, batch(b"second", b"third", timestamp_ms=NOW_MS + 500, producer=(0, 0, 1)))
    append(log, batch(b"fourth", timestamp_ms=NOW_MS + 200, producer=(0, 0, 3)))
    log.write()
    assert directory.close()
    return files


def blocks(page: str) -> list[str]:
    text = (PAGES / page).read_text(encoding="utf-8")
    return re.findall(r"^```\w*\n(.*?)^```", text, re.DOTALL | re.MULTILINE)


def hex_of(block: str) -> bytes:
    """The bytes of a block of hexadecimal digits; prose stands after three spaces."""
    lines = [re.split(r"   +(?=[a-z]+ )", line)[0] for line in block.splitlines()]
    return bytes.fromhex("".join("".join(lines).split()))


@pytest.mark.parametrize(
    ("page", "name"),
    [
        ("log.md", "orders-0/00000000000000000000.log"),
        ("offset-index.md", "orders-0/00000000000000000000.index"),
        ("time-index.md", "orders-0/00000000000000000000.timeindex"),
        ("producer-snapshot.md", "orders-0/00000000000000000004.snapshot"),
        ("metadata-log.md", "__cluster_metadata-0/00000000000000000000.log"),
        ("bootstrap-checkpoint.md", "bootstrap.checkpoint"),
        ("leader-epochs.md", "orders-0/leader-epoch-checkpoint"),
    ],
)
def test_the_bytes_on_a_page_are_those_in_the_file(
    page: str, name: str, example: MemoryFilesystem
) -> None:
    assert hex_of(blocks(page)[-1]) == example.read_bytes(f"/data/{name}")


@pytest.mark.parametrize(
    ("page", "name"),
    [
        ("receive-times.md", "orders-0/receive-times-checkpoint"),
        ("offset-checkpoints.md", "recovery-point-offset-checkpoint"),
        ("meta-properties.md", "meta.properties"),
        ("partition-metadata.md", "orders-0/partition.metadata"),
        ("quorum-state.md", "__cluster_metadata-0/quorum-state"),
        ("clean-shutdown.md", ".kafka_cleanshutdown"),
        ("clean-shutdown.md", ".pystate.json"),
    ],
)
def test_the_text_on_a_page_is_that_in_the_file(
    page: str, name: str, example: MemoryFilesystem
) -> None:
    text = example.read_bytes(f"/data/{name}").decode()

    assert text.rstrip("\n") + "\n" in blocks(page)


def test_each_page_says_what_if_it_is_lost() -> None:
    pages = [page for page in PAGES.glob("*.md") if page.name != "README.md"]
    assert len(pages) > 8
    for page in pages:
        assert re.search(r"\*What if (it|one) is lost\*", page.read_text(encoding="utf-8")), page
