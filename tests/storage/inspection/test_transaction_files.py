"""Transaction indexes and producer snapshots against the markers and batches in the log."""

from __future__ import annotations

import random

import pytest

from storage.data_dir import DataDirectory
from storage.inspection.transaction_states import STATE_TOPIC
from storage.layout import SNAPSHOT, TRANSACTION_INDEX
from storage.transaction_index import ENTRY_SIZE, AbortedTransaction, decode, encode
from tests.storage.inspection.directories import (
    TOP,
    Contents,
    contents_in,
    errors,
    findings,
    ids,
    in_memory,
    is_found,
    opened,
    repaired,
    spoilt,
)
from tests.storage.inspection.transactional import state, state_batch
from tests.storage.logs import NOW_MS, Settings, append, batch
from tests.support.memory_filesystem import MemoryFilesystem
from tests.support.topic_store import open_topics

PRODUCERS = 3


@pytest.fixture(scope="module")
def contents() -> Contents:
    """Three producers whose transactions overlap, half of them aborted, one open, some segments."""
    rng = random.Random(7)
    files, settings = MemoryFilesystem(), Settings(segment_bytes=3000, index_interval_bytes=200)
    directory = DataDirectory.take(files, TOP, node_id=1, new_uuid=ids())
    topics = open_topics(files, TOP)
    topics.begin_epoch()
    for _ in range(PRODUCERS):
        topics.next_producer_id()
    directory.open_logs(topics, lambda _: settings, now_ms=NOW_MS)
    topic = topics.create("orders", ids(500)(), 1, {})
    log = directory.create_partition(topic, 0, settings, now_ms=NOW_MS)
    sequences = dict.fromkeys(range(PRODUCERS), 0)
    for round_number in range(80):
        producer = rng.randrange(PRODUCERS)
        if rng.random() < 0.35 and log.producers.open_since(producer) >= 0:
            log.append_marker(
                producer, 0, commit=rng.random() < 0.5, coordinator_epoch=0, now_ms=NOW_MS
            )
        else:
            sent = batch(
                rng.randbytes(60),
                timestamp_ms=1000 + round_number,
                producer=(producer, 0, sequences[producer]),
                transactional=True,
            )
            sequences[producer] += 1
            append(log, sent)
        log.write()
    assert log.last_stable_offset < log.next_offset
    state_topic = topics.create(STATE_TOPIC, ids(600)(), 1, {})
    states = directory.create_partition(state_topic, 0, settings, now_ms=NOW_MS)
    append(states, state_batch(*(state(f"id-{one}", one) for one in range(PRODUCERS))))
    states.write()
    assert directory.close()
    files.sync_all()
    return contents_in(files)


def names_of(contents: Contents, suffix: str) -> list[str]:
    """Files of the partition that have content."""
    return sorted(
        name
        for name in contents
        if name.startswith("orders") and name.endswith(suffix) and contents[name]
    )


def test_the_fixture_is_flawless(contents: Contents) -> None:
    assert len(names_of(contents, TRANSACTION_INDEX)) > 1
    assert len(names_of(contents, SNAPSHOT)) > 2
    assert findings(in_memory(contents)) == []


@pytest.mark.parametrize("suffix", [TRANSACTION_INDEX, SNAPSHOT])
def test_every_bit_of_these_files_matters(contents: Contents, suffix: str) -> None:
    missed = []
    name = names_of(contents, suffix)[0]
    files = in_memory(contents)
    for bit in range(8 * len(contents[name])):
        data = bytearray(contents[name])
        data[bit // 8] ^= 1 << bit % 8
        files.write_bytes(f"{TOP}/{name}", bytes(data))
        if not is_found(files, deep=False):
            missed.append(bit)
    assert not missed, f"bits of {name}"


def test_a_missing_entry_is_found_and_made_again(contents: Contents) -> None:
    for name in names_of(contents, TRANSACTION_INDEX):
        for left in range(0, len(contents[name]), ENTRY_SIZE):
            data = contents[name][:left] + contents[name][left + ENTRY_SIZE :]
            files = in_memory(contents | {name: data})
            (found,) = findings(files)
            assert "is missing: it would be read" in found.reason
            repaired(files)
            assert errors(files) == []
            assert files.read_bytes(f"{TOP}/{name}") == contents[name]


def test_an_entry_of_a_transaction_that_was_committed_is_found(contents: Contents) -> None:
    name = names_of(contents, TRANSACTION_INDEX)[0]
    entries = decode(contents[name], 0)
    assert entries is not None
    last = entries[-1].last_offset
    entries.append(AbortedTransaction(1, last + 1, last + 2, last + 3))
    (found, *_) = findings(in_memory(contents | {name: encode(entries)}))
    assert found.file == name.partition("/")[2]


@pytest.mark.parametrize("seed", range(40))
def test_what_is_spoilt_is_found_repaired_and_read_as_before(contents: Contents, seed: int) -> None:
    rng = random.Random(seed)
    name = rng.choice([*names_of(contents, TRANSACTION_INDEX), *names_of(contents, SNAPSHOT)])
    what, data = spoilt(rng, contents[name])
    files = in_memory(contents | {name: data})

    assert findings(files), what
    repaired(files)
    assert errors(files) == [], what
    assert repaired(files) == [], what

    before, _ = opened(in_memory(contents))
    after, _ = opened(files)
    old, new = before.logs["orders", 0], after.logs["orders", 0]
    end = old.next_offset
    assert new.aborted_transactions(0, end) == old.aborted_transactions(0, end)
    assert new.last_stable_offset == old.last_stable_offset
