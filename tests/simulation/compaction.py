"""Records that may be missing from a compacted log, and those that must be gone."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from protocol.records.errors import CorruptBatch
from protocol.records.layout import ATTRIBUTES, PRODUCER_ID, TRANSACTIONAL_BIT
from storage.cleaning.cleaning import Cleaning
from storage.cleaning.plan import CleaningLag, CleaningRules, plan_cleaning
from storage.errors import StorageError
from storage.replacing import Replacing, cover_sealed, discard_all
from tests.simulation.records import read_entry

if TYPE_CHECKING:
    from storage.log import Log
    from tests.simulation.ledger import Ledger
    from tests.simulation.records import Entry, Record
    from tests.simulation.settings import Settings
    from tests.simulation.world import Job, Part, SimulatedTopic, World


def rules_of(settings: Settings, map_bytes: int) -> tuple[CleaningRules, CleaningLag]:
    rules = CleaningRules(
        segment_bytes=settings.segment_bytes,
        segment_index_bytes=settings.segment_index_bytes,
        index_interval_bytes=settings.index_interval_bytes,
        max_message_bytes=settings.max_message_bytes,
        delete_retention_ms=settings.delete_retention_ms,
        map_bytes=map_bytes,
        max_decompressed_bytes=1 << 26,
        max_decompression_ratio=10_000,
    )
    lag = CleaningLag(
        settings.min_compaction_lag_ms,
        settings.max_compaction_lag_ms,
        settings.min_cleanable_dirty_ratio,
    )
    return rules, lag


def clean(world: World, topic: SimulatedTopic, number: int, map_bytes: int) -> Job:
    """What the broker's cleaner does with one log, as a job."""
    key = (topic.name, number)
    ledger = topic.ledgers[number]
    log = world.directory.logs.get(key)
    if (
        log is None
        or world.topics.get(topic.name) is not topic
        or ledger.written < ledger.next_offset
    ):
        return
    rules, lag = rules_of(topic.settings, map_bytes)
    try:
        plan = plan_cleaning(log, rules, lag, now_ms=world.now_ms)
    except (OSError, StorageError):
        world.expect(world.faulty, f"{log.name}: no plan without a fault")
        return
    if plan is None:
        return
    cover_sealed(log)
    if not (yield from world.synced(log, ledger)):
        return
    try:
        steps = world.directory.checkpoints.gaps(log, plan.end)
        discard_all(log.files, log.folder)
        for step in steps:
            step.sync()
            yield
        ledger.compacted = max(ledger.compacted, plan.end)
        ledger.cleanings.append((world.now_ms, plan.end))
        cleaning = Cleaning(world.files, plan)
        for group in cleaning.groups():
            yield
            if not (yield from replace(world, log, ledger, Replacing(log, group))):
                interrupt(world, log, ledger)
                return
        log.cleaned_to = ledger.cleaned_to = cleaning.cleaned_to
        world.totals.cleanings += 1
        expect_clean(world, log, ledger)
        for step in world.directory.checkpoints.cleaned():
            step.sync()
            yield
    except FileNotFoundError:
        gone = {source.base_offset for source in plan.sources} - set(log.segments.base_offsets)
        overtaken = world.directory.logs.get(key) is not log or gone
        world.expect(bool(overtaken or world.faulty), f"{log.name}: a source is missing")
        interrupt(world, log, ledger)
    except (OSError, StorageError):
        world.expect(world.faulty, f"{log.name}: cleaning failed without a fault")
        interrupt(world, log, ledger)
    except CorruptBatch as error:
        # Of a topic that was deleted there may be another one in the same folder.
        world.expect(not world.is_open(log), f"{log.name}: cleaning met {error}")


def replace(world: World, log: Log, ledger: Ledger, replacing: Replacing) -> Part:
    """Put one group in place. Returns whether it could be."""
    if not replacing.is_possible():
        return False
    replacing.commit()
    yield
    if not replacing.is_possible():
        return False
    replacing.swap()
    accept(world, log, ledger)
    yield
    replacing.finish()
    yield
    return True


