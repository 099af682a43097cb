"""Families of numbers as text, for Prometheus and in OpenMetrics.

The page is made in steps, between which others are served: there may be thousands of rows.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from broker.histograms import BOUNDS_S

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable, Iterator

    from broker.histograms import Histogram

    Row = tuple[str, float]

PREFIX = "triglot_"
ROWS_A_STEP = 50
PROMETHEUS = "text/plain; version=0.0.4; charset=utf-8"
OPEN_METRICS = "application/openmetrics-text; version=1.0.0; charset=utf-8"

_ESCAPED = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})


class Family(NamedTuple):
    """Numbers of one name. `kind` is counter, gauge or histogram; each row is what follows the name
    (`""`, or labels) and a value. Rows are worked out when they are asked for."""

    name: str
    kind: str
    meaning: str
    rows: Iterable[Row]


def labels(**values: object) -> str:
    """Labels of a row, in this order; values may have any characters."""
    pairs = [f'{name}="{str(value).translate(_ESCAPED)}"' for name, value in values.items()]
    return f"{{{','.join(pairs)}}}" if pairs else ""


def histogram_rows(histogram: Histogram, **values: object) -> Iterator[Row]:
    """The rows of one histogram: a count for each bound, all below it included, and the sum."""
    total = 0
    for bound_s, count in zip((*BOUNDS_S, None), histogram.counts, strict=True):
        total += count
        le = "+Inf" if bound_s is None else bound_s
        yield f"_bucket{labels(**values, le=le)}", total
    yield f"_sum{labels(**values)}", round(histogram.sum_s, 6)
    yield f"_count{labels(**values)}", total


def _with_label(place: str, label: str) -> str:
    """What follows the name of a row, with one more label."""
    suffix, brace, others = place.partition("{")
    return f"{suffix}{{{label},{others}" if brace else f"{suffix}{{{label}}}"


def page(
    families: Iterable[Family], *, open_metrics: bool, process: int | None = None
) -> Generator[None, None, str]:
    """Steps that return the text. `process` is a label of every row, where several serve one
    directory."""
    lines: list[str] = []
    of_process = None if process is None else f'process="{process}"'
    rows = 0
    for name, kind, meaning, found in families:
        described = name.removesuffix("_total") if open_metrics and kind == "counter" else name
        lines.append(f"# HELP {PREFIX}{described} {meaning}")
        lines.append(f"# TYPE {PREFIX}{described} {kind}")
        for place, value in found:
            if of_process is not None:
                place = _with_label(place, of_process)
            lines.append(f"{PREFIX}{name}{place} {value}")
            rows += 1
            if rows % ROWS_A_STEP == 0:
                yield
        yield
    if open_metrics:
        lines.append("# EOF")
    return "\n".join(lines) + "\n"
