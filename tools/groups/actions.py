"""The actions of `triglot groups`, from parsed arguments to printed lines."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from broker.clock import now_ms
from tools.errors import NotDone
from tools.groups.committed import commit, committed_offsets, delete_group, delete_offsets
from tools.groups.held_back import held_back_for
from tools.groups.history import Change, History
from tools.groups.lag import lag_of_group
from tools.groups.membership import group_of, list_groups
from tools.groups.reset import Target, plan
from tools.groups.show import (
    description_json,
    description_rows,
    event_json,
    event_text,
    group_json,
    group_rows,
    history_json,
    history_rows,
    move_json,
    move_rows,
)
from tools.printing import OffsetsOfLog, counted, print_json, print_lines
from tools.selection import places_of

if TYPE_CHECKING:
    from argparse import Namespace as Arguments
    from collections.abc import Iterable

    from tools.cluster import Cluster, TopicPartition
    from tools.groups.history import Event
    from tools.groups.membership import Group
    from tools.selection import TopicSelection

MEMBERS_NAMED = 5


def run_list(cluster: Cluster, arguments: Arguments) -> None:
    """The groups, filtered as asked."""
    groups = list_groups(cluster)
    if arguments.state is not None:
        if any(not group.state for group in groups):
            raise NotDone("this broker does not tell the states of groups (Kafka 2.6 is the first)")
        groups = [group for group in groups if group.state.lower() == arguments.state.lower()]
    if arguments.kind is not None:
        if any(not group.kind for group in groups):
            raise NotDone("this broker does not tell the types of groups (Kafka 3.8 is the first)")
        groups = [group for group in groups if group.kind.lower() == arguments.kind]
    if arguments.json:
        print_json(group_json(groups))
    elif groups:
        print_lines(group_rows(groups))
    else:
        print_lines(["no groups"])


def run_describe(cluster: Cluster, arguments: Arguments) -> None:
    """One group with its members and its lag."""
    group = group_of(cluster, arguments.group)
    committed = committed_offsets(cluster, arguments.group)
    held = held_back_for(cluster, arguments.group)
    if not group.exists and not committed and not held:
        raise NotDone(f"there is no group '{arguments.group}'")
    now = now_ms()
    lags = lag_of_group(cluster, committed, group.members, now)
    if arguments.json:
        print_json(description_json(group, lags, held, now))
    else:
        print_lines(description_rows(group, lags, held))


def run_reset(cluster: Cluster, arguments: Arguments) -> None:
    """The plan, carried out with --execute."""
    group = _without_members(cluster, arguments.group)
    committed = committed_offsets(cluster, arguments.group)
    if arguments.all_topics:
        places = list(committed)
        if not places:
            raise NotDone(f"group '{arguments.group}' has committed nothing; name a --topic")
    else:
        places = places_of(cluster, arguments.topic)
    moves = plan(cluster, places, committed, _target(arguments))
    offsets = {move.place: move.new for move in moves if move.new is not None}
    if not offsets:
        notes = "; ".join(sorted({move.note for move in moves}))
        raise NotDone(f"there is no offset to set: {notes}")
    if arguments.execute:
        commit(cluster, arguments.group, offsets)
    if arguments.json:
        print_json(move_json(arguments.group, moves, executed=arguments.execute))
        return
    print_lines(move_rows(moves))
    new = "" if group.exists or committed else f"; there was no group '{arguments.group}'"
    what = counted(len(offsets), "offset")
    if arguments.execute:
        print_lines([f"{what} set{new}"])
    else:
        print_lines([f"{what} to set{new}; nothing was changed: --execute does it"])


def run_delete(cluster: Cluster, arguments: Arguments) -> None:
    """The group, or what it committed for some topics."""
    committed = committed_offsets(cluster, arguments.group)
    if arguments.topic is None:
        if not _without_members(cluster, arguments.group).exists and not committed:
            raise NotDone(f"there is no group '{arguments.group}'")
        places = list(committed)
        if arguments.execute:
            delete_group(cluster, arguments.group)
    else:
        places = _selected(committed, arguments.topic)
        if not places:
            raise NotDone(f"group '{arguments.group}' has no offsets there")
        if arguments.execute:
            delete_offsets(cluster, arguments.group, places)
    if arguments.json:
        shown = [{"topic": topic, "partition": partition} for topic, partition in places]
        whole = arguments.topic is None
        answer = {"group": arguments.group, "whole": whole, "executed": arguments.execute}
        print_json({**answer, "partitions": shown})
        return
    print_lines(f"{place}: {committed[place].offset}" for place in places)
    what = counted(len(places), "offset")
    if arguments.topic is None:
        what = f"the group and {what}"
    if arguments.execute:
        print_lines([f"{what} deleted"])
    else:
        print_lines([f"{what} to delete; nothing was changed: --execute does it"])


def run_history(cluster: Cluster, arguments: Arguments) -> None:
    """The events of a group as they are found, or the last of them."""
    line = OffsetsOfLog(arguments.progress)
    history = History(cluster, arguments.group, line.more)
    line.total = history.end - history.start
    names = cluster.topic_names()
    kept: deque[Event] = deque(maxlen=arguments.limit or None)
    seen = found = shown = 0

    def show(event: Event) -> None:
        line.clear()
        if arguments.json:
            print_json(event_json(event, names))
        else:
            print_lines([event_text(event, names)])

    for event in history:
        seen += 1
        if not _is_wanted(event, arguments):
            continue
        found += 1
        if arguments.limit:
            kept.append(event)
        else:
            show(event)
            shown += 1
    line.clear()
    if not seen:
        raise NotDone(f"{history.place} holds nothing of group '{arguments.group}'")
    for event in kept:
        show(event)
    hidden = found - shown - len(kept)
    if arguments.json:
        print_json(history_json(history, hidden))
    else:
        print_lines(history_rows(history, hidden))


def _is_wanted(event: Event, arguments: Arguments) -> bool:
    """Everything, or of one topic or partition only the commits."""

    if not isinstance(event, Change):
        return arguments.topic is None and arguments.partition is None
    return arguments.topic in (None, event.place.topic) and (
        arguments.partition in (None, event.place.partition)
    )


def _without_members(cluster: Cluster, group_id: str) -> Group:
    """The group, which may be one that does not exist. Raises NotDone if somebody is in it."""
    group = group_of(cluster, group_id)
    if group.members:
        count = len(group.members)
        named = ", ".join(
            f"{member.member_id} ({member.client_id} at {member.host.lstrip('/')})"
            for member in group.members[:MEMBERS_NAMED]
        )
        more = f" and {count - MEMBERS_NAMED} more" if count > MEMBERS_NAMED else ""
        raise NotDone(
            f"group '{group_id}' has {count} member{'s'[: count != 1]}, stop them first: "
            f"{named}{more}"
        )
    return group


def _target(arguments: Arguments) -> Target:

    if arguments.to_earliest:
        return Target("earliest")
    if arguments.to_latest:
        return Target("latest")
    if arguments.to_offset is not None:
        return Target("offset", arguments.to_offset)
    if arguments.shift is not None:
        return Target("shift", arguments.shift)
    if arguments.to_time is not None:
        return Target("time", arguments.to_time)
    return Target("time", max(0, now_ms() - arguments.by_duration))


def _selected(
    places: Iterable[TopicPartition], wanted: Iterable[TopicSelection]
) -> list[TopicPartition]:
    """The partitions that a --topic names; a topic that is gone may still have offsets."""
    wanted = list(wanted)
    return [
        place
        for place in places
        if any(
            place.topic == item.topic
            and (item.partitions is None or place.partition in item.partitions)
            for item in wanted
        )
    ]
