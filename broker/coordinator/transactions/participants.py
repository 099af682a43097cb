"""The partitions and groups that transactions write to, as their coordinator calls them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence


class Participants(Protocol):
    """The partitions and groups that a transaction writes to."""

    def write_markers(
        self,
        producer_id: int,
        epoch: int,
        *,
        commit: bool,
        coordinator_epoch: int,
        partitions: Sequence[tuple[str, int]],
    ) -> list[tuple[str, int]]:
        """Append the marker to each of these partitions and write it; readers are woken.

        Returns those that could not be written now, to be tried again. A partition that is gone,
        or where this producer has no open transaction, needs none and counts as done.
        """
