"""An append to the metadata log that a power cut tore where a sector of the disk ends.

A disk writes its sectors whole, in any order: of an append that lies in two of them either may be
missing, and be zeros in a file that has its size already. However little of the append that is, it
was never acknowledged, and no start may be refused for it.
"""

from __future__ import annotations

import pytest

from protocol.logdata.metadata import TopicRecord
from storage.metadata.loading import MetadataRefused, load
from tests.storage.metadata.metadata_files import (
    BATCHES,
    PATH,
    batch,
    leader_change,
    topic,
    topic_id,
    with_log,
)
from tests.storage.metadata.opening_metadata import opened

SECTOR = 512
END = 10
APPENDS = {"leader": leader_change(END, 2), "topic": batch(END, topic(4))}


def log_before(append_ends_in: int) -> bytes:
    """A log that ends at offset 10, so long that a sector ends this many bytes after it."""
    for length in range(1, 3 * SECTOR):
        name = TopicRecord(name="n" * length, topic_id=topic_id(9))
        log = b"".join(BATCHES) + batch(9, [name])
        if (len(log) + append_ends_in) % SECTOR == 0:
            return log
    raise AssertionError(append_ends_in)


@pytest.mark.parametrize("kind", APPENDS)
@pytest.mark.parametrize("lost", ["before", "after"])
def test_an_append_without_one_of_its_two_sectors_ends_the_log(kind: str, lost: str) -> None:
    append = APPENDS[kind]
    for cut in range(1, len(append)):
        log = log_before(cut)
        left = (
            bytes(cut) + append[cut:]
            if lost == "before"
            else append[:cut] + bytes(len(append) - cut)
        )

        found = load(with_log(log + left), PATH)

        if left == append:
            assert (found.torn, found.end_offset) == (None, END + kind_count(kind)), cut
            continue
        assert found.torn is not None, cut
        torn = (found.torn.position, found.torn.size, found.end_offset)
        assert torn == (len(log), len(append), END), cut


@pytest.mark.parametrize("kind", APPENDS)
@pytest.mark.parametrize(("lost", "left"), [("before", 9), ("before", 14), ("after", 5)])
def test_a_start_cuts_it_and_goes_on(kind: str, lost: str, left: int) -> None:
    append = APPENDS[kind]
    cut = left if lost == "before" else len(append) - left
    log = log_before(cut)
    torn = bytes(cut) + append[cut:] if lost == "before" else append[:cut] + bytes(left)
    files = with_log(log + torn)

    store, reports = opened(files)

    (report,) = [one for one in reports if one.bytes_cut]
    assert (report.position, report.bytes_cut) == (len(log), len(append))
    assert store.log.end_offset == END + 1, "the record of the new leader"
    assert not opened(files)[1]


def kind_count(kind: str) -> int:
    return 1 if kind == "leader" else len(topic(4))


@pytest.mark.parametrize("kind", APPENDS)
def test_a_flipped_bit_is_no_sector_that_was_not_written(kind: str) -> None:
    """Wherever the sector ends; but for a byte that was all that its sector had of the append."""
    append = APPENDS[kind]
    for cut in range(1, len(append)):
        log = log_before(cut)
        for place in {7, 11, *range(16 + cut % 5, len(append), 5)}:
            flipped = bytearray(append)
            flipped[place] ^= 4
            if any(flipped[:cut]) and any(flipped[cut:]):
                with pytest.raises(MetadataRefused, match=f"position {len(log)}:"):
                    load(with_log(log + bytes(flipped)), PATH)
