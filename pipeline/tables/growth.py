"""A table gets the columns of files that are about to be added, before they are.

New columns are appended, those inside of structures too. Iceberg tells columns apart by ids, so
that they can be renamed, and numbers become wider; Delta takes new columns alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pipeline.errors import Failure, Refused

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pyarrow as pa

    from pipeline.filesystem import Location
    from pipeline.tables.table import Catalog


def grow_table(
    kind: str,
    folder: Location,
    schema: pa.Schema,
    *,
    catalog: Catalog | None,
    renamed: Mapping[tuple[str, ...], str],
) -> None:
    """Let the table have these columns, if it is there; again is harmless.

    `renamed` has new names of columns by their paths. Raises Refused.
    """
    try:
        if kind == "delta":
            _grow_delta(folder, schema)
        elif catalog is not None:
            _grow_iceberg(catalog, schema, renamed)
    except Failure:
        raise
    except Exception as failure:
        line = " ".join(str(failure).split())
        raise Refused(
            f"the {kind} table in {folder.path} does not take the new columns: {line}"
        ) from None


def _grow_delta(folder: Location, schema: pa.Schema) -> None:
    from deltalake import DeltaTable, Schema

    if not DeltaTable.is_deltatable(folder.uri):
        return
    table = DeltaTable(folder.uri)
    there = {field.name: field for field in table.schema().fields}
    wanted = Schema.from_arrow(schema).fields
    new = [field for field in wanted if there.get(field.name) != field]
    if new:
        table.alter.add_columns(new)


def _grow_iceberg(
    catalog: Catalog, schema: pa.Schema, renamed: Mapping[tuple[str, ...], str]
) -> None:
    from pyiceberg.catalog import load_catalog

    known = load_catalog(catalog.name, **catalog.options)
    if not known.table_exists(catalog.identifier):
        return
    table = known.load_table(catalog.identifier)
    there = set(table.schema().column_names)
    with table.transaction() as transaction:
        with transaction.update_schema() as change:
            for path, name in renamed.items():
                if ".".join(path) in there:
                    change.rename_column(path, name)
        with transaction.update_schema() as change:
            change.union_by_name(schema)
