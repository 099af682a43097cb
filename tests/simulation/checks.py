"""Requirements on a data directory after a start, whatever came before it."""

from __future__ import annotations

from itertools import zip_longest
from typing import TYPE_CHECKING

from protocol.records.layout import MAGIC_POSITION, PRODUCER_ID
from protocol.records.walk import walk
from storage.errors import OutOfOrderSequence
from storage.layout import is_deleted_directory, partition_directory
from storage.offset_index import ENTRY_SIZE as INDEX_ENTRY_SIZE
from storage.time_index import ENTRY_SIZE as TIME_INDEX_ENTRY_SIZE
from tests.simulation.compaction import expect_survivors
from tests.simulation.records import Sender, batch_of, read_entry, some_records

if TYPE_CHECKING:
    import random

    from storage.log import Log
    from storage.reports import RecoveryReport
    from storage.segment import Segment
    from tests.simulation.ledger import Ledger, Sent
    from tests.simulation.records import Entry
    from tests.simulation.world import SimulatedTopic, World

MENDED = (
    "are missing",
    "written again",
    "snapshot; removed",
    "does not fit; removed",
    "bytes; removed",
    "is 1; removed",
)
LEFT_OVER = (".cleaned", ".swap", ".deleted", ".damaged")
CONTROL_FILES = frozenset({
    ".lock", ".kafka_cleanshutdown", ".pystate.json", "meta.properties", "bootstrap.checkpoint",
    "recovery-point-offset-checkpoint", "replication-offset-checkpoint",
    "cleaner-offset-checkpoint", "log-start-offset-checkpoint", ".triglot-reserve",
    "__cluster_metadata-0", "taken-over-checkpoint", "clock-checkpoint",
    "synced-offset-checkpoint", "clients.json",
})  # fmt: skip


def check_start(world: World, rng: random.Random, *, clean: bool, power_failed: bool) -> None:
    """After any start: the topics, every log, and the files."""
    check_topics(world)
    for report in world.reports:
        check_report(world, report, clean=clean)
    for topic, _, log, ledger in world.all_logs():
        check_log(world, log, ledger, topic, clean=clean)
        if power_failed:  # what is found after that is on the disk
            ledger.acked = log.next_offset
            ledger.refused.clear()
        check_epochs(world, log, ledger)
        check_senders(world, log, ledger, rng)
        if rng.random() < 0.3:
            check_indexes(world, log, ledger, topic)
    check_files(world)


def check_report(world: World, report: RecoveryReport, *, clean: bool) -> None:
    """A start tells only of the tail that a crash tore, and of what it made again."""
    expected = report.bytes_cut > 0 or any(part in report.reason for part in MENDED)
    world.expect(expected and not clean, f"the start says {report!r}")


def check_topics(world: World) -> None:
    stored = {topic.name: topic for topic in world.store.topics()}
    for name, doubtful in list(world.doubtful.items()):
        found = stored.get(name)
        if found is not None and found.topic_id == doubtful.topic_id:
            world.expect(name not in world.topics, f"topic {name} is there twice")
            world.topics[name] = doubtful
    for name, topic in world.topics.items():
        found = stored.get(name)
        if found is None or found.topic_id != topic.topic_id:
            world.broken(f"topic {name} is gone")
        count = len(topic.ledgers)
        if found.partition_count != count:
            world.expect(
                found.partition_count == world.growing.get(name),
                f"topic {name} has {found.partition_count} partitions, not {count}",
            )
            topic.grow(found.partition_count)
    world.doubtful.clear()
    world.growing.clear()
    for name in stored:
        world.expect(name in world.topics, f"topic {name} is back")


def check_files(world: World) -> None:
    """No file is there that a human would have to look at."""
    folders = {
        partition_directory(topic.name, number): topic
        for topic in world.topics.values()
        for number in range(len(topic.ledgers))
    }
    for name in world.files.list_dir("/data"):
        if name in folders or name in CONTROL_FILES or name.endswith(".tmp"):
            continue
        world.expect(is_deleted_directory(name), f"/data/{name} is left")
        world.broken(f"/data/{name} is left after a start")
    for folder in folders:
        for name in world.files.list_dir(f"/data/{folder}"):
            world.expect(not name.endswith(LEFT_OVER), f"{folder}/{name} is left")


