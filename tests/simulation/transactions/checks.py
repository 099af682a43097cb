"""Requirements on what readers of committed records see, and on the logs below that.

The logs are read batch by batch, and each transaction is followed to its marker: that is a second
opinion on the last stable offset, the lists of aborted transactions, and the offsets of groups.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from broker.coordinator.transactions.loading import Loaded
from broker.coordinator.transactions.transaction import completed, from_value, to_value
from protocol.logdata.offsets import OffsetCommitKey, decode_key, decode_value
from protocol.logdata.transactions import FLEXIBLE_VALUE
from protocol.logdata.transactions import decode_value as decode_state
from protocol.logdata.transactions import encode_value as encode_state
from protocol.records.batch import Batch
from protocol.records.layout import TRANSACTIONAL_BIT
from protocol.records.markers import decode_marker
from protocol.records.walk import walk
from tests.simulation.transactions.model import Status
from tests.simulation.transactions.producers import OFFSETS_TOPIC, SOURCE, TOPIC
from tests.simulation.transactions.world import OFFSETS_SHARDS, STATE_SHARDS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from broker.coordinator.transactions.transaction import Transaction as Coordinated
    from storage.log import Log
    from tests.simulation.transactions.model import Place, Transaction
    from tests.simulation.transactions.world import World

STATE_TOPIC = "__transaction_state"


class Found(NamedTuple):
    """A record of a transaction. `outcome` is commit or abort, or open where no marker follows."""

    place: Place
    offset: int
    value: bytes
    number: int
    outcome: str


class Content(NamedTuple):
    """A partition as its batches tell it."""

    records: list[Found]
    stable: int
    """The first offset of what is open; the end, if nothing is."""


def batches(log: Log, until: int) -> Iterator[Batch]:
    offset = log.start_offset
    while offset < until:
        piece = log.read(offset, 1 << 20)
        if piece is None:
            return
        data = bytes(piece.read())
        for position, size, _ in walk(data):
            batch = Batch(memoryview(data)[position : position + size])
            offset = batch.last_offset + 1
            yield batch


def content(log: Log, place: Place) -> Content:
    """Follow each producer's batches to their marker."""
    opened: dict[int, list[tuple[int, bytes, int]]] = {}
    since: dict[int, int] = {}
    records: list[Found] = []
    for batch in batches(log, log.written_offset):
        marker = decode_marker(batch.view) if batch.is_control else None
        if marker is not None:
            outcome = "commit" if marker.commit else "abort"
            since.pop(batch.producer_id, None)
            records += [Found(place, *one, outcome) for one in opened.pop(batch.producer_id, ())]
        elif batch.attributes & TRANSACTIONAL_BIT and not batch.is_control:
            since.setdefault(batch.producer_id, batch.base_offset)
            opened.setdefault(batch.producer_id, []).extend(_records(batch, place))
    records += [Found(place, *one, "open") for all_ in opened.values() for one in all_]
    return Content(
        sorted(records, key=lambda one: one.offset), min(since.values(), default=log.written_offset)
    )


def _records(batch: Batch, place: Place) -> Iterator[tuple[int, bytes, int]]:
    """Offset, value and transaction of each record."""
    for record in batch.records():
        if place[0] == TOPIC:
            assert record.value is not None
            yield record.offset, record.value, int(record.value.partition(b":")[0])
            continue
        key = decode_key(record.key)
        if isinstance(key, OffsetCommitKey) and record.value is not None:
            number = int(decode_value(key, record.value).metadata)
            yield record.offset, b"offset", number


def contents(world: World) -> dict[Place, Content]:
    return {
        (topic.name, partition.index): content(partition.log, (topic.name, partition.index))
        for topic in world.machine.broker.topics
        if topic.name in (TOPIC, OFFSETS_TOPIC)
        for partition in topic.partitions
    }


def check(world: World) -> None:
    """At the end of any turn of the loop."""
    found = contents(world)
    by_number: dict[int, list[Found]] = {}
    for place, one in found.items():
        check_readers(world, place, one)
        for record in one.records:
            by_number.setdefault(record.number, []).append(record)
    for number, transaction in world.model.transactions.items():
        check_transaction(world, transaction, by_number.get(number, []))
    check_offsets(world)


