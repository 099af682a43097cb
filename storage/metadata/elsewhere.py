"""Partitions of this node some of whose records are not in this data directory.

Apache Kafka may keep a node's partitions in several directories (log.dirs), and old segments of a
topic in a remote store (KIP-405). We serve one directory and know no remote store: such a
partition would begin empty, or later than it does. So the start is refused, before anything is
written.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from storage.errors import DataDirectoryError
from storage.identity import uuid_of, uuid_text
from storage.layout import partition_directory
from storage.metadata.image import TOPIC_RESOURCE

if TYPE_CHECKING:
    from storage.filesystem import Filesystem
    from storage.identity import MetaProperties
    from storage.metadata.image import MetadataImage

REMOTE_STORAGE = "remote.storage.enable"


def require_all_here(
    files: Filesystem, path: str, image: MetadataImage, identity: MetaProperties
) -> None:
    """Raises DataDirectoryError unless all records are in the data directory `path`."""
    _require_no_remote_storage(image)
    registered = image.brokers.get(identity.node_id)
    here = uuid_of(identity.directory_id)
    directories = set(registered.log_dirs or ()) if registered is not None else set()
    # If this one is not among them, its id is new, and the others are what it was called before.
    if here not in directories or len(directories) == 1:
        return
    names = set(files.list_dir(path))
    for topic in image.topics.values():
        for number, state in sorted(topic.partitions.items()):
            placed = dict(zip(state.replicas, state.directories, strict=False))
            directory = placed.get(identity.node_id, here)
            name = partition_directory(topic.name, number)
            if directory != here and directory in directories and name not in names:
                raise DataDirectoryError(
                    f"partition {number} of topic '{topic.name}' is not in {path} (directory.id "
                    f"{identity.directory_id}) but in another of node {identity.node_id}'s "
                    f"log.dirs, directory.id {uuid_text(directory)}; one directory is served: let "
                    f"Apache Kafka move all partitions into this one (kafka-reassign-partitions "
                    f"with log_dirs) and try again"
                )


def _require_no_remote_storage(image: MetadataImage) -> None:
    for name in image.topics:
        configs = image.configs.get((TOPIC_RESOURCE, name), {})
        if configs.get(REMOTE_STORAGE, "").strip().lower() == "true":
            raise DataDirectoryError(
                f"topic '{name}' has {REMOTE_STORAGE}=true: its older records may be in a remote "
                f"store, which cannot be read here. Copy the topic with Apache Kafka to one "
                f"without, or give up what is remote ({REMOTE_STORAGE}=false with "
                f"remote.log.delete.on.disable=true), and try again"
            )
