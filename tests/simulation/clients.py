"""Steps of clients, one at a time: they produce, send again, read and search."""

from __future__ import annotations

from typing import TYPE_CHECKING

from protocol.records.layout import HEADER
from storage.errors import (
    BatchTooLarge,
    OffsetOutOfRange,
    OutOfOrderSequence,
    ProducerFenced,
    StorageError,
)
from tests.simulation.ledger import Sent
from tests.simulation.records import (
    BATCH_CODECS,
    NOBODY,
    WRAPPER_CODECS,
    Entry,
    Record,
    Sender,
    batch_of,
    entries_of_messages,
    messages_of,
    some_records,
)
from tests.simulation.world import SimulatedTopic

if TYPE_CHECKING:
    import random
    from collections.abc import Callable

    from protocol.records.layout import Header
    from storage.log import Log
    from tests.simulation.ledger import Ledger
    from tests.simulation.world import World

    Step = Callable[[World, random.Random], None]
    Place = tuple[SimulatedTopic, int, Log, Ledger]


def some_log(world: World, rng: random.Random) -> Place | None:
    if not world.topics:
        return None
    topic = world.topics[rng.choice(sorted(world.topics))]
    number = rng.randrange(len(topic.ledgers))
    return topic, number, world.log(topic, number), topic.ledgers[number]


# Producing


def append(world: World, rng: random.Random) -> None:
    """A set in one form or another; mostly written at once, as at the end of a turn."""
    place = some_log(world, rng)
    if place is None:
        return
    topic, _, log, ledger = place
    if log.failed is not None:
        world.expect(world.faulty, f"{log.name} has failed without a fault: {log.failed}")
        return
    for _ in range(rng.choice((1, 1, 1, 2, 5))):
        try:
            append_set(world, topic, log, ledger, rng)
            world.follow(log, ledger)
        except BatchTooLarge:
            world.follow(log, ledger)
        except StorageError:
            world.expect(world.faulty, f"{log.name}: append failed without a fault")
            world.follow(log, ledger)
            world.write(log, ledger)
            return
    if rng.random() < 0.8:
        world.write(log, ledger)


def append_set(
    world: World, topic: SimulatedTopic, log: Log, ledger: Ledger, rng: random.Random
) -> None:
    magic = topic.settings.record_format
    if rng.random() < 0.05:
        magic = rng.choice((0, 1, 2))
    count = rng.choice((1, 1, 2, 3, 6))
    records = some_records(rng, ledger.next_offset, count, world.now_ms)
    if topic.settings.compacted:
        records = [record._replace(key=record.key or b"none") for record in records]
    if magic == 2:
        if rng.random() < 0.1:
            append_batches(world, log, ledger, records, rng)
        else:
            append_batch(world, log, ledger, records, rng)
        return
    codec = rng.choice(WRAPPER_CODECS) if rng.random() < 0.5 else 0
    messages = messages_of(records, magic=magic, codec=codec)
    base = log.append_messages(messages, now_ms=world.now_ms)
    world.expect(base == records[0].offset, f"{log.name}: a set got offset {base}")
    placed = bytes(messages.view)
    receive(world, ledger, entries_of_messages(placed, records, magic=magic))
    world.totals.bytes += len(placed)


def receive(world: World, ledger: Ledger, entries: list[Entry]) -> None:
    for entry in entries:
        entry.received_ms = world.now_ms
    ledger.append(entries)


def entry_of(world: World, log: Log, raw: bytearray, records: list[Record], whole: bool) -> Entry:
    header = HEADER.unpack_from(raw)
    world.expect(
        header[0] == records[0].offset and header[2] == log.leader_epoch,
        f"{log.name}: a batch for {records[0].offset} got {header[0]}, epoch {header[2]}",
    )
    world.totals.bytes += len(raw)
    return Entry(bytes(raw), records, magic=2, whole=whole)


def append_batch(
    world: World, log: Log, ledger: Ledger, records: list[Record], rng: random.Random
) -> None:
    sender = some_sender(world, ledger, rng)
    raw, header = batch_of(records, sender, rng.choice(BATCH_CODECS))
    if sender is not NOBODY and not may_go_on(world, log, ledger, sender, header):
        return
    base = log.append(memoryview(raw), header, now_ms=world.now_ms)
    world.expect(base == records[0].offset, f"{log.name}: a batch got offset {base}")
    receive(world, ledger, [entry_of(world, log, raw, records, True)])


