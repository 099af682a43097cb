"""Partitions that are assigned to processes of a directory, or move between them, as clients and
files show it."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

from protocol.errors import ErrorCode
from protocol.messages.alter_partition_reassignments import AlterPartitionReassignmentsRequest
from protocol.messages.create_partitions import CreatePartitionsRequest
from protocol.messages.create_topics import CreateTopicsRequest
from protocol.messages.list_partition_reassignments import ListPartitionReassignmentsRequest
from tests.broker.test_processes import (
    HOST,
    PARTITIONS,
    TOPIC,
    WITHIN_S,
    Directory,
    directory,
    leaders,
    make_topic,
    produce_everywhere,
    until,
    values,
)
from tests.support.caller import batch
from tools.rebalance import planned

if TYPE_CHECKING:
    from tests.support.caller import Caller

__all__ = ["directory"]
pytestmark = pytest.mark.linux


def moved(caller: Caller, topic: str, to: dict[int, list[int]]) -> list[int]:
    """Ask for moves; the code of each partition."""
    partition = AlterPartitionReassignmentsRequest.Topic.Partition
    asked = [partition(partition_index=index, replicas=to[index]) for index in to]
    request = AlterPartitionReassignmentsRequest(
        timeout_ms=60_000,
        topics=[AlterPartitionReassignmentsRequest.Topic(name=topic, partitions=asked)],
    )
    (answered,) = caller.call(request, 0).responses
    return [one.error_code for one in answered.partitions]


def moves(caller: Caller) -> int:
    """How many are under way."""
    answer = caller.call(ListPartitionReassignmentsRequest(topics=None), 0)
    return sum(len(topic.partitions) for topic in answer.topics)


@pytest.mark.parametrize("asked", [0, 1])
def test_a_partition_moves_with_all_that_is_in_it(directory: Directory, asked: int) -> None:
    directory.start(2)
    make_topic(directory)
    produce_everywhere(directory, b"before")
    with directory.connect(asked) as caller, directory.connect(1 - asked) as other:
        assert moved(caller, TOPIC, {0: [2], 1: [1]}) == [ErrorCode.NONE] * 2
        until(lambda: leaders(caller) == leaders(other) == [2, 1, 1, 2])
        until(lambda: not moves(other))
    produce_everywhere(directory, b"after")
    assert values(directory) == [[b"before", b"after"]] * PARTITIONS

    directory.stop()
    assert (directory.data / ".kafka_cleanshutdown").exists()
    directory.start(1)
    assert values(directory) == [[b"before", b"after"]] * PARTITIONS
    assert "found in the data directory" not in directory.log()


def test_what_moved_is_whole_after_a_crash_of_either(directory: Directory) -> None:
    directory.start(2)
    make_topic(directory)
    produce_everywhere(directory, b"before")
    with directory.connect(0) as caller:
        assert moved(caller, TOPIC, {0: [2]}) == [ErrorCode.NONE]
        until(lambda: leaders(caller) == [2, 2, 1, 2])
    produce_everywhere(directory, b"after")
    for victim in (1, 0):
        os.kill(directory.children()[victim], signal.SIGKILL)
        directory.said("a process died", 2 - victim)
        until(lambda: len(directory.children()) == 2)
    with directory.connect(0) as caller, directory.connect(1) as other:
        assert leaders(caller) == leaders(other) == [2, 2, 1, 2]
    assert values(directory) == [[b"before", b"after"]] * PARTITIONS


def test_what_cannot_move_is_refused(directory: Directory) -> None:
    directory.start(2)
    make_topic(directory)
    with directory.connect(0) as caller:
        wrong = ErrorCode.INVALID_REPLICA_ASSIGNMENT
        assert moved(caller, TOPIC, {0: [3], 1: [1, 2], 2: []}) == [wrong] * 3
        assert moved(caller, TOPIC, {0: [1]}) == [ErrorCode.NONE], "where it is"
        assert moved(caller, TOPIC, {9: [1]}) == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
        assert leaders(caller) == [1, 2, 1, 2]
        assert caller.produce(TOPIC, batch(b"v")).error_code == ErrorCode.NONE


def test_partitions_are_led_by_the_processes_that_they_are_assigned_to(
    directory: Directory,
) -> None:
    directory.start(2)
    place = CreateTopicsRequest.Topic.Assignment

    def made(caller: Caller, name: str, *brokers: list[int]) -> int:
        asked = CreateTopicsRequest.Topic(
            name=name,
            num_partitions=-1,
            replication_factor=-1,
            assignments=[
                place(partition_index=at, broker_ids=ids) for at, ids in enumerate(brokers)
            ],
            configs=[],
        )
        (found,) = caller.call(CreateTopicsRequest(topics=[asked], timeout_ms=1000), 4).topics
        code: int = found.error_code
        return code

    def grown(caller: Caller, count: int, *brokers: list[int]) -> int:
        more = CreatePartitionsRequest.Topic(
            name=TOPIC,
            count=count,
            assignments=[
                CreatePartitionsRequest.Topic.Assignment(broker_ids=ids) for ids in brokers
            ],
        )
        request = CreatePartitionsRequest(topics=[more], timeout_ms=1000, validate_only=False)
        (found,) = caller.call(request, 1).results
        code: int = found.error_code
        return code

    with directory.connect(0) as controller, directory.connect(1) as other:
        assert made(other, TOPIC, [2], [2], [1]) == ErrorCode.NONE
        wrong = ErrorCode.INVALID_REPLICA_ASSIGNMENT
        for brokers in ([3], [1, 2], [], [0]):
            assert made(other, "wrong", [1], brokers) == wrong
            assert grown(controller, 4, brokers) == wrong
        assert grown(controller, 5, [2], [2]) == ErrorCode.NONE
        assert leaders(controller) == leaders(other) == [2, 2, 1, 2, 2]
        assert other.produce(TOPIC, batch(b"v"), partition=4).error_code == ErrorCode.NONE
    directory.stop()
    assert len(list(directory.data.glob(f"{TOPIC}-?"))) == 5


def rebalanced(directory: Directory, *words: str) -> dict[str, Any]:
    bootstrap = f"{HOST}:{directory.ports[1]}"
    run = subprocess.run(
        [sys.executable, "-m", "tools", "rebalance", "--bootstrap", bootstrap, "--json", *words],
        capture_output=True,
        text=True,
        check=False,
        timeout=WITHIN_S,
    )
    assert (run.returncode, run.stderr) == (0, "")
    found: dict[str, Any] = json.loads(run.stdout)
    return found


def test_what_is_uneven_is_spread_anew_when_somebody_asks_for_it(directory: Directory) -> None:
    directory.start(2)
    make_topic(directory)
    produce_everywhere(directory, b"v")
    with directory.connect(0) as caller:
        moved(caller, TOPIC, {1: [1], 3: [1]})
        until(lambda: leaders(caller) == [1, 1, 1, 1])

        said = rebalanced(directory)
        assert len(said["moves"]) == 2
        assert leaders(caller) == [1, 1, 1, 1], "it was only said"
        assert rebalanced(directory, "--execute") == {**said, "executed": True}
        assert sorted(leaders(caller)) == [1, 1, 2, 2]
    assert rebalanced(directory)["moves"] == []
    assert values(directory) == [[b"v"]] * PARTITIONS


@pytest.mark.parametrize("seed", range(20))
def test_a_plan_makes_each_topic_and_all_of_them_even(seed: int) -> None:
    chance = random.Random(seed)
    brokers = range(1, chance.randint(3, 6))
    topics = {
        f"t{number}": [chance.choice(brokers) for _ in range(chance.randint(1, 9))]
        for number in range(chance.randint(1, 6))
    }
    after = {name: list(ids) for name, ids in topics.items()}
    for move in planned(topics, brokers):
        assert after[move.topic][move.partition] == move.source != move.target
        after[move.topic][move.partition] = move.target

    every = [broker for ids in after.values() for broker in ids]
    for some in (*after.values(), every):
        counts = [some.count(broker) for broker in brokers]
        assert max(counts) - min(counts) <= 1
    assert planned(after, brokers) == []
