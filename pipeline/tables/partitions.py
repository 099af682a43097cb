"""Values in the names of folders, as Hive has them: `date=2026-11-25/hour=7`."""

from __future__ import annotations

from urllib.parse import quote, unquote

NULL = "__HIVE_DEFAULT_PARTITION__"


def folder_of(column: str, value: str | None) -> str:
    """The folder of the rows with a value in a column."""
    return f"{quote(column, safe='')}={NULL if value is None else quote(value, safe=' ')}"


def values_of(path: str) -> dict[str, str | None]:
    """The values that the folders of a path tell, by column; None for null."""
    found: dict[str, str | None] = {}
    for folder in path.split("/")[:-1]:
        column, equals, value = folder.partition("=")
        if equals:
            found[unquote(column)] = None if value == NULL else unquote(value)
    return found
