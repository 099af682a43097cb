"""A folder is opened to be added to: claimed, with its table and what it covers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pipeline.archiving.coverage import Coverage
from pipeline.archiving.owner import claim, owner_of
from pipeline.archiving.publication import Publication, note_of
from pipeline.archiving.reading import made_again, version_of
from pipeline.filesystem import refusing
from pipeline.tables.opening import make_table

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pipeline.archiving.layout import Layout
    from pipeline.filesystem import Location
    from pipeline.state import State
    from pipeline.tables.table import Catalog


def open_folder(
    folder: Location,
    state: State,
    owner: Mapping[str, Any],
    layout: Layout,
    *,
    cluster: str | None,
    catalog: Catalog | None = None,
) -> Publication:
    """What is published in a folder from now on; an archive of before is brought up to date.

    Raises ForeignState (it is somebody else's, or its table is gone), NotInstalled, Refused.
    """
    topic = owner.get("topic")
    told = claim_folder(folder, owner, layout, cluster)
    table = make_table(
        layout.table,
        folder,
        layout.table_schema,
        state_id=owner["state"],
        catalog=catalog,
        partitioning=layout.partitioning,
        expected=told is not None and state.read(note_of(topic)) is not None,
    )
    if not layout.apart:
        return Publication(folder, state, topic=topic)
    coverage = Coverage.read(folder)
    if coverage is None:
        # It was begun by a version that kept none, and may have left something half done.
        earlier = Publication(folder, state, table, topic=topic)
        earlier.finish()
        version = version_of(folder, owner, catalog)
        coverage = made_again(folder, version, owner, batch=earlier.last)
        with refusing(f"write to {folder.path}"):
            coverage.write()
    claim(folder, owner)
    return Publication(folder, state, table, coverage, topic=topic)


def claim_folder(
    folder: Location, owner: Mapping[str, Any], layout: Layout, cluster: str | None
) -> dict[str, Any] | None:
    """Take possession of a folder; what its owner was until now. Raises ForeignState, Refused."""
    told = owner_of(folder)
    if told is None and layout.apart:
        with refusing(f"write to {folder.path}"):
            folder.make()
            Coverage(folder, cluster, -1, ()).write()
    if told is None:
        claim(folder, owner)
    return told
