"""Bits flipped, ends cut, zeros and garbage in every file of a directory that a broker wrote.

`TEST_SPOILT_ROUNDS` sets how many of each (30), `TEST_SPOILT_SEED` the first seed. A failure names
its seed.
"""

from __future__ import annotations

import os
import random
from typing import TYPE_CHECKING

import pytest

from storage.checkpoints import decode_offsets
from storage.epochs import LeaderEpochs
from storage.errors import MalformedFile
from storage.identity import MetaProperties, decode_partition_metadata
from storage.layout import (
    CLEANER_OFFSETS,
    HIGH_WATERMARKS,
    LEADER_EPOCHS,
    LOG_STARTS,
    META_PROPERTIES,
    METADATA_LOG,
    PARTITION_METADATA,
    RECEIVE_TIMES,
    RECOVERY_POINTS,
    RESERVE,
)
from storage.receive_times import decode as decode_times
from tests.storage.inspection.directories import (
    contents_in,
    entries_of,
    errors,
    findings,
    in_memory,
    is_found,
    opened,
    repaired,
    spoilt,
)
from tests.storage.logs import everything

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.storage.inspection.directories import Contents

pytestmark = pytest.mark.clients

ROUNDS = int(os.environ.get("TEST_SPOILT_ROUNDS", "30"))
SEED = int(os.environ.get("TEST_SPOILT_SEED", "0"))

PARTS = 4
"""Rounds are spread over so many tests, that a failing one is short."""


def names_of(contents: Contents, suffix: str) -> list[str]:
    return sorted(name for name in contents if name.endswith(suffix) and contents[name])


def test_what_a_broker_wrote_is_flawless(written: Contents) -> None:
    assert findings(in_memory(written)) == []
    assert repaired(in_memory(written)) == []


@pytest.mark.parametrize("part", range(PARTS))
def test_every_change_of_a_log_file_is_found(written: Contents, part: int) -> None:
    names = names_of(written, ".log")
    assert len(names) >= 6
    for seed in range(SEED + part, SEED + 2 * ROUNDS, PARTS):
        rng = random.Random(seed)
        name = rng.choice(names)
        what, data = spoilt(rng, written[name])
        files = in_memory(written | {name: data})
        assert is_found(files, deep=False), f"seed {seed}: {name}: {what}"


