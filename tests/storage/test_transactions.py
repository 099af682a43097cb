"""Open, committed and aborted transactions of a log, told by a list as the model."""

from __future__ import annotations

import errno
import random
from typing import TYPE_CHECKING

import pytest

from protocol.errors import ErrorCode
from protocol.records.layout import HEADER
from protocol.records.markers import Marker, decode_marker, encode_marker
from storage.errors import CoordinatorFenced, OutsideTransaction, ProducerFenced, StorageError
from storage.producers import ProducerStates
from storage.recovery import LastKnown, open_log
from storage.transaction_index import AbortedTransaction, decode, encode
from tests.storage.logs import (
    FOLDER,
    NOW_MS,
    Settings,
    append,
    batch,
    everything,
    file_of,
    header_of,
    new_log,
    opened,
    taken,
)
from tests.support.memory_filesystem import MemoryFilesystem

if TYPE_CHECKING:
    from storage.log import Log

# Written by Apache Kafka 3.9: the marker that commits at offset 6.
COMMIT = bytes.fromhex(
    "000000000000000600000042000000000257d15e49003000000000000001a1f886e435000001a1f886e435"
    "00000000000000010000ffffffff000000012000000008000000010c00000000000000"
)


def begin(log: Log, producer_id: int, sequence: int = 0, *, epoch: int = 0) -> int:
    producer = (producer_id, epoch, sequence)
    return append(log, batch(b"x", timestamp_ms=NOW_MS, producer=producer, transactional=True))


def end(
    log: Log, producer_id: int, *, commit: bool, epoch: int = 0, coordinator_epoch: int = 0
) -> int:
    return log.append_marker(
        producer_id, epoch, commit=commit, coordinator_epoch=coordinator_epoch, now_ms=NOW_MS
    )


def test_kafkas_marker_is_written_and_read_byte_for_byte() -> None:
    timestamp_ms = HEADER.unpack_from(COMMIT)[8]
    made = encode_marker(1, 0, marker=Marker(True, 0), timestamp_ms=timestamp_ms)
    made[:16] = COMMIT[:16]
    assert bytes(made) == COMMIT
    assert decode_marker(COMMIT) == Marker(True, 0)
    assert decode_marker(encode_marker(1, 0, marker=Marker(False, 7), timestamp_ms=0)) == (False, 7)


def test_a_control_batch_that_compaction_emptied_is_no_marker() -> None:
    emptied = bytearray(COMMIT[:61])
    emptied[8:12] = (49).to_bytes(4, "big")
    emptied[57:61] = bytes(4)
    assert decode_marker(emptied) is None


def test_a_log_stores_the_marker_as_kafka_does() -> None:
    _, log = new_log()
    for sequence in range(6):
        begin(log, 1, sequence)
    timestamp_ms = HEADER.unpack_from(COMMIT)[8]
    assert log.append_marker(1, 0, commit=True, coordinator_epoch=0, now_ms=timestamp_ms) == 6
    log.write()
    assert taken(log.read(6, 100)) == COMMIT


def test_committed_records_reach_to_the_oldest_open_transaction() -> None:
    _, log = new_log()
    append(log, batch(b"plain"))
    begin(log, 1)
    begin(log, 2)
    begin(log, 1, 1)
    log.write()
    assert log.last_stable_offset == 1
    end(log, 1, commit=True)
    assert log.last_stable_offset == 1, "the marker is not in the file"
    log.write()
    assert log.last_stable_offset == 2
    end(log, 2, commit=False)
    log.write()
    assert log.last_stable_offset == log.written_offset == 6
    assert log.aborted_transactions(0, 6) == [AbortedTransaction(2, 2, 5, 6)]


def test_queued_records_of_a_transaction_do_not_raise_the_last_stable_offset() -> None:
    _, log = new_log()
    begin(log, 1)
    assert log.last_stable_offset == log.written_offset == 0


def test_an_open_transaction_below_the_log_start_counts_from_there() -> None:
    _, log = new_log()
    begin(log, 1)
    append(log, batch(b"plain"))
    log.write()
    log.delete_records(2)
    assert log.last_stable_offset == 2


def test_a_marker_without_a_transaction_is_stored_and_aborts_nothing() -> None:
    files, log = new_log()
    assert end(log, 5, commit=False, epoch=3) == 0
    log.write()
    log.close(clean=True)
    assert not files.exists(f"{FOLDER}/{0:020d}.txnindex")
    assert len(everything(opened(files))) == 78


