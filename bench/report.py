"""Medians and ratios of the rounds, as a table for people and as JSON."""

from __future__ import annotations

import json
import statistics
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bench.case import Case, Figure


class Results:
    """Every number of every round, by case, figure and server."""

    def __init__(self, cases: Sequence[Case], servers: Sequence[str]) -> None:
        self.cases = cases
        self.servers = servers
        self._values: dict[tuple[str, str, str, str], list[float]] = {}

    def add(self, case: Case, figure: str, server: str, value: float) -> None:
        self._values.setdefault((case.group, case.name, figure, server), []).append(value)

    def values(self, case: Case, figure: str, server: str) -> list[float]:
        return self._values.get((case.group, case.name, figure, server), [])

    def median(self, case: Case, figure: str, server: str) -> float | None:
        values = self.values(case, figure, server)
        return statistics.median(values) if values else None

    def ratio(self, case: Case, figure: str, server: str, to: str) -> float | None:
        """The median of the ratios within each round, which were measured close together."""
        return median_ratio(self.values(case, figure, server), self.values(case, figure, to))


def median_ratio(ours: Sequence[float], theirs: Sequence[float]) -> float | None:
    """The median of the ratios round by round; None where there are none."""
    ratios = [one / other for one, other in zip(ours, theirs, strict=False) if other]
    return statistics.median(ratios) if ratios else None


class Run(NamedTuple):
    """The facts in a report besides the figures."""

    machine: dict[str, str]
    command: str
    rounds: int


def as_markdown(results: Results, run: Run) -> str:
    """A table for each group of cases, with a line for each figure."""
    lines = [f"# Figures of {run.machine['date']}", ""]
    lines += [f"- {name}: {value}" for name, value in run.machine.items() if name != "date"]
    lines += [f"- command: `{run.command}`", f"- rounds: {run.rounds}; medians", ""]
    lines += [
        "Ratios are the first column divided by another, round by round; below 1 is better for",
        "costs and times, above 1 for rates. `estimate` was written before the first run.",
    ]
    group = ""
    for case in results.cases:
        if case.group != group:
            group = case.group
            lines += ["", f"## {group}", "", *_head(results.servers)]
        for figure in case.figures:
            lines.append(_row(results, case, figure))
    return "\n".join(lines) + "\n"


def _head(servers: Sequence[str]) -> list[str]:
    columns = ["load", "figure", servers[0]]
    for other in servers[1:]:
        columns += [other, f"{servers[0]} / {other}"]
    columns.append("estimate")
    dashes = ["---", "---", *["---:"] * (len(columns) - 2)]
    return [f"| {' | '.join(columns)} |", f"| {' | '.join(dashes)} |"]


def _row(results: Results, case: Case, figure: Figure) -> str:
    ours, *others = results.servers
    cells = [case.name, figure.name]
    cells.append(_number(results.median(case, figure.name, ours), figure.digits))
    for other in others:
        cells.append(_number(results.median(case, figure.name, other), figure.digits))
        cells.append(_number(results.ratio(case, figure.name, ours, other), 2))
    cells.append(_number(figure.estimate, figure.digits))
    return f"| {' | '.join(cells)} |"


def _number(value: float | None, digits: int) -> str:
    return "" if value is None else f"{value:,.{digits}f}"


def as_json(results: Results, run: Run) -> str:
    """The same with the number of every round."""
    rows = [
        {
            "group": case.group,
            "load": case.name,
            "figure": figure.name,
            "estimate": figure.estimate,
            "rounds": {
                server: results.values(case, figure.name, server) for server in results.servers
            },
        }
        for case in results.cases
        for figure in case.figures
    ]
    return json.dumps({**run._asdict(), "figures": rows}, indent=1) + "\n"
