"""What requests need of the metadata before they can be handled: a state topic, producer ids.

A change of the metadata makes it when it is first needed (`broker.network.dispatch` has it made),
and the request is handled again from the beginning:

    handler -> NeededFirst -> the need is made, in its turn -> handler
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, TypeVar

from broker import logs
from protocol.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from collections.abc import Callable

    from broker.partitions.disk_state import DiskState
    from broker.partitions.topic import Topic
    from broker.partitions.topics import Topics
    from storage.steps import Steps

T = TypeVar("T")

NO_PRODUCER_ID = -1


class Need:
    """One thing that requests need. `make` makes it, unless it is there by then, or raises
    KafkaError."""

    def __init__(self, make: Callable[[], Steps[None]]) -> None:
        self._make = make
        self._refusal: KafkaError | None = None
        """Why it could not be made, while the request that wanted it is handled again."""

    def unmet(self) -> Exception:
        """To be raised by whoever finds it missing, before anything is changed: NeededFirst, or the
        KafkaError with which it has just not been made."""
        return NeededFirst(self) if self._refusal is None else self._refusal

    def met(self, handle: Callable[[], T]) -> Steps[T]:
        """Make it, then call `handle` and return its result. Where it cannot be made, `handle` is
        called all the same and meets the reason as a KafkaError, for handlers have answers of their
        own for errors."""
        need = self
        while True:
            refusal = None
            try:
                yield from need._make()
            except KafkaError as error:
                refusal = error
            need._refusal = refusal
            try:
                return handle()
            except NeededFirst as more:
                later = more.need
            finally:
                need._refusal = None
            need = later


class NeededFirst(Exception):
    """A request has to be handled again, from the beginning, when `need` is there. It has changed
    nothing."""

    def __init__(self, need: Need) -> None:
        super().__init__("to be made first")
        self.need = need


class StateTopic:
    """A topic in which a coordinator keeps its state. `wall_ms` gives ms since 1970."""

    def __init__(
        self, name: str, *, topics: Topics, disk: DiskState, wall_ms: Callable[[], int]
    ) -> None:
        self.name = name
        self.need = Need(self._create)
        self._topics = topics
        self._disk = disk
        self._wall_ms = wall_ms

    def find(self) -> Topic | None:
        """The topic, if it is there."""
        return self._topics.by_name.get(self.name)

    def _create(self) -> Steps[None]:
        if self.find() is not None:
            return
        try:
            topic = yield from self._topics.create_automatically(self.name)
        except (KafkaError, OSError) as error:
            if not self._disk.noticed(error):
                logs.error_once_a_minute("topic not created", str(error), self.name)
            raise KafkaError(str(error), code=ErrorCode.COORDINATOR_NOT_AVAILABLE) from error
        logs.info("topic created", topic=topic.name, partitions=len(topic.partitions))


class ProducerIdStore(Protocol):
    """The part of `storage.metadata.store.MetadataStore` that gives out producer ids, of which a
    block at a time is reserved in the metadata log."""

    @property
    def has_producer_ids(self) -> bool: ...
    def next_producer_id(self) -> int: ...
    def reservation(self) -> Steps[None]: ...


class ProducerIds:
    """The ids that this node may give out."""

    def __init__(self, store: ProducerIdStore, disk: DiskState) -> None:
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
        return self._store.next_producer_id() if self._store.has_producer_ids else NO_PRODUCER_ID

    def _reserve(self) -> Steps[None]:
        try:
            yield from self._store.reservation()
        except OSError as error:
            if not self._disk.noticed(error):
                logs.error_once_a_minute("producer ids not reserved", str(error), "producer ids")
            raise KafkaError(str(error), code=ErrorCode.COORDINATOR_NOT_AVAILABLE) from error
