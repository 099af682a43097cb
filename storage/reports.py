"""Findings of storage for the operator; the broker decides how to word them."""

from __future__ import annotations

HEAD_BYTES = 4096


class RecoveryReport:
    """A fact found while opening a partition, for the operator.

    `bytes_cut` bytes were removed from `file`, from `position` on; the log now ends at
    `next_offset`. Nothing was removed if it is 0. `offsets_lost` counts offsets that the last
    high watermark checkpoint shows to have existed; there may have been more after it. `head` is
    how what was cut began, HEAD_BYTES at most, for those who can tell what it was. `kept_as` names
    the file beside the log that has what was cut.
    """

    __slots__ = (
        "bytes_cut", "file", "head", "kept_as", "next_offset", "offsets_lost", "partition",
        "position", "reason",
    )  # fmt: skip

    def __init__(
        self,
        partition: str,
        reason: str,
        *,
        file: str = "",
        position: int = 0,
        bytes_cut: int = 0,
        next_offset: int = -1,
        offsets_lost: int = 0,
        head: bytes = b"",
        kept_as: str = "",
    ) -> None:
        self.partition = partition
        self.reason = reason
        self.file = file
        self.position = position
        self.bytes_cut = bytes_cut
        self.next_offset = next_offset
        self.offsets_lost = offsets_lost
        self.head = head
        self.kept_as = kept_as

    def __repr__(self) -> str:
        where = f", {self.file} at {self.position}" if self.file else ""
        cut = f", {self.bytes_cut} bytes cut" if self.bytes_cut else ""
        kept = f", kept as {self.kept_as}" if self.kept_as else ""
        return f"RecoveryReport({self.partition}: {self.reason}{where}{cut}{kept})"
