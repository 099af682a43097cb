"""The broker as a whole, and its settings."""

from __future__ import annotations

from typing import TYPE_CHECKING

from client.cluster import TopicPartition
from protocol.records.builder import build_batch

if TYPE_CHECKING:
    from client.cluster import Cluster
    from tests.support.console import ConsoleClient


def test_settings_have_their_values_and_where_these_come_from(console: ConsoleClient) -> None:
    rows = {row[0]: row[1:] for row in console.get("/settings").rows}
    assert rows["log.initial.task.delay.ms"] == ["86400000", "server.properties"]
    assert rows["num.partitions"] == ["1", "default"]
    assert rows["metrics.basic.credentials"][0] in ("a secret", "empty")


def test_the_overview_has_each_figure_of_all_topics_and_groups(
    console: ConsoleClient, client: Cluster
) -> None:
    client.create_topic("seen", 1)
    batch = build_batch([(1_700_000_000_000, None, b"x" * 1_000, ())])
    client.produce(TopicPartition("seen", 0), [batch])
    client.commit_offsets("seer", {TopicPartition("seen", 0): 0})
    page = console.page_when("/overview", lambda page: "Groups 0" not in page.text)
    for title in (
        *("Bytes in", "Bytes out", "Records in", "Size of all logs", "Records in all logs"),
        *("Topics", "Furthest behind in time", "Records behind, all groups", "Groups"),
    ):
        assert f"<h2>{title}</h2>" in page.html
    lines = page.text.count("last hour, at most")
    assert lines + page.text.count("A line is drawn when two minutes have been seen") == 9
