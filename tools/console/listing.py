"""A long list, as a page shows it: filtered, sorted, a part at a time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar

from tools.console.visit import number

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

Row = TypeVar("Row")
PAGE_ROWS = 50
FILTER_CHARACTERS_MAX = 200


class Column(NamedTuple):
    """What rows are sorted by; None stands behind everything. With `largest_first` a first click
    shows the largest."""

    key: Callable[[Any], Any]
    largest_first: bool = False


class Listing(NamedTuple, Generic[Row]):
    """The rows of one page, and where in the list that is. `number` counts pages from 1."""

    rows: list[Row]
    found: int
    total: int
    number: int
    pages: int
    sort: str
    descending: bool
    filter: str


def listing(
    rows: Sequence[Row],
    query: Mapping[str, str],
    *,
    name: Callable[[Row], str],
    columns: Mapping[str, Column],
    sort: str,
) -> Listing[Row]:
    """The page that `query` asks for (`q`, `sort`, `order`, `page`); without `sort` by the column
    of this name. Rows of equal rank are in the order of their names. Raises WrongQuestion."""
    wanted = query.get("q", "").strip()[:FILTER_CHARACTERS_MAX]
    found = [row for row in rows if wanted.lower() in name(row).lower()] if wanted else list(rows)
    by = query.get("sort", sort)
    if by not in columns:
        by = sort
    column = columns[by]
    descending = {"up": False, "down": True}.get(query.get("order", ""), column.largest_first)
    found.sort(key=name)
    known = [row for row in found if column.key(row) is not None]
    known.sort(key=column.key, reverse=descending)
    unknown = [row for row in found if column.key(row) is None]
    pages = max(1, -(-len(found) // PAGE_ROWS))
    page = min(number(query, "page", 1, least=1), pages)
    shown = (known + unknown)[(page - 1) * PAGE_ROWS : page * PAGE_ROWS]
    return Listing(shown, len(found), len(rows), page, pages, by, descending, wanted)
