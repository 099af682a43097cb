"""Fetches of older readers that wait: for records they can see, or for a conversion."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import pytest

from protocol.errors import ErrorCode
from protocol.records.builder import build_batch
from protocol.records.compression import GZIP
from storage.steps import run_here
from tests.support.caller import NOW_MS, Target, Timed, fetch_request
from tests.support.old_reader import Shelf, records_of

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.support.old_reader import Reader

MARKER = build_batch([(NOW_MS, b"\0\0\0\1", b"\0\0\0\0\0\0", ())], control=True, transactional=True)
LONG_MS = 10_000


def batch(count: int, size: int = 100, codec: int = 0) -> bytes:
    return build_batch([(NOW_MS, None, b"%0*d" % (size, n), ()) for n in range(count)], codec=codec)


@pytest.fixture
def shelf(tmp_path: Path) -> Iterator[Shelf]:
    with Shelf(tmp_path / "data") as shelf:
        shelf.topic("t")
        yield shelf


def offsets(reader: Reader) -> list[int]:
    entry = reader.answer().responses[0].partitions[0]
    assert entry.error_code == 0
    return [record.offset for record in records_of(entry.records)]


def sees_nothing(shelf: Shelf, reader: Reader) -> bool:
    shelf.turn(5)
    return not reader.has_answer()


@pytest.mark.parametrize("version", [0, 2, 3])
def test_a_tail_that_the_reader_is_not_to_see_is_waited_at(shelf: Shelf, version: int) -> None:
    shelf.store("t", MARKER, MARKER)
    reader = shelf.reader()

    with Timed() as took:
        reader.ask(fetch_request(Target("t"), max_wait_ms=200), version)
        shelf.store("t", MARKER)
        assert sees_nothing(shelf, reader)
        assert offsets(reader) == []

    assert took.ms >= 190


@pytest.mark.parametrize("version", [0, 2, 3])
def test_records_behind_such_a_tail_wake_the_reader(shelf: Shelf, version: int) -> None:
    shelf.store("t", MARKER)
    reader = shelf.reader()
    reader.ask(fetch_request(Target("t"), max_wait_ms=LONG_MS), version)
    assert sees_nothing(shelf, reader)

    shelf.store("t", MARKER)
    assert sees_nothing(shelf, reader)
    shelf.store("t", batch(2))

    assert offsets(reader) == [2, 3]


def test_what_was_stepped_over_is_not_looked_at_again(
    shelf: Shelf, monkeypatch: pytest.MonkeyPatch
) -> None:
    shelf.store("t", *[MARKER] * 50)
    log_type = type(shelf.log("t"))
    asked: list[int] = []
    read_entries = log_type.read_entries

    def noted(self: object, offset: int, *args: object, **options: object) -> object:
        asked.append(offset)
        return read_entries(self, offset, *args, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(log_type, "read_entries", noted)
    reader = shelf.reader()
    reader.ask(fetch_request(Target("t"), max_wait_ms=LONG_MS), 2)
    shelf.store("t", MARKER)
    shelf.store("t", batch(1))

    assert offsets(reader) == [51]
    assert asked[0] == 0
    assert min(asked[1:]) >= 50


@pytest.mark.parametrize("version", [0, 2])
def test_the_minimum_counts_what_the_reader_gets_and_not_what_is_stored(
    shelf: Shelf, version: int
) -> None:
    stored = batch(1)
    shelf.store("t", stored)
    received = len(shelf.fetch("t", version=version).records)
    assert received < len(stored)
    reader = shelf.reader()
    reader.ask(fetch_request(Target("t"), min_bytes=3 * received, max_wait_ms=LONG_MS), version)

    shelf.store("t", stored)
    assert sees_nothing(shelf, reader)
    shelf.store("t", stored)

    assert offsets(reader) == [0, 1, 2]


def test_when_the_time_is_up_there_is_what_there_is(shelf: Shelf) -> None:
    shelf.store("t", batch(2))
    reader = shelf.reader()

    with Timed() as took:
        reader.ask(fetch_request(Target("t"), min_bytes=10_000, max_wait_ms=150), 2)
        assert offsets(reader) == [0, 1]

    assert took.ms >= 140


def hold_the_worker(shelf: Shelf) -> threading.Event:
    gate = threading.Event()
    shelf.running.broker.converter.run(lambda: gate.wait(10), lambda _: None)
    return gate


def test_a_conversion_is_waited_for_beyond_the_time_of_the_fetch(shelf: Shelf) -> None:
    shelf.store("t", batch(5000))
    gate = hold_the_worker(shelf)
    reader = shelf.reader()

    with Timed() as took:
        reader.ask(fetch_request(Target("t"), max_wait_ms=1), 2)
        assert sees_nothing(shelf, reader)
        gate.set()
        assert len(offsets(reader)) == 5000

    assert took.ms < LONG_MS


def test_the_next_request_waits_for_the_conversion_and_other_clients_do_not(shelf: Shelf) -> None:
    shelf.store("t", batch(5000))
    gate = hold_the_worker(shelf)
    old, new = shelf.reader(), shelf.reader()
    old.ask(fetch_request(Target("t")), 2)
    shelf.turn(5)

    assert (
        len(
            records_of(new.fetch(fetch_request(Target("t")), 12).responses[0].partitions[0].records)
        )
        == 5000
    )
    assert sees_nothing(shelf, old)
    gate.set()
    assert len(offsets(old)) == 5000


def test_a_client_that_leaves_takes_its_conversion_with_it(shelf: Shelf) -> None:
    shelf.store("t", batch(5000))
    gate = hold_the_worker(shelf)
    reader = shelf.reader()
    reader.ask(fetch_request(Target("t")), 2)
    shelf.turn(5)

    reader.client.lose()
    gate.set()
    other = shelf.reader()
    other.ask(fetch_request(Target("t", 4999)), 2)

    assert offsets(other) == [4999]
    assert shelf.conversions.converted_entries == 1


def test_a_topic_deleted_during_a_conversion_is_told(shelf: Shelf) -> None:
    shelf.store("t", batch(5000, codec=GZIP))
    gate = hold_the_worker(shelf)
    reader = shelf.reader()
    reader.ask(fetch_request(Target("t")), 2)
    shelf.turn(5)

    topics = shelf.running.broker.topics
    run_here(topics.delete(topics.by_name["t"]))
    gate.set()

    entry = reader.answer().responses[0].partitions[0]
    assert entry.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_a_broker_that_stops_does_not_wait_for_a_conversion(tmp_path: Path) -> None:
    with Shelf(tmp_path / "data") as shelf:
        shelf.topic("t")
        shelf.store("t", batch(5000))
        gate = hold_the_worker(shelf)
        reader = shelf.reader()
        reader.ask(fetch_request(Target("t"), max_wait_ms=LONG_MS), 2)
        shelf.turn(5)

        reader.client.connection.close()
        shelf.turn(5)

        assert reader.has_answer()
        gate.set()
