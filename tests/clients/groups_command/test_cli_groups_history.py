"""`triglot groups history` against a running server, and groups of the newer protocol."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Any

import confluent_kafka
import pytest

from client.connection import Connection
from protocol.messages.txn_offset_commit import TxnOffsetCommitRequest
from tests.clients.groups_command.commands import (
    JOIN_TIMEOUT_S,
    asked,
    commit,
    commit_one,
    joined,
    kafka_python_member,
    left,
    moves_of,
    produce,
    refused,
    run,
)
from tests.support.caller import Caller, batch

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.support.server_process import ServerProcess

pytestmark = pytest.mark.clients


def events_of(bootstrap: str, group: str, *arguments: str) -> list[dict[str, Any]]:
    """The lines of a history; the last is its summary."""
    code, out, err = run(bootstrap, "history", group, "--json", *arguments)
    assert (code, err) == (0, "")
    return [json.loads(line) for line in out.splitlines()]


def changes_of(events: list[dict[str, Any]]) -> list[tuple[int, int | None, int | None]]:
    """(partition, old, new) of those that changed something."""
    return [
        (event["partition"], event["old"], event["new"])
        for event in events
        if event.get("event") == "offset" and event["effective"]
    ]


def test_a_history_has_every_commit_in_its_order(
    caller: Caller, bootstrap: str, group: str, hourly: tuple[str, int]
) -> None:
    began_ms = time.time_ns() // 1_000_000
    commit(caller, group, hourly[0], {0: 1, 1: 1})
    commit(caller, group, hourly[0], {0: 4}, note="later")
    asked(bootstrap, "reset", group, "--topic", f"{hourly[0]}:0", "--shift", "-2", "--execute")
    asked(bootstrap, "delete", group, "--topic", f"{hourly[0]}:1", "--execute")

    *events, last = events_of(bootstrap, group)

    changes = changes_of(events)
    assert sorted(changes[:2]) == [(0, None, 1), (1, None, 1)]  # Kafka 3.9 has its own order
    assert changes[2:] == [(0, 1, 4), (0, 4, 2), (1, 1, None)]
    first, second, later = events[:3]
    assert first["batch"] == second["batch"] == first["log_offset"]
    assert later["batch"] > second["log_offset"]
    assert later["metadata"] == "later"
    assert all(began_ms - 1000 <= event["time_ms"] <= began_ms + 60_000 for event in events)
    assert last["summary"]["missing"] == 0

    assert changes_of(events_of(bootstrap, group, "--partition", "1")) == [
        (1, None, 1),
        (1, 1, None),
    ]
    *newest, last = events_of(bootstrap, group, "--limit", "1")
    assert changes_of(newest) == [(1, 1, None)]
    assert last["summary"]["not_shown"] == 4


def test_a_history_tells_the_generations_of_the_group(
    bootstrap: str, group: str, hourly: tuple[str, int]
) -> None:
    with kafka_python_member(bootstrap, group, hourly[0]) as consumer:
        commit_one(consumer, hourly[0])

    code, out, err = run(bootstrap, "history", group)

    assert (code, err) == (0, "")
    *events, _ = [line.split("  ", 2)[-1] for line in out.splitlines()]
    joined = next(n for n, event in enumerate(events) if "1 member: reader-" in event)
    committed_at = events.index(f"{hourly[0]}-0: none -> 1")
    assert joined < committed_at < len(events) - 1
    assert events[-1].endswith("no members")


def transactions_are_served(bootstrap: str) -> bool:
    host, _, port = bootstrap.rpartition(":")
    with Connection(host, int(port), timeout_s=10) as connection:
        return connection.offers(TxnOffsetCommitRequest)


def test_a_history_tells_what_became_of_transactions(
    caller: Caller, bootstrap: str, group: str, hourly: tuple[str, int]
) -> None:
    if not transactions_are_served(bootstrap):
        pytest.skip("the server has no transactions yet")
    topic = hourly[0]
    commit(caller, group, topic, {0: 1})
    producer = confluent_kafka.Producer(
        {"bootstrap.servers": bootstrap, "transactional.id": f"of-{group}"}
    )
    consumer = confluent_kafka.Consumer({"bootstrap.servers": bootstrap, "group.id": group})
    producer.init_transactions(JOIN_TIMEOUT_S)
    for offset in (2, 3, 4):
        producer.begin_transaction()
        producer.send_offsets_to_transaction(
            [confluent_kafka.TopicPartition(topic, 0, offset)], consumer.consumer_group_metadata()
        )
        if offset == 2:
            producer.commit_transaction()
        elif offset == 3:
            producer.abort_transaction()
    consumer.close()

    *events, _ = events_of(bootstrap, group)

    assert changes_of(events) == [(0, None, 1), (0, 1, 2)]
    outcomes = [event["transaction"]["outcome"] for event in events if "transaction" in event]
    assert outcomes == ["committed", "aborted", "open"]
    producers = {event["transaction"]["producer_id"] for event in events if "transaction" in event}
    assert len(producers) == 1
    producer.abort_transaction()


def test_a_group_of_the_newer_protocol_is_described_and_has_a_history(
    new_server: Callable[..., ServerProcess], topic: str, group: str
) -> None:
    server = new_server(group_coordinator_rebalance_protocols="classic,consumer")
    with Caller(server.host, server.port) as caller:
        caller.create_topic(topic, partitions=2)
        produce(caller, topic, 0, batch(b"a", b"b"))
        commit(caller, group, topic, {0: 1})
        member_id, epoch = joined(caller, group, topic)
        answer = asked(server.bootstrap, "describe", group)
        said = refused(server.bootstrap, "reset", group, "--all-topics", "--to-earliest")
        left(caller, group, member_id)
    assert (answer["type"], answer["state"], answer["epoch"]) == ("consumer", "Stable", epoch)
    assert answer["assignor"] == "uniform"
    (member,) = answer["members"]
    assert (member["member_id"], member["epoch"]) == (member_id, epoch)
    assert [place["partition"] for place in member["partitions"]] == [0, 1]
    assert answer["partitions"][0]["lag"] == 1
    assert f"has 1 member, stop them first: {member_id}" in said

    moved = moves_of(server.bootstrap, group, "--all-topics", "--to-earliest", "--execute")
    assert moved == {0: (1, 0)}
    code, out, _ = run(server.bootstrap, "history", group)
    assert code == 0
    assert f"member {member_id} /127.0.0.1 subscribes to {topic}" in out
    assert f"at epoch {epoch} has {topic} 0-1" in out
    assert f"member {member_id} is gone" in out
    assert f"{topic}-0: 1 -> 0 (-1)" in out
