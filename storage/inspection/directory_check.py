"""A whole data directory, one partition of it, or one file: what is damaged, and what is odd.

The caller sees to it that no broker writes to it meanwhile (`locked`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from storage.errors import LockHeld
from storage.filesystem import parent_of
from storage.inspection import text_files
from storage.inspection.context import Context
from storage.inspection.findings import Report, no_progress
from storage.inspection.folder_names import METADATA_SNAPSHOT
from storage.inspection.metadata_rows import check_snapshot
from storage.inspection.partition_check import PartitionCheck
from storage.inspection.top_files import BOOTSTRAP, CHECKPOINTS, TopFiles
from storage.inspection.transactions_check import TransactionsCheck
from storage.layout import (
    CLEAN_SHUTDOWN,
    LEADER_EPOCHS,
    LOCK,
    LOG,
    META_PROPERTIES,
    METADATA_LOG,
    OTHER_SUFFIXES,
    PARTITION_METADATA,
    SEGMENT_SUFFIXES,
    SNAPSHOT,
    is_deleted_directory,
    offset_of,
    partition_of,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from storage.filesystem import Filesystem, Lock
    from storage.inspection.findings import Finding, Progress

REMOTE_INDEXES = "remote-log-index-cache"

EROFS = 30
"""The errno of a file system that nobody can write to: a broker holds no lock there either."""


class NotCheckable(Exception):
    """The path is not a data directory, nor anything in one. The text says what was wanted."""


def kind_of(files: Filesystem, path: str) -> str:
    """`directory`, `partition` or `file`. Raises NotCheckable."""
    if not files.exists(path):
        raise NotCheckable(f"{path} does not exist")
    if not files.is_dir(path):
        return "file"
    try:
        names = files.list_dir(path)
    except OSError as error:
        raise NotCheckable(f"{path}: {error.strerror}") from error
    if PARTITION_METADATA in names or any(offset_of(name, LOG) is not None for name in names):
        return "partition"
    tops = {META_PROPERTIES, CLEAN_SHUTDOWN, BOOTSTRAP, *CHECKPOINTS}
    if tops & set(names) or any(
        partition_of(name) and files.is_dir(f"{path}/{name}") for name in names
    ):
        return "directory"
    if LEADER_EPOCHS in names or partition_of(path.rpartition("/")[2]):
        return "partition"
    raise NotCheckable(
        f"{path} is not a data directory: it has no {META_PROPERTIES}, no checkpoint files and no "
        f"partitions"
    )


def directory_of(files: Filesystem, path: str) -> str:
    """The data directory that a path is, or is in; empty if it is in none."""
    folder = path
    for _ in range(3):
        if files.is_dir(folder) and kind_or_none(files, folder) == "directory":
            return folder
        folder = parent_of(folder)
    return ""


def kind_or_none(files: Filesystem, path: str) -> str | None:
    """`kind_of`, None for what is not checkable."""
    try:
        return kind_of(files, path)
    except NotCheckable:
        return None


def locked(files: Filesystem, path: str) -> Lock | None:
    """Lock the data directory that `path` is or is in, as a broker does.

    None if there is none, or if it cannot be written to by anybody. Raises LockHeld while a
    broker runs, OSError.
    """
    folder = directory_of(files, path)
    if not folder:
        return None
    lock_path = f"{folder}/{LOCK}"
    try:
        return files.lock(lock_path)
    except BlockingIOError as error:
        raise LockHeld(f"{lock_path} is locked: a broker is using {folder}") from error
    except OSError as error:
        if error.errno == EROFS:
            return None
        raise


def bytes_of(files: Filesystem, path: str) -> int:
    """The bytes of the log files that a check will go through."""
    if not files.is_dir(path):
        return files.size_of(path) if path.endswith(LOG) else 0
    total = 0
    for name in files.list_dir(path):
        below = f"{path}/{name}"
        if name.endswith(LOG):
            total += files.size_of(below)
        elif partition_folder(name) and files.is_dir(below):
            total += bytes_of(files, below)
    return total


def partition_folder(name: str) -> bool:
    """Whether a folder of this name is looked into."""
    if is_deleted_directory(name):
        return False
    bare = name.rpartition(".")[0] if name.endswith(OTHER_SUFFIXES) else name
    return partition_of(bare) is not None


def check(
    files: Filesystem,
    path: str,
    *,
    deep: bool = False,
    progress: Progress = no_progress,
    now_ms: int | None = None,
) -> Iterator[Finding]:
    """The findings about a path of any kind. `now_ms` tells which transactions have been open for
    too long. Raises NotCheckable, OSError."""
    kind = kind_of(files, path)
    if kind == "directory":
        return check_directory(files, path, deep=deep, progress=progress, now_ms=now_ms)
    if kind == "partition":
        return check_partition(files, path, deep=deep, progress=progress)
    return check_file(files, path, deep=deep, progress=progress)


def check_directory(
    files: Filesystem,
    path: str,
    *,
    deep: bool = False,
    progress: Progress = no_progress,
    now_ms: int | None = None,
) -> Iterator[Finding]:
    """Every file of a data directory. Raises OSError if the folder cannot be read."""
    report = Report()
    names = sorted(files.list_dir(path))
    top = TopFiles(files, path, frozenset(names), report)
    top.check()
    transactions = TransactionsCheck(now_ms)
    report.end_file()
    yield from report.taken()
    for name in names:
        if not files.is_dir(f"{path}/{name}"):
            continue
        if is_deleted_directory(name):
            report.note("left-over", "of a deleted topic; a start removes it", file=name)
        elif name == REMOTE_INDEXES:
            continue
        elif not partition_folder(name):
            report.warn(
                "foreign",
                "a folder that is no partition; Apache Kafka does not start beside it",
                file=name,
            )
        else:
            tell_suffix(name, report)
            yield from report.taken()
            partition = PartitionCheck(
                files,
                f"{path}/{name}",
                context=context_of(top, name),
                deep=deep,
                progress=progress,
            )
            yield from partition.run()
            if name != METADATA_LOG and not name.endswith(OTHER_SUFFIXES):
                top.compare(partition)
                transactions.take(partition)
        yield from report.taken()
    top.finish()
    report.end_file()
    yield from report.taken()
    yield from transactions.finish(top.metadata)


def tell_suffix(name: str, report: Report) -> None:
    """Say what a folder is that is served by nobody."""
    if name.endswith("-stray"):
        report.warn("stray", "was put aside by a broker, and is not served", file=name)
    elif name.endswith("-future"):
        report.note("future", "a replica that is being moved to this directory", file=name)


def context_of(top: TopFiles, name: str) -> Context:
    """The context of a partition's folder, from the files at the top."""
    if name == METADATA_LOG:
        # Apache Kafka reads it from the beginning at every start, whatever the marker says.
        return Context(recovery_point=0)
    if name.endswith(OTHER_SUFFIXES):
        return Context(recovery_point=0)
    return top.context_of(name)


