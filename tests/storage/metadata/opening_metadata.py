"""Metadata opened in memory, and what is refused."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from protocol.logdata.metadata import read_batch
from storage.errors import DataDirectoryError
from storage.identity import MetaProperties
from storage.metadata.opening import open_metadata
from tests.storage.metadata.metadata_files import PATH, log_path
from tests.storage.metadata.snapshot_files import NOW_MS
from tests.support.memory_filesystem import MemoryFilesystem
from tests.support.topic_store import IDENTITY

if TYPE_CHECKING:
    from storage.metadata.store import MetadataStore
    from storage.reports import RecoveryReport

BOOTSTRAP = f"{PATH}/bootstrap.checkpoint"


def blank() -> MemoryFilesystem:
    files = MemoryFilesystem()
    files.make_dir(PATH)
    files.sync_all()
    return files


def opened(files: MemoryFilesystem, **identity: Any) -> tuple[MetadataStore, list[RecoveryReport]]:
    given: dict[str, Any] = {
        "node_id": 1, "cluster_id": IDENTITY.cluster_id, "directory_id": IDENTITY.directory_id
    }  # fmt: skip
    return open_metadata(files, PATH, MetaProperties(**(given | identity)), now_ms=lambda: NOW_MS)


def refusal(files: MemoryFilesystem) -> str:
    """Why it is not opened; nothing but bootstrap.checkpoint may have been written then."""
    files.sync_all()
    before = {name: files.read_bytes(name) for name in everything(files)}
    with pytest.raises(DataDirectoryError) as raised:
        opened(files)
    after = {name: files.read_bytes(name) for name in everything(files)}
    after.pop(BOOTSTRAP, None)
    before.pop(BOOTSTRAP, None)
    assert after == before
    return str(raised.value)


def everything(files: MemoryFilesystem, folder: str = PATH) -> list[str]:
    found = []
    for name in files.list_dir(folder):
        path = f"{folder}/{name}"
        found += everything(files, path) if files.is_dir(path) else [path]
    return found


def stored_batches(files: MemoryFilesystem, base: int = 0) -> list[Any]:
    data, at, found = files.read_bytes(log_path(base)), 0, []
    while at < len(data):
        size = 12 + int.from_bytes(data[at + 8 : at + 12], "big")
        found.append(read_batch(data[at : at + size]))
        at += size
    return found