def test_a_marker_of_an_old_producer_epoch_or_coordinator_is_refused() -> None:
    _, log = new_log()
    begin(log, 1, epoch=4)
    end(log, 1, commit=True, epoch=4, coordinator_epoch=7)
    log.write()
    with pytest.raises(ProducerFenced) as fenced:
        end(log, 1, commit=True, epoch=3, coordinator_epoch=7)
    assert fenced.value.code == ErrorCode.INVALID_PRODUCER_EPOCH
    with pytest.raises(CoordinatorFenced) as old:
        end(log, 1, commit=True, epoch=4, coordinator_epoch=6)
    assert old.value.code == ErrorCode.TRANSACTION_COORDINATOR_FENCED
    assert log.next_offset == 2
    assert end(log, 1, commit=True, epoch=5, coordinator_epoch=7) == 2


def test_after_a_marker_with_a_new_epoch_sequences_begin_anew() -> None:
    _, log = new_log()
    begin(log, 1)
    end(log, 1, commit=False, epoch=1)
    log.write()
    assert log.producers.check(header_of(batch(b"x", producer=(1, 1, 0)))) is None
    with pytest.raises(ProducerFenced):
        log.producers.check(header_of(batch(b"x", producer=(1, 0, 1))))


def test_a_batch_outside_of_the_open_transaction_is_refused() -> None:
    _, log = new_log()
    begin(log, 1)
    with pytest.raises(OutsideTransaction) as refused:
        log.producers.check(header_of(batch(b"x", producer=(1, 0, 1))))
    assert refused.value.code == ErrorCode.INVALID_TXN_STATE


def test_an_abort_that_the_disk_refused_has_not_happened() -> None:
    files, log = new_log()
    begin(log, 1)
    begin(log, 2)
    log.write()
    before = log.producers.encode()

    end(log, 1, commit=False)
    end(log, 2, commit=True)
    begin(log, 3)
    files.faults = {files.count: errno.ENOSPC}
    with pytest.raises(StorageError):
        log.write()

    assert log.producers.encode() == before
    assert log.last_stable_offset == 0
    assert log.aborted_transactions(0, 2) == []
    end(log, 2, commit=False)
    log.write()
    assert log.last_stable_offset == 0
    end(log, 1, commit=False)
    log.write()
    assert log.aborted_transactions(0, 4) == [
        AbortedTransaction(2, 1, 2, 0),
        AbortedTransaction(1, 0, 3, 4),
    ]


def test_the_first_abort_after_a_clean_start_keeps_those_before_it() -> None:
    files, log = new_log()
    begin(log, 1)
    end(log, 1, commit=False)
    begin(log, 2)
    log.write()
    clean = log.close(clean=True)

    log = opened(files, known=LastKnown(clean=clean))
    end(log, 2, commit=False)
    log.write()
    expected = [AbortedTransaction(1, 0, 1, 2), AbortedTransaction(2, 2, 3, 4)]
    assert log.aborted_transactions(0, 4) == expected
    log.close(clean=True)
    assert file_of(files, ".txnindex") == encode(expected)


def aborted_log() -> tuple[MemoryFilesystem, Log, list[AbortedTransaction]]:
    """Three segments; aborts in the first two, the last of a transaction from the first."""
    files, log = new_log()
    begin(log, 1)
    begin(log, 2)
    end(log, 1, commit=False)
    log.roll(now_ms=NOW_MS)
    end(log, 2, commit=False)
    begin(log, 3)
    end(log, 3, commit=True)
    log.roll(now_ms=NOW_MS)
    begin(log, 4)
    log.sync()
    return files, log, [AbortedTransaction(1, 0, 2, 1), AbortedTransaction(2, 1, 3, 4)]


@pytest.mark.parametrize("content", [b"", b"\0" * 34, b"garbage", None])
@pytest.mark.parametrize("base", [0, 3])
def test_a_damaged_or_missing_index_is_made_anew_after_a_clean_stop(
    base: int, content: bytes | None
) -> None:
    files, log, expected = aborted_log()
    clean = log.close(clean=True)
    path = f"{FOLDER}/{base:020d}.txnindex"
    good = files.read_bytes(path)
    files.remove(path)
    if content is not None:
        files.write_bytes(path, content)

    log, reports = open_log(files, FOLDER, Settings(), known=LastKnown(clean=clean))

    if content == b"":
        return  # an empty file is one without aborts; `triglot check` compares it with the log
    assert log.aborted_transactions(0, 6) == expected
    assert files.read_bytes(path) == good
    assert [report.file for report in reports] == ([] if content else [f"{base:020d}.txnindex"])