def check_partition(
    files: Filesystem, folder: str, *, deep: bool = False, progress: Progress = no_progress
) -> Iterator[Finding]:
    """One partition's folder; what the files at the top say of it is taken into account."""
    context = _context_from_above(files, folder)
    return PartitionCheck(files, folder, context=context, deep=deep, progress=progress).run()


def _context_from_above(files: Filesystem, folder: str) -> Context:
    top_folder = directory_of(files, parent_of(folder))
    if not top_folder:
        return Context()
    silent = Report()
    top = TopFiles(files, top_folder, frozenset(files.list_dir(top_folder)), silent)
    top.check()
    return context_of(top, folder.rpartition("/")[2])


def check_file(
    files: Filesystem, path: str, *, deep: bool = False, progress: Progress = no_progress
) -> Iterator[Finding]:
    """One file, with the others of its segment. Raises NotCheckable for one of no known kind."""
    folder, name = parent_of(path), path.rpartition("/")[2]
    for suffix in SEGMENT_SUFFIXES:
        base = offset_of(name, suffix)
        if base is not None:
            only = frozenset(f"{name[:20]}{each}" for each in SEGMENT_SUFFIXES)
            partition = PartitionCheck(
                files,
                folder,
                context=_context_from_above(files, folder),
                deep=deep,
                progress=progress,
                only=only,
            )
            yield from partition.run()
            return
    if offset_of(name, SNAPSHOT) is not None or name in text_files.PARTITION_FILES:
        yield from PartitionCheck(files, folder, only=frozenset([name])).run()
    elif METADATA_SNAPSHOT.fullmatch(name) or name == BOOTSTRAP:
        yield from check_snapshot(files, folder, name, folder.rpartition("/")[2], progress)
    else:
        report = Report()
        top = TopFiles(files, folder, frozenset([name]), report)
        if not top.check():
            raise NotCheckable(f"{path}: no file of a data directory has such a name")
        report.end_file()
        yield from report.taken()
