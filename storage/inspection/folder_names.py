"""The names in a partition's folder: what belongs there, what is left of something, what is not
ours."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from storage.layout import (
    CLEANED,
    DELETED,
    LEADER_EPOCHS,
    LOG,
    PARTITION_METADATA,
    RECEIVE_TIMES,
    REPLACEMENT,
    SEGMENT_SUFFIXES,
    SNAPSHOT,
    SWAP,
    TIME_INDEX,
    offset_of,
)

if TYPE_CHECKING:
    from storage.filesystem import Filesystem
    from storage.inspection.findings import Report

QUORUM_STATE = "quorum-state"
KNOWN_TEXTS = (QUORUM_STATE, RECEIVE_TIMES, REPLACEMENT)
METADATA_SNAPSHOT = re.compile(r"\d{20}-\d{10}\.checkpoint")

SET_ASIDE = re.compile(r"(\d{20})\.log\.damaged(?:-(\d+)-(\d+|end))?(?:\.\d+)?")
"""Names of what repair and recovery put aside: a whole segment, or the offsets first..next of one.
A tail that recovery cut off a log (`storage.cut_tails`) leaves no gap: the offsets go on there."""
ASIDE = re.compile(r".*(\.damaged(-\d+-(\d+|end))?|\.log\.cut-\d+)(\.\d+)?")


class FolderNames:
    """The names of one folder, sorted by what they are. `only` leaves out all others."""

    def __init__(self, files: Filesystem, folder: str, only: frozenset[str] | None = None) -> None:
        names = files.list_dir(folder)
        if only is not None:
            names = [name for name in names if name in only]
        self.present = frozenset(names)
        self.bases = _offsets(names, LOG)
        self.snapshots = _offsets(names, SNAPSHOT)
        self.snapshots_seen = len(self.snapshots)
        self.has_time_indexes = any(name.endswith(TIME_INDEX) for name in names)
        self.has_metadata = PARTITION_METADATA in self.present
        self.has_epochs = LEADER_EPOCHS in self.present
        self.checkpoints = sorted(name for name in names if METADATA_SNAPSHOT.fullmatch(name))
        self.in_replacement = REPLACEMENT in self.present or any(
            name.endswith(SWAP) for name in names
        )
        """Segments are being replaced; a start finishes that."""
        self.others = sorted(name for name in names if name in KNOWN_TEXTS)
        self._taken_out: list[tuple[int, int]] = []
        self._strange = sorted(name for name in names if not self._is_known(name))
        self._folders = {name for name in self._strange if files.is_dir(f"{folder}/{name}")}

    def _is_known(self, name: str) -> bool:
        aside = SET_ASIDE.fullmatch(name)
        if aside is not None:
            base, first, following = aside.groups()
            start = int(base) if first is None else int(first)
            end = -1 if following in (None, "end") else int(following)
            self._taken_out.append((start, end))
            return False
        if name in (PARTITION_METADATA, LEADER_EPOCHS, *KNOWN_TEXTS):
            return True
        if METADATA_SNAPSHOT.fullmatch(name) or offset_of(name, SNAPSHOT) is not None:
            return True
        for suffix in SEGMENT_SUFFIXES:
            base = offset_of(name, suffix)
            if base is not None:
                return file_of(base) in self.present or file_of(base) == name
        return False

    def were_taken_out(self, first: int, until: int) -> bool:
        """Whether files set aside account for the missing offsets first..until-1."""
        return any(
            (start <= first and until <= end) or (end < 0 and start < until)
            for start, end in self._taken_out
        )

    def tell(self, report: Report) -> None:
        """Say what is there besides the partition's own files."""
        deleted = [name for name in self._strange if name.endswith(DELETED)]
        if deleted:
            more = f", with {len(deleted) - 1} more" if len(deleted) > 1 else ""
            report.note(
                "left-over", f"waits to be removed at the next start{more}", file=deleted[0]
            )
        for name in self._strange:
            if name.endswith(DELETED):
                continue
            if name in self._folders:
                report.note("foreign", "a folder, which is left alone", file=name)
            elif ASIDE.fullmatch(name):
                report.note("set-aside", "was put aside by a recovery or a repair", file=name)
            elif name.endswith((".tmp", ".checkpoint.part")):
                report.note("left-over", "was being written", file=name)
            elif name.endswith(CLEANED):
                report.warn(
                    "left-over",
                    "of a compaction that did not finish; a start removes it",
                    file=name,
                )
            elif name.endswith(SWAP):
                report.warn(
                    "left-over",
                    "a replacement that did not finish; a start puts it in place",
                    file=name,
                )
            elif any(offset_of(name, suffix) is not None for suffix in SEGMENT_SUFFIXES):
                report.warn(
                    "no-log", "there is no .log of that name; a start removes it", file=name
                )
            else:
                report.note("foreign", "not a file of a partition; it is left alone", file=name)


def file_of(base: int) -> str:
    """The name of the log file of a segment."""
    return f"{base:020d}{LOG}"


def _offsets(names: list[str], suffix: str) -> list[int]:
    return sorted(base for name in names if (base := offset_of(name, suffix)) is not None)
