"""Records as they come: what a page that stays open is sent."""

from __future__ import annotations

import http.client
from contextlib import ExitStack, closing, contextmanager
from threading import Lock
from typing import TYPE_CHECKING

from client.cluster import TopicPartition
from protocol.records.builder import build_batch
from tools.cluster import Cluster as AskedCluster
from tools.console.streaming import STREAMS_MAX
from tools.console.tail import BEHIND_MAX, RECORDS_MAX, Tail

if TYPE_CHECKING:
    from collections.abc import Iterator

    from client.cluster import Cluster
    from tests.support.broker_process import BrokerProcess
    from tests.support.console import ConsoleClient


def append(client: Cluster, topic: str, values: list[bytes]) -> None:
    records = [(1_700_000_000_000, None, value, ()) for value in values]
    client.produce(TopicPartition(topic, 0), [build_batch(records)])


class Events:
    """Those of one page, read as they come."""

    def __init__(self, answer: http.client.HTTPResponse) -> None:
        self._answer = answer

    def alive(self) -> None:
        """Wait until the first look was made."""
        assert self._answer.readline() == b":\n"

    def next(self) -> tuple[str, str]:
        """The next event, its name and its text."""
        name, lines = "", []
        while line := self._answer.readline().decode():
            if line.startswith("event: "):
                name = line[7:].strip()
            elif line.startswith("data: "):
                lines.append(line[6:].rstrip("\n"))
            elif not line.strip() and name:
                break
        return name, "\n".join(lines)


@contextmanager
def followed(console: ConsoleClient, path: str) -> Iterator[Events]:
    connection = http.client.HTTPConnection("127.0.0.1", console.port, timeout=60)
    with closing(connection):
        connection.request("GET", path)
        answer = connection.getresponse()
        assert answer.status == 200
        assert answer.getheader("Content-Type", "").startswith("text/event-stream")
        yield Events(answer)


def test_records_are_shown_as_they_come(console: ConsoleClient, client: Cluster) -> None:
    client.create_topic("live", 1)
    append(client, "live", [b"before"])
    assert "Waiting for records" in console.get("/topics/live/follow").text
    with followed(console, "/topics/live/follow/events") as events:
        events.alive()
        append(client, "live", [b'{"n": 1}', b"<script>alert(1)</script>"])
        name, rows = events.next()
        assert name == "records"
        assert "before" not in rows
        assert "&#34;n&#34;: 1" in rows
        assert "<script>" not in rows
        append(client, "live", [b"next"])
        assert "next" in events.next()[1]


def test_a_text_is_looked_for_before_records_are_sent(
    console: ConsoleClient, client: Cluster
) -> None:
    client.create_topic("sieve", 1)
    with followed(console, "/topics/sieve/follow/events?contains=gold&partition=0") as events:
        events.alive()
        append(client, "sieve", [b"sand", b"gold", b"sand"])
        rows = events.next()[1]
        assert "gold" in rows
        assert "sand" not in rows


def test_what_goes_wrong_is_the_last_event(console: ConsoleClient, client: Cluster) -> None:
    client.create_topic("narrow", 1)
    for path, said in (
        ("/topics/nothing/follow/events", "there is no topic"),
        ("/topics/narrow/follow/events?partition=9", "has no partition 9"),
        ("/topics/narrow/follow/events?view=xml", "view: wanted"),
    ):
        with followed(console, path) as events:
            name, text = events.next()
            assert name == "over", path
            assert said in text
            assert events.next() == ("", "")


def test_one_page_too_many_is_told_so_and_those_that_end_make_room(
    console: ConsoleClient, client: Cluster
) -> None:
    client.create_topic("crowded", 1)
    path = "/topics/crowded/follow/events"
    with ExitStack() as pages:
        for _ in range(STREAMS_MAX):
            pages.enter_context(followed(console, path)).alive()
        with followed(console, path) as events:
            assert events.next() == (
                "over",
                f"{STREAMS_MAX} pages follow topics at the moment: close one",
            )
        assert console.get("/topics/crowded").status == 200

    def has_room() -> bool:
        with followed(console, path) as events:
            return events._answer.readline() == b":\n"

    console.wait_until(has_room)


def test_a_reader_that_does_not_read_costs_nothing_and_others_go_on(
    console: ConsoleClient, client: Cluster
) -> None:
    """Megabytes of records come while one page does not read; the other misses none."""
    client.create_topic("torrent", 1)
    path = "/topics/torrent/follow/events"
    with followed(console, path) as sleeper, followed(console, path) as reader:
        sleeper.alive()
        reader.alive()
        for number in range(20):
            append(client, "torrent", [b"%02d" % number + b"x" * 60_000] * 4)
            name, rows = reader.next()
            assert name == "records"
            assert f"{number:02}xxx" in rows
        assert console.get("/topics/torrent").status == 200


def test_who_is_far_behind_is_told_how_many_were_left_out(
    broker: BrokerProcess, client: Cluster
) -> None:
    client.create_topic("fast", 1)
    tail = Tail([TopicPartition("fast", 0)], b"", Lock())
    with AskedCluster(broker.host, broker.port, timeout_s=10, client_id=b"test") as cluster:
        assert not tail.look(cluster).records
        append(client, "fast", [b"x"] * (BEHIND_MAX + 1))
        seen = tail.look(cluster)
        assert len(seen.records) == RECORDS_MAX
        assert seen.skipped == BEHIND_MAX + 1 - RECORDS_MAX
        append(client, "fast", [b"y"] * (RECORDS_MAX + 1))
        looks = [tail.look(cluster) for _ in range(3)]
        assert [len(one.records) for one in looks] == [RECORDS_MAX, 1, 0]
        assert not any(one.skipped for one in looks)
