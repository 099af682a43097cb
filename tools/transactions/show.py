"""Transactions as lines for people and as objects for machines."""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.clock import utc_text
from tools.printing import counted, table

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tools.cluster import TopicPartition
    from tools.transactions.coordinators import Described, Listed
    from tools.transactions.hanging import Hanging, Search
    from tools.transactions.partitions import Producer

    Json = dict[str, object]


def list_rows(found: Sequence[Listed]) -> list[str]:
    """`list`."""
    head = ("TRANSACTIONAL-ID", "COORDINATOR", "PRODUCER-ID", "STATE")
    rows = [(one.transactional_id, one.coordinator, one.producer_id, one.state) for one in found]
    return table(head, rows)


def list_json(found: Sequence[Listed]) -> Json:
    """`list --json`."""
    return {"transactions": [one._asdict() for one in found]}


def description_rows(found: Described, now_ms: int) -> list[str]:
    """`describe`."""
    facts: list[tuple[str, object]] = [
        ("transactional id", found.transactional_id),
        ("state", found.state),
        ("coordinator", found.coordinator),
        ("producer id", found.producer_id),
        ("producer epoch", found.producer_epoch),
        ("time-out", f"{found.timeout_ms} ms"),
    ]
    if found.is_open:
        open_ms = duration_ms(found, now_ms)
        if open_ms is not None:
            facts.append(("open since", f"{utc_text(found.start_ms)} ({open_ms / 1000:.1f} s)"))
        facts.append(("partitions", ", ".join(map(str, found.partitions)) or "none"))
    return [f"{name:<16}  {value}" for name, value in facts]


def duration_ms(found: Described, now_ms: int) -> int | None:
    """How long a transaction has been open; None if it is not, or nobody says."""
    return now_ms - found.start_ms if found.is_open and found.start_ms >= 0 else None


def description_json(found: Described, now_ms: int) -> Json:
    """`describe --json`; null is what there is not."""
    return {
        **found._asdict(),
        "start_ms": found.start_ms if found.is_open and found.start_ms >= 0 else None,
        "duration_ms": duration_ms(found, now_ms),
        "partitions": [_place(place) for place in found.partitions],
    }


def producer_rows(producers: Sequence[Producer]) -> list[str]:
    """`describe-producers`."""
    head = ("PRODUCER-ID", "EPOCH", "COORDINATOR-EPOCH", "LAST-SEQUENCE", "LAST-TIMESTAMP")
    return table(
        (*head, "OPEN-SINCE"),
        [
            (
                one.producer_id,
                one.epoch,
                _known(one.coordinator_epoch),
                _known(one.last_sequence),
                None if one.last_timestamp_ms < 0 else utc_text(one.last_timestamp_ms),
                _known(one.start_offset),
            )
            for one in producers
        ],
    )


def producer_json(producer: Producer) -> Json:
    """One of `describe-producers --json`; null is what the partition does not know."""
    return {
        "producer_id": producer.producer_id,
        "epoch": producer.epoch,
        "coordinator_epoch": _known(producer.coordinator_epoch),
        "last_sequence": _known(producer.last_sequence),
        "last_timestamp_ms": _known(producer.last_timestamp_ms),
        "start_offset": _known(producer.start_offset),
    }


def producers_json(place: TopicPartition, producers: Sequence[Producer]) -> Json:
    """`describe-producers --json`."""
    return {**_place(place), "producers": [producer_json(one) for one in producers]}


def hanging_rows(search: Search, now_ms: int) -> list[str]:
    """`find-hanging`: the transactions, the command for each, and how much was looked at."""
    head = ("PARTITION", "START-OFFSET", "PRODUCER-ID", "EPOCH", "SILENT-SECONDS", "WHY")
    rows = [
        (
            one.place,
            one.producer.start_offset,
            one.producer.producer_id,
            one.producer.epoch,
            f"{_silent_ms(one, now_ms) / 1000:.1f}",
            one.reason,
        )
        for one in search.hanging
    ]
    lines = [*table(head, rows), ""] if rows else []
    lines += [f"to abort it: {abort_command(one)}" for one in search.hanging]
    looked = f"{counted(search.looked_at, 'partition')} looked at"
    return [*lines, f"{counted(len(search.hanging), 'hanging transaction')}, {looked}"]


def abort_command(hanging: Hanging) -> str:
    """What a user types to end it."""
    place, offset = hanging.place, hanging.producer.start_offset
    return f"triglot transactions abort --topic-partition {place} --start-offset {offset}"


def hanging_json(search: Search, now_ms: int) -> Json:
    """`find-hanging --json`."""
    return {
        "now_ms": now_ms,
        "hanging": [
            {
                **_place(one.place),
                **producer_json(one.producer),
                "silent_ms": _silent_ms(one, now_ms),
                "transactional_id": one.transactional_id,
                "reason": one.reason,
            }
            for one in search.hanging
        ],
        "partitions_looked_at": search.looked_at,
        "partitions_refused": [
            {**_place(place), "error": code.name} for place, code in search.refused.items()
        ],
    }


def _silent_ms(hanging: Hanging, now_ms: int) -> int:
    return now_ms - hanging.producer.last_timestamp_ms


def _known(value: int) -> int | None:
    return value if value >= 0 else None


def _place(place: TopicPartition) -> Json:
    return {"topic": place.topic, "partition": place.partition}
