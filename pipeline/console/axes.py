"""The size and the axes of all plots in a report, and how numbers are written at them."""

from __future__ import annotations

import math

WIDTH, HEIGHT = 860, 210
LEFT, RIGHT, TOP, BOTTOM = 78, 16, 40, 30
"""Of a plot in pixels, and its margins."""
TICKS = 5


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