@pytest.mark.parametrize("part", range(PARTS))
def test_every_bit_of_a_header_is_looked_at(written: Contents, part: int) -> None:
    # The first 61 bytes of a batch in the middle; of them the first 16 are under no checksum.
    name = names_of(written, ".log")[-1]
    entries = entries_of({name: written[name]})[name.rpartition("/")[0]]
    start = sum(map(len, entries[: len(entries) // 2]))
    for bit in range(part, 61 * 8, PARTS * 2):
        data = bytearray(written[name])
        data[start + bit // 8] ^= 1 << bit % 8
        files = in_memory(written | {name: bytes(data)})
        assert is_found(files, deep=False), f"bit {bit} of {name} at {start}"


@pytest.mark.parametrize("suffix", [".index", ".timeindex", ".snapshot", ".pystate.json"])
def test_a_change_of_a_file_beside_the_log_is_found(written: Contents, suffix: str) -> None:
    missed = []
    for seed in range(SEED, SEED + ROUNDS):
        rng = random.Random(seed)
        name = rng.choice(names_of(written, suffix))
        what, data = spoilt(rng, written[name])
        if not is_found(in_memory(written | {name: data})) and not harmless(
            written, name, suffix, data
        ):
            missed.append(f"seed {seed}: {name}: {what}")
    assert not missed


def harmless(contents: Contents, name: str, suffix: str, data: bytes) -> bool:
    """Whether lookups in a changed index are still right, by going through all of them."""
    before = contents[name]
    if suffix == ".index":
        # Entries that are missing at the end: a search reads on from the last one. An entry that
        # ends with another batch of the same set: what it leads to is still before what is sought.
        log = contents[name.removesuffix(suffix) + ".log"]
        base = int(name.rpartition("/")[2][:20])
        starts, position, first = {}, 0, base
        for entry in entries_of({name.removesuffix(suffix) + ".log": log})[name.rpartition("/")[0]]:
            starts[position] = first
            position += len(entry)
            delta = int.from_bytes(entry[23:27], "big") if entry[16] == 2 else 0
            first = int.from_bytes(entry[:8], "big") + delta + 1
        return before.startswith(data[: len(data) - len(data) % 8]) or all(
            data[at + 4 : at + 8] == before[at + 4 : at + 8]
            and base + int.from_bytes(data[at : at + 4], "big")
            >= starts.get(int.from_bytes(data[at + 4 : at + 8], "big"), 1 << 63)
            for at in range(0, len(data), 8)
        )
    if suffix == ".timeindex" and len(data) == len(before):
        # The entry names another record of the same batch, as Apache Kafka before 3.6 does.
        log = contents[name.removesuffix(suffix) + ".log"]
        base = int(name.rpartition("/")[2][:20])
        spans = [
            (int.from_bytes(entry[:8], "big"), int.from_bytes(entry[23:27], "big"))
            for entry in entries_of({"x/" + name.rpartition("/")[2][:20] + ".log": log})["x"]
            if entry[16] == 2
        ]

        def span(offset: int) -> tuple[int, int] | None:
            return next((s for s in spans if s[0] <= base + offset <= s[0] + s[1]), None)

        changed = [at for at in range(0, len(data), 12) if data[at : at + 12] != before[at:][:12]]
        return all(
            data[at : at + 8] == before[at : at + 8]
            and span(int.from_bytes(data[at + 8 : at + 12], "big"))
            == span(int.from_bytes(before[at + 8 : at + 12], "big"))
            is not None
            for at in changed
        )
    if suffix == ".pystate.json":
        import json

        try:
            return bool(json.loads(data) == json.loads(before))
        except ValueError:
            return False
    return False


TEXTS: dict[str, Callable[[bytes], object]] = {
    RECOVERY_POINTS: lambda data: decode_offsets(data, ""),
    HIGH_WATERMARKS: lambda data: decode_offsets(data, ""),
    LOG_STARTS: lambda data: decode_offsets(data, ""),
    CLEANER_OFFSETS: lambda data: decode_offsets(data, ""),
    LEADER_EPOCHS: lambda data: LeaderEpochs.decode(data, "").entries(),
    PARTITION_METADATA: lambda data: decode_partition_metadata(data, ""),
    META_PROPERTIES: lambda data: MetaProperties.decode(data, "").node_id,
    RECEIVE_TIMES: lambda data: len(decode_times(data, "")),
}
ANYTHING_GOES = (META_PROPERTIES, RECEIVE_TIMES)
"""Another number there is as good as the one that was."""


@pytest.mark.parametrize("file", sorted(TEXTS))
def test_a_text_file_that_says_something_else_is_found(written: Contents, file: str) -> None:
    missed = []
    decode = TEXTS[file]
    for seed in range(SEED, SEED + ROUNDS):
        rng = random.Random(seed)
        name = rng.choice(names_of(written, file))
        what, data = spoilt(rng, written[name])
        try:
            same = decode(data) == decode(written[name]) or file in ANYTHING_GOES
        except (MalformedFile, ValueError):
            same = False
        if file == LEADER_EPOCHS and name.startswith(("old", "middle")):
            same = True  # batches of formats 0 and 1 have no epochs to compare with
        if not same and not is_found(in_memory(written | {name: data})):
            missed.append(f"seed {seed}: {name}: {what}")
    assert not missed


@pytest.mark.parametrize("part", range(PARTS))
def test_a_repair_leaves_no_error_and_everything_that_was_whole(
    written: Contents, part: int
) -> None:
    # What the metadata log has lost, no repair brings back.
    repairable = [name for name in written if not name.startswith(METADATA_LOG)]
    names = sorted(name for name in repairable if name != RESERVE)
    logs = sorted(set(names_of(written, ".log")) & set(names))
    for seed in range(SEED + part, SEED + ROUNDS, PARTS):
        rng = random.Random(seed)
        name = rng.choice(logs if rng.random() < 0.6 else names)
        what, data = spoilt(rng, written[name])
        case = f"seed {seed}: {name}: {what}"
        files = in_memory(written | {name: data})

        changes = repaired(files)

        left = [change for change in changes if change.left]
        if not left:
            assert errors(files) == [], case
        again = [change for change in repaired(files) if not change.left]
        assert again == [], case
        if left or name.endswith(META_PROPERTIES):
            continue
        if any("-stray" in change.what for change in changes):
            continue  # it says that it is another topic's
        assert_whole_entries_are_served(written, name, data, contents_in(files), case)


def assert_whole_entries_are_served(
    before: Contents, name: str, data: bytes, after: Contents, case: str
) -> None:
    kept = entries_of(after)
    for folder, entries in entries_of(before).items():
        touched = folder == name.rpartition("/")[0] and name.endswith(".log")
        if not touched:
            assert kept.get(folder, []) == entries or name.startswith(folder), case
            continue
        whole = untouched(before, name, data)
        assert [entry for entry in kept[folder] if entry in whole] == [
            entry for entry in entries if entry in whole
        ], case
    directory, _ = opened(in_memory(after))
    for (topic, number), log in directory.logs.items():
        assert not log.failed, case
        assert everything(log) == b"".join(kept[f"{topic}-{number}"]), case


def untouched(before: Contents, name: str, data: bytes) -> set[bytes]:
    """The entries of a folder that the change did not touch."""
    folder = name.rpartition("/")[0]
    found = set()
    for file, content in before.items():
        if file.rpartition("/")[0] != folder or not file.endswith(".log"):
            continue
        position = 0
        for entry in entries_of({file: content})[folder]:
            end = position + len(entry)
            if file != name or data[position:end] == entry:
                found.add(entry)
            position = end
    return found
