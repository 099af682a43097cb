"""One page for users from the figures of a run: costs beside Apache Kafka and a C server.

    python -m bench.page                    from the newest run in bench/results that has both peers
    python -m bench.page RESULTS.json

Writes bench/results/page.md and a plot per kind of work, bench/results/page-*.svg.
"""

from __future__ import annotations

import json
import re
import statistics
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from bench.report import median_ratio

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

RESULTS = Path(__file__).parent / "results"
OURS, KAFKA, FLOOR = "triglot", "kafka", "floor"
NAMES = {OURS: "triglot", KAFKA: "Apache Kafka 3.9", FLOOR: "C server"}
COLOURS = {OURS: "#2a78b5", KAFKA: "#9a9a9a", FLOOR: "#d9d9d9"}
COSTS = ("broker CPU-s/GB", "broker CPU us/request", "p50 ms", "p99 ms", "first start ms")
"""The figures that are shown; all of them are better when they are lower."""

BAR, GAP, LABELS, WIDTH = 14, 14, 330, 880
"""Pixels of the plots."""


class Row(NamedTuple):
    """One figure of one load: medians by server, and ratios round by round."""

    load: str
    figure: str
    medians: dict[str, float]
    to_kafka: float | None
    to_floor: float | None


def rows_by_group(figures: Iterable[dict[str, Any]]) -> dict[str, list[Row]]:
    """The costs that both we and Kafka have, by kind of work."""
    found: dict[str, list[Row]] = {}
    for one in figures:
        rounds: dict[str, list[float]] = one["rounds"]
        if one["figure"] not in COSTS or not rounds.get(OURS) or not rounds.get(KAFKA):
            continue
        medians = {name: statistics.median(rounds[name]) for name in NAMES if rounds.get(name)}
        row = Row(
            one["load"],
            one["figure"],
            medians,
            median_ratio(rounds[OURS], rounds[KAFKA]),
            median_ratio(rounds[OURS], rounds.get(FLOOR, ())),
        )
        found.setdefault(one["group"], []).append(row)
    return found


def plot(group: str, rows: Sequence[Row]) -> str:
    """Horizontal bars as SVG: each load's cost by server, as a share of that load's highest."""
    step = 3 * BAR + GAP
    height = 40 + step * len(rows)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}" '
        f'viewBox="0 0 {WIDTH} {height}" font-family="sans-serif" font-size="12">',
        f"<title>{_escaped(group)}: lower is better</title>",
        f'<rect width="{WIDTH}" height="{height}" fill="#ffffff"/>',
        *_legend(),
    ]
    for number, row in enumerate(rows):
        top = 36 + number * step
        label = _escaped(f"{row.load}, {row.figure}")
        middle = top + 1.5 * BAR + 4
        parts.append(f'<text x="{LABELS - 8}" y="{middle}" text-anchor="end">{label}</text>')
        highest = max(row.medians.values())
        for place, name in enumerate(NAMES):
            value = row.medians.get(name)
            if value is None:
                continue
            width = max(1.0, (WIDTH - LABELS - 70) * value / highest)
            y = top + place * BAR
            parts.append(
                f'<rect x="{LABELS}" y="{y}" width="{width:.1f}" height="{BAR - 2}" '
                f'fill="{COLOURS[name]}"/>'
            )
            parts.append(f'<text x="{LABELS + width + 5:.1f}" y="{y + 10}">{_short(value)}</text>')
    return "\n".join([*parts, "</svg>"]) + "\n"


def _legend() -> Iterator[str]:
    for number, (name, shown) in enumerate(NAMES.items()):
        x = LABELS + 150 * number
        yield f'<rect x="{x}" y="10" width="12" height="12" fill="{COLOURS[name]}"/>'
        yield f'<text x="{x + 17}" y="20">{shown}</text>'


def _escaped(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;")


def _short(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def page(run: dict[str, Any], source: str, groups: dict[str, list[Row]]) -> str:
    """The page in Markdown; the plots lie beside it."""
    machine = run["machine"]
    lines = [
        "# What triglot costs, beside Apache Kafka and a server in C",
        "",
        f"Measured on {machine['date']} on {machine['cpu']}, cores: {machine['cores']}.",
        f"Medians of {run['rounds']} alternating rounds; load average before them "
        f"{machine['load average at start']}.",
        f"All figures: [{source}]({source}). The command, and then that for this page:",
        "",
        "```",
        run["command"],
        "python -m bench.page",
        "```",
        "",
        "The C server does only what cannot be left out: it reads, checks and writes. All figures",
        "are costs: lower is better, and a ratio below 1 means that triglot needs less.",
    ]
    for group, rows in groups.items():
        lines += ["", f"## {group}", "", f"![{group}]({plot_name(group)})", ""]
        lines += [
            "| load | cost | triglot | Kafka | C server | of Kafka's | of the C server's |",
            "| --- | --- | ---: | ---: | ---: | ---: | ---: |",
        ]
        for row in rows:
            floor = row.medians.get(FLOOR)
            cells = (
                row.load,
                row.figure,
                _short(row.medians[OURS]),
                _short(row.medians[KAFKA]),
                "" if floor is None else _short(floor),
                "" if row.to_kafka is None else f"{row.to_kafka:.2f}",
                "" if row.to_floor is None else f"{row.to_floor:.2f}",
            )
            lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def plot_name(group: str) -> str:
    """The file of a group's plot."""
    return f"page-{re.sub(r'[^a-z0-9]+', '-', group.lower()).strip('-')}.svg"


def newest() -> Path:
    """The newest run with both peers. SystemExit if there is none."""
    for path in sorted(RESULTS.glob("*.json"), reverse=True):
        figures = json.loads(path.read_text()).get("figures", [])
        if any(FLOOR in one["rounds"] and KAFKA in one["rounds"] for one in figures):
            return path
    raise SystemExit("no run with kafka and floor in bench/results: python -m bench --against ...")


def write(source: Path, folder: Path) -> None:
    """Write page and plots of a run into a folder, and remove the plots of an earlier page."""
    run = json.loads(source.read_text())
    groups = rows_by_group(run["figures"])
    for old in folder.glob("page-*.svg"):
        old.unlink()
    for group, rows in groups.items():
        (folder / plot_name(group)).write_text(plot(group, rows))
    (folder / "page.md").write_text(page(run, source.with_suffix(".md").name, groups))


if __name__ == "__main__":
    write(Path(sys.argv[1]) if len(sys.argv) > 1 else newest(), RESULTS)
