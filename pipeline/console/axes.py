"""The size, the title and the axes of all plots in a report, and how numbers are written there."""

from __future__ import annotations

import html
import math

WIDTH, HEIGHT = 860, 210
LEFT, RIGHT, TOP, BOTTOM = 78, 16, 40, 30
"""Of a plot in pixels, and its margins."""
TICKS = 5


class Grid:
    """A titled plot's lines at round numbers, from 0 to `most` or the first mark above it."""

    def __init__(self, title: str, most: float) -> None:
        self._marks = ticks(most)
        self._top = max(most, self._marks[-1])
        self._title = title

    def y(self, value: float) -> float:
        """Where a value is, in pixels from the top."""
        bottom = HEIGHT - BOTTOM
        return bottom - (bottom - TOP) * value / self._top

    def lines(self) -> list[str]:
        """As SVG."""
        right = WIDTH - RIGHT
        return [
            f'<text class="title" x="{LEFT}" y="20">{html.escape(self._title)}</text>',
            *(
                f'<line class="grid" x1="{LEFT}" x2="{right}" y1="{self.y(mark):.1f}" '
                f'y2="{self.y(mark):.1f}"/><text x="{LEFT - 8}" y="{self.y(mark) + 4:.1f}" '
                f'text-anchor="end">{short(mark)}</text>'
                for mark in self._marks
            ),
        ]


def ticks(most: float) -> list[float]:
    """Round numbers from 0 to the last below, or at, `most`; about TICKS of them."""
    if most <= 0:
        return [0.0]
    raw = most / TICKS
    power = 10.0 ** math.floor(math.log10(raw))
    step = next(factor * power for factor in (1, 2, 5, 10) if factor * power >= raw * 0.999)
    return [step * number for number in range(int(most / step + 1e-9) + 1)]


def short(value: float) -> str:
    """1,200,000 as 1.2 M."""
    for limit, unit in ((1e9, " G"), (1e6, " M"), (1e4, " k")):
        if value >= limit:
            return f"{value / (limit if limit != 1e4 else 1e3):.4g}{unit}"
    return f"{value:,.4g}" if value < 1000 else f"{value:,.0f}"
