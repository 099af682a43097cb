"""The actions of `triglot transactions`, from parsed arguments to printed lines."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from broker.clock import now_ms
from protocol.client import said
from tools.errors import NotDone
from tools.printing import counted, print_json, print_lines, say
from tools.transactions.coordinators import ONGOING, describe, list_transactions, take_over
from tools.transactions.hanging import owner_of, search, why_it_hangs
from tools.transactions.partitions import Marker, producers_in, write_abort
from tools.transactions.show import (
    description_json,
    description_rows,
    hanging_json,
    hanging_rows,
    list_json,
    list_rows,
    producer_rows,
    producers_json,
)

if TYPE_CHECKING:
    from argparse import Namespace as Arguments

    from tools.cluster import Cluster, TopicPartition
    from tools.transactions.coordinators import Described
    from tools.transactions.partitions import Producer

MINUTE_MS = 60_000
OFFSETS_NAMED = 5


def run_list(cluster: Cluster, arguments: Arguments) -> None:
    """The transactional ids, filtered as asked."""
    found = list_transactions(
        cluster,
        states=arguments.state or (),
        producer_ids=arguments.producer_id or (),
        longer_than_ms=-1 if arguments.duration_filter is None else arguments.duration_filter,
        pattern=arguments.transactional_id_pattern,
    )
    if arguments.json:
        print_json(list_json(found))
    else:
        print_lines(list_rows(found) if found else ["no transactional ids"])


def run_describe(cluster: Cluster, arguments: Arguments) -> None:
    """One transactional id with its transaction."""
    found = _known(cluster, arguments.transactional_id)
    if arguments.json:
        print_json(description_json(found, now_ms()))
    else:
        print_lines(description_rows(found, now_ms()))


def run_describe_producers(cluster: Cluster, arguments: Arguments) -> None:
    """The producers that a partition remembers."""
    producers = producers_in(cluster, arguments.topic_partition)
    if arguments.json:
        print_json(producers_json(arguments.topic_partition, producers))
    else:
        print_lines(producer_rows(producers) if producers else ["no producers"])


def run_find_hanging(cluster: Cluster, arguments: Arguments) -> None:
    """The transactions that nobody ends."""
    now = now_ms()
    places = _selected(cluster, arguments)
    found = search(cluster, places, before_ms=now - arguments.max_transaction_timeout * MINUTE_MS)
    if arguments.json:
        print_json(hanging_json(found, now))
    else:
        print_lines(hanging_rows(found, now))
    for place, code in found.refused.items():
        say(f"triglot: partition {place} was not looked at: {said(code)}", sys.stderr)
    if found.refused:
        raise NotDone(f"{counted(len(found.refused), 'partition')} could not be looked at")


def _selected(cluster: Cluster, arguments: Arguments) -> list[TopicPartition]:
    """The partitions that are asked for. Raises NotDone if there is none."""
    partitions = cluster.all_partitions()
    found = [
        place
        for place, leader in sorted(partitions.items())
        if arguments.topic in (None, place.topic)
        and arguments.partition in (None, place.partition)
        and arguments.broker_id in (None, leader)
    ]
    if not found and (arguments.topic, arguments.broker_id) != (None, None):
        of = f" of topic '{arguments.topic}'" if arguments.topic is not None else ""
        which = f" {arguments.partition}" if arguments.partition is not None else ""
        led = f" led by broker {arguments.broker_id}" if arguments.broker_id is not None else ""
        raise NotDone(f"there is no partition{which}{of}{led}")
    return found


def run_abort(cluster: Cluster, arguments: Arguments) -> None:
    """End the transaction that is named, in one partition or as a whole."""
    if arguments.transactional_id is not None:
        _abort_whole(cluster, arguments)
        return
    place = arguments.topic_partition
    if arguments.start_offset is not None:
        producer = _open_at(cluster, place, arguments.start_offset)
        # Where no marker has come yet the partition knows of no coordinator's epoch.
        marker = Marker(producer.producer_id, producer.epoch, max(producer.coordinator_epoch, 0))
    else:
        marker = Marker(
            arguments.producer_id, arguments.producer_epoch, arguments.coordinator_epoch
        )
    write_abort(cluster, place, marker)
    if arguments.json:
        where = {"topic": place.topic, "partition": place.partition}
        print_json({"aborted": {**where, **marker._asdict()}})
    else:
        what = f"producer {marker.producer_id}, epoch {marker.epoch}"
        print_lines([f"aborted in {place}: the transaction of {what}"])


def _abort_whole(cluster: Cluster, arguments: Arguments) -> None:
    described = _known(cluster, arguments.transactional_id)
    if described.state != ONGOING:
        what = f"transactional id '{described.transactional_id}'"
        raise NotDone(f"{what} is in state {described.state}: there is nothing to abort")
    take_over(cluster, described)
    places = described.partitions
    if arguments.json:
        shown = [{"topic": topic, "partition": partition} for topic, partition in places]
        transactional_id = described.transactional_id
        print_json({"aborted": {"transactional_id": transactional_id, "partitions": shown}})
    else:
        where = f"in {counted(len(places), 'partition')}; its producer is fenced"
        print_lines([f"aborted: the transaction of '{described.transactional_id}' {where}"])


def _known(cluster: Cluster, transactional_id: str) -> Described:
    found = describe(cluster, transactional_id)
    if found is None:
        raise NotDone(f"there is no transactional id '{transactional_id}'")
    return found


def _open_at(cluster: Cluster, place: TopicPartition, start_offset: int) -> Producer:
    """The producer whose transaction begins there. Raises NotDone if there is none, or if its
    coordinator will end it: a part of a transaction alone is not aborted."""
    opened = [one for one in producers_in(cluster, place) if one.start_offset >= 0]
    for producer in opened:
        if producer.start_offset != start_offset:
            continue
        owner = owner_of(cluster, producer.producer_id)
        if owner is not None and not why_it_hangs(place, producer, owner):
            transactional_id = owner.transactional_id
            raise NotDone(
                f"this is part of the transaction of '{transactional_id}', which is in state "
                f"{owner.state} and in {counted(len(owner.partitions), 'partition')}: abort it "
                f"whole, with --transactional-id, or insist with --producer-id "
                f"{producer.producer_id} --producer-epoch {producer.epoch} --coordinator-epoch "
                f"{max(producer.coordinator_epoch, 0)}"
            )
        return producer
    named_offsets = ", ".join(str(one.start_offset) for one in opened[:OFFSETS_NAMED])
    more = ", ..." if len(opened) > OFFSETS_NAMED else ""
    there = f"open are those from {named_offsets}{more}" if opened else "none is open there"
    raise NotDone(f"partition {place}: no open transaction begins at {start_offset}; {there}")
