"""Templates, and how numbers stand in them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import urlencode

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from broker._version import VERSION
from broker.clock import utc_text
from tools.console.lines import svg_points

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from tools.console.visit import Shown

FOLDER = Path(__file__).parent
NOTHING = "\N{EN DASH}"
CHART_WIDTH, CHART_HEIGHT = 320, 80
LINE_WIDTH, LINE_HEIGHT = 120, 24
"""Of a line over the last hour, in pixels."""


def size(value: float | None) -> str:
    """Bytes with their unit: `1.5 MiB`."""
    if value is None:
        return NOTHING
    for unit in ("B", "KiB", "MiB", "GiB"):
        if abs(value) < 1024:
            return f"{value:.0f} B" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1024
    return f"{value:.1f} TiB"


def count(value: float | None) -> str:
    """A whole number with its thousands apart."""
    return NOTHING if value is None else f"{value:,.0f}".replace(",", "\N{NARROW NO-BREAK SPACE}")


def rate(value: float | None) -> str:
    """How many a second; `0` is none at all."""
    if value is None:
        return NOTHING
    if value == 0:
        return "0/s"
    return f"{count(value)}/s" if value >= 10 else f"{value:.2g}/s"


def byte_rate(value: float | None) -> str:
    """Bytes a second."""
    return NOTHING if value is None else f"{size(value)}/s"


def duration(seconds: float | None) -> str:
    """How long, in its two largest units: `2 h 5 min`."""
    if seconds is None:
        return NOTHING
    whole = round(seconds)
    if whole < 60:
        return f"{seconds:.1f} s" if seconds < 10 else f"{whole} s"
    units = (("d", 86_400), ("h", 3_600), ("min", 60), ("s", 1))
    parts: list[str] = []
    for unit, length in units:
        if whole >= length or parts:
            parts.append(f"{whole // length} {unit}" if whole // length else "")
            whole %= length
    return " ".join(filter(None, parts[:2]))


def setting_ms(value: str) -> str:
    """A setting in milliseconds, which may be -1."""
    if value == "-1":
        return "for ever"
    return duration(int(value) / 1000) if value.isdecimal() else value


def setting_bytes(value: str) -> str:
    """A setting in bytes, which may be -1."""
    if value == "-1":
        return "no bound"
    return size(int(value)) if value.isdecimal() else value


def changed(query: Mapping[str, str], **changes: object) -> str:
    """The query with some fields changed; those that are None are left out."""
    fields = {**query, **changes}
    return "?" + urlencode({name: value for name, value in fields.items() if value is not None})


def line_of(values: Iterable[float | None]) -> list[str]:
    """The `points` of the polylines of a line over the last hour."""
    stretches = svg_points(values, width=LINE_WIDTH, height=LINE_HEIGHT)
    return [" ".join(f"{x},{y}" for x, y in stretch) for stretch in stretches if len(stretch) > 1]


class Drawn(NamedTuple):
    """A line over the last hour, large: the `points` of its polylines, and its largest value."""

    stretches: list[str]
    top: float
    width: int
    height: int


def drawn(values: Sequence[float | None]) -> Drawn:
    """Nothing of less than two points."""
    stretches = svg_points(values, width=CHART_WIDTH, height=CHART_HEIGHT)
    points = [" ".join(f"{x},{y}" for x, y in stretch) for stretch in stretches if len(stretch) > 1]
    top = max((one for one in values if one is not None), default=0.0)
    return Drawn(points, top, CHART_WIDTH, CHART_HEIGHT)


class Templates:
    """Those of the package. All text in them is escaped."""

    def __init__(self) -> None:
        self._environment = Environment(
            loader=FileSystemLoader(FOLDER / "templates"),
            autoescape=True,
            trim_blocks=True,
            lstrip_blocks=True,
            undefined=StrictUndefined,
            auto_reload=False,
        )
        self._environment.filters |= {
            "byte_rate": byte_rate,
            "count": count,
            "duration": duration,
            "line": line_of,
            "moment": utc_text,
            "rate": rate,
            "setting_bytes": setting_bytes,
            "setting_ms": setting_ms,
            "size": size,
        }
        self._environment.filters |= {
            "drawn": drawn,
            "written": lambda value, shown_as: self._environment.filters[shown_as](value),
        }
        self._environment.globals |= {
            "changed": changed,
            "line_height": LINE_HEIGHT,
            "line_width": LINE_WIDTH,
            "version": VERSION,
        }

        for name in self._environment.list_templates():
            self._environment.get_template(name)  # now, and not while the first reader waits

    def rows(self, records: object, topic: str) -> str:
        """Records as rows of a table."""
        module = self._environment.get_template("_record.html").module
        return str(module.rows(records, topic))  # type: ignore[attr-defined]

    def render(self, shown: Shown, **around: object) -> str:
        """A whole page; `around` is what every page shows."""
        return self._environment.get_template(shown.template).render(**shown.facts, **around)
