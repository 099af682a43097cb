"""The facts on one partition from the files at the top of its data directory."""

from __future__ import annotations

from storage.inspection.index_files import NOWHERE
from storage.layout import LARGEST_OFFSET


class Context:
    """The facts that a partition is checked against.

    `clean` tells that the last stop promised whole files. `recovery_point` is None where nobody
    knows. `cleaned_to` is how far compaction has been; `compacted` tells that it may have been
    anywhere. Below `gaps_below` a start believes that offsets are missing between segments.
    `epoch_max` is the highest leader epoch that there has been, -1 where nobody knows. `ours` tells
    that triglot may have written it, and `old` that it is of an Apache Kafka with ZooKeeper:
    `partition.metadata` came late there, and time indexes with 0.10.1.
    """

    __slots__ = (
        "clean", "cleaned_to", "compacted", "epoch_max", "gaps_below", "log_start", "old", "ours",
        "recovery_point",
    )  # fmt: skip

    def __init__(
        self,
        *,
        clean: bool = False,
        recovery_point: int | None = None,
        log_start: int = -1,
        cleaned_to: int = -1,
        compacted: bool = False,
        gaps_below: int = LARGEST_OFFSET,
        epoch_max: int = -1,
        old: bool = False,
        ours: bool = False,
    ) -> None:
        self.old = old
        self.ours = ours
        self.epoch_max = epoch_max
        self.clean = clean
        self.recovery_point = recovery_point
        self.log_start = log_start
        self.cleaned_to = cleaned_to
        self.compacted = compacted
        self.gaps_below = gaps_below

    def excused_from(self) -> int:
        """The offset from which files beside the log may lag behind it. Apache Kafka's do not."""
        if self.clean or not self.ours or self.recovery_point is None:
            return NOWHERE
        return self.recovery_point