@pytest.mark.parametrize("point", range(7))
@pytest.mark.parametrize("with_snapshots", [True, False])
def test_p1_p2_after_a_crash_open_and_aborted_transactions_are_found_again(
    point: int, with_snapshots: bool
) -> None:
    files, log, expected = aborted_log()
    state = log.producers.encode()
    for name in files.list_dir(FOLDER):
        if name.endswith(".snapshot") and not with_snapshots:
            files.remove(f"{FOLDER}/{name}")

    log, _ = open_log(files, FOLDER, Settings(), known=LastKnown(recovery_point=point))

    assert log.last_stable_offset == 6
    assert log.producers.encode() == state
    assert log.aborted_transactions(0, 6) == expected
    made = [name for name in files.list_dir(FOLDER) if name.endswith(".snapshot")]
    assert made == [f"{offset:020d}.snapshot" for offset in (3, 6)]


def test_p1_without_any_snapshot_the_log_is_read_even_after_a_clean_stop() -> None:
    files, log, _ = aborted_log()
    clean = log.close(clean=True)
    for name in files.list_dir(FOLDER):
        if name.endswith(".snapshot"):
            files.remove(f"{FOLDER}/{name}")
    for known in (LastKnown(clean=clean), LastKnown(recovery_point=7)):
        log, _ = open_log(files, FOLDER, Settings(), known=known)
        assert log.last_stable_offset == 6


def test_entries_of_markers_that_were_cut_off_are_gone() -> None:
    files, log, expected = aborted_log()
    end(log, 4, commit=False)
    log.sync()
    log.close(clean=True)
    whole = files.read_bytes(f"{FOLDER}/{6:020d}.txnindex")
    assert decode(whole, 6) == [AbortedTransaction(4, 6, 7, 8)]
    path = f"{FOLDER}/{6:020d}.log"
    files.write_bytes(path, files.read_bytes(path)[:-1])

    log, _ = open_log(files, FOLDER, Settings(), known=LastKnown(recovery_point=6))

    assert log.next_offset == 7
    assert log.last_stable_offset == 6
    assert log.aborted_transactions(0, 7) == expected
    assert not files.exists(f"{FOLDER}/{6:020d}.txnindex")


def test_a_log_without_aborts_is_never_searched_for_them() -> None:
    files, log = new_log()
    for number in range(20):
        append(log, batch(b"x", producer=(1, 0, number)))
        log.roll(now_ms=NOW_MS)
    log.close(clean=True)
    log = opened(files)
    before = len(files.reads)
    assert log.aborted_transactions(0, 20) == []
    assert len(files.reads) == before
    assert log.segments.with_aborted(0) == []


@pytest.mark.parametrize("seed", range(20))
def test_closing_and_going_back_keep_the_order_of_open_transactions(seed: int) -> None:
    rng = random.Random(seed)
    states = ProducerStates()
    opened: dict[int, int] = {}
    for offset in range(0, 400, 4):
        kept = dict(opened)
        keep = rng.random() < 0.6
        for number in range(4):
            producer = rng.randrange(6)
            if rng.random() < 0.5:
                raw = batch(b"x", producer=(producer, 0, 0), transactional=True)
                opened.setdefault(producer, offset + number)
            else:
                raw = encode_marker(producer, 0, marker=Marker(True, 0), timestamp_ms=0)
                opened.pop(producer, None)
            states.update(header_of(raw), offset + number)
            assert states.oldest_open == min(opened.values(), default=-1), f"seed {seed}"
            unsettled = min(kept.values(), default=-1)
            if unsettled >= 0:
                assert states.oldest_unsettled == unsettled, f"seed {seed}"
            assert states.open_since(producer) == opened.get(producer, -1)
        if keep:
            states.settle()
        else:
            states.back()
            opened = kept
        assert states.oldest_open == states.oldest_unsettled == min(opened.values(), default=-1)
