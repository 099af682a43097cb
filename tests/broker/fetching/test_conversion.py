"""Conversions: one for all readers, bounded in memory, off the loop where they are large."""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING

import pytest

from broker import logs
from broker.fetching import conversion
from broker.fetching.conversion import OVERHEAD_BYTES, Conversions, ConversionUnit
from broker.workers import Worker
from protocol.errors import ErrorCode, KafkaError
from protocol.records.builder import build_batch
from protocol.records.compression import GZIP
from protocol.records.convert import Converted, ExpansionLimits, Form
from storage.slices import FileSlice
from tests.support.caller import Target, fetch_request
from tests.support.memory_filesystem import MemoryFilesystem
from tests.support.old_reader import Shelf, records_of

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from broker.fetching.conversion import Key, Outcome

NOW_MS = 1_700_000_000_000
LIMITS = ExpansionLimits(1 << 27, 2000)


def batch(count: int = 10, size: int = 100, codec: int = 0) -> bytes:
    return build_batch([(NOW_MS, None, b"%0*d" % (size, n), ()) for n in range(count)], codec=codec)


class Desk:
    """Conversions by themselves, on a loop that stands still unless it is turned."""

    def __init__(self, *, cache_max_bytes: int = 1 << 20, limits: ExpansionLimits = LIMITS) -> None:
        self.loop = asyncio.new_event_loop()
        self.worker = Worker(self.loop, "convert")
        self.conversions = Conversions(
            self.worker, self.worker, limits, cache_max_bytes=cache_max_bytes
        )
        self._files = MemoryFilesystem()
        self._count = 0

    def unit(self, data: bytes, form: Form = Form.FORMAT_1) -> ConversionUnit:
        self._count += 1
        file = self._files.open_file(f"/{self._count}", create=True)
        file.write_at([data], 0)
        stored = FileSlice(file, 0, len(data))
        return ConversionUnit(stored, form, (self._count, 0), record_count=10, compressed=False)

    def begin(self, units: list[ConversionUnit], enough: int = 1 << 30) -> list[dict[Key, Outcome]]:
        """Have them converted; the list gets the results."""
        taken: list[dict[Key, Outcome]] = []
        self.conversions.begin([(units, enough)], taken.append)
        return taken

    def turn_until(self, taken: list[dict[Key, Outcome]]) -> dict[Key, Outcome]:
        deadline_s = self.loop.time() + 10
        while not taken:
            assert self.loop.time() < deadline_s, "the worker gave nothing back"
            self.loop.run_until_complete(asyncio.sleep(0.001))
        (made,) = taken
        return made

    def close(self) -> None:
        self.worker.stop()
        self.loop.run_until_complete(asyncio.sleep(0))
        self.loop.close()


@pytest.fixture
def desk() -> Iterator[Desk]:
    desk = Desk()
    yield desk
    desk.close()


def test_what_was_converted_is_found_again(desk: Desk) -> None:
    unit = desk.unit(batch())
    assert desk.conversions.find(unit) is None

    made = desk.turn_until(desk.begin([unit]))

    assert desk.conversions.find(unit) is made[unit.key]
    counters = desk.conversions
    assert (counters.hits, counters.misses, counters.converted_entries) == (1, 1, 1)
    assert counters.converted_records == 10


def test_forms_are_told_apart(desk: Desk) -> None:
    unit = desk.unit(batch(codec=GZIP))
    desk.turn_until(desk.begin([unit]))

    assert desk.conversions.find(unit.plain()) is None


def test_those_who_ask_meanwhile_wait_for_the_same_job(desk: Desk) -> None:
    units = [desk.unit(batch()) for _ in range(3)]

    taken = [desk.begin(units[first:]) for first in (0, 0, 1, 2)]
    made = [desk.turn_until(one) for one in taken]

    assert desk.conversions.converted_entries == 3
    assert desk.conversions.joined == 3
    assert all(units[2].key in one for one in made)


def test_one_who_waits_for_several_jobs_gets_all_results_once(desk: Desk) -> None:
    units = [desk.unit(batch()) for _ in range(4)]

    first = desk.begin(units[:2])
    second = desk.begin(units)

    assert len(desk.turn_until(first)) == 2
    assert set(desk.turn_until(second)) == {unit.key for unit in units}


def test_a_job_stops_when_it_has_made_enough(desk: Desk) -> None:
    units = [desk.unit(batch()) for _ in range(5)]

    made = desk.turn_until(desk.begin(units, enough=2000))

    assert list(made) == [unit.key for unit in units[:2]]
    assert len(desk.turn_until(desk.begin(units[2:]))) == 3, "the others are not thought under way"


def test_a_job_that_nobody_waits_for_is_not_begun(desk: Desk) -> None:
    gate = threading.Event()
    desk.worker.run(lambda: gate.wait(10), lambda _: None)
    ticket = desk.conversions.begin([([desk.unit(batch())], 1000)], lambda made: None)
    last = desk.begin([desk.unit(batch())])

    ticket.drop()
    gate.set()
    desk.turn_until(last)

    assert desk.conversions.converted_entries == 1


# Memory


