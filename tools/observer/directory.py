"""A folder of an observer's own: its lock, and the cluster that it is of.

    <path>/.lock               held while an observer runs
    <path>/meta.properties     cluster.id; node.id is -1
    <path>/__cluster_metadata-0/

What if meta.properties is lost: the folder follows whatever controller it is pointed to next.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from storage.errors import DataDirectoryError, LockHeld, MalformedFile
from storage.identity import MetaProperties
from storage.layout import LOCK, META_PROPERTIES, METADATA_LOG
from tools.observer.files import MetadataFolder

if TYPE_CHECKING:
    from typing import Self

    from storage.filesystem import Filesystem, Lock

OBSERVER_NODE_ID = -1
"""No broker has it, so none is started on such a folder by mistake."""


class ObserverDirectory(MetadataFolder):
    """See the module. Made by `open`."""

    def __init__(self, files: Filesystem, path: str) -> None:
        super().__init__(files, path)
        self._path = path
        self._lock: Lock | None = None

    @classmethod
    def open(cls, files: Filesystem, path: str) -> Self:
        """Take a folder that is an observer's, or empty, or not there yet.

        Raises DataDirectoryError if it is another program's, and OSError.
        """
        files.make_dir(path)
        identity = _identity(files, path)
        try:
            lock = files.lock(f"{path}/{LOCK}")
        except BlockingIOError:
            raise LockHeld(f"{path} is in use by another observer") from None
        try:
            kept = super().open(files, path)
        except BaseException:
            with suppress(OSError):
                lock.release()
            raise
        kept._lock = lock
        kept.cluster_id = identity
        return kept

    def know(self, cluster_id: str) -> None:
        if cluster_id == self.cluster_id:
            return
        identity = MetaProperties(node_id=OBSERVER_NODE_ID, cluster_id=cluster_id, directory_id="")
        self._files.write_atomic(f"{self._path}/{META_PROPERTIES}", identity.encode())
        self.cluster_id = cluster_id

    def close(self) -> None:
        super().close()
        if self._lock is not None:
            with suppress(OSError):
                self._lock.release()


def _identity(files: Filesystem, path: str) -> str | None:
    """The id of the cluster; None if the folder is empty, or does not say."""
    properties = f"{path}/{META_PROPERTIES}"
    try:
        identity = MetaProperties.decode(files.read_bytes(properties), properties)
    except FileNotFoundError:
        if set(files.list_dir(path)) <= {METADATA_LOG, LOCK, f"{META_PROPERTIES}.tmp"}:
            return None
    except MalformedFile as error:
        raise DataDirectoryError(f"{error}: give an observer an empty folder") from None
    else:
        if identity.node_id == OBSERVER_NODE_ID:
            return identity.cluster_id
    raise DataDirectoryError(
        f"{path} holds other files than an observer's: give it a folder of its own"
    )