def check_readers(world: World, place: Place, found: Content) -> None:
    """The log leads readers of committed records to what its batches say, and no further."""
    partition = world.machine.broker.topics.partition(*place)
    assert partition is not None
    log = partition.log
    stable = log.last_stable_offset
    # What was opened below the log start holds readers back there, whatever batches it has above.
    from_below = 0 <= log.producers.oldest_open < log.start_offset
    expected = log.start_offset if from_below else found.stable
    world.expect(stable == expected, f"{log.name} is stable up to {stable}, not {expected}")
    wanted = [
        one.offset for one in found.records if one.outcome == "commit" and one.offset < stable
    ]
    aborted = log.aborted_transactions(log.start_offset, stable)
    seen = []
    for batch in batches(log, stable):
        if batch.base_offset >= stable or batch.is_control:
            continue
        if not batch.attributes & TRANSACTIONAL_BIT:
            continue
        dropped = any(
            one.producer_id == batch.producer_id
            and one.first_offset <= batch.base_offset < one.last_offset
            for one in aborted
        )
        if not dropped:
            seen += [offset for offset, _, _ in _records(batch, place)]
    world.expect(seen == wanted, f"{log.name}: readers see {seen}, committed are {wanted}")


def check_transaction(world: World, transaction: Transaction, found: list[Found]) -> None:
    """All of it or nothing, as its status says."""
    outcomes = {one.outcome for one in found}
    status = transaction.status
    what = f"{transaction}: {[tuple(one) for one in found]}"
    world.expect("commit" not in outcomes or len(outcomes) == 1, f"half of it: {what}")
    if outcomes == {"commit"}:
        world.expect(status in (Status.ASKED, Status.COMMITTED), f"is seen: {what}")
        transaction.status = Status.COMMITTED
    elif status is Status.ASKED and outcomes == {"abort"}:
        transaction.status = Status.ABORTED
    if transaction.status is not Status.COMMITTED:
        return
    values = [one.value for one in found if one.place[0] == TOPIC]
    world.expect(len(values) == len(set(values)), f"doubled: {what}")
    there = {(one.place, one.offset, one.value) for one in found}
    lost = [
        one
        for one in transaction.written
        if tuple(one) not in there and one.offset >= _start_of(world, one.place)
    ]
    world.expect(not lost, f"lost {lost}: {what}")
    if transaction.offset_place is not None and not world.offsets_compacted:
        places = {one.place for one in found}
        world.expect(transaction.offset_place in places, f"its offset is lost: {what}")


def _start_of(world: World, place: Place) -> int:
    partition = world.machine.broker.topics.partition(*place)
    assert partition is not None
    return partition.log.start_offset


def check_offsets(world: World) -> None:
    """Groups are told the offsets of what was committed."""
    for name in {one.transactional_id for one in world.model.transactions.values()}:
        wanted = world.model.committed_offset(name)
        group = f"group-of-{name}"
        shard = world.machine.broker.groups.runtime.shards
        if wanted is None or not shard:
            continue
        mine = shard[world.offsets_place(group)[1]]
        if not mine.loaded:
            continue
        committed = mine.state.offsets.get(group, SOURCE, 0)
        offset = -1 if committed is None else committed.offset
        world.expect(offset == wanted, f"{group} is at {offset}, committed was {wanted}")


def check_all_ended(world: World) -> None:
    """Nothing is open: readers of committed records come to the end of every partition."""
    for topic in world.machine.broker.topics:
        for partition in topic.partitions:
            log = partition.log
            ends = log.last_stable_offset, log.written_offset, log.next_offset
            world.expect(len(set(ends)) == 1, f"{log.name}: nothing is open, and it ends at {ends}")
    for transaction in world.model.transactions.values():
        if transaction.status in (Status.OPEN, Status.ASKED):
            # Of one that was only asked for nothing was ever stored, or its marker would tell.
            transaction.status = Status.ABORTED


def _as_stored(now: Coordinated, level: int) -> Coordinated:
    """Without what a record of this level has no room for."""
    return from_value(decode_state(encode_state(to_value(now), min(level, FLEXIBLE_VALUE))))


def check_state_topic(world: World) -> None:
    """A start would find what is in memory."""
    broker = world.machine.broker
    topic = broker.topics.by_name.get(STATE_TOPIC)
    if topic is None:
        return
    assert (len(topic.partitions), OFFSETS_SHARDS) == (STATE_SHARDS, STATE_SHARDS)
    for shard in broker.transactions.runtime.shards:
        log = shard.partition.log
        loaded = Loaded(log.start_offset)
        for batch in batches(log, log.written_offset):
            loaded.feed(bytes(batch.view))
        replayed = {
            name: from_value(decode_state(value))
            for name, value in loaded.states.items()
            if isinstance(value, bytes)
        }
        known = {name: _as_stored(now, world.version) for name, now in shard.all()}
        if shard.ending:
            continue
        for name, of in broker.transactions.runtime.ends.unwritten.items():
            if of is shard:
                done = completed(replayed[name], now_ms=known[name].update_ms)
                replayed[name] = _as_stored(done, world.version)
        world.expect(replayed == known, f"{log.name} replays to {replayed}, in memory is {known}")
