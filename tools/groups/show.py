"""Groups, lags, moves and events as lines for people and as objects for machines."""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.clock import utc_text
from tools.groups.history import ABORTED, COMMITTED, Change, Unreadable
from tools.printing import counted, table

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tools.cluster import TopicPartition
    from tools.groups.held_back import HeldBack
    from tools.groups.history import Event, History
    from tools.groups.lag import PartitionLag
    from tools.groups.membership import Group, ListedGroup, Member
    from tools.groups.reset import Move

    Json = dict[str, object]


def group_rows(groups: Sequence[ListedGroup]) -> list[str]:
    """`list`."""
    rows = [(group.group_id, group.kind, group.state, group.protocol_type) for group in groups]
    return table(("GROUP", "TYPE", "STATE", "PROTOCOL"), rows)


def group_json(groups: Sequence[ListedGroup]) -> Json:
    """`list --json`; what the broker does not tell is null."""
    return {
        "groups": [
            {
                "group": group.group_id,
                "type": group.kind or None,
                "state": group.state or None,
                "protocol_type": group.protocol_type,
            }
            for group in groups
        ]
    }


def description_rows(
    group: Group, lags: Sequence[PartitionLag], held: Sequence[HeldBack]
) -> list[str]:
    """`describe`: the group, its members, its partitions and the sum of them, and what retention
    holds back for it."""
    facts = (
        ("group", group.group_id),
        ("type", group.kind),
        ("state", group.state),
        ("protocol", group.protocol_type),
        ("assignor", group.assignor),
        ("epoch", group.epoch),
        ("coordinator", group.coordinator),
    )
    lines = [f"{name:<12} {value}" for name, value in facts if value not in ("", None)]
    if group.members:
        lines += ["", *_member_rows(group.members)]
    if lags:
        lines += ["", *_lag_rows(lags), "", _sum(lags)]
    if held:
        lines += ["", *_held_rows(held), "", _held_sum(held)]
    return lines


def _held_rows(held: Sequence[HeldBack]) -> list[str]:
    head = ("TOPIC", "PARTITION", "HELD-RECORDS", "HELD-BYTES", "HELD-SINCE")
    rows = [(*one.place, one.records, one.byte_size, utc_text(one.since_ms)) for one in held]
    return table(head, rows)


def _held_sum(held: Sequence[HeldBack]) -> str:
    records = counted(sum(one.records for one in held), "record")
    byte_size = sum(one.byte_size for one in held)
    since = utc_text(min(one.since_ms for one in held))
    return f"retention holds back {records}, {byte_size} bytes, for it since {since}"


def _member_rows(members: Sequence[Member]) -> list[str]:
    head = ("MEMBER", "INSTANCE", "CLIENT", "HOST", "EPOCH", "PARTITIONS")
    return table(
        head,
        [
            (
                member.member_id,
                member.instance_id,
                member.client_id,
                member.host,
                member.epoch,
                "(not those of a consumer)"
                if member.assigned is None
                else partitions_text(member.assigned),
            )
            for member in members
        ],
    )


def _lag_rows(lags: Sequence[PartitionLag]) -> list[str]:
    head = ("TOPIC", "PARTITION", "COMMITTED", "LOG-END", "LAG", "LAG-SECONDS")
    return table(
        (*head, "LEADER-EPOCH", "OWNER", "METADATA", "NOTE"),
        [
            (
                row.place.topic,
                row.place.partition,
                row.committed and row.committed.offset,
                row.end,
                row.lag,
                None if row.lag_ms is None else f"{row.lag_ms / 1000:.1f}",
                row.committed.leader_epoch
                if row.committed and row.committed.leader_epoch >= 0
                else None,
                row.owner and row.owner.member_id,
                row.committed and row.committed.metadata,
                "; ".join(row.notes),
            )
            for row in lags
        ],
    )


def _sum(lags: Sequence[PartitionLag]) -> str:
    """Lag in all, as far as it is known."""
    records = sum(row.lag or 0 for row in lags)
    ages = [row.lag_ms for row in lags if row.lag_ms is not None]
    said = [counted(len(lags), "partition"), f"lag {counted(records, 'record')}"]
    if ages:
        said.append(f"at most {max(ages) / 1000:.1f} s")
    unknown = sum(row.lag is None for row in lags)
    if unknown:
        said.append(f"unknown for {unknown}")
    return ", ".join(said)


def description_json(
    group: Group, lags: Sequence[PartitionLag], held: Sequence[HeldBack], now_ms: int
) -> Json:
    """`describe --json`; null is what cannot be said, and `notes` why."""
    return {
        "group": group.group_id,
        "type": group.kind,
        "state": group.state,
        "protocol_type": group.protocol_type,
        "assignor": group.assignor,
        "epoch": group.epoch,
        "coordinator": group.coordinator,
        "now_ms": now_ms,
        "members": [
            {
                "member_id": member.member_id,
                "instance_id": member.instance_id,
                "client_id": member.client_id,
                "host": member.host,
                "epoch": member.epoch,
                "partitions": None
                if member.assigned is None
                else [_place(place) for place in member.assigned],
            }
            for member in group.members
        ],
        "partitions": [
            {
                **_place(row.place),
                "committed": row.committed and row.committed.offset,
                "leader_epoch": row.committed and row.committed.leader_epoch,
                "metadata": row.committed and row.committed.metadata,
                "log_start": row.start,
                "log_end": row.end,
                "lag": row.lag,
                "lag_seconds": None if row.lag_ms is None else row.lag_ms / 1000,
                "owner": row.owner and row.owner.member_id,
                "notes": row.notes,
            }
            for row in lags
        ],
        "held_back": [
            {
                **_place(one.place),
                "records": one.records,
                "bytes": one.byte_size,
                "since_ms": one.since_ms,
            }
            for one in held
        ],
    }


