"""A run as plots and numbers: throughput, lag and the length of micro-batches over time.

As one HTML file that refers to nothing else, as SVG, or as PNG where Matplotlib is installed. HTML
also has what the job has told, and its charts (`console.charts`).
"""

from __future__ import annotations

import html
import importlib
import importlib.util
import os
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from pipeline.console.axes import BOTTOM, HEIGHT, LEFT, RIGHT, WIDTH, Grid, short, ticks
from pipeline.console.charts import CHART_STYLE, chart_svg
from pipeline.console.progress import duration
from pipeline.errors import NotInstalled, Refused, WrongUse

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pipeline.console.progress import Sample
    from pipeline.outcome import Outcome

UNITS = ((1.0, "s"), (60.0, "min"), (3600.0, "h"))

STYLE = """\
:root { color-scheme: light dark; --ink: #1c2733; --line: #2a6f97; --paper: #ffffff; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #dce4ec; --line: #7cc4ec; --paper: #14191f; }
}
body { color: var(--ink); background: var(--paper); margin: 2rem auto; max-width: 900px;
       padding: 0 1rem; font: 15px/1.5 system-ui, sans-serif; }
h1 { font-size: 1.3rem; margin-bottom: .2rem; }
table { border-collapse: collapse; margin: 1rem 0; }
td, th { padding: .15rem 1.2rem .15rem 0; text-align: left; font-weight: normal; }
td { font-variant-numeric: tabular-nums; }
pre { overflow-x: auto; font-size: 12px; }
svg { width: 100%; height: auto; }
"""
SVG_STYLE = """\
text { font: 12px system-ui, sans-serif; fill: var(--ink, #1c2733); }
.title { font-size: 14px; font-weight: 600; }
.grid { stroke: var(--ink, #1c2733); stroke-opacity: .15; }
.area { fill: var(--line, #2a6f97); fill-opacity: .18; stroke: none; }
.series { fill: none; stroke: var(--line, #2a6f97); stroke-width: 1.6; stroke-linejoin: round; }
"""


class Plot(NamedTuple):
    """A title, and a value for each stretch of time."""

    title: str
    times_s: list[float]
    """Where each stretch ends; it begins where the one before ends, the first at 0."""
    values: list[float]
    stepped: bool
    """Whether a value is that of its whole stretch; else it is that of its end."""


def writer(path: str) -> Callable[[Outcome, Sequence[Sample]], None]:
    """A function that writes the report of a run to that file.

    Raises WrongUse for a file that it could not write at the end, NotInstalled.
    """
    suffix = Path(path).suffix.lower()
    if suffix not in (".html", ".svg", ".png"):
        raise WrongUse(f"--report wants a file that ends in .html, .svg or .png, found '{path}'")
    folder = Path(path).absolute().parent
    if not folder.is_dir() or not os.access(folder, os.W_OK) or Path(path).is_dir():
        raise WrongUse(f"--report cannot write {path}: no such folder, or it is not to be written")
    if suffix == ".png" and importlib.util.find_spec("matplotlib") is None:
        raise NotInstalled(
            "--report with .png needs Matplotlib: pip install matplotlib, or name an .html file"
        )
    return partial(_write, Path(path), suffix)


def _write(path: Path, suffix: str, outcome: Outcome, samples: Sequence[Sample]) -> None:
    try:
        if suffix == ".png":
            _write_png(path, outcome, samples)
        else:
            made = as_html(outcome, samples) if suffix == ".html" else as_svg(plots(samples))
            path.write_text(made, encoding="utf-8")
    except OSError as error:
        raise Refused(f"cannot write the report {path}: {error.strerror or error}") from None


def plots(samples: Sequence[Sample]) -> list[Plot]:
    """Throughput, lag where it is known, and durations."""
    times = [sample.at_s for sample in samples]
    stretches = [end - begin for begin, end in zip([0.0, *times], times, strict=False)]
    throughput = [
        sample.records / max(stretch, 1e-3)
        for sample, stretch in zip(samples, stretches, strict=True)
    ]
    made = [Plot("Throughput, records per second", times, throughput, True)]
    known = [(sample.at_s, float(sample.lag)) for sample in samples if sample.lag is not None]
    if known:
        made.append(Plot("Lag, offsets", [at for at, _ in known], [lag for _, lag in known], False))
    lengths = [sample.batch_s for sample in samples]
    if any(lengths):
        made.append(Plot("Micro-batch, seconds", times, lengths, True))
    return made


