"""The charts of what a job found, as SVG: bars over time, or by size."""

from __future__ import annotations

import math
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from pipeline.console.axes import BOTTOM, HEIGHT, LEFT, RIGHT, WIDTH, Grid
from pipeline.outcome import SIZES

if TYPE_CHECKING:
    from pipeline.outcome import Chart

CHART_STYLE = """\
.bar { fill: var(--line, #2a6f97); fill-opacity: .75; }
"""
MARKS = 6
"""Along the axis of times."""
LEAST_PX = 1.0
"""What is there is seen, however short it is."""
FORMATS = ((172_800_000, "%m-%d %H:%M"), (0, "%Y-%m-%d"))
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def chart_svg(chart: Chart) -> str:
    """One chart, which has a bar at least."""
    scale = math.log2 if chart.axis == SIZES else float
    begin = min(bar[0] for bar in chart.bars)
    end = max(bar[1] for bar in chart.bars)
    low, span = scale(begin), (scale(end) - scale(begin)) or 1.0
    grid = Grid(chart.title, max(bar[2] for bar in chart.bars) or 1.0)
    right, bottom = WIDTH - RIGHT, HEIGHT - BOTTOM

    def x(value: float) -> float:
        return LEFT + (right - LEFT) * (scale(value) - low) / span

    lines = grid.lines()
    for from_, to, height in chart.bars:
        width = max(LEAST_PX, x(to) - x(from_))
        lines.append(
            f'<rect class="bar" x="{x(from_):.1f}" y="{grid.y(height):.1f}" width="{width:.1f}" '
            f'height="{bottom - grid.y(height):.1f}"/>'
        )
    named = _sizes(chart) if chart.axis == SIZES else _times(begin, end)
    lines += [
        f'<text x="{x(at):.1f}" y="{bottom + 20}" text-anchor="{anchor}">{name}</text>'
        for at, name, anchor in named
    ]
    body = "\n".join(lines)
    return (
        f'<svg class="chart" xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" '
        f'width="{WIDTH}" height="{HEIGHT}" role="img">\n{body}\n</svg>'
    )


def _sizes(chart: Chart) -> list[tuple[float, str, str]]:
    """Where a bar begins, in bytes."""
    edges = sorted({edge for bar in chart.bars for edge in bar[:2]})
    every = -(-len(edges) // (2 * MARKS))
    return [(edge, f"{_size(edge)}", "middle") for edge in edges[::every]]


def _size(value: float) -> str:
    for limit, unit in ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")):
        if value >= limit:
            return f"{value / limit:.4g} {unit}"
    return f"{value:.4g} B"


def _times(begin_ms: float, end_ms: float) -> list[tuple[float, str, str]]:
    """Times at equal distances, in UTC; those at the ends within the plot."""
    shown = next(text for least, text in FORMATS if end_ms - begin_ms < least or not least)
    if end_ms - begin_ms < 600_000:
        shown = "%H:%M:%S"
    found = []
    for number in range(MARKS):
        at = begin_ms + (end_ms - begin_ms) * number / (MARKS - 1)
        anchor = "start" if number == 0 else "end" if number == MARKS - 1 else "middle"
        found.append((at, _moment(at, shown), anchor))
    return found


def _moment(time_ms: float, shown: str) -> str:
    try:
        return (EPOCH + timedelta(milliseconds=time_ms)).strftime(shown)
    except OverflowError:  # a record's time may be any number
        return f"{time_ms:.4g} ms"