def move_rows(moves: Sequence[Move]) -> list[str]:
    """`reset`."""
    head = ("TOPIC", "PARTITION", "NOW", "NEW", "CHANGE", "NOTE")
    return table(
        head,
        [
            (
                move.place.topic,
                move.place.partition,
                move.old,
                move.new,
                None if move.old is None or move.new is None else f"{move.new - move.old:+}",
                move.note,
            )
            for move in moves
        ],
    )


def move_json(group_id: str, moves: Sequence[Move], *, executed: bool) -> Json:
    """`reset --json`."""
    return {
        "group": group_id,
        "executed": executed,
        "partitions": [
            {**_place(move.place), "old": move.old, "new": move.new, "note": move.note or None}
            for move in moves
        ],
    }


def event_text(event: Event, names: Mapping[bytes, str]) -> str:
    """A line of `history`. `names` has topics by their ids."""
    if isinstance(event, Unreadable):
        return f"{'?':<24}  @{event.log_offset}  not understood: {event.reason}"
    if isinstance(event, Change):
        text = f"{event.place}: {_change_text(event)}"
    else:
        text = event.text
        if event.topics or text.endswith(" has"):
            topics = (
                f"{names.get(topic_id, topic_id.hex())} {_ranges(partitions)}"
                for topic_id, partitions in event.topics
            )
            text += " " + (", ".join(topics) or "no partitions")
    return f"{utc_text(event.time_ms)}  @{event.log_offset}  {text}"


def _change_text(change: Change) -> str:
    transaction = change.transaction
    if transaction is not None:
        producer = f"producer {transaction.producer_id}"
        if transaction.outcome == ABORTED:
            return f"{change.new} not set: {producer} aborted @{transaction.ended_at}"
        if transaction.outcome != COMMITTED:
            return f"{change.new} not set yet: the transaction of {producer} is open"
        if transaction.superseded_by >= 0:
            return (
                f"{change.new} not set: {producer} committed @{transaction.ended_at}, "
                f"after a later commit @{transaction.superseded_by}"
            )
    old = "none" if change.old_known else "?"
    text = f"{old if change.old is None else change.old} -> "
    if change.new is None:
        return f"{text}none (deleted or expired)"
    text += str(change.new)
    if change.old is not None:
        text += f" ({change.new - change.old:+})"
    if transaction is not None:
        text += f", {producer} committed @{transaction.ended_at}"
    if change.expires_ms >= 0:
        text += f", expires {utc_text(change.expires_ms)}"
    if change.metadata:
        text += f", metadata {change.metadata}"
    return text


def event_json(event: Event, names: Mapping[bytes, str]) -> Json:
    """A line of `history --json`; `effective` says whether the record set the offset."""
    if isinstance(event, Unreadable):
        return {"event": "unreadable", "log_offset": event.log_offset, "reason": event.reason}
    found: Json = {"time_ms": event.time_ms, "log_offset": event.log_offset}
    if not isinstance(event, Change):
        found |= event.facts
        if event.facts.get("event") == "assignment":
            found["partitions"] = [
                {"topic": names.get(topic_id), "topic_id": topic_id.hex(), "partitions": partitions}
                for topic_id, partitions in event.topics
            ]
        return found
    transaction = event.transaction
    found |= {
        "event": "offset",
        "batch": event.batch,
        **_place(event.place),
        "old": event.old,
        "old_known": event.old_known,
        "new": event.new,
        "leader_epoch": event.leader_epoch,
        "metadata": event.metadata,
        "expires_ms": event.expires_ms if event.expires_ms >= 0 else None,
        "effective": event.is_effective,
    }
    if transaction is not None:
        found["transaction"] = {
            "producer_id": transaction.producer_id,
            "outcome": transaction.outcome,
            "ended_at": transaction.ended_at if transaction.ended_at >= 0 else None,
        }
    return found


def history_rows(history: History, hidden: int) -> list[str]:
    """The last lines of a history: how much of it there is."""
    lines = [f"{counted(hidden, 'earlier line')} not shown: --limit 0 shows all"] if hidden else []
    where = f"{history.place}, offsets {history.start} to {history.end - 1}"
    if not history.missing:
        return [*lines, f"{where}: all records are there"]
    below = (
        f"below @{history.complete_from} some records are gone"
        if history.complete_from > history.start
        else f"those below @{history.start} are gone"
    )
    return [*lines, f"{where}: {below} (compaction keeps the last of each partition)"]


def history_json(history: History, hidden: int) -> Json:
    """The last line of `history --json`."""
    return {
        "summary": {
            "log": str(history.place),
            "log_start": history.start,
            "log_end": history.end,
            "missing": history.missing,
            "complete_from": history.complete_from,
            "not_shown": hidden,
        }
    }


def partitions_text(places: Sequence[TopicPartition]) -> str:
    """`orders 0-3,7; users 1`."""
    topics: dict[str, list[int]] = {}
    for place in places:
        topics.setdefault(place.topic, []).append(place.partition)
    return "; ".join(f"{topic} {_ranges(found)}" for topic, found in topics.items())


def _ranges(numbers: Sequence[int]) -> str:
    runs: list[list[int]] = []
    for number in sorted(numbers):
        if runs and number == runs[-1][1] + 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    return ",".join(f"{a}" if a == b else f"{a}-{b}" for a, b in runs)


def _place(place: TopicPartition) -> Json:
    return {"topic": place.topic, "partition": place.partition}