def may_go_on(world: World, log: Log, ledger: Ledger, sender: Sender, header: Header) -> bool:
    """Whether a new batch is taken: always, unless a marker is all that is left of its producer."""
    try:
        again = log.producers.check(header)
    except OutOfOrderSequence:
        sent = ledger.senders.get(sender.producer_id)
        known_from = max(ledger.forgotten.get(sender.producer_id, 0), log.start_offset)
        lost = sent is not None and (not sent.batches or sent.batches[-1][2] < known_from)
        world.expect(lost, f"{log.name}: {sender} cannot go on")
        return False
    world.expect(again is None, f"{log.name}: a new batch of {sender} is not new")
    return True


def append_batches(
    world: World, log: Log, ledger: Ledger, records: list[Record], rng: random.Random
) -> None:
    """The same records as several batches that go together; only one may have a producer."""
    parts: list[tuple[bytearray, list[Record]]] = []
    batches: list[tuple[memoryview, Header]] = []
    while records:
        count = rng.randrange(1, len(records) + 1)
        raw, header = batch_of(records[:count], NOBODY, rng.choice(BATCH_CODECS))
        parts.append((raw, records[:count]))
        batches.append((memoryview(raw), header))
        records = records[count:]
    log.append_batches(batches, now_ms=world.now_ms)
    whole = len(parts) == 1
    receive(world, ledger, [entry_of(world, log, raw, part, whole) for raw, part in parts])


def some_sender(world: World, ledger: Ledger, rng: random.Random) -> Sender:
    """Nobody, a producer that goes on, one with a new epoch, or a new one."""
    chance = rng.random()
    if chance < 0.4:
        return NOBODY
    known = sorted(ledger.senders)
    if len(known) < 4 and (chance < 0.45 or not known):
        try:
            producer_id = world.store.next_producer_id()
        except OSError:
            world.expect(world.faulty, "no producer id without a fault")
            return NOBODY
        world.expect(producer_id not in world.producer_ids, f"id {producer_id} given twice")
        world.producer_ids.add(producer_id)
        first = rng.choice((0, 0, 0, 2**31 - 3))
        return Sender(producer_id, 0, first, is_transactional(producer_id))
    producer_id = rng.choice(known)
    sent = ledger.senders[producer_id]
    if rng.random() < 0.03 and sent.opened < 0:
        return Sender(producer_id, sent.epoch + 1, 0, is_transactional(producer_id))
    return Sender(producer_id, sent.epoch, sent.next_sequence, is_transactional(producer_id))


def is_transactional(producer_id: int) -> bool:
    return producer_id % 1000 % 3 == 0


def send_again(world: World, rng: random.Random) -> None:
    """A producer repeats a batch, leaves one out, or speaks with an old epoch."""
    place = some_log(world, rng)
    if place is None:
        return
    _, _, log, ledger = place
    known = [number for number, sent in sorted(ledger.senders.items()) if sent.batches]
    if not known or log.failed is not None:
        return
    producer_id = rng.choice(known)
    sent = ledger.senders[producer_id]
    back = rng.randrange(len(sent.batches))
    sequence, base, last = sent.batches[-1 - back]
    records = some_records(rng, 0, last - base + 1, world.now_ms)
    sender = Sender(producer_id, sent.epoch, sequence, is_transactional(producer_id))
    header = batch_of(records, sender, 0)[1]
    forgettable = last < max(ledger.forgotten.get(producer_id, 0), log.start_offset)
    try:
        again = log.producers.check(header)
    except OutOfOrderSequence:
        may = forgettable or back >= max(sent.fresh, 1)
        world.expect(may, f"{log.name}: batch {base}..{last} of {producer_id} is out of order")
    else:
        if again is None:
            world.expect(forgettable, f"{log.name}: batch {base}..{last} of {producer_id} is new")
        else:
            found = (again.base_offset, again.last_offset)
            world.expect(found == (base, last), f"{log.name}: {base}..{last} was at {found}")
    leave_out(world, log, producer_id, sent, rng, forgettable=forgettable)


