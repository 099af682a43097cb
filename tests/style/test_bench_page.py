"""The page of the benchmarks is of the newest run with both peers, and its plots can be read."""

from __future__ import annotations

from typing import TYPE_CHECKING
from xml.etree import ElementTree

from bench import page

if TYPE_CHECKING:
    from pathlib import Path


def test_the_page_and_its_plots_are_those_of_the_newest_run(tmp_path: Path) -> None:
    page.write(page.newest(), tmp_path)

    made = {path.name: path.read_text() for path in tmp_path.iterdir()}
    kept = {path.name: path.read_text() for path in page.RESULTS.glob("page*")}
    assert made == kept, "python -m bench.page writes them again"


def test_a_plot_has_a_bar_for_each_server_and_says_its_value() -> None:
    rows = page.rows_by_group(
        [
            {
                "group": "Produce <raw>",
                "load": "16 KB & more",
                "figure": "broker CPU-s/GB",
                "rounds": {"triglot": [1.0, 3.0, 2.0], "floor": [1.0] * 3, "kafka": [4.0] * 3},
            },
            {"group": "Produce <raw>", "load": "x", "figure": "MB/s", "rounds": {"triglot": [1.0]}},
        ]
    )
    (row,) = rows["Produce <raw>"]
    plot = ElementTree.fromstring(page.plot("Produce <raw>", [row]))

    assert (row.medians["triglot"], row.to_kafka, row.to_floor) == (2.0, 0.5, 2.0)
    texts = [one.text for one in plot.iter("{http://www.w3.org/2000/svg}text")]
    assert texts[-4:] == ["16 KB & more, broker CPU-s/GB", "2", "4", "1"]
    bars = list(plot.iter("{http://www.w3.org/2000/svg}rect"))[4:]
    assert float(bars[1].attrib["width"]) == 2 * float(bars[0].attrib["width"])