def test_the_cache_keeps_its_bound_and_what_was_used_last() -> None:
    size = 0
    desk = Desk(cache_max_bytes=4 * (1500 + OVERHEAD_BYTES))
    units = [desk.unit(batch()) for _ in range(6)]
    try:
        for unit in units:
            made = desk.turn_until(desk.begin([unit]))
            (outcome,) = made.values()
            assert isinstance(outcome, Converted)
            size = len(outcome.data)
            assert 1300 < size < 1500
            desk.conversions.find(units[0])

        kept = [unit for unit in units if desk.conversions.find(unit) is not None]
    finally:
        desk.close()

    assert kept == [units[0], *units[3:]]
    assert desk.conversions.cached_bytes == 4 * (size + OVERHEAD_BYTES)


def test_a_cache_of_nothing_keeps_nothing() -> None:
    desk = Desk(cache_max_bytes=0)
    unit = desk.unit(batch())
    try:
        made = desk.turn_until(desk.begin([unit]))
    finally:
        desk.close()

    assert unit.key in made
    assert desk.conversions.find(unit) is None
    assert desk.conversions.cached_bytes == 0


def test_what_turns_out_to_be_large_is_not_converted_on_the_loop(desk: Desk) -> None:
    small, bomb = desk.unit(batch(codec=GZIP)), desk.unit(batch(100, 10_000, codec=GZIP))
    assert bomb.stored.size < 20_000

    assert isinstance(desk.conversions.convert_now(small), Converted)
    assert desk.conversions.convert_now(bomb) is None
    assert desk.conversions.failures == 0
    assert isinstance(desk.turn_until(desk.begin([bomb]))[bomb.key], Converted)


# Failures


def test_a_failure_is_remembered_without_what_it_held(desk: Desk) -> None:
    broken = bytearray(batch())
    broken[-1] ^= 1
    units = [desk.unit(bytes(broken)), desk.unit(batch())]

    made = desk.turn_until(desk.begin(units))

    outcome = desk.conversions.find(units[0])
    assert isinstance(outcome, KafkaError)
    assert outcome.__traceback__ is None
    assert outcome.__context__ is None
    assert list(made) == [units[0].key], "nothing is sent behind it, so nothing is converted"


def test_a_file_that_was_cut_and_a_fault_of_ours_end_no_thread(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    cut = desk.unit(batch())
    cut.stored.file.truncate(50)
    assert isinstance(desk.turn_until(desk.begin([cut]))[cut.key], KafkaError)

    def fail(*_: object) -> Converted:
        raise ZeroDivisionError("ours")

    said: list[Exception] = []
    with monkeypatch.context() as patched:
        patched.setattr(conversion, "convert", fail)
        patched.setattr(logs, "fault_once_a_minute", lambda _, fault, where: said.append(fault))
        faulty = desk.unit(batch())
        outcome = desk.turn_until(desk.begin([faulty]))[faulty.key]
    assert isinstance(outcome, KafkaError)
    assert outcome.code == ErrorCode.CORRUPT_MESSAGE
    assert [type(fault) for fault in said] == [ZeroDivisionError]

    fine = desk.unit(batch())
    assert isinstance(desk.turn_until(desk.begin([fine]))[fine.key], Converted)


# Through fetches


@pytest.mark.parametrize("version", [0, 2])
@pytest.mark.parametrize("codec", [0, GZIP])
def test_ten_consumers_cost_one_conversion_of_each_batch(
    tmp_path: Path, version: int, codec: int
) -> None:
    with Shelf(tmp_path / "data") as shelf:
        shelf.topic("t")
        batches = [batch(200, 100, codec) for _ in range(20)]
        shelf.store("t", *batches)
        readers = [shelf.reader() for _ in range(10)]
        offsets = [0] * 10

        while min(offsets) < 4000:
            for reader, offset in zip(readers, offsets, strict=True):
                wanted = Target("t", offset, partition_max_bytes=100_000)
                reader.ask(fetch_request(wanted), version)
            for number, reader in enumerate(readers):
                entry = reader.answer().responses[0].partitions[0]
                records = records_of(entry.records)
                if records:
                    offsets[number] = records[-1].offset + 1

        assert offsets == [4000] * 10
        assert shelf.conversions.converted_entries == len(batches)
        assert shelf.conversions.converted_records == 4000


def test_consumers_at_different_places_share_what_is_kept(tmp_path: Path) -> None:
    with Shelf(tmp_path / "data") as shelf:
        shelf.topic("t")
        shelf.store("t", *[batch(200, 100, GZIP)] * 20)

        for _ in range(3):
            assert len(shelf.read_all("t", version=2, max_bytes=50_000)) == 4000
        assert len(shelf.read_all("t", version=2, offset=333, max_bytes=7_000)) == 3667

        assert shelf.conversions.converted_entries == 20


@pytest.mark.parametrize("cache", ["0", "3000"])
def test_without_a_cache_everything_is_read_all_the_same(tmp_path: Path, cache: str) -> None:
    with Shelf(tmp_path / "data", conversion_cache_max_bytes=cache) as shelf:
        shelf.topic("t")
        shelf.store("t", *[batch(2000, 100)] * 3, batch(300, 100, GZIP))

        records = shelf.read_all("t", version=0, max_bytes=60_000)

        assert [record.offset for record in records] == list(range(6300))
        assert shelf.conversions.cached_bytes <= int(cache)