def content_of(log: Log, *, up_to: int) -> list[bytes]:
    """The entries a consumer gets that reads the log from its start."""
    found: list[bytes] = []
    offset = log.start_offset
    while offset < up_to:
        piece = log.read(offset, 1 << 20)
        if piece is None:
            break
        data = piece.read()
        found += [data[position : position + size] for position, size, _ in walk(data)]
        offset = _last_offset(found[-1]) + 1
    return found


def _last_offset(raw: bytes) -> int:
    base = int.from_bytes(raw[:8], "big")
    return base + int.from_bytes(raw[23:27], "big") if raw[MAGIC_POSITION] == 2 else base


def check_log(
    world: World, log: Log, ledger: Ledger, topic: SimulatedTopic, *, clean: bool
) -> None:
    """The log is a prefix of its history that holds everything acknowledged."""
    name = log.name
    if log.failed is not None:
        world.broken(f"{name} has failed: {log.failed}")
    start, end = log.start_offset, log.next_offset
    world.expect(
        ledger.start_kept <= start <= ledger.start_max,
        f"{name} starts at {start}, not in {ledger.start_kept}..{ledger.start_max}",
    )
    world.expect(end >= ledger.acked, f"{name} ends at {end}, acknowledged was {ledger.acked}")
    world.expect(
        not clean or end == ledger.next_offset, f"{name} ends at {end}, not {ledger.next_offset}"
    )
    world.expect(log.written_offset == end, f"{name}: {log.written_offset} written of {end}")
    world.expect(log.recovery_point <= end, f"{name}: recovery point {log.recovery_point}")
    ledger.start = ledger.start_kept = ledger.start_max = start
    found = content_of(log, up_to=end)
    if end < ledger.next_offset:
        # What this start did not find may have been written all the same, and cut off again.
        ledger.refuse(end)
    if ledger.compacted:
        check_compacted(world, log, ledger, found)
    else:
        check_entries(world, log, ledger, found)
    ledger.written = ledger.next_offset
    ledger.compacted = min(ledger.compacted, end)
    for sent in ledger.senders.values():
        # What was not acknowledged before the crash will be sent again.
        sent.fresh = 0 if clean else sum(last >= ledger.acked for _, _, last in sent.batches)


def check_entries(world: World, log: Log, ledger: Ledger, found: list[bytes]) -> None:
    """What was not compacted is byte by byte what was appended."""
    first = ledger.index_of(log.start_offset)
    kept: list[Entry] = []
    others: dict[int, Entry] = {}
    found_end = log.start_offset
    for number, raw in enumerate(found):
        index = first + number
        entry = ledger.entries[index] if index < len(ledger.entries) else None
        if entry is None or entry.raw != raw:
            entry = refused_one(world, log, ledger, raw)
            world.expect(entry.base == found_end, f"{log.name}: {entry} at {found_end}")
            others[entry.base] = entry
        kept.append(entry)
        found_end = entry.last + 1
    end = log.next_offset
    world.expect(
        found_end == end or not found, f"{log.name}: entries end at {found_end}, the log at {end}"
    )
    ledger.hold(ledger.entries[:first] + kept, end, others)


def refused_one(world: World, log: Log, ledger: Ledger, raw: bytes) -> Entry:
    """Of what was refused, some may be there in the place of what was never synced."""
    entry = ledger.may_be().get(raw)
    if entry is None or entry.base < ledger.acked:
        world.broken(f"{log.name}: {read_entry(raw)} is not what was appended")
    return entry


def check_compacted(world: World, log: Log, ledger: Ledger, found: list[bytes]) -> None:
    """Record by record, what was appended; and only such are missing as may be."""
    known = {entry.raw: entry for entry in ledger.entries}
    entries: list[Entry] = []
    others: dict[int, Entry] = {}
    for raw in found:
        entry = known.get(raw)
        if entry is None and raw in ledger.refused:
            entry = refused_one(world, log, ledger, raw)
            others[entry.base] = entry
        entries.append(read_entry(raw) if entry is None else entry)
    ledger.hold(ledger.entries, log.next_offset, {})
    if others:
        ledger.originals = [e for e in ledger.originals if e.base < min(others)]
        ledger.originals += [e for e in entries if e.base >= min(others)]
    ledger.written = ledger.next_offset
    expect_survivors(world, log, ledger, entries)
    ledger.put_compacted(entries)
    ledger.hold(ledger.entries, log.next_offset, {})


