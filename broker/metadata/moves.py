"""Partitions that move from one process of the directory to another.

    release -> all follow: it is closed where it was -> move -> all follow: it is opened where it is

No record is copied, and no two processes ever have a log open. A process that dies in between leads
what it has led again, or has left it to the other.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from broker import logs

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from broker.metadata.changes import Changes
    from storage.metadata.store import MetadataStore
    from storage.steps import Steps

    Targets = Mapping[tuple[bytes, int], int]
    """The number of the process that is to lead, by topic id and number of the partition."""

AGAIN_AFTER_MS = 1000
"""Pause before a move is tried again that the disk did not let be noted."""


class Moves:
    """Belongs to the loop of the controller."""

    def __init__(
        self, store: MetadataStore, changes: Changes, serves: Callable[[int], bool]
    ) -> None:
        """`serves` tells whether the process of a number does."""
        self._store = store
        self._changes = changes
        self.serves = serves
        self.pending: dict[tuple[bytes, int], int] = {}
        """The moves that are under way: as many as there are partitions at most."""

    def begin(self, targets: Targets) -> Steps[None]:
        """Begin to move partitions, which is ended by itself. Raises OSError, and then nothing has
        changed."""
        yield from self._store.release(targets)
        self.pending.update(targets)
        followed = self._changes.followed
        assert followed is not None
        followed(partial(self._end, dict(targets)))

    def _end(self, targets: Targets) -> None:
        def ended(_: None) -> None:
            for one in targets:
                self.pending.pop(one, None)

        def failed(error: Exception) -> None:
            logs.error_once_a_minute("partitions are led by nobody", str(error), "moves")
            self._changes.later(AGAIN_AFTER_MS, partial(self._end, targets))

        self._changes.make(self._store.move(targets), ended, failed)
