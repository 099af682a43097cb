"""The coordinator's needs: the parts of a broker that it calls, and what a request waits for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from storage.steps import Steps

T = TypeVar("T")


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


class ProducerIds(Protocol):
    """The ids that this node may give out (`storage.metadata.store`)."""

    @property
    def has_producer_ids(self) -> bool:
        """Whether there is one without a change of the metadata log."""

    def next_producer_id(self) -> int:
        """One that nobody has had."""

    def reservation(self) -> Steps[None]:
        """Reserve more of them."""


class NeededFirst(Exception):
    """A request needs something that is made by a change of metadata: the state topic, or producer
    ids. It is to be handled again, from the beginning, with `then`; it has changed nothing."""

    def __init__(self, make: Callable[[], Steps[None]]) -> None:
        super().__init__("to be made first")
        self._make = make

    def then(self, handle: Callable[[], T]) -> Steps[T]:
        """Make it, then call `handle` and return its result. Raises KafkaError."""
        yield from self._make()
        while True:
            try:
                return handle()
            except NeededFirst as more:
                yield from more._make()
