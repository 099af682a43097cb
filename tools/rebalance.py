"""`triglot rebalance`: partitions are spread anew over the processes of a directory.

A start spreads them by count, and so do new topics. What is deleted leaves some processes with more
than others; this moves as few partitions as make it even again, topic by topic. It knows counts
alone: to relieve a process of a busy partition is for a reassignment.
"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, NamedTuple

from tools.arguments import add_cluster_arguments, run_on_cluster

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from protocol.messages.metadata import MetadataResponse
    from tools.cluster import Cluster

    Arguments = argparse.Namespace
    Commands = argparse._SubParsersAction[argparse.ArgumentParser]

CLIENT_ID = b"triglot-rebalance"
PAUSE_S = 0.1

HELP = """\
Spread the partitions anew over the processes of one directory (triglot serve --processes N), with
as few moves as make it even. Nothing is copied: a partition is closed in one process and opened in
the other, which takes milliseconds. Coordinators of groups and of transactions move with their
partitions. Without --execute it only says what it would do.

  triglot rebalance
  triglot rebalance --execute

A cluster of Apache Kafka is not touched: there a move copies all records.

Exit code 0: done. 1: it could not be done. 2: the command line is wrong.
"""


class Move(NamedTuple):
    """Of a partition, between brokers by their ids."""

    topic: str
    partition: int
    source: int
    target: int


def add_commands(commands: Commands) -> None:
    """Add `rebalance` to the command line's."""
    parser = commands.add_parser(
        "rebalance",
        help="spread partitions anew over several processes",
        description=HELP,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.set_defaults(run=run_rebalance)
    add_cluster_arguments(parser)
    parser.add_argument("--execute", action="store_true", help="do it; without this, only say it")


def run_rebalance(arguments: Arguments) -> int:
    """`triglot rebalance`. The exit code."""
    return run_on_cluster(_rebalance, arguments, client_id=CLIENT_ID)


def _rebalance(cluster: Cluster, arguments: Arguments) -> None:
    from tools.printing import counted, print_json, print_lines, table

    found = cluster.metadata(None)
    _require_processes(found)
    brokers = sorted(one.node_id for one in found.brokers)
    moves = planned(_leaders(found), brokers)
    if arguments.execute and moves:
        _execute(cluster, moves)
    if arguments.json:
        described = [one._asdict() for one in moves]
        print_json({"moves": described, "executed": bool(arguments.execute)})
        return
    if not moves:
        print_lines(["the partitions are spread evenly"])
        return
    rows = [(f"{one.topic}-{one.partition}", one.source, one.target) for one in moves]
    print_lines(table(("PARTITION", "FROM", "TO"), rows))
    count = counted(len(moves), "partition")
    print_lines([f"{count} moved" if arguments.execute else f"{count} would move (--execute)"])


def planned(leaders: Mapping[str, Sequence[int]], brokers: Sequence[int]) -> list[Move]:
    """The moves after which no broker leads more than one partition more than another, of a topic
    and in all. `leaders` are those of each topic's partitions; partitions stay where they can."""
    totals = dict.fromkeys(brokers, 0)
    moves: list[Move] = []
    for topic, ids in sorted(leaders.items()):
        led = {broker: [at for at, one in enumerate(ids) if one == broker] for broker in brokers}
        least, more = divmod(len(ids), len(brokers))
        # Those that lead fewest in all have one more; of several, those that lead it already.
        order = sorted(brokers, key=lambda one: (totals[one], -len(led[one]), one))
        wanted = {broker: least + (place < more) for place, broker in enumerate(order)}
        spare = [(at, broker) for broker in brokers for at in led[broker][wanted[broker] :]]
        for broker in brokers:
            for at, source in spare[: max(wanted[broker] - len(led[broker]), 0)]:
                moves.append(Move(topic, at, source, broker))
            del spare[: max(wanted[broker] - len(led[broker]), 0)]
            totals[broker] += wanted[broker]
    return sorted(moves)


def _leaders(found: MetadataResponse) -> dict[str, list[int]]:
    """Of each topic. Raises NotDone for a partition that nobody leads."""
    from tools.errors import NotDone

    leaders: dict[str, list[int]] = {}
    for topic in found.topics:
        if not topic.name:
            continue
        partitions = sorted(topic.partitions, key=lambda one: one.partition_index)
        leaders[topic.name] = [one.leader_id for one in partitions]
        if -1 in leaders[topic.name]:
            raise NotDone(f"a partition of topic '{topic.name}' has no leader; try again later")
    return leaders


def _require_processes(found: MetadataResponse) -> None:
    """Raises NotDone unless these are the processes of one directory, all under one address."""
    from tools.errors import NotDone

    ids = sorted(one.node_id for one in found.brokers)
    hosts = {one.host for one in found.brokers}
    if len(ids) < 2:
        raise NotDone("there is one process: start the broker with --processes to have several")
    replicas = {len(one.replica_nodes) for topic in found.topics for one in topic.partitions}
    if replicas - {1} or len(hosts) > 1 or ids != list(range(ids[0], ids[0] + len(ids))):
        raise NotDone("this is a cluster of several directories, where a move copies all records")


def _execute(cluster: Cluster, moves: Sequence[Move]) -> None:
    """Raises NotDone."""
    from broker import clock
    from protocol.client import said
    from protocol.messages.alter_partition_reassignments import (
        AlterPartitionReassignmentsRequest,
        AlterPartitionReassignmentsResponse,
    )
    from protocol.messages.list_partition_reassignments import (
        ListPartitionReassignmentsRequest,
        ListPartitionReassignmentsResponse,
    )
    from tools.errors import NotDone

    topics: dict[str, list[AlterPartitionReassignmentsRequest.Topic.Partition]] = {}
    for one in moves:
        partition = AlterPartitionReassignmentsRequest.Topic.Partition(
            partition_index=one.partition, replicas=[one.target]
        )
        topics.setdefault(one.topic, []).append(partition)
    request = AlterPartitionReassignmentsRequest(
        timeout_ms=cluster.timeout_ms,
        topics=[
            AlterPartitionReassignmentsRequest.Topic(name=name, partitions=partitions)
            for name, partitions in topics.items()
        ],
    )
    answer = cluster.change(request, AlterPartitionReassignmentsResponse)
    if answer.error_code:
        raise NotDone(f"{said(answer.error_code)}: {answer.error_message}")
    for topic in answer.responses:
        for result in topic.partitions:
            if result.error_code:
                what = f"{topic.name}-{result.partition_index}"
                raise NotDone(f"{what}: {said(result.error_code)} ({result.error_message})")
    question = ListPartitionReassignmentsRequest(topics=None, timeout_ms=cluster.timeout_ms)
    while cluster.ask(question, ListPartitionReassignmentsResponse).topics:
        clock.sleep(PAUSE_S)
