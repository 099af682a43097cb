"""`_archive.json`: whose an archive's folder is, and what it is.

format    1: plain files; 2: a table, or files in folders, whose coverage is kept apart
state     the id of the state that adds to it
shape, table
catalog   of an Iceberg table: its name, and where it is registered, without credentials
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from pyarrow import fs

from pipeline.archiving.archive_files import FORMAT, OWNER, STAGING, STATE, TABLE_FORMAT
from pipeline.archiving.coverage import COVERAGE
from pipeline.errors import ForeignState
from pipeline.filesystem import ANNOUNCED, create_whole, refusing, write_whole
from pipeline.object_store import store_of
from pipeline.tables.table import Catalog

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pipeline.filesystem import Location

KEPT_OPTIONS = ("type", "uri", "warehouse", "hive.hive2-compatible")
"""Of a catalog, which are enough to find it again; no credentials are written down."""


def owner_of(folder: Location, *, strict: bool = True) -> dict[str, Any] | None:
    """The content of `_archive.json`; None for a folder that is not there, or has nothing in it.

    Raises ForeignState for an archive that only a newer version knows; with `strict`, as for one
    that is to be added to, also for a folder with other files.
    """
    selector = fs.FileSelector(folder.path, allow_not_found=True)
    names = {info.base_name for info in folder.filesystem.get_file_info(selector)}
    if OWNER not in names:
        others = sorted(
            name
            for name in names
            if name not in (STATE, COVERAGE, STAGING) and not name.startswith(".")
        )
        if others and strict:
            raise ForeignState(
                f"{folder.path} has other files in it ({others[0]}): name an empty folder or a new "
                "one, or the folder of an archive"
            )
        return None
    place = folder.under(OWNER)
    with place.filesystem.open_input_stream(place.path) as stream:
        try:
            told = dict(json.loads(stream.read()))
        except (ValueError, TypeError) as failure:
            raise ForeignState(f"{place.path} is damaged: {failure}") from None
    if told.get("format") not in (FORMAT, TABLE_FORMAT):
        raise ForeignState(
            f"{folder.path} is an archive of format {told.get('format')}, and this version knows "
            f"formats {FORMAT} and {TABLE_FORMAT}: use the version that made it, or begin another "
            "one"
        )
    return told


def claim(folder: Location, owner: Mapping[str, Any]) -> None:
    """Make the folder the archive of this owner, or note what it has become.

    Raises ForeignState if it is another's, be it since a moment, Refused, and what `owner_of` does.
    """
    data = json.dumps(owner, indent=1, sort_keys=True).encode()
    with refusing(f"write to {folder.path}"):
        told = owner_of(folder)
        if told is None:
            folder.make()
            store = store_of(folder)
            place = folder.under(OWNER)
            if create_whole(place, data) if store is None else store.create(place, data):
                return
            told = owner_of(folder)
    if told is None:
        raise ForeignState(
            f"another run makes an archive of {folder.path} at this moment, or was cut off when it "
            f"did: try again, and if no other run is on, remove .{OWNER}.*{ANNOUNCED} there first"
        )
    if told.get("state") != owner["state"]:
        raise ForeignState(
            f"{folder.path} is an archive of another run since a moment: archive to another folder"
        )
    if told != owner:
        with refusing(f"write to {folder.path}"):
            write_whole(folder.under(OWNER), data)


def noted_catalog(catalog: Catalog) -> dict[str, Any]:
    """What is written down of a catalog."""
    options = {
        name: catalog.options[name]
        for name in KEPT_OPTIONS
        if name in catalog.options and "@" not in catalog.options[name]
    }
    return {"identifier": catalog.identifier, "name": catalog.name, "options": options}


def catalog_of(owner: Mapping[str, Any]) -> Catalog | None:
    """The catalog that was noted; None if there is none."""
    noted = owner.get("catalog")
    return None if noted is None else Catalog(**noted)
