"""The clients that were seen, and which of them would stop working on a newer Kafka: the census."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from protocol.client_verdicts import JUDGED
from tools.clients import columns_of, formats_of, software_of, span_of
from tools.console.listing import Column, listing
from tools.console.rights import require_describe_cluster
from tools.console.visit import Shown

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tools.console.visit import Visit

KAFKA_4 = "4.0"
FAILS, UNKNOWN = "fails", "unknown"
RANKS = {FAILS: 2, UNKNOWN: 1}


class Verdict(NamedTuple):
    """What becomes of a client with some neighbouring releases."""

    releases: str
    outcome: str
    why: str


class Row(NamedTuple):
    """A client; `verdicts` as in the head of the table. `on_kafka_4` is what becomes of it with
    Kafka 4.0."""

    name: str
    address: str
    software: str
    speaks: str
    written: str
    read: str
    converted_bytes: int
    on_kafka_4: str
    verdicts: list[Verdict]
    remarks: list[str]
    advice: str


COLUMNS = {
    "name": Column(lambda row: row.name),
    "address": Column(lambda row: row.address),
    "software": Column(lambda row: row.software),
    "converted": Column(lambda row: row.converted_bytes, largest_first=True),
    "verdict": Column(lambda row: RANKS.get(row.on_kafka_4, 0), largest_first=True),
}


def clients(visit: Visit) -> Shown:
    """Those that fail on Kafka 4.0 first, unless another order is asked for. Raises NotAllowed."""
    require_describe_cluster(visit.cluster)
    told = visit.broker.ask("/clients")
    described = told["clients"]
    columns = columns_of(described, JUDGED)
    rows = [_row(one, columns) for one in described]
    outcomes = [row.on_kafka_4 for row in rows]
    return Shown(
        "clients.html",
        {
            "listing": listing(
                rows,
                visit.query,
                name=lambda row: f"{row.name} {row.address} {row.software}",
                columns=COLUMNS,
                sort="verdict",
            ),
            "columns": [_span(column) for column in columns],
            "judged": next(_span(column) for column in columns if KAFKA_4 in column),
            "failing": outcomes.count(FAILS),
            "unknown": outcomes.count(UNKNOWN),
            "forgotten": told["forgotten"],
        },
    )


def _row(one: dict[str, Any], columns: Sequence[Sequence[str]]) -> Row:
    return Row(
        one["client_id"],
        one["address"],
        software_of(one),
        one["speaks"],
        formats_of(one["written"]),
        formats_of(one["read"]),
        one["converted_bytes"],
        one["verdicts"][KAFKA_4]["outcome"],
        [
            Verdict(
                _span(column),
                one["verdicts"][column[0]]["outcome"],
                _why(one["verdicts"][column[0]]),
            )
            for column in columns
        ],
        one["remarks"],
        one["advice"],
    )


def _span(column: Sequence[str]) -> str:
    return span_of(column).replace(" TO ", " to ")


def _why(verdict: dict[str, str]) -> str:
    """What it meets, and what its user sees of that."""
    if verdict["outcome"] != FAILS:
        return ""
    sees = f" ({verdict['sees']})" if "sees" in verdict else ""
    return f"{verdict['request']}: {verdict['meets']}{sees}"
