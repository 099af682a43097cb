"""The topics of a data directory, for tests of storage that start no broker."""

from __future__ import annotations

from typing import TYPE_CHECKING

from storage.identity import MetaProperties
from storage.layout import META_PROPERTIES
from storage.metadata.opening import open_metadata

if TYPE_CHECKING:
    from storage.filesystem import Filesystem
    from storage.metadata.store import MetadataStore

NOW_MS = 1_700_000_000_000
IDENTITY = MetaProperties(
    node_id=1, cluster_id="dHJpZ2xvdC10ZXN0cy0wMQ", directory_id="Bq6Z1VEEY_UKSKML5ZwgmA"
)
"""Of a directory that nobody has taken yet."""


def open_topics(files: Filesystem, path: str, *, processes: int = 1) -> MetadataStore:
    """Open the metadata log of the data directory `path` and lead it, as a start does; partitions
    keep their epochs until `begin_epoch`."""
    properties = f"{path}/{META_PROPERTIES}"
    identity = IDENTITY
    if files.exists(properties):
        identity = MetaProperties.decode(files.read_bytes(properties), properties)
    store, _ = open_metadata(files, path, identity, now_ms=lambda: NOW_MS, processes=processes)
    return store
