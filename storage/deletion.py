"""Folders of topics that were deleted: renamed first, then removed.

A topic is out of the store, on the disk, before its folders are touched. The store remembers it as
deleted until they have been renamed, so that a start can finish what a crash or an error cut short,
and no folder is left that looks like somebody's data.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from storage.layout import (
    METADATA_LOG,
    OTHER_SUFFIXES,
    deleted_directory,
    is_deleted_directory,
    partition_directory,
    partition_of,
)
from storage.owners import topic_id_of
from storage.reports import RecoveryReport

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from storage.filesystem import Filesystem
    from storage.topics import TopicStore


KNOWN_FOLDERS = (METADATA_LOG, "remote-log-index-cache")
"""Folders that are no partitions of a topic; left alone without a word."""


class Renaming(NamedTuple):
    """A folder that gets another name. `report` says so where the folder may be somebody's."""

    folder: str
    target: str
    report: RecoveryReport | None = None


def rename_all(
    files: Filesystem, path: str, wanted: Sequence[Sequence[Renaming]]
) -> tuple[list[list[str] | OSError], list[RecoveryReport]]:
    """Rename the folders of topics, as far as they are there; any thread.

    Returns for each topic its new folders that are to be removed, or why one could not be renamed,
    and the reports on the others. Raises OSError if the data directory `path` can't be synced.
    """
    done: list[list[str] | OSError] = []
    reports = []
    for of_topic in wanted:
        targets = []
        try:
            for folder, target, report in of_topic:
                if not files.exists(folder):
                    continue
                files.rename(folder, target)
                if report is None:
                    targets.append(target)
                else:
                    reports.append(report)
        except OSError as error:
            done.append(error)
        else:
            done.append(targets)
    files.sync_dir(path)
    return done, reports


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


def sort_out(
    files: Filesystem, path: str, topics: TopicStore, reports: list[RecoveryReport]
) -> set[str]:
    """Remove what waits to be removed, and report what is nobody's. Returns all names."""
    names = set(files.list_dir(path))
    known = {
        partition_directory(topic.name, number)
        for topic in topics.topics()
        for number in range(topic.partition_count)
    }
    for name in sorted(names - known):
        folder = f"{path}/{name}"
        if name in KNOWN_FOLDERS or name.startswith(".") or not files.is_dir(folder):
            continue
        if is_deleted_directory(name):
            files.remove_tree(folder)
        elif name.endswith(OTHER_SUFFIXES):
            reports.append(RecoveryReport(name, "put aside earlier; left alone"))
        elif partition_of(name):
            reports.append(RecoveryReport(name, "of no known topic; left alone"))
        else:
            reports.append(
                RecoveryReport(name, "not a partition; left alone (Kafka would not start)")
            )
    return names
