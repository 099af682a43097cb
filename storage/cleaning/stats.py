"""The figures of one cleaning."""

from __future__ import annotations


class CleaningStats:
    """The work that a cleaning has done so far. Bytes are those of log files, on the disk.

    A message of format 0 or 1 counts as a batch, a wrapper as one. `keys` and `map_bytes` are those
    of the map at its largest. `without_key` records were dropped because they have no key,
    `unreadable` entries kept because they could not be opened.
    """

    __slots__ = (
        "batches_merged", "batches_read", "batches_written", "bytes_mapped", "bytes_read",
        "bytes_written", "keys", "map_bytes", "records_kept", "records_read", "unreadable",
        "without_key",
    )  # fmt: skip

    def __init__(self) -> None:
        self.bytes_mapped = 0
        """Read to fill the map, before `bytes_read` to write the rest."""
        self.bytes_read = self.bytes_written = 0
        self.batches_read = self.batches_written = self.batches_merged = 0
        self.records_read = self.records_kept = 0
        self.keys = self.map_bytes = 0
        self.without_key = self.unreadable = 0

    def as_dict(self) -> dict[str, int]:
        """All of them by name."""
        return {name: getattr(self, name) for name in self.__slots__}