def leave_out(
    world: World,
    log: Log,
    producer_id: int,
    sent: Sent,
    rng: random.Random,
    *,
    forgettable: bool,
) -> None:
    records = some_records(rng, 0, 1, world.now_ms)
    gap = Sender(
        producer_id,
        sent.epoch,
        (sent.next_sequence + 7) % 2**31,
        is_transactional(producer_id),
    )
    old = Sender(producer_id, sent.epoch - 1, 0, is_transactional(producer_id))
    for sender, wanted in ((gap, OutOfOrderSequence), (old, ProducerFenced)):
        if sender.epoch < 0:
            continue
        try:
            log.producers.check(batch_of(records, sender, 0)[1])
        except wanted:
            continue
        last_known = sent.batches[-1][2] >= log.start_offset
        may = forgettable or producer_id not in log.producers or not last_known
        world.expect(may, f"{log.name}: {sender} was taken")


def expire(world: World, rng: random.Random) -> None:
    """The duty that forgets producers that were silent."""
    for _, _, log, ledger in world.all_logs():
        log.producers.expire(now_ms=world.now_ms, after_ms=20_000)
        for number in list(ledger.senders):
            if number not in log.producers:
                ledger.forgotten[number] = ledger.next_offset
                del ledger.senders[number]


# Reading


def read(world: World, rng: random.Random) -> None:
    place = some_log(world, rng)
    if place is None:
        return
    _, _, log, ledger = place
    offset = rng.randrange(max(ledger.start - 2, 0), ledger.written + 2)
    max_bytes = rng.choice((1, 100, 400, 2000, 100_000))
    end = rng.randrange(ledger.written + 1) if rng.random() < 0.2 else None
    one = rng.random() < 0.7
    try:
        piece = log.read(offset, max_bytes, end_offset=end, at_least_one=one)
    except OffsetOutOfRange:
        inside = ledger.start <= offset <= ledger.written
        world.expect(not inside, f"{log.name}: {offset} is out of range")
        return
    inside = ledger.start <= offset <= ledger.written
    world.expect(inside, f"{log.name}: {offset} is in range")
    index = ledger.index_of(offset)
    if piece is None:
        reason = offset >= ledger.written or not one or end is not None
        if end is not None and one and index < len(ledger.entries):
            reason = ledger.entries[index].last >= end or offset >= end
        world.expect(reason, f"{log.name}: nothing at {offset}")
        return
    data = piece.read()
    position, first = 0, index
    while position < len(data):
        expected = ledger.entries[index]
        if data[position : position + len(expected.raw)] != expected.raw:
            world.broken(f"{log.name}: read at {offset}: {expected} is not there")
        in_end = expected.last < (ledger.written if end is None else end)
        world.expect(in_end, f"{log.name}: read at {offset}: {expected} is not below {end}")
        position += len(expected.raw)
        index += 1
    fits = len(data) <= max_bytes or (one and index == first + 1)
    world.expect(fits, f"{log.name}: read at {offset}: {len(data)} bytes, wanted {max_bytes}")
    if len(world.held) < 20 and rng.random() < 0.1:
        world.held.append((piece, data))


def read_held(world: World, rng: random.Random) -> None:
    """A response that took long to send is still what it was."""
    if world.held:
        piece, data = world.held.pop(rng.randrange(len(world.held)))
        world.expect(piece.read() == data, f"{piece!r} has changed")


def read_entries(world: World, rng: random.Random) -> None:
    place = some_log(world, rng)
    if place is None or place[3].written <= place[3].start:
        return
    _, _, log, ledger = place
    offset = rng.randrange(ledger.start, ledger.written)
    found = log.read_entries(offset, rng.choice((1, 500, 5000)))
    index = ledger.index_of(offset)
    if found is None:
        world.broken(f"{log.name}: no entries at {offset}")
    for entry in found.entries:
        expected = ledger.entries[index]
        same = found.read(entry) == expected.raw and entry.last_offset == expected.last
        world.expect(same, f"{log.name}: {expected} is not at {entry.position}")
        index += 1


def search(world: World, rng: random.Random) -> None:
    place = some_log(world, rng)
    if place is None:
        return
    _, _, log, ledger = place
    wanted = world.now_ms - int(rng.random() ** 3 * 100_000)
    if rng.random() < 0.1:
        best = ledger.largest()
        found = log.max_timestamp()
    else:
        best = ledger.first_at_or_after(wanted)
        found = log.offset_for_timestamp(wanted)
    pair = None if found is None else (found[0], found[1])
    expected = None if best is None else (best.timestamp_ms, best.offset)
    world.expect(pair == expected, f"{log.name}: at {wanted} there is {pair}, not {expected}")
