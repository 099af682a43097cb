"""Records that a job leaves out: counted and described in a task, added up in the driver."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pipeline.reading.plan import Range

EXAMPLES_MAX = 5
"""What was left out is counted; so many pieces of it are also described."""


@dataclass
class LeftOut:
    """The data left out as missing or corrupt, with onGap or onCorrupt "skip".

    False if nothing is.
    """

    offsets_missing: int = 0
    batches_corrupt: int = 0
    offsets_corrupt: int = 0
    examples: list[str] = field(default_factory=list)
    """The first of them, a line each, at most EXAMPLES_MAX."""

    @classmethod
    def of_json(cls, value: Mapping[str, Any]) -> LeftOut:
        """The inverse of `as_json`. Absent keys count as nothing, other keys are ignored."""
        return cls(
            int(value.get("offsets_missing", 0)),
            int(value.get("batches_corrupt", 0)),
            int(value.get("offsets_corrupt", 0)),
            list(value.get("examples", ())),
        )

    def as_json(self) -> dict[str, Any]:
        """The fields by their names."""
        return asdict(self)

    def missing(self, range_: Range, first: int, following: int) -> None:
        """Count the offsets from `first` up to, and without, `following`."""
        self.offsets_missing += following - first
        self._example(f"{range_.topic_partition} offsets {first:,} to {following - 1:,}: deleted")

    def corrupt(self, range_: Range, first: int, last: int, reason: str) -> None:
        """Count a batch, or what may be several, with the offsets `first` to `last`."""
        self.batches_corrupt += 1
        self.offsets_corrupt += last - first + 1
        self._example(f"{range_.topic_partition} offsets {first:,} to {last:,}: {reason}")

    def add(self, other: LeftOut) -> None:
        """Count all that another one has counted."""
        self.offsets_missing += other.offsets_missing
        self.batches_corrupt += other.batches_corrupt
        self.offsets_corrupt += other.offsets_corrupt
        for example in other.examples:
            self._example(example)

    def __add__(self, other: LeftOut) -> LeftOut:
        total = LeftOut()
        total.add(self)
        total.add(other)
        return total

    def _example(self, text: str) -> None:
        if len(self.examples) < EXAMPLES_MAX:
            self.examples.append(text)

    def __bool__(self) -> bool:
        return bool(self.offsets_missing or self.batches_corrupt)

    def __str__(self) -> str:
        parts = []
        if self.offsets_missing:
            parts.append(f"{self.offsets_missing:,} missing offsets")
        if self.batches_corrupt:
            parts.append(
                f"{self.batches_corrupt:,} corrupt batches ({self.offsets_corrupt:,} offsets)"
            )
        text = " and ".join(parts)
        return f"{text}, the first: {self.examples[0]}" if text and self.examples else text
