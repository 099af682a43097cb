"""A search by time over many segments looks into one of them."""

from __future__ import annotations

import pytest

from tests.storage.logs import FOLDER, Settings, append, batch, drop_below_start, new_log, opened


def test_a_search_by_time_reads_the_segment_it_is_for() -> None:
    files, _ = logs = new_log(Settings(segment_bytes=2000, index_interval_bytes=100))
    log = logs[1]
    for number in range(600):
        append(log, batch(bytes(80), timestamp_ms=1000 + number))
    log.write()
    assert len(log.segments) > 30
    log.close(clean=True)
    log = opened(files, Settings(segment_bytes=2000, index_interval_bytes=100))
    log.offset_for_timestamp(1000)
    files.reads.clear()

    assert log.offset_for_timestamp(1400) == (1400, 400, 0)

    looked_into = {path for path, _, _ in files.reads}
    assert len({path.rpartition("/")[2][:20] for path in looked_into}) == 1


def test_segments_whose_times_do_not_rise_are_searched_in_the_order_of_offsets() -> None:
    _, log = new_log(Settings(segment_bytes=200))
    for timestamp_ms in (50, 900, 10, 20, 800, 5, 950, 7):
        append(log, batch(bytes(90), timestamp_ms=timestamp_ms))
    log.write()
    assert len(log.segments) == 8

    assert log.offset_for_timestamp(51) == (900, 1, 0)
    assert log.offset_for_timestamp(901) == (950, 6, 0)
    assert log.offset_for_timestamp(951) is None
    assert log.max_timestamp() == (950, 6, 0)
    log.delete_records(2)
    drop_below_start(log)
    assert log.offset_for_timestamp(51) == (800, 4, 0)


@pytest.mark.parametrize("spoilt", [b"", b"\0" * 12, b"x" * 7, b"\xff" * 12])
def test_a_spoilt_time_index_does_not_hide_a_segment(spoilt: bytes) -> None:
    files, log = new_log(Settings(segment_bytes=200))
    for number in range(4):
        append(log, batch(bytes(90), timestamp_ms=100 + number))
    log.write()
    log.sync()
    log.close(clean=True)
    files.write_bytes(f"{FOLDER}/{1:020d}.timeindex", spoilt)
    log = opened(files, Settings(segment_bytes=200))

    assert log.offset_for_timestamp(101) == (101, 1, 0)