def check_epochs(world: World, log: Log, ledger: Ledger) -> None:
    entries = log.epochs.entries()
    world.expect(entries == sorted(set(entries)), f"{log.name}: epochs {entries}")
    ends: dict[int, tuple[int, int]] = {}
    for entry in ledger.entries[ledger.index_of(log.start_offset) :]:
        if entry.magic < 2:  # as with Kafka, what lies below has no known epoch any more
            ends.clear()
            continue
        first = max(entry.base, log.start_offset)
        ends[entry.epoch] = (ends.get(entry.epoch, (first, 0))[0], entry.last + 1)
        known = log.epochs.epoch_of(first)
        if known not in (entry.epoch, -1):
            world.broken(f"{log.name}: offset {first} has epoch {known}, not {entry.epoch}")
    for epoch, (begin, _) in ends.items():
        known = log.epochs.epoch_of(begin)
        world.expect(known == epoch, f"{log.name}: offset {begin} has epoch {known}, not {epoch}")
    for epoch, (_, end) in ends.items():
        following = [begin for other, (begin, _) in ends.items() if other > epoch]
        known, offset = log.end_offset_for(epoch)
        world.expect(
            known == epoch and end <= offset <= min(following, default=log.written_offset),
            f"{log.name}: epoch {epoch} ends at {offset}, its entries at {end}",
        )


def check_senders(world: World, log: Log, ledger: Ledger, rng: random.Random) -> None:
    """Every producer can go on, and what it sends again is known."""
    for producer_id, sent in ledger.senders.items():
        check_sender(
            world,
            log,
            producer_id,
            sent,
            rng,
            known_from=max(ledger.forgotten.get(producer_id, 0), log.start_offset),
        )
        if sent.opened >= log.start_offset or sent.opened < 0:
            opened = log.producers.open_since(producer_id)
            what = f"{log.name}: a transaction of {producer_id} is open since {opened}"
            world.expect(opened == sent.opened, f"{what}, not {sent.opened}")
    check_stable(world, log, ledger)


def check_stable(world: World, log: Log, ledger: Ledger) -> None:
    """The last stable offset, and what readers of committed records are told to leave out."""
    opened = [sent.opened for sent in ledger.senders.values() if sent.opened >= 0]
    if (
        ledger.written == ledger.next_offset
        and min(opened, default=log.start_offset) >= log.start_offset
    ):
        stable = log.last_stable_offset
        world.expect(
            stable == ledger.last_stable,
            f"{log.name} is stable up to {stable}, not {ledger.last_stable}",
        )
    aborted = [one for one in ledger.aborted if one.first_offset >= log.start_offset]
    if not aborted:
        return
    found = log.aborted_transactions(log.start_offset, log.written_offset)
    told = {(one.producer_id, one.first_offset, one.last_offset) for one in found}
    there = {
        (entry.header[PRODUCER_ID], entry.base)
        for entry in ledger.entries
        if entry.header is not None and entry.records and entry.control is None
    }
    for one in aborted:
        for producer_id, base in there:
            inside = one.first_offset <= base < one.last_offset < ledger.written
            if producer_id == one.producer_id and inside:
                covered = any(p == producer_id and f <= base < t for p, f, t in told)
                world.expect(covered, f"{log.name}: {one} is not told for {base}")
    for producer_id, first, last in told:
        # Of one that began below the log start, or was compacted, only a part may be known.
        known = any(
            (one.producer_id, one.last_offset) == (producer_id, last) and one.first_offset <= first
            for one in ledger.aborted
        )
        world.expect(
            known or first < log.start_offset, f"{log.name}: {first}..{last} was not aborted"
        )


