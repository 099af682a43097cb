"""Folders of topics that were deleted: renamed first, then removed.

A topic is out of the store, on the disk, before its folders are touched. The store remembers it as
deleted until they have been renamed, so that a start can finish what a crash or an error cut short,
and no folder is left that looks like somebody's data.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from storage.errors import MalformedFile
from storage.identity import decode_partition_metadata
from storage.layout import PARTITION_METADATA, deleted_directory, partition_directory

if TYPE_CHECKING:
    from collections.abc import Callable

    from storage.filesystem import Filesystem
    from storage.topics import TopicStore


def topic_id_of(files: Filesystem, folder: str) -> bytes | None:
    """The id of the topic that a partition's folder says it belongs to, if it says so."""
    try:
        return decode_partition_metadata(files.read_bytes(f"{folder}/{PARTITION_METADATA}"), folder)
    except (FileNotFoundError, MalformedFile):
        return None


def remove_folder(files: Filesystem, path: str, name: str, number: int, unique: str) -> None:
    """Remove a partition's folder, so that no part of it can be found under its name again."""
    target = f"{path}/{deleted_directory(name, number, unique)}"
    files.rename(f"{path}/{partition_directory(name, number)}", target)
    files.sync_dir(path)
    files.remove_tree(target)


def finish_deletions(
    files: Filesystem, path: str, topics: TopicStore, new_uuid: Callable[[], bytes]
) -> None:
    """Remove the folders of deleted topics that are still there; for a start."""
    for topic in topics.deleted():
        taken = topics.get(topic.name) is not None
        for number in range(topic.partition_count):
            folder = f"{path}/{partition_directory(topic.name, number)}"
            if not files.is_dir(folder):
                continue
            found = topic_id_of(files, folder)
            # A folder that never was on the disk as a whole may not know whose it is.
            if found == topic.topic_id or (found is None and not taken):
                remove_folder(files, path, topic.name, number, new_uuid().hex())
        topics.forget_deleted(topic.topic_id)
