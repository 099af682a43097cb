"""The job of an archive whose values become columns, made of what `Archive` was told."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pipeline.archiving.archive_files import FORMAT
from pipeline.archiving.folder import claim_folder, open_folder
from pipeline.archiving.owner import claim
from pipeline.archiving.publication import Publication
from pipeline.filesystem import locate
from pipeline.tables.growth import grow_table
from pipeline.values.dead_letter_topic import DeadLetterTopic
from pipeline.values.known_schemas import KnownSchemas
from pipeline.values.values_job import DEAD_LETTERS, Place, ValuesJob

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pyarrow as pa

    from pipeline.archiving.layout import Layout
    from pipeline.archiving.parquet_writer import Compression
    from pipeline.filesystem import Location
    from pipeline.reading.options import SourceOptions
    from pipeline.state import State
    from pipeline.tables.table import Catalog
    from pipeline.values.wanted import Values


def values_job(
    values: Values,
    source: SourceOptions,
    folder: Location,
    *,
    owner: Mapping[str, Any],
    layout: Layout,
    catalog: Catalog | None,
    compression: Compression,
    state: State,
    cluster: str | None,
) -> ValuesJob:
    """Take possession of the folders, and finish what the last run began to publish.

    Raises ForeignState, Refused, Unreachable (the registry), NotInstalled.
    """

    def opened(known: Layout) -> Publication:
        return open_folder(folder, state, owner, known, cluster=cluster, catalog=catalog)

    def grow(columns: pa.Schema, renamed: Mapping[tuple[str, ...], str]) -> None:
        grow_table(layout.table, folder, columns, catalog=catalog, renamed=renamed)

    claim_folder(folder, owner, layout, cluster)
    dead: Location | None = None
    letters: Publication | DeadLetterTopic | None = None
    if values.dead_letter_topic is not None:
        letters = DeadLetterTopic(values.dead_letter_topic, folder, state, source, owner["state"])
        dead = letters.folder
    elif values.dead_letters is not None:
        dead = locate(values.dead_letters)
        records = {"format": FORMAT, "shape": "records", "table": "parquet"}
        claim(dead, {**records, "state": owner["state"]})
        letters = Publication(dead, state, note=DEAD_LETTERS)
    registry = values.open_registry()
    schemas = [
        KnownSchemas(name, part.opened(), text=part.text(), registry=registry)
        for name, part in values.parts.items()
    ]
    place = Place(folder, dead, layout, cluster, compression, grow)
    return ValuesJob(source, place, state, schemas, opened, letters)
