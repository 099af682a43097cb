"""A checkpoint of a whole data directory, in one go."""

from __future__ import annotations

from typing import TYPE_CHECKING

from storage.closing import store_for_recovery

if TYPE_CHECKING:
    from storage.data_dir import DataDirectory


def write_checkpoints(directory: DataDirectory) -> None:
    """Cover all logs, and note how far they are and where they start. Raises OSError."""
    for log in directory.logs.values():
        for cover in store_for_recovery(log):
            try:
                cover.sync()
            except OSError as error:
                cover.failed(error)
    directory.write_offsets()
