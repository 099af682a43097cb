"""Retention that waits for groups: what stays, what the bounds take, and what is said of it."""

from __future__ import annotations

from typing import Any

import pytest

from broker import logs
from broker.background.retention_wait import ABOVE_END, BEHIND, NOTHING
from tests.broker.background.test_retention import DAY_MS, RetainedLogs
from tests.storage.logs import NOW_MS, append, batch

ARCHIVE = {"retention.wait.groups": "archive"}
WAITS = "retention waits for groups"
WAITS_NO_LONGER = "retention waits no longer"
LOST = "retention drops records that groups have not committed: a bound is exceeded"

Line = tuple[str, dict[str, Any]]


@pytest.fixture
def said(monkeypatch: pytest.MonkeyPatch) -> list[Line]:
    lines: list[Line] = []
    monkeypatch.setattr(logs, "_write", lambda _, event, facts: lines.append((event, facts)))
    return lines


class WaitedFor(RetainedLogs):
    """Partitions of ten records each, which are eight days old while retention.ms is seven."""

    def __init__(self, count: int = 1, **overrides: str) -> None:
        super().__init__(count, **(ARCHIVE | overrides))
        for partition in self.partitions:
            for _ in range(9):
                append(partition.log, batch(timestamp_ms=NOW_MS))
            partition.log.sync()
        self.time_ms = NOW_MS + 8 * DAY_MS
        self.retention.start()

    def commit(self, offset: int, *, index: int = 0, group: str = "archive") -> None:
        self.committed[group, "t", index] = offset


def test_what_the_group_has_not_committed_stays_and_goes_when_it_has(said: list[Line]) -> None:
    world = WaitedFor()
    world.commit(4)
    world.round()
    assert world.starts == [4]

    world.commit(7)
    world.round()
    assert world.starts == [7]

    world.commit(10)
    world.round()
    assert world.starts == [10]
    assert [event for event, _ in said if event != "segments deleted"] == [WAITS, WAITS_NO_LONGER]


def test_a_group_that_has_committed_nothing_wants_all_of_it(said: list[Line]) -> None:
    world = WaitedFor(2)
    world.commit(10, index=1)
    world.round()

    assert world.starts == [0, 10]
    held = world.retention_wait.held(world.partitions[0])
    assert held is not None
    assert (held.records, held.groups) == (10, {"archive": NOTHING})
    assert held.byte_size == world.partitions[0].log.active.byte_size()
    assert world.retention_wait.held(world.partitions[1]) is None
    assert dict(said)[WAITS] == {
        "topic": "t",
        "groups": f"archive ({NOTHING})",
        "partitions": 1,
        "records": 10,
        "bytes": held.byte_size,
    }


def test_the_slowest_of_several_groups_is_waited_for() -> None:
    world = WaitedFor(1, **{"retention.wait.groups": "archive,audit"})
    world.commit(9)
    world.commit(3, group="audit")
    world.round()
    assert world.starts == [3]
    held = world.retention_wait.held(world.partitions[0])
    assert held is not None
    assert held.groups == {"archive": BEHIND, "audit": BEHIND}


def test_an_offset_above_the_end_of_the_log_was_committed_for_other_records() -> None:
    world = WaitedFor()
    world.commit(11)
    world.round()
    assert world.starts == [0]
    held = world.retention_wait.held(world.partitions[0])
    assert held is not None
    assert held.groups == {"archive": ABOVE_END}


def test_nothing_goes_while_the_groups_are_being_loaded(said: list[Line]) -> None:
    world = WaitedFor(1, **{"retention.wait.max.ms": "0"})
    world.commit(10)
    world.groups_are_loading = True
    world.round()
    assert world.starts == [0]
    assert said == []

    world.groups_are_loading = False
    world.round()
    assert world.starts == [10]


def test_a_commit_that_is_relied_on_is_on_the_disk_before_records_go() -> None:
    world = WaitedFor()
    append(world.offsets_log, batch())
    world.offsets_log.write()
    assert world.offsets_log.recovery_point == 0
    world.commit(4)
    world.round()
    assert world.starts == [4]
    assert world.offsets_log.recovery_point == 1


def test_a_forgotten_group_is_waited_for_up_to_the_bound_of_age(said: list[Line]) -> None:
    world = WaitedFor(1, **{"retention.wait.max.ms": str(3 * DAY_MS)})
    world.commit(4)
    world.round()
    world.round()
    assert world.starts == [4]

    world.time_ms = NOW_MS + 11 * DAY_MS
    world.round()
    world.round()

    assert world.starts == [10]
    assert world.retention_wait.lost_records == 6
    events = [event for event, _ in said if event != "segments deleted"]
    assert events == [WAITS, LOST, WAITS_NO_LONGER]
    facts = dict(said)[LOST]
    assert (facts["bound"], facts["records"]) == ("retention.wait.max.ms", 6)
    assert dict(said)[WAITS_NO_LONGER]["records_lost"] == 6


def test_a_forgotten_group_is_waited_for_up_to_the_bound_of_bytes(said: list[Line]) -> None:
    size = len(batch(timestamp_ms=NOW_MS))
    world = WaitedFor(1, **{"retention.wait.max.bytes": str(3 * size)})
    world.round()
    world.round()

    assert world.starts == [7]
    assert world.retention_wait.totals() == (3, 3 * size)
    assert world.retention_wait.lost_records == 7
    events = [event for event, _ in said if event != "segments deleted"]
    assert events.count(WAITS) == events.count(LOST) == 1


def test_a_lost_bound_is_said_once_however_long_it_lasts(said: list[Line]) -> None:
    size = len(batch(timestamp_ms=NOW_MS))
    bounds = {"retention.wait.max.bytes": str(3 * size), "retention.wait.max.ms": str(99 * DAY_MS)}
    world = WaitedFor(1, **bounds)
    log = world.partitions[0].log
    for _ in range(4):
        world.round()
        append(log, batch(timestamp_ms=world.time_ms), now_ms=world.time_ms)
        log.sync()
        world.time_ms += 8 * DAY_MS
    assert world.retention_wait.lost_records == 10
    assert [event for event, _ in said].count(LOST) == 1


def test_a_topic_that_names_no_groups_waits_for_none() -> None:
    world = WaitedFor(1, **{"retention.wait.groups": ""})
    world.round()
    assert world.starts == [10]
    assert world.retention_wait.by_topic() == []