def as_html(outcome: Outcome, samples: Sequence[Sample]) -> str:
    """The whole page."""
    title = html.escape(f"triglot pipeline {outcome.job}")
    rows = "\n".join(
        f"<tr><th>{html.escape(name)}</th><td>{html.escape(value)}</td></tr>"
        for name, value in numbers(outcome)
    )
    charts = "".join(chart_svg(chart) + "\n" for chart in outcome.charts())
    return f"""\
<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title>
<style>
{STYLE}{CHART_STYLE}</style>
</head>
<body>
<h1>{title}</h1>
<table>
{rows}
</table>
{_told(outcome)}{as_svg(plots(samples))}
{charts}</body>
</html>
"""


def _told(outcome: Outcome) -> str:
    """What the job has printed, where that is more than what the table has."""
    lines = outcome.lines()
    if lines == [outcome.line()]:
        return ""
    return f"<pre>{html.escape(chr(10).join(lines))}</pre>\n"


def numbers(outcome: Outcome) -> list[tuple[str, str]]:
    """The rows of the table."""
    seconds = max(outcome.seconds, 1e-9)
    rows = [
        ("records", f"{outcome.records:,}"),
        ("bytes", f"{outcome.bytes:,}"),
        ("micro-batches", f"{outcome.batches:,}"),
        ("time", duration(outcome.seconds) if seconds >= 60 else f"{outcome.seconds:.1f} s"),
        ("records per second", f"{outcome.records / seconds:,.0f}"),
        ("MB per second", f"{outcome.bytes / 1e6 / seconds:,.1f}"),
        *((name, f"{count:,}") for name, count in outcome.details.items()),
        ("left out", str(outcome.left_out) or "nothing"),
    ]
    return rows


def as_svg(drawn: Sequence[Plot]) -> str:
    """The plots below each other, over the same stretch of time."""
    until = max((plot.times_s[-1] for plot in drawn), default=1.0) or 1.0
    bodies = "\n".join(
        f'<g transform="translate(0 {number * HEIGHT})">\n{_plot(plot, until)}\n</g>'
        for number, plot in enumerate(drawn)
    )
    height = HEIGHT * max(1, len(drawn))
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" '
        f'width="{WIDTH}" height="{height}" role="img">\n<style>\n{SVG_STYLE}</style>\n'
        f"{bodies}\n</svg>"
    )


def _plot(plot: Plot, until_s: float) -> str:
    grid = Grid(plot.title, max(plot.values, default=0.0) or 1.0)
    right, bottom = WIDTH - RIGHT, HEIGHT - BOTTOM

    def x(at_s: float) -> float:
        return LEFT + (right - LEFT) * at_s / until_s

    lines = grid.lines()
    unit_s, unit = next(unit for unit in UNITS if until_s < unit[0] * 300 or unit[1] == "h")
    lines += [
        f'<text x="{x(mark * unit_s):.1f}" y="{bottom + 20}" text-anchor="middle">'
        f"{short(mark)} {unit}</text>"
        for mark in ticks(until_s / unit_s)
    ]
    points = _points(plot)
    path = " ".join(f"{x(at):.1f},{grid.y(value):.1f}" for at, value in points)
    first, last = x(points[0][0]), x(points[-1][0])
    lines.append(
        f'<polygon class="area" points="{first:.1f},{bottom} {path} {last:.1f},{bottom}"/>'
    )
    lines.append(f'<polyline class="series" points="{path}"/>')
    return "\n".join(lines)


def _points(plot: Plot) -> list[tuple[float, float]]:
    if not plot.stepped:
        found = list(zip(plot.times_s, plot.values, strict=True))
        return [(0.0, found[0][1]), *found] if len(found) == 1 else found
    points = []
    begin = 0.0
    for end, value in zip(plot.times_s, plot.values, strict=True):
        points += [(begin, value), (end, value)]
        begin = end
    return points


def _write_png(path: Path, outcome: Outcome, samples: Sequence[Sample]) -> None:
    # Without pyplot, which would choose a window system and keep every figure.
    figures: Any = importlib.import_module("matplotlib.figure")

    drawn = plots(samples)
    figure = figures.Figure(figsize=(9, 2.4 * len(drawn) + 0.4), layout="constrained")
    for axes, plot in zip(figure.subplots(len(drawn), squeeze=False)[:, 0], drawn, strict=True):
        points = _points(plot)
        axes.plot([at for at, _ in points], [value for _, value in points])
        axes.set_title(plot.title, loc="left", fontsize=10)
        axes.set_xlim(0, samples[-1].at_s or 1.0)
        axes.set_ylim(bottom=0)
        axes.grid(alpha=0.2)
    axes.set_xlabel("seconds")
    figure.suptitle(f"triglot pipeline {outcome.job}: {outcome.records:,} records")
    figure.savefig(path, dpi=120)
