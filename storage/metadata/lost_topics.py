"""Partitions that have records and that the metadata log has lost.

A folder is made after its partition is in the log. One with records and the id of a topic that the
log does not know means that a part of the log is lost, and with it perhaps settings of other
topics: those that keep their records. So the start is refused, before anything is written.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from storage.errors import DataDirectoryError
from storage.layout import METADATA_LOG, partition_of
from storage.owners import has_records, topic_id_of

if TYPE_CHECKING:
    from storage.filesystem import Filesystem
    from storage.metadata.image import MetadataImage

NAMED_MAX = 5
"""Folders that a refusal names."""


def lost_partitions(files: Filesystem, path: str, image: MetadataImage) -> list[str]:
    """The names of their folders in the data directory `path`. Raises OSError.

    Not among them: a copy of a partition under another name, what a deletion has left, and folders
    that do not say whose they are.
    """
    lost = []
    for name in files.list_dir(path):
        found = partition_of(name)
        if found is None or name == METADATA_LOG:
            continue
        topic = image.topics.get(found[0])
        if topic is not None and found[1] in topic.partitions:
            continue
        topic_id = topic_id_of(files, f"{path}/{name}")
        if topic_id is None or topic_id in image.removed:
            continue
        known = image.topics_by_id.get(topic_id)
        if (known is None or known is topic) and has_records(files, f"{path}/{name}"):
            lost.append(name)
    return sorted(lost)


def require_none_lost(files: Filesystem, path: str, image: MetadataImage) -> None:
    """Raises DataDirectoryError if there are `lost_partitions`."""
    lost = lost_partitions(files, path, image)
    if lost:
        named = ", ".join(lost[:NAMED_MAX]) + (", ..." if len(lost) > NAMED_MAX else "")
        raise DataDirectoryError(
            f"{path}/{METADATA_LOG} knows nothing of {len(lost)} partitions that have records "
            f"({named}): a part of it is lost, perhaps with settings of other topics; restore it "
            f"from a copy. To go on without these partitions, move their folders out of {path}"
        )
