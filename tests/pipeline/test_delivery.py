"""A delivery against a destination that does what brokers and networks do: nothing is lost, nothing
doubled, order kept, bytes kept."""

from __future__ import annotations

from itertools import pairwise
from random import Random

import pytest

from pipeline.delivering.delivery import Delivery, Pacing
from pipeline.delivering.record_sets import RecordSet, SetMaker
from pipeline.errors import ForeignState, Refused, Unreachable
from protocol.errors import ErrorCode
from protocol.records.batch import Batch
from protocol.records.builder import build_batch
from tests.pipeline.simulated_partition import Faults, Killed, SimulatedPartition, refused

RUNS = 250
NOW_MS = 1_700_000_000_000


class Time:
    """A clock that only sleeping moves."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def clock(self) -> float:
        return self.now_s

    def sleep(self, seconds: float) -> None:
        self.now_s += seconds


def a_delivery(
    partition: SimulatedPartition, next_offset: int, *, doubtful: bool = False, wary: bool = False
) -> Delivery:
    time = Time()
    return Delivery(
        partition,
        next_offset,
        doubtful=doubtful,
        pacing=Pacing(sets=6, wary=wary, now_ms=lambda: NOW_MS),
        clock=time.clock,
        sleep=time.sleep,
    )


def source_log(random: Random, batches: int, *, producers: int = 3) -> list[bytes]:
    """Batches as a broker stores them, each record with a value of its own."""
    log: list[bytes] = []
    following = [0] * producers
    offset = 0
    for _ in range(batches):
        count = random.randint(1, 4)
        rows = [(NOW_MS, b"k", b"%d" % (offset + index), ()) for index in range(count)]
        producer = random.randrange(-2, producers)
        if producer < 0:
            batch = build_batch(rows, base_offset=offset, leader_epoch=3)
        else:
            following[producer] += random.choice((0, 0, 0, 0, 5))
            batch = build_batch(
                rows,
                base_offset=offset,
                leader_epoch=3,
                producer_id=producer,
                producer_epoch=1,
                base_sequence=following[producer],
            )
            following[producer] += count
        log.append(batch)
        offset += count
    return log


def sets_of(batches: list[bytes]) -> list[RecordSet]:
    maker = SetMaker("orders-0", 0, 1 << 60)
    made = list(maker.sets(memoryview(b"".join(batches))))
    return made + list(maker.rest())


def deliver_all(
    partition: SimulatedPartition, batches: list[bytes], next_offset: int, *, wary: bool
) -> tuple[int, Delivery]:
    """One micro-batch, by as many tasks as are killed at it."""
    doubtful = False
    while True:
        delivery = a_delivery(partition, next_offset, doubtful=doubtful, wary=wary)
        try:
            delivery.deliver(sets_of(batches))
            return delivery.finish(), delivery
        except Killed:
            doubtful = True


def ours(partition: SimulatedPartition) -> list[bytes]:
    return [value for value in partition.values() if not value.startswith(b"foreign")]


def wanted(batches: list[bytes]) -> list[bytes]:
    return [
        record.value or b"" for batch in batches for record in Batch(memoryview(batch)).records()
    ]


@pytest.mark.parametrize("part", range(5))
@pytest.mark.parametrize("stamped", [False, True])
def test_nothing_is_lost_doubled_or_moved_whatever_happens(part: int, stamped: bool) -> None:
    pipelined = 0
    for seed in range(part * RUNS // 5, (part + 1) * RUNS // 5):
        random = Random(seed)
        some = random.choice((0.0, 0.02, 0.1))
        faults = Faults(
            lost_before=some,
            lost_after=some,
            passing=random.choice((0.0, some)),
            timed_out=some,
            killed=random.choice((0.0, some)),
            foreign=random.choice((0.0, 0.1)),
            late=random.choice((0.0, 0.5)),
        )
        partition = SimulatedPartition(random, faults, stamp_ms=NOW_MS if stamped else None)
        if random.random() < 0.3:
            # Producers of the destination's own, with the ids of the source's.
            for producer in range(2):
                partition.others_append(
                    build_batch(
                        [(NOW_MS, None, b"foreign-local", ())] * random.randint(1, 3),
                        producer_id=producer,
                        producer_epoch=random.randint(0, 2),
                        base_sequence=random.choice((0, 0, 7)),
                    )
                )
        log = source_log(random, random.randint(1, 40))
        reached, at = partition.following, 0
        while at < len(log):
            batches = log[at : at + random.randint(1, 15)]
            at += len(batches)
            reached, delivery = deliver_all(
                partition, batches, reached, wary=bool(faults.passing or faults.timed_out)
            )
            assert not delivery.counts["out_of_order"]
            assert reached <= partition.following
        assert ours(partition) == wanted(log), f"seed {seed}"
        pipelined += partition.most_in_flight > 1
    assert pipelined > RUNS // 50


def test_the_bytes_are_those_of_the_source_from_the_checksum_on() -> None:
    random = Random(1)
    partition = SimulatedPartition(random, Faults(lost_after=0.1, killed=0.05))
    log = source_log(random, 60)
    # A hole in the sequence of a producer is refused by a broker that knows it; from nobody in
    # particular it goes through, with the same records.
    deliver_all(partition, log, 0, wary=False)
    assert len(partition.entries) == len(log)
    alike = 0
    for stored, sent in zip(partition.entries, log, strict=True):
        if Batch(memoryview(stored)).producer_id == Batch(memoryview(sent)).producer_id:
            assert stored[16:] == sent[16:]
            alike += 1
        else:
            assert stored[61:] == sent[61:]
    assert alike > 20


def test_a_task_that_is_repeated_after_all_was_done_sends_nothing() -> None:
    random = Random(2)
    partition = SimulatedPartition(random, Faults())
    log = source_log(random, 20)
    end, _ = deliver_all(partition, log, 0, wary=False)
    again, delivery = deliver_all(partition, log, 0, wary=False)
    assert again == end == partition.following
    assert delivery.counts["found"] == len(log)
    assert not delivery.counts["sent"]


def test_a_batch_that_another_producer_of_that_id_wrote_is_sent_without_the_id() -> None:
    """The broker says it has that batch, and has another one: nothing may be lost by that."""
    partition = SimulatedPartition(Random(3), Faults())

    def of_producer_5(value: bytes) -> bytes:
        rows = [(NOW_MS, None, value, ())]
        return build_batch(rows, producer_id=5, producer_epoch=0, base_sequence=0)

    partition.others_append(of_producer_5(b"foreign-5"))
    partition.others_append(build_batch([(NOW_MS, None, b"foreign-x", ())]))
    log = [of_producer_5(b"0")]
    _, delivery = deliver_all(partition, log, partition.following, wary=False)
    assert ours(partition) == [b"0"]
    assert delivery.counts["producer_refused"] == 1


def test_equal_batches_are_all_delivered_after_a_kill_between_them() -> None:
    same = build_batch([(NOW_MS, b"k", b"same", ())])
    for stored in range(4):
        partition = SimulatedPartition(Random(4), Faults())
        for _ in range(stored):
            partition._append(same)
        log = [same] * 4
        for index, batch in enumerate(log):
            log[index] = index.to_bytes(8, "big") + batch[8:]
        deliver_all(partition, log, 0, wary=False)
        assert ours(partition) == [b"same"] * 4


def test_what_retention_took_again_is_not_sent_a_second_time() -> None:
    for deleted in range(1, 9):
        random = Random(5)
        partition = SimulatedPartition(random, Faults())
        log = source_log(random, 20)
        deliver_all(partition, log[:12], 0, wary=False)
        partition.delete_before(deleted)
        deliver_all(partition, log, 0, wary=False)
        assert ours(partition) == wanted(log[deleted:])


def test_what_compaction_took_again_is_not_sent_a_second_time() -> None:
    random = Random(6)
    partition = SimulatedPartition(random, Faults())
    log = source_log(random, 20)
    deliver_all(partition, log[:12], 0, wary=False)
    for index in (9, 4, 3, 0):
        partition.delete(index)
        del log[index]
    untouched = source_log(Random(6), 0) or log
    random = Random(6)
    whole = source_log(random, 20)
    deliver_all(partition, whole, 0, wary=False)
    assert ours(partition) == wanted(untouched)


def test_a_destination_that_was_cut_or_made_anew_isrefused() -> None:
    random = Random(7)
    partition = SimulatedPartition(random, Faults())
    with pytest.raises(ForeignState, match=r"copy-0 ends at offset 0, where 100 had been reached"):
        deliver_all(partition, source_log(random, 3), 100, wary=False)


def test_what_cannot_be_told_apart_any_more_isrefused() -> None:
    random = Random(8)
    partition = SimulatedPartition(random, Faults())
    for number in range(10):
        partition.others_append(build_batch([(NOW_MS, None, b"foreign-%d" % number, ())]))
    partition.delete_before(4)
    with pytest.raises(ForeignState, match="it cannot be told any more"):
        deliver_all(partition, source_log(random, 30), 0, wary=False)


def test_a_broker_that_stays_away_is_given_up_on_after_the_patience() -> None:
    random = Random(9)
    partition = SimulatedPartition(random, Faults(lost_before=1.0))
    with pytest.raises(Unreachable, match="copy-0: nothing could be written for 60 s"):
        deliver_all(partition, source_log(random, 3), 0, wary=False)


class Late(SimulatedPartition):
    """Carries a set of a killed task out when the new one has looked for the first time."""

    def __init__(self, late: bytes) -> None:
        super().__init__(Random(13), Faults())
        self._at_last: bytes | None = late
        self.looks = 0

    def end(self) -> int:
        found = super().end()
        self.looks += 1
        if self._at_last is not None:
            self._append(self._at_last)
            self._at_last = None
        return found


def test_a_task_after_a_killed_one_waits_until_the_end_keeps_still() -> None:
    late = build_batch([(NOW_MS, None, b"0", ())])
    partition = Late(late)
    delivery = a_delivery(partition, 0, doubtful=True)
    delivery.deliver(sets_of([late]))
    assert delivery.finish() == 1
    assert ours(partition) == [b"0"]
    assert partition.looks > 4


class Refusing(SimulatedPartition):
    """Refuses the set with this number for good."""

    def __init__(self, number: int) -> None:
        super().__init__(Random(10), Faults())
        self._left = number

    def finish(self) -> int:
        if self._left == 0:
            self._on_the_way.popleft()
            raise refused(ErrorCode.MESSAGE_TOO_LARGE)
        self._left -= 1
        return super().finish()


def test_a_set_that_is_refused_for_good_ends_the_delivery_at_the_one_before() -> None:
    """Larger than all before, it is sent alone: nothing behind it is stored before it."""
    small = [build_batch([(NOW_MS, None, b"%d" % index, ())]) for index in range(5)]
    large = build_batch([(NOW_MS, None, b"5" * 100, ())])
    log = [*small, large, *small]
    for index, batch in enumerate(log):
        log[index] = index.to_bytes(8, "big") + batch[8:]
    partition = Refusing(5)
    with pytest.raises(Refused, match="MESSAGE_TOO_LARGE"):
        deliver_all(partition, log, 0, wary=False)
    assert ours(partition) == [b"0", b"1", b"2", b"3", b"4"]


def test_a_wary_delivery_sends_one_after_the_other_unless_sequences_keep_the_order() -> None:
    loose = [
        build_batch([(NOW_MS, None, b"%d" % index, ())], base_offset=index) for index in range(9)
    ]
    partition = SimulatedPartition(Random(11), Faults())
    deliver_all(partition, loose, 0, wary=True)
    assert partition.most_in_flight == 1
    following = [
        build_batch(
            [(NOW_MS, None, b"%d" % index, ())],
            base_offset=index,
            producer_id=1,
            producer_epoch=0,
            base_sequence=index,
        )
        for index in range(9)
    ]
    partition = SimulatedPartition(Random(11), Faults())
    deliver_all(partition, following, 0, wary=True)
    assert partition.most_in_flight > 3


def test_offsets_of_somebody_else_are_counted() -> None:
    random = Random(12)
    partition = SimulatedPartition(random, Faults(foreign=0.5))
    log = source_log(random, 40)
    end, delivery = deliver_all(partition, log, 0, wary=False)
    batches = [Batch(memoryview(entry)) for entry in partition.entries]
    assert all(one.last_offset + 1 == two.base_offset for one, two in pairwise(batches))
    assert all(batch.checksum() == batch.crc for batch in batches)
    below = sum(
        record.value is not None and record.value.startswith(b"foreign")
        for batch in batches
        for record in batch.records()
        if record.offset < end
    )
    assert delivery.counts["foreign"] == below
    assert below > 5
    # They are counted as well where a repeated task goes over them.
    partition.faults.foreign = 0.0
    again, repeated = deliver_all(partition, log, 0, wary=False)
    assert (again, repeated.counts["foreign"]) == (end, below)
    assert not repeated.counts["sent"]
