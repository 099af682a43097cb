"""The report of a run: one file with numbers and plots that are what was measured."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from xml.etree import ElementTree

import pytest

from pipeline.console import axes, report
from pipeline.console.charts import chart_svg
from pipeline.console.progress import Sample
from pipeline.errors import NotInstalled, Refused, WrongUse
from pipeline.left_out import LeftOut
from pipeline.outcome import SIZES, TIMES, Chart, Outcome

SVG = "{http://www.w3.org/2000/svg}"
SAMPLES = [
    Sample(2.0, 0, 1000, 10_000, 1000, 1.5, 3000),
    Sample(3.0, 1, 1000, 10_000, 1000, 0.5, 2000),
    Sample(7.0, 2, 2000, 20_000, 2000, 0.5, 0),
]


def outcome() -> Outcome:
    return Outcome("mirror", 4000, 40_000, 3, 7.5, 4000, LeftOut(5), {"batches <passed> on": 40})


def series(drawn: ElementTree.Element) -> list[list[tuple[float, float]]]:
    return [
        [
            (float(x), float(y))
            for x, y in (point.split(",") for point in line.attrib["points"].split())
        ]
        for line in drawn.iter(f"{SVG}polyline")
    ]


def test_throughput_is_that_of_the_time_between_the_ends_of_micro_batches() -> None:
    throughput, lag, lengths = report.plots(SAMPLES)
    assert (throughput.times_s, throughput.values) == ([2.0, 3.0, 7.0], [500.0, 1000.0, 500.0])
    assert lag.values == [3000.0, 2000.0, 0.0]
    assert lengths.values == [1.5, 0.5, 0.5]


def test_a_lag_that_is_not_known_is_not_drawn() -> None:
    plots = report.plots([sample.__class__(**{**vars(sample), "lag": None}) for sample in SAMPLES])
    assert [plot.title for plot in plots] == [
        "Throughput, records per second",
        "Micro-batch, seconds",
    ]


def test_the_lines_are_in_their_plots_and_as_high_as_their_values() -> None:
    drawn = ElementTree.fromstring(report.as_svg(report.plots(SAMPLES)))
    throughput, lag, lengths = series(drawn)
    for points in (throughput, lag, lengths):
        assert all(axes.LEFT <= x <= axes.WIDTH - axes.RIGHT for x, _ in points)
        assert all(axes.TOP <= y <= axes.HEIGHT - axes.BOTTOM for _, y in points)
    bottom = axes.HEIGHT - axes.BOTTOM
    heights = [bottom - y for _, y in throughput]
    assert heights[2] == pytest.approx(2 * heights[0], abs=0.2)
    assert [x for x, _ in throughput][::2] == sorted({x for x, _ in throughput})[:-1]
    assert lag[-1][1] == bottom


def test_a_page_refers_to_nothing_outside_itself_and_escapes_what_it_shows() -> None:
    page = report.as_html(outcome(), SAMPLES)
    assert not re.search(r"<script|<link|<img|src=|url\(|@import", page)
    assert set(re.findall(r"https?://[^\"' ]+", page)) == {"http://www.w3.org/2000/svg"}
    assert "batches &lt;passed&gt; on" in page
    assert "<td>4,000</td>" in page
    assert "5 missing offsets" in page


class Charted(Outcome):
    def charts(self) -> list[Chart]:
        return [
            Chart("orders: <records>", TIMES, [(0, 60_000, 10), (60_000, 120_000, 40)]),
            Chart("orders: sizes", SIZES, [(256, 512, 3), (1024, 2048, 6)]),
        ]

    def lines(self) -> list[str]:
        return ["orders: 3 records break rule 'a < b'"]


def test_charts_of_a_job_are_bars_as_high_and_wide_as_what_they_stand_for() -> None:
    page = report.as_html(Charted("audit"), SAMPLES)
    drawn = [
        ElementTree.fromstring(chart)
        for chart in re.findall(r'<svg class="chart.*?</svg>', page, re.S)
    ]
    assert [chart.findtext(f"{SVG}text") for chart in drawn] == [
        "orders: <records>",
        "orders: sizes",
    ]
    times, sizes = (
        [
            tuple(float(bar.attrib[name]) for name in ("x", "width", "height"))
            for bar in chart.iter(f"{SVG}rect")
        ]
        for chart in drawn
    )
    room = axes.WIDTH - axes.RIGHT - axes.LEFT
    assert times[0][:2] == pytest.approx((axes.LEFT, room / 2), abs=0.1)
    assert times[1][:2] == pytest.approx((axes.LEFT + room / 2, room / 2), abs=0.1)
    assert times[1][2] == pytest.approx(4 * times[0][2], abs=0.3)
    assert times[1][2] == pytest.approx(axes.HEIGHT - axes.BOTTOM - axes.TOP, abs=0.1)
    # From 256 to 2048 bytes there are three powers of two, each as wide as another.
    assert [bar[1] for bar in sizes] == pytest.approx([room / 3, room / 3], abs=0.1)
    assert sizes[1][0] == pytest.approx(axes.LEFT + 2 * room / 3, abs=0.1)
    assert "break rule &#x27;a &lt; b&#x27;" in page
    assert set(re.findall(r"https?://[^\"' ]+", page)) == {"http://www.w3.org/2000/svg"}


def test_a_chart_of_one_moment_and_of_times_beyond_all_calendars_is_drawn() -> None:
    for bars in ([(5.0, 5.0, 1.0)], [(0.0, 9.2e18, 2.0)], [(0.0, 1.0, 0.0)]):
        ElementTree.fromstring(chart_svg(Chart("far", TIMES, bars)))


@pytest.mark.parametrize("samples", [SAMPLES, SAMPLES[:1], [Sample(0.0, 0, 0, 0, 0, 0.0, None)]])
def test_html_and_svg_are_written_for_runs_of_any_length(
    tmp_path: Path, samples: list[Sample]
) -> None:
    for name in ("run.html", "run.svg"):
        report.writer(str(tmp_path / name))(outcome(), samples)
    ElementTree.parse(tmp_path / "run.svg")
    assert (tmp_path / "run.html").read_text().startswith("<!DOCTYPE html>")


def test_png_is_written_where_matplotlib_is_installed(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="Matplotlib is not installed")
    report.writer(str(tmp_path / "run.png"))(outcome(), SAMPLES)
    assert (tmp_path / "run.png").read_bytes().startswith(b"\x89PNG")


def test_png_without_matplotlib_is_refused_before_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(NotInstalled, match="pip install matplotlib, or name an"):
        report.writer(str(tmp_path / "run.png"))


def test_a_file_that_cannot_be_written_is_refused_before_the_run(tmp_path: Path) -> None:
    with pytest.raises(WrongUse, match=r"ends in .html, .svg or .png, found 'report.pdf'"):
        report.writer("report.pdf")
    with pytest.raises(WrongUse, match="no such folder"):
        report.writer(str(tmp_path / "absent" / "run.html"))


def test_a_disk_that_is_full_at_the_end_is_one_line(tmp_path: Path) -> None:
    write = report.writer(str(tmp_path / "run.html"))
    (tmp_path / "run.html").mkdir()
    with pytest.raises(Refused, match="cannot write the report"):
        write(outcome(), SAMPLES)


@pytest.mark.parametrize(
    ("most", "ticks"),
    [
        (0.0, [0.0]),
        (1.0, [0.0, 0.2, 0.4, 0.6, 0.8, 1.0]),
        (73_000.0, [0.0, 20_000.0, 40_000.0, 60_000.0]),
        (7.0, [0.0, 2.0, 4.0, 6.0]),
    ],
)
def test_ticks_are_round_numbers(most: float, ticks: list[float]) -> None:
    assert axes.ticks(most) == pytest.approx(ticks)


def test_numbers_at_an_axis_are_short() -> None:
    values = (0, 0.5, 950, 1000, 12_000, 1_500_000, 2e9)
    assert [axes.short(value) for value in values] == [
        *("0", "0.5", "950", "1,000"),
        *("12 k", "1.5 M", "2 G"),
    ]
