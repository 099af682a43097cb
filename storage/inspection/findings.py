"""The findings of a check, and the report that collects them.

An *error* is damage, or a state in which a broker serves less than was stored. A *warning* is
something that a start puts right, or that is worth a look. A *note* is a fact that explains what
else is there; it does not make a directory less than flawless.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    Progress = Callable[[int], None]
    """Told how many more bytes have been looked at."""

ERROR = "error"
WARNING = "warning"
NOTE = "note"

ALIKE_MAX = 20
"""Findings of one kind in one file that are told one by one; the others are counted."""


def no_progress(_: int) -> None:
    """For those who do not ask."""


class Finding:
    """One fact. `position` counts bytes in `file` and `offset` records; -1 where there is none.

    `partition` is the folder's name, empty for files at the top. `kind` is a short fixed word for
    machines, `reason` the sentence for people.
    """

    __slots__ = ("file", "kind", "offset", "partition", "position", "reason", "severity")

    def __init__(
        self,
        severity: str,
        kind: str,
        reason: str,
        *,
        partition: str = "",
        file: str = "",
        position: int = -1,
        offset: int = -1,
    ) -> None:
        self.severity = severity
        self.kind = kind
        self.reason = reason
        self.partition = partition
        self.file = file
        self.position = position
        self.offset = offset

    def as_json(self) -> dict[str, str | int]:
        return {
            "severity": self.severity,
            "kind": self.kind,
            "partition": self.partition,
            "file": self.file,
            "position": self.position,
            "offset": self.offset,
            "reason": self.reason,
        }

    def __str__(self) -> str:
        """One line: severity, where, what."""
        where = "/".join(part for part in (self.partition, self.file) if part) or "."
        at = f" position {self.position}" if self.position >= 0 else ""
        offset = f" offset {self.offset}" if self.offset >= 0 else ""
        return f"{self.severity}: {where}:{at}{offset}{':' if at or offset else ''} {self.reason}"

    def __repr__(self) -> str:
        return f"Finding({self})"


class Report:
    """Collects the findings of one partition, or of the top of the directory.

    Garbage can make a million findings of one kind: after `ALIKE_MAX` in one file they are only
    counted, and `end_file` says how many there were.
    """

    def __init__(self, partition: str = "") -> None:
        self.partition = partition
        self._found: list[Finding] = []
        self._counts: dict[tuple[str, str, str], int] = {}

    def error(
        self, kind: str, reason: str, *, file: str = "", position: int = -1, offset: int = -1
    ) -> None:
        self.add(ERROR, kind, reason, file=file, position=position, offset=offset)

    def warn(
        self, kind: str, reason: str, *, file: str = "", position: int = -1, offset: int = -1
    ) -> None:
        self.add(WARNING, kind, reason, file=file, position=position, offset=offset)

    def note(
        self, kind: str, reason: str, *, file: str = "", position: int = -1, offset: int = -1
    ) -> None:
        self.add(NOTE, kind, reason, file=file, position=position, offset=offset)

    def add(
        self,
        severity: str,
        kind: str,
        reason: str,
        *,
        file: str = "",
        position: int = -1,
        offset: int = -1,
    ) -> None:
        key = (file, severity, kind)
        count = self._counts[key] = self._counts.get(key, 0) + 1
        if count <= ALIKE_MAX:
            self._found.append(
                Finding(
                    severity,
                    kind,
                    reason,
                    partition=self.partition,
                    file=file,
                    position=position,
                    offset=offset,
                )
            )

    def end_file(self) -> None:
        """Say what was only counted. To be called when the files at hand are done."""
        for (file, severity, kind), count in self._counts.items():
            if count > ALIKE_MAX:
                reason = f"{count - ALIKE_MAX} more findings of the kind {kind}"
                self._found.append(
                    Finding(severity, kind, reason, partition=self.partition, file=file)
                )
        self._counts.clear()

    @property
    def pending(self) -> bool:
        """Whether there are findings to take."""
        return bool(self._found)

    def taken(self) -> list[Finding]:
        """The findings since the last call."""
        found, self._found = self._found, []
        return found