def check_sender(
    world: World, log: Log, producer_id: int, sent: Sent, rng: random.Random, *, known_from: int
) -> None:
    records = some_records(rng, 0, 1, world.now_ms)
    within = sent.opened >= 0 or log.producers.open_since(producer_id) >= 0
    sender = Sender(producer_id, sent.epoch, sent.next_sequence, within)
    header = batch_of(records, sender, 0)[1]
    if not sent.batches:
        return
    last = sent.batches[-1][2]
    try:
        new = log.producers.check(header) is None
    except OutOfOrderSequence:  # as with Kafka, if a marker is all that is left of a producer
        world.expect(last < known_from, f"{log.name}: {producer_id} cannot go on")
        return
    world.expect(new, f"{log.name}: the next batch of producer {producer_id} is not new")
    for sequence, base, last in sent.batches[-max(sent.fresh, 1) :]:
        records = some_records(rng, 0, last - base + 1, world.now_ms)
        repeated = batch_of(records, sender._replace(sequence=sequence), 0)[1]
        batch = f"{log.name}: {base}..{last} of {producer_id}"
        try:
            again = log.producers.check(repeated)
        except OutOfOrderSequence:
            world.expect(last < known_from, f"{batch} is out of order")
            continue
        if again is None:
            world.expect(last < known_from, f"{batch} is not known")
        else:
            found = (again.base_offset, again.last_offset)
            world.expect(found == (base, last), f"{batch} was at {found}")


def check_indexes(world: World, log: Log, ledger: Ledger, topic: SimulatedTopic) -> None:
    """The indexes of each segment are those that its entries make."""
    segments = list(log.segments)
    for number, segment in enumerate(segments):
        end = segments[number + 1].base_offset if number + 1 < len(segments) else log.next_offset
        if end <= log.start_offset and segment is not log.active:
            continue
        if ledger.compacted and segment.base_offset < log.start_offset:
            continue  # of what lies below the start, any part may be gone
        loaded = log.segments.loaded_one(segment)
        first = ledger.index_of(segment.base_offset)
        entries = []
        for entry in ledger.entries[first:]:
            if entry.base >= end:
                break
            entries.append(entry)
        beside = _beside_holes(entries, segment.base_offset) if ledger.compacted else set()
        exact = not topic.intervals_changed
        check_segment(world, log, loaded, entries, beside, exact=exact)


def _beside_holes(entries: list[Entry], base_offset: int) -> set[tuple[int, int]]:
    """Last offset and position of each entry with a hole beside it, which compaction enters in the
    index; of old compressed messages it does not know where they begin."""
    found: set[tuple[int, int]] = set()
    position, before = 0, base_offset - 1
    for entry, after in zip_longest(entries, entries[1:]):
        old = entry.magic < 2 or (after is not None and after.magic < 2)
        if old or entry.base != before + 1 or after is None or after.base != entry.last + 1:
            found.add((entry.last, position))
        position, before = position + len(entry.raw), entry.last
    return found


def check_segment(
    world: World,
    log: Log,
    segment: Segment,
    entries: list[Entry],
    beside_holes: set[tuple[int, int]],
    *,
    exact: bool,
) -> None:
    where = segment.path()
    total = sum(len(entry.raw) for entry in entries)
    if segment.written_size != total:
        world.broken(f"{where} has {segment.written_size} bytes, its entries {total}")
    at: dict[int, Entry] = {}
    largest: dict[int, int] = {}
    expected: list[tuple[int, int]] = []
    position = indexed = 0
    best = -1
    for entry in entries:
        at[position] = entry
        if entry.max_timestamp > best:
            best = entry.max_timestamp
            largest[best] = entry.last
        if position - indexed > segment.interval_bytes:
            expected.append((entry.last, position))
            indexed = position
        position += len(entry.raw)
    found = []
    data = segment.offsets.encode()
    for start in range(0, len(data), INDEX_ENTRY_SIZE):
        relative = int.from_bytes(data[start : start + 4], "big")
        place = int.from_bytes(data[start + 4 : start + 8], "big")
        found.append((segment.base_offset + relative, place))
    if exact and all(entry.whole for entry in entries):
        more = set(found) - set(expected)
        world.expect(set(expected) <= set(found), f"{where}: offset index {found}, not {expected}")
        world.expect(more <= beside_holes, f"{where}: offset index {found}, wanted {expected}")
    for offset, place in found:
        world.expect(
            place in at and at[place].last == offset, f"{where}: index entry {offset} at {place}"
        )
    data = segment.times.encode()
    for start in range(0, len(data), TIME_INDEX_ENTRY_SIZE):
        time = int.from_bytes(data[start : start + 8], "big")
        offset = segment.base_offset + int.from_bytes(data[start + 8 : start + 12], "big")
        world.expect(
            largest.get(time) == offset, f"{where}: time index entry {time} names {offset}"
        )
    world.expect(
        segment.max_timestamp == best, f"{where}: {segment.max_timestamp} is largest, not {best}"
    )