def interrupt(world: World, log: Log, ledger: Ledger) -> None:
    if log.failed is None and world.is_open(log):
        with suppress(OSError):
            discard_all(log.files, log.folder)
    if world.is_open(log):
        world.follow(log, ledger)


def accept(world: World, log: Log, ledger: Ledger) -> None:
    """After segments were replaced: what is there is what there may be, and is the model now."""
    from tests.simulation.checks import content_of

    known = {entry.raw: entry for entry in ledger.entries}
    found = []
    for raw in content_of(log, up_to=ledger.written):
        entry = known.get(raw)
        found.append(read_entry(raw) if entry is None else entry)
    expect_survivors(world, log, ledger, found)
    queued = [entry for entry in ledger.entries if entry.base >= ledger.written]
    ledger.put_compacted(found + queued)


def expect_survivors(world: World, log: Log, ledger: Ledger, found: list[Entry]) -> None:
    """Everything found was written, and whatever is missing may be."""
    originals = {record.offset: record for entry in ledger.originals for record in entry.records}
    there: set[int] = set()
    last = -1
    for entry in found:
        for record in entry.records:
            if record.offset <= last or originals.get(record.offset) != record:
                world.broken(f"{log.name}: {record} is not {originals.get(record.offset)}")
            last = record.offset
            there.add(last)
    newest = newest_of(ledger)
    aborted = aborted_offsets(ledger)
    for entry in ledger.originals:
        if entry.last < log.start_offset or entry.base >= ledger.written:
            continue
        for record in entry.records:
            offset = record.offset
            if offset in there or offset < log.start_offset or offset in aborted:
                continue
            if offset >= ledger.compacted:
                world.broken(f"{log.name}: {record} is gone, above {ledger.compacted}")
            if entry.control is not None or record.key is None:
                continue
            if offset < newest[record.key].offset or may_expire(ledger, record, entry.magic):
                continue
            world.broken(f"{log.name}: {record}, the last of its key, is gone")


def newest_of(ledger: Ledger, below: int | None = None) -> dict[bytes, Record]:
    """The last record of each key, below where compaction may have been."""
    below = ledger.compacted if below is None else below
    aborted = aborted_offsets(ledger)
    return {
        record.key: record
        for entry in ledger.originals
        if entry.control is None
        for record in entry.records
        if record.key is not None and record.offset < below and record.offset not in aborted
    }


def aborted_offsets(ledger: Ledger) -> set[int]:
    """The offsets of records in aborted transactions."""
    if not ledger.aborted:
        return set()
    found: set[int] = set()
    for entry in ledger.originals:
        header = entry.header
        if header is None or entry.control is not None:
            continue
        if not header[ATTRIBUTES] & TRANSACTIONAL_BIT:
            continue
        if any(
            one.producer_id == header[PRODUCER_ID]
            and one.first_offset <= entry.base < one.last_offset
            for one in ledger.aborted
        ):
            found.update(range(entry.base, entry.last + 1))
    return found


def may_expire(ledger: Ledger, record: Record, magic: int) -> bool:
    """Whether a tombstone may be gone: it was cleaned, and later, past its horizon, again."""
    if record.value is not None:
        return False
    times = sum(end > record.offset for _, end in ledger.cleanings)
    # Formats 0 and 1 have no horizon: there the age of what is clean counts, and a segment in which
    # the log starts or a cleaning ended counts as clean.
    return times > (1 if magic == 2 else 0)


def expect_clean(world: World, log: Log, ledger: Ledger) -> None:
    """Below where a cleaning ended no key comes twice."""
    newest = newest_of(ledger, ledger.cleaned_to)
    aborted = aborted_offsets(ledger)
    for entry in ledger.entries[ledger.index_of(log.start_offset) :]:
        if entry.last >= ledger.cleaned_to:
            break
        if entry.control is not None:
            continue
        for record in entry.records:
            if record.offset < log.start_offset:
                continue
            if record.key is None or record.offset in aborted:
                world.broken(f"{log.name}: {record} should be gone")
            if record.offset < newest[record.key].offset:
                world.broken(f"{log.name}: {record} is still there: {newest[record.key]}")
