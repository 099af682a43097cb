"""Ids for producers, of which a block at a time is reserved in the metadata log."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from broker import logs
from broker.coordinator.needs import Need
from protocol.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from broker.partitions.disk_state import DiskState
    from storage.steps import Steps

NONE = -1


class Store(Protocol):
    """The part of `storage.metadata.store.MetadataStore` that gives them out."""

    @property
    def has_producer_ids(self) -> bool: ...
    def next_producer_id(self) -> int: ...
    def reservation(self) -> Steps[None]: ...


class ProducerIds:
    """The ids that this node may give out."""

    def __init__(self, store: Store, disk: DiskState) -> None:
        self._store = store
        self._disk = disk
        self._need = Need(self._reserve)

    def new(self) -> int:
        """One that nobody has had. Raises NeededFirst; KafkaError: COORDINATOR_NOT_AVAILABLE when
        the disk has refused a reservation."""
        if not self._store.has_producer_ids:
            raise self._need.unmet()
        return self._store.next_producer_id()

    def at_hand(self) -> int:
        """One that is reserved, or -1, for who cannot wait for a change of the metadata."""
        return self._store.next_producer_id() if self._store.has_producer_ids else NONE

    def _reserve(self) -> Steps[None]:
        try:
            yield from self._store.reservation()
        except OSError as error:
            if not self._disk.noticed(error):
                logs.error_once_a_minute("producer ids not reserved", str(error), "producer ids")
            raise KafkaError(str(error), code=ErrorCode.COORDINATOR_NOT_AVAILABLE) from error
