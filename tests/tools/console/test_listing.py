"""Long lists in parts: filtered, sorted, and every row on one page."""

from __future__ import annotations

import pytest

from tools.console.listing import PAGE_ROWS, Column, listing
from tools.console.visit import WrongQuestion

Row = tuple[str, int | None]
COLUMNS = {
    "name": Column(lambda row: row[0]),
    "size": Column(lambda row: row[1], largest_first=True),
}


def rows_of(query: dict[str, str], rows: list[Row]) -> list[str]:
    shown = listing(rows, query, name=lambda row: row[0], columns=COLUMNS, sort="size")
    return [row[0] for row in shown.rows]


def test_the_largest_come_first_and_what_is_not_known_last() -> None:
    rows: list[Row] = [("a", 1), ("b", None), ("c", 3), ("d", 3)]
    assert rows_of({}, rows) == ["c", "d", "a", "b"]
    assert rows_of({"order": "up"}, rows) == ["a", "c", "d", "b"]
    assert rows_of({"sort": "name"}, rows) == ["a", "b", "c", "d"]
    assert rows_of({"sort": "nothing of ours"}, rows) == ["c", "d", "a", "b"]


def test_a_filter_takes_any_case() -> None:
    assert rows_of({"q": "ORD"}, [("orders", 1), ("payments", 2)]) == ["orders"]


def test_every_row_is_on_one_page() -> None:
    rows: list[Row] = [(f"{number:04}", 0) for number in range(3 * PAGE_ROWS + 1)]
    seen = [name for page in range(1, 5) for name in rows_of({"page": str(page)}, rows)]
    assert seen == [name for name, _ in rows]
    assert rows_of({"page": "999"}, rows) == seen[-1:]


@pytest.mark.parametrize("page", ["0", "-1", "x", "1e9", "9" * 5_000])
def test_a_page_that_is_no_number_is_refused(page: str) -> None:
    with pytest.raises(WrongQuestion, match="page: wanted a whole number"):
        rows_of({"page": page}, [])
