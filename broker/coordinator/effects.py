"""The effects that a group asks for, and what it needs to know of the world.

A machine parks nothing and writes nothing: it returns effects, in the order in which they are to
happen. A reply that follows an append leaves when the append is on the disk.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from protocol.logdata.offsets import Record


class Reply(NamedTuple):
    """The answer to a request, parked or not. `waiter` is what the runtime named it by."""

    waiter: Any
    response: Any


class Append(NamedTuple):
    """Records for the group's log, to be written as one batch: all of them or none."""

    records: list[Record]


Effect = Reply | Append


class TopicRights(NamedTuple):
    """The topics that are there for a client of a broker with access rules. `generation` grows with
    every change of the rules."""

    generation: int
    may_describe: Callable[[str], bool]


class Caller(NamedTuple):
    """The sender of a request. `client_host` is "/" and the address, as Kafka stores it; `version`
    is that of the request. Without `rights` every topic is there for it."""

    client_id: str
    client_host: str
    version: int
    rights: TopicRights | None = None


class ConsumerTimes(NamedTuple):
    """Session timeout and heartbeat interval of a consumer group (KIP-848); ms."""

    session_timeout_ms: int = 45_000
    heartbeat_interval_ms: int = 5000


class GroupRules(NamedTuple):
    """The broker's settings that groups live by; times in ms."""

    min_session_timeout_ms: int = 6000
    max_session_timeout_ms: int = 1_800_000
    initial_rebalance_delay_ms: int = 0
    gathering_limit_ms: int = 0
    """Of groups without that delay (see `gathering`)."""
    max_size: int = 2**31 - 1
    consumer_times: ConsumerTimes = ConsumerTimes()
    own_times: Mapping[str, ConsumerTimes] = MappingProxyType({})
    """Of groups with settings of their own, by id; changes while groups live."""
    consumer_max_size: int = 2**31 - 1
    assignors: tuple[str, ...] = ("uniform", "range")
    """Server side assignors by their short names; the first is the default."""


class TopicFacts(NamedTuple):
    """A topic as the coordinator sees it; `topic_id` has 16 bytes."""

    name: str
    topic_id: bytes
    partition_count: int


class TopicsView(Protocol):
    """The topics that exist. `names` leaves out internal ones."""

    @property
    def version(self) -> int:
        """Grows with every topic that comes, grows or goes."""

    def get(self, name: str) -> TopicFacts | None: ...

    def by_id(self, topic_id: bytes) -> TopicFacts | None: ...

    def names(self) -> Iterable[str]: ...
