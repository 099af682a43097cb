"""Pages about groups, of a real broker with real consumers."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING
from urllib.parse import quote

from confluent_kafka import Consumer

from client.cluster import TopicPartition
from protocol.records.builder import build_batch
from tests.support.caller import Caller

if TYPE_CHECKING:
    from client.cluster import Cluster
    from tests.support.broker_process import BrokerProcess
    from tests.support.console import ConsoleClient


def append(client: Cluster, topic: str, count: int) -> None:
    records = [(1_700_000_000_000, None, b"x", ()) for _ in range(count)]
    client.produce(TopicPartition(topic, 0), [build_batch(records)])


def test_a_stranger_sees_which_group_is_furthest_behind_in_time(
    console: ConsoleClient, client: Cluster
) -> None:
    client.create_topic("lagging", 1)
    place = TopicPartition("lagging", 0)
    append(client, "lagging", 1)
    append(client, "lagging", 10)
    client.commit_offsets("behind-longest", {place: 0})
    client.commit_offsets("behind-a-little", {place: 1})
    client.commit_offsets("behind-not", {place: 11})
    rows = console.page_when("/groups?q=behind", lambda page: len(page.rows) == 4).rows
    assert rows[0][:3] == ["Group", "Behind by ▼", "Records behind"]
    assert [row[0] for row in rows[1:]] == ["behind-longest", "behind-a-little", "behind-not"]
    assert [row[2] for row in rows[1:]] == ["11", "10", "0"]
    # By the broker's clock, whatever the producer's said.
    assert rows[1][1].endswith(" s")
    assert rows[3][1] == "0.0 s"
    by_name = console.get("/groups?q=behind&sort=name").rows
    assert [row[0] for row in by_name[1:]] == ["behind-a-little", "behind-longest", "behind-not"]


def test_a_group_shows_its_members_and_what_they_are_assigned(
    console: ConsoleClient, client: Cluster, broker: BrokerProcess
) -> None:
    client.create_topic("assigned", 3)
    append(client, "assigned", 5)
    consumer = Consumer({
        "bootstrap.servers": broker.bootstrap,
        "group.id": "with-members",
        "client.id": "a-reader",
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
    })  # fmt: skip
    consumer.subscribe(["assigned"])
    try:
        deadline = time.monotonic() + 60
        read = 0
        while read < 5:
            assert time.monotonic() < deadline
            message = consumer.poll(0.5)
            read += message is not None and message.error() is None
        consumer.commit(asynchronous=False)
        append(client, "assigned", 2)
        page = console.get("/group?id=with-members")
    finally:
        consumer.close()
    assert page.status == 200, page.text
    assert "Stable" in page.text
    assert "assigned-0, assigned-1, assigned-2" in page.text
    (row,) = [row for row in page.rows if row[0] == "assigned-0"]
    assert row[2:6] == ["2", "5", "7", "a-reader"]


def test_a_group_without_members_has_offsets_and_a_way_to_its_next_record(
    console: ConsoleClient, client: Cluster
) -> None:
    client.create_topic("kept", 1)
    append(client, "kept", 5)
    client.commit_offsets("only-offsets", {TopicPartition("kept", 0): 3})
    page = console.get("/group?id=only-offsets")
    assert "Nobody is in it" in page.text
    assert "/topics/kept/records?partition=0&amp;offset=3" in page.html


def test_names_of_groups_are_text_and_never_run(console: ConsoleClient, client: Cluster) -> None:
    name = '"><script>alert(1)</script>/../?&#'
    client.create_topic("named", 1)
    client.commit_offsets(name, {TopicPartition("named", 0): 0})
    for path in ("/groups", "/groups?q=%22%3E", f"/group?id={quote(name, safe='')}"):
        page = console.get(path)
        assert page.status == 200
        assert name in page.text.replace(" ", ""), path
        assert "<script>" not in page.html


def test_a_group_that_is_not_there_is_told(console: ConsoleClient) -> None:
    for path in ("/group?id=nobody", "/group", "/group?id="):
        page = console.get(path)
        assert (page.status, "there is no group" in page.text) == (404, True), page.text


def test_a_group_whose_topic_was_deleted_is_shown(
    console: ConsoleClient, client: Cluster, broker: BrokerProcess
) -> None:
    client.create_topic("deleted", 1)
    client.commit_offsets("of-a-deleted-topic", {TopicPartition("deleted", 0): 0})
    page = console.get("/group?id=of-a-deleted-topic")
    assert "deleted-0" in page.text
    with Caller(broker.host, broker.port) as caller:
        caller.delete_topic("deleted")
    # Its offsets go a moment later than the topic.
    page = console.get("/group?id=of-a-deleted-topic")
    assert page.status in (200, 404)
