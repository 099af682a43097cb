"""One data directory that several processes open at a time, each the logs that it leads."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import pytest

from config import TopicSettings, load
from storage import handing_over
from storage.checkpoints import decode_offsets
from storage.data_dir import DataDirectory
from storage.layout import (
    CLEAN_SHUTDOWN,
    CLEAN_STATE,
    HIGH_WATERMARKS,
    LOG_STARTS,
    RECOVERY_POINTS,
    TAKEN_OVER,
)
from storage.noted import METADATA
from storage.share import LastStop, LockOfAll, Share, clean_state_of, join_clean_states
from storage.steps import run_here
from tests.storage.logs import produce
from tests.support.memory_filesystem import MemoryFilesystem
from tests.support.topic_store import IDENTITY, NOW_MS, open_topics

if TYPE_CHECKING:
    from storage.metadata.store import MetadataStore
    from storage.reports import RecoveryReport

PATH, TOPIC, ID = "/data", "t", bytes(range(16))
SETTINGS = TopicSettings.of(load(overrides={}), {})


class Opened(NamedTuple):
    """The directory as each of the processes has it."""

    files: MemoryFilesystem
    store: MetadataStore
    shares: list[DataDirectory]
    reports: list[RecoveryReport]

    def append(self, partition: int, count: int = 1) -> None:
        """To the log of a partition, where it is open."""
        (log,) = [
            one.logs[TOPIC, partition] for one in self.shares if (TOPIC, partition) in one.logs
        ]
        for _ in range(count):
            produce(log, b"v")
        log.sync()

    def offsets(self, name: str) -> dict[tuple[str, int], int]:
        return decode_offsets(self.files.read_bytes(f"{PATH}/{name}"), name)

    def stop(self, *which: int) -> None:
        for number in which or range(len(self.shares)):
            assert self.shares[number].close()
        if which:
            return
        self.store.log.close()
        if len(self.shares) > 1:
            join_clean_states(self.files, PATH, len(self.shares), broker_epoch=3)


def share_of(files: MemoryFilesystem, share: Share | None) -> DataDirectory:
    ids = iter(range(1000))
    return DataDirectory(
        files, PATH, LockOfAll(), IDENTITY, lambda: next(ids).to_bytes(16, "big"), share
    )


def opened(files: MemoryFilesystem, count: int, *, all_come: bool = True) -> Opened:
    """A start of all; of one process, as there has always been. Whether it comes to its end."""
    store = open_topics(files, PATH, processes=count)
    store.begin_epoch()
    if store.get(TOPIC) is None:
        store.create(TOPIC, ID, 4, {})
    controller = Share(0)
    shares = [share_of(files, controller if count > 1 else None)]
    reports = shares[0].open_logs(store, lambda _: SETTINGS, now_ms=NOW_MS)
    for number in range(1, count):
        shares.append(share_of(files, Share(number, controller.last_stop)))
        reports += shares[-1].open_logs(store, lambda _: SETTINGS, now_ms=NOW_MS)
    if count > 1 and all_come:
        shares[0].checkpoints.all_opened()
    return Opened(files, store, shares, reports)


@pytest.fixture
def files() -> MemoryFilesystem:
    files = MemoryFilesystem()
    files.make_dir(PATH)
    return files


def test_each_opens_what_it_leads(files: MemoryFilesystem) -> None:
    two = opened(files, 2)

    assert [sorted(one.logs) for one in two.shares] == [
        [(TOPIC, 0), (TOPIC, 2)],
        [(TOPIC, 1), (TOPIC, 3)],
    ]


def test_checkpoints_have_the_entries_of_all(files: MemoryFilesystem) -> None:
    two = opened(files, 2)
    for partition in range(4):
        two.append(partition, partition + 1)
    for one in two.shares:
        one.write_offsets()
    two.shares[0].write_offsets()

    assert two.offsets(RECOVERY_POINTS).keys() == {(TOPIC, number) for number in range(4)}


def test_a_directory_is_ours_when_all_have_noted_where_their_logs_ended(
    files: MemoryFilesystem,
) -> None:
    def led_alone(one: Opened) -> list[bool]:
        stops = [share.share.last_stop for share in one.shares if share.share is not None]
        return [stop is not None and stop.led_alone for stop in stops]

    first = opened(files, 2, all_come=False)
    assert METADATA not in first.offsets(TAKEN_OVER)
    assert led_alone(first) == [False, False]
    files.kill()

    second = opened(files, 2)
    assert METADATA in second.offsets(TAKEN_OVER)
    assert led_alone(second) == [False, False], "the first start has not come to its end"
    files.kill()

    third = opened(files, 2, all_come=False)
    assert led_alone(third) == [True, True]
    assert METADATA in third.offsets(TAKEN_OVER)


def test_a_clean_stop_of_all_is_one_of_the_directory(files: MemoryFilesystem) -> None:
    two = opened(files, 2)
    for partition in range(4):
        two.append(partition)
    two.stop()

    names = files.list_dir(PATH)
    assert {CLEAN_STATE, CLEAN_SHUTDOWN} <= set(names)
    assert not {clean_state_of(0), clean_state_of(1)} & set(names)

    for count in (1, 4, 2):
        again = opened(files, count)
        assert again.reports == []
        states = [log.clean_state for one in again.shares for log in one.logs.values()]
        assert len(states) == 4
        assert None not in states, "no log is looked through"
        assert [log.next_offset for one in again.shares for log in one.logs.values()] == [1] * 4
        again.stop()


def test_the_marker_is_not_left_where_one_of_them_did_not_stop(files: MemoryFilesystem) -> None:
    two = opened(files, 2)
    two.append(1)
    two.stop(0)
    with pytest.raises(FileNotFoundError):
        join_clean_states(files, PATH, 2, broker_epoch=3)
    assert not files.exists(f"{PATH}/{CLEAN_SHUTDOWN}")
    two.store.log.close()

    again = opened(files, 2)
    assert not files.exists(f"{PATH}/{clean_state_of(0)}"), "nobody has joined it"
    assert again.shares[1].logs[TOPIC, 1].next_offset == 1


def test_a_process_that_comes_back_opens_its_logs_as_after_a_crash_and_leaves_the_others(
    files: MemoryFilesystem,
) -> None:
    two = opened(files, 2)
    for partition in range(4):
        two.append(partition)
    for one in two.shares:
        one.write_offsets()
    before = two.offsets(RECOVERY_POINTS)

    back = share_of(files, Share(1, LastStop(was_clean=False, led_alone=True)))
    reports = back.open_logs(two.store, lambda _: SETTINGS, now_ms=NOW_MS)
    back.write_offsets()

    assert reports == []
    assert [log.next_offset for log in back.logs.values()] == [1, 1]
    assert two.offsets(RECOVERY_POINTS).keys() == before.keys()


def test_what_was_taken_over_is_noted_once(files: MemoryFilesystem) -> None:
    two = opened(files, 2)
    for partition in range(4):
        two.append(partition)
    two.stop()
    files.remove(f"{PATH}/{TAKEN_OVER}")  # as if from another broker
    two = opened(files, 2)
    assert two.offsets(TAKEN_OVER).keys() == {METADATA, *((TOPIC, number) for number in range(4))}
    calls = len(files.calls)

    back = share_of(files, Share(1, LastStop(was_clean=False, led_alone=True)))
    back.open_logs(two.store, lambda _: SETTINGS, now_ms=NOW_MS)

    assert not [call for call in files.calls[calls:] if TAKEN_OVER in call]


def test_a_deleted_topic_goes_when_each_has_let_go_of_its_part(files: MemoryFilesystem) -> None:
    two = opened(files, 2)
    topic = two.store.remove(TOPIC)
    folders = [one.delete_topic(topic) for one in two.shares]

    assert [len(found) for found in folders] == [2, 2]
    assert two.offsets(RECOVERY_POINTS) == {}
    for one, found in zip(two.shares, folders, strict=True):
        for folder in found:
            one.remove_deleted(folder)
    assert [name for name in files.list_dir(PATH) if name.startswith(f"{TOPIC}-")] == []


def test_log_starts_are_on_the_disk_for_whoever_opens_next(files: MemoryFilesystem) -> None:
    two = opened(files, 2)
    for partition in range(4):
        two.append(partition, 3)
    for number, one in enumerate(two.shares):
        starts = dict.fromkeys(one.logs.values(), 1 + number)
        one.starts.announce(starts).sync()
        one.starts.settle(starts, stored=True)

    assert two.offsets(LOG_STARTS) == {
        (TOPIC, 0): 1, (TOPIC, 1): 2, (TOPIC, 2): 1, (TOPIC, 3): 2
    }  # fmt: skip
    files.kill()
    (alone,) = opened(files, 1).shares
    assert [alone.logs[TOPIC, number].start_offset for number in range(4)] == [1, 2, 1, 2]


@pytest.mark.parametrize("is_killed", [False, True])
def test_a_partition_that_moves_is_opened_where_it_ended(
    files: MemoryFilesystem, *, is_killed: bool
) -> None:
    two = opened(files, 2)
    key = (TOPIC, 1)
    old, new = two.shares[1], two.shares[0]
    two.append(1, 3)
    for one in two.shares:
        one.write_offsets()
    two.append(1, 2)
    old.starts.announce({old.logs[key]: 2}).sync()
    old.starts.settle({old.logs[key]: 2}, stored=True)

    run_here(two.store.release([(ID, 1)]))
    assert not any(one.leads(*key) for one in two.shares)
    if not is_killed:
        run_here(handing_over.closing(old, *key))
        assert two.offsets(RECOVERY_POINTS)[key] == 5
    run_here(two.store.move({(ID, 1): 0}))
    topic = two.store.get(TOPIC)
    assert topic is not None
    reports = run_here(
        handing_over.opening(new, topic, 1, SETTINGS, led_since=two.store.led_since, now_ms=NOW_MS)
    )

    assert reports == []
    assert new.leads(*key)
    log = new.logs[key]
    assert (log.start_offset, log.next_offset, log.leader_epoch) == (2, 5, 2)
    produce(log, b"v")
    log.sync()
    new.write_offsets()
    if not is_killed:
        old.write_offsets()
    assert two.offsets(HIGH_WATERMARKS)[key] == 6
    assert two.offsets(LOG_STARTS)[key] == 2
    assert two.offsets(RECOVERY_POINTS).keys() == {(TOPIC, number) for number in range(4)}


def test_what_was_taken_over_is_believed_where_a_partition_moved_to(
    files: MemoryFilesystem,
) -> None:
    first = opened(files, 1)
    first.append(1, 4)
    first.stop()
    files.write_atomic(f"{PATH}/{TAKEN_OVER}", b"0\n0\n")  # as if another broker had led
    two = opened(files, 2)
    before = two.offsets(TAKEN_OVER)
    assert before[TOPIC, 1] == 4

    run_here(two.store.release([(ID, 1)]))
    run_here(handing_over.closing(two.shares[1], TOPIC, 1))
    run_here(two.store.move({(ID, 1): 0}))
    topic = two.store.get(TOPIC)
    assert topic is not None
    run_here(
        handing_over.opening(
            two.shares[0], topic, 1, SETTINGS, led_since=two.store.led_since, now_ms=NOW_MS
        )
    )
    for one in two.shares:
        one.write_offsets()

    assert two.shares[0].logs[TOPIC, 1].segments.gaps_below == 4
    assert two.offsets(TAKEN_OVER) == before
