"""The owner of a partition's folder, by its `partition.metadata`.

A topic that was deleted and made again has the same folder names and another id. So the id decides;
but a damaged file is not to part a topic from its records, nor are another's records to be served
or their offsets given out again.
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING

from storage.errors import MalformedFile
from storage.identity import decode_partition_metadata, uuid_text
from storage.layout import LOG, PARTITION_METADATA, offset_of

if TYPE_CHECKING:
    from collections.abc import Container

    from storage.filesystem import Filesystem

DIFFERING_CHARACTERS_MAX = 2
"""Of the 22 of a printed id: what damage makes of one, and no other topic's random id has."""


class Owner(Enum):
    TOPIC = "the topic itself"
    UNNAMED = "nobody says whose it is"
    DAMAGED = "the topic, under an id that is damaged"
    DELETED = "a topic that was deleted"
    OTHER = "another topic, or nobody knows"


def topic_id_of(files: Filesystem, folder: str) -> bytes | None:
    """The id of the topic that a partition's folder says it belongs to, if it says so."""
    path = f"{folder}/{PARTITION_METADATA}"
    try:
        return decode_partition_metadata(files.read_bytes(path), path)
    except (FileNotFoundError, MalformedFile):
        return None


def owner_of(
    found: bytes | None, topic_id: bytes, *, known: Container[bytes], deleted: Container[bytes]
) -> Owner:
    """Owner of a folder that has the id `found` and the name of a partition of the topic
    `topic_id`. `known` are the ids of all topics, `deleted` those of topics that were deleted."""
    if found is None:
        return Owner.UNNAMED
    if found == topic_id:
        return Owner.TOPIC
    if found in deleted:
        return Owner.DELETED
    return Owner.DAMAGED if found not in known and _resemble(found, topic_id) else Owner.OTHER


def _resemble(one: bytes, other: bytes) -> bool:
    pairs = zip(uuid_text(one), uuid_text(other), strict=True)
    return sum(a != b for a, b in pairs) <= DIFFERING_CHARACTERS_MAX


def has_records(files: Filesystem, folder: str) -> bool:
    """Whether a partition's folder has a segment that is not empty."""
    return any(
        offset_of(name, LOG) is not None and files.size_of(f"{folder}/{name}") > 0
        for name in files.list_dir(folder)
    )
