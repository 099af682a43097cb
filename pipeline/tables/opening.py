"""The table in an archive's folder, of whichever kind it is."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pipeline.errors import WrongUse
from pipeline.tables.delta import Delta
from pipeline.tables.iceberg import Iceberg
from pipeline.tables.table import check_installed, check_kind

if TYPE_CHECKING:
    import pyarrow as pa

    from pipeline.filesystem import Location
    from pipeline.tables.table import Catalog, Partitioning, Table

MISREAD = "#%?"
"""What a URI escapes: one package does not undo it, the other does so twice."""


def make_table(
    kind: str,
    folder: Location,
    schema: pa.Schema,
    *,
    state_id: str,
    catalog: Catalog | None = None,
    partitioning: Partitioning | None = None,
    expected: bool = False,
) -> Table | None:
    """The table in a folder, made if it is not there; None for plain Parquet, which needs none.

    `expected` tells that it has been made before. Raises NotInstalled, WrongUse, ForeignState (the
    catalog has the name for another folder, or a table that is expected is gone), Refused.
    """
    check_kind(kind, catalog)
    if kind != "parquet" and folder.is_local and set(folder.path) & set(MISREAD):
        raise WrongUse(
            f"the packages for Delta and Iceberg misread {', '.join(MISREAD)} in a path: give "
            f"{folder.path} another name"
        )
    if kind == "delta":
        return Delta.make(folder, schema, state_id, partitioning, expected=expected)
    if catalog is not None:
        return Iceberg.make(folder, schema, state_id, catalog, partitioning, expected=expected)
    return None


def open_table(kind: str, folder: Location, *, state_id: str, catalog: Catalog | None) -> Table:
    """A table that is there. Raises NotInstalled, WrongUse, ForeignState, Refused."""
    check_installed(kind)
    if kind == "delta":
        return Delta.open(folder, state_id)
    if catalog is None:
        raise WrongUse(
            f"{folder.path} is an Iceberg table, and which catalog has it is not noted there: give "
            "its --name and the catalog"
        )
    return Iceberg.open(folder, state_id, catalog)
