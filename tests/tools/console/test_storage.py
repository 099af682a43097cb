"""The segments of a topic, and what will happen to them next."""

from __future__ import annotations

from typing import TYPE_CHECKING

from client.cluster import TopicPartition
from protocol.records.builder import build_batch
from tools.console.pages.storage import NO_LIMIT, Rules, Segment, segments_of

if TYPE_CHECKING:
    from client.cluster import Cluster
    from tests.support.console import ConsoleClient

HOUR_MS = 3_600_000
NOW_MS = 100 * HOUR_MS
KEEPS_ALL = Rules(True, False, NO_LIMIT, NO_LIMIT, 0.5)
# Three segments: an hour, half an hour and no time old.
SEGMENTS = [
    [0, 10, 1_000, NOW_MS - HOUR_MS],
    [10, 20, 1_000, NOW_MS - HOUR_MS // 2],
    [20, 25, 500, NOW_MS],
]


def outlook(rules: Rules, *, start: int = 0, cleaned_to: int | None = None) -> list[Segment]:
    told = {"partition": 0, "start": start, "cleaned_to": cleaned_to, "segments": SEGMENTS}
    return list(segments_of(told, rules, NOW_MS))


def test_by_age_a_segment_goes_when_its_last_record_is_too_old() -> None:
    found = outlook(KEEPS_ALL._replace(retention_ms=HOUR_MS))
    assert [one.goes_in_s for one in found] == [0, 1800, 3600]
    assert found[0].next == "goes: all its records are older than retention.ms"
    assert [one.goes_in_s for one in outlook(KEEPS_ALL)] == [None, None, None]


def test_by_size_the_oldest_go_as_long_as_what_remains_is_not_below_the_limit() -> None:
    for limit, over in ((2_500, 0), (1_501, 0), (1_500, 1), (600, 1), (500, 2), (0, 3)):
        found = outlook(KEEPS_ALL._replace(retention_bytes=limit))
        assert [one.goes_in_s == 0 for one in found].count(True) == over, limit
    assert outlook(KEEPS_ALL._replace(deletes=False, retention_bytes=0))[0].goes_in_s is None


def test_what_compaction_has_seen_and_what_not() -> None:
    found = outlook(Rules(False, True, HOUR_MS, 0, 0.5), cleaned_to=10)
    assert [one.next for one in found] == ["was compacted", "has to be compacted", "is written to"]
    assert not any(one.goes_in_s == 0 for one in found)


def test_a_topic_shows_its_segments(console: ConsoleClient, client: Cluster) -> None:
    client.create_topic("rolled", 1, {"segment.bytes": "20000", "retention.bytes": "30000"})
    for _ in range(5):
        records = [(1_700_000_000_000, None, b"x" * 15_000, ())]
        client.produce(TopicPartition("rolled", 0), [build_batch(records)])
    page = console.get("/topics/rolled/storage")
    assert page.status == 200, page.text
    rows = [row for row in page.rows if row[0].startswith("rolled-0")]
    assert [row[0] for row in rows] == [f"rolled-0 from {base}" for base in range(5)]
    assert rows[0][1:3] == ["1", "14.7 KiB"]
    goes = [row[4] == "at the next look" for row in rows]
    assert goes == [True, True, True, False, False]
    assert rows[4][5] == "is written to"
    assert "by size above 29.3 KiB a partition" in page.text


def test_a_compacted_topic_says_how_dirty_it_is(console: ConsoleClient, client: Cluster) -> None:
    configs = {"cleanup.policy": "compact", "segment.bytes": "20000"}
    configs["min.cleanable.dirty.ratio"] = "1"
    client.create_topic("keyed-log", 1, configs)
    for _ in range(3):
        records = [(1_700_000_000_000, b"k", b"x" * 15_000, ())]
        client.produce(TopicPartition("keyed-log", 0), [build_batch(records)])
    page = console.get("/topics/keyed-log/storage")
    assert "more than 100 % are new to it" in page.text
    assert "partition 0 has 100 %" in page.text
    assert "nothing goes by age or size" in page.text


def test_a_topic_that_is_not_there_has_no_storage(console: ConsoleClient) -> None:
    assert console.get("/topics/nothing-here/storage").status == 404
