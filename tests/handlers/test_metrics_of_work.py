"""The numbers of a broker that works: requests, topics, groups, clients, whether it is ready."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from confluent_kafka import Producer

from protocol.errors import ErrorCode
from protocol.messages.list_offsets import ListOffsetsRequest
from tests.support.caller import batch
from tests.support.group_caller import rebalance
from tests.support.scraped import counters, scrape
from tests.support.server_process import free_port

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from tests.support.broker_process import BrokerProcess
    from tests.support.caller import Caller
    from tests.support.group_caller import GroupCaller, Member


@pytest.fixture(scope="module")
def settings() -> Mapping[str, str]:
    return {"metrics.port": str(free_port())}


@pytest.fixture
def port(broker: BrokerProcess) -> int:
    return int(broker.settings["metrics.port"])


def times(port: int, api: str) -> dict[str, float]:
    """How many requests of an API had each phase."""
    found = counters(port)
    return {
        phase: found.get(f'request_seconds_count{{api="{api}",phase="{phase}"}}', 0)
        for phase in ("queue", "local", "wait", "disk", "send")
    }


def grown(before: dict[str, float], after: dict[str, float]) -> dict[str, float]:
    return {phase: after[phase] - before[phase] for phase in after if after[phase] != before[phase]}


def test_a_produce_waits_for_the_disk_only_with_acks_all(
    port: int, caller: Caller, topic: str
) -> None:
    caller.create_topic(topic)
    before, syncs = times(port, "Produce"), counters(port)["sync_seconds_count"]

    caller.produce(topic, batch(b"a"), acks=1)
    after = times(port, "Produce")
    assert grown(before, after) == {"queue": 1, "local": 1, "send": 1}

    caller.produce(topic, batch(b"b"), acks=-1)
    assert grown(after, times(port, "Produce")) == {"queue": 1, "local": 1, "disk": 1, "send": 1}
    assert counters(port)["sync_seconds_count"] > syncs


def test_a_fetch_that_finds_nothing_waits(port: int, caller: Caller, topic: str) -> None:
    caller.create_topic(topic)
    before = times(port, "Fetch")
    sum_before = counters(port).get('request_seconds_sum{api="Fetch",phase="wait"}', 0)

    caller.fetch(topic, max_wait_ms=200, min_bytes=1)

    assert grown(before, times(port, "Fetch")) == {"queue": 1, "local": 1, "wait": 1, "send": 1}
    waited = counters(port)['request_seconds_sum{api="Fetch",phase="wait"}'] - sum_before
    assert waited > 0.15


def test_bytes_of_topics_and_offsets_of_partitions_are_told(
    port: int, caller: Caller, topic: str
) -> None:
    caller.create_topic(topic, partitions=2)
    first, second = batch(b"a", b"b"), batch(b"c")
    caller.produce(topic, first)
    caller.produce(topic, second, partition=1)
    caller.fetch(topic)
    caller.fetch(topic)
    caller.delete_records(topic, 1)

    found = counters(port)
    of_topic, of_partition = f'{{topic="{topic}"}}', f'{{topic="{topic}",partition="0"}}'
    assert found[f"topic_bytes_in_total{of_topic}"] == len(first) + len(second)
    assert found[f"topic_bytes_out_total{of_topic}"] == 2 * len(first)
    assert found[f"partition_log_start_offset{of_partition}"] == 1
    assert found[f"partition_log_end_offset{of_partition}"] == 2
    assert found[f"partition_log_bytes{of_partition}"] == len(first)
    assert found['rows_left_out{what="partitions"}'] == 0


def test_refused_sets_are_counted_by_their_error(port: int, caller: Caller, topic: str) -> None:
    caller.create_topic(topic)
    name = 'produce_refusals_total{error="CORRUPT_MESSAGE"}'
    before = counters(port).get(name, 0)
    spoilt = bytearray(batch(b"a"))
    spoilt[-1] ^= 1

    assert caller.produce(topic, bytes(spoilt)).error_code == ErrorCode.CORRUPT_MESSAGE

    assert counters(port)[name] == before + 1


def test_a_group_that_is_behind_is_so_in_records_and_in_seconds(
    port: int, caller: Caller, groups: GroupCaller, topic: str, group: str
) -> None:
    caller.create_topic(topic, partitions=2)
    caller.produce(topic, batch(b"a", b"b", b"c", timestamp_ms=1))
    groups.commit(group, {(topic, 0): 1, (topic, 1): 0})

    behind = f'{{group="{group}",topic="{topic}",partition="0"}}'
    read = f'{{group="{group}",topic="{topic}",partition="1"}}'
    found = counters(port)
    assert found[f"group_lag_records{behind}"] == 2
    # By the broker's clock: the records themselves say that they are from 1970.
    assert 0 <= found[f"group_lag_seconds{behind}"] < 600
    assert (found[f"group_lag_records{read}"], found[f"group_lag_seconds{read}"]) == (0, 0)

    groups.commit(group, {(topic, 0): 3})
    found = counters(port)
    assert (found[f"group_lag_records{behind}"], found[f"group_lag_seconds{behind}"]) == (0, 0)


def test_states_members_and_rebalances_of_groups_are_told(
    port: int, caller: Caller, member: Callable[..., Member], topic: str
) -> None:
    caller.create_topic(topic)
    before = counters(port)

    rebalance(member(), member())

    after = counters(port)
    stable, members = 'group_states{type="classic",state="Stable"}', 'group_members{type="classic"}'
    assert after[stable] == before.get(stable, 0) + 1
    assert after[members] == before.get(members, 0) + 2
    assert after["group_rebalances_total"] > before["group_rebalances_total"]


def test_connections_are_told_by_the_software_of_the_client(
    port: int, broker: BrokerProcess, caller: Caller, topic: str
) -> None:
    caller.create_topic(topic)
    producer = Producer({"bootstrap.servers": f"{broker.host}:{broker.port}"})
    producer.produce(topic, b"a")
    assert producer.flush(30) == 0  # then its connection has come, and stays

    rows = [name for name in counters(port) if name.startswith("client_connections")]
    assert any('software_name="confluent-kafka-python"' in row for row in rows), rows


def test_a_broker_that_serves_is_healthy_and_ready(port: int) -> None:
    for path in ("/healthz", "/readyz"):
        assert scrape(port, path).status == 200


def test_a_wrong_request_is_timed_too(port: int, caller: Caller) -> None:
    before = times(port, "ListOffsets")

    caller.call(ListOffsetsRequest(replica_id=-1, topics=[]), 3)

    assert grown(before, times(port, "ListOffsets")) == {"queue": 1, "local": 1, "send": 1}
