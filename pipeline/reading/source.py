"""What records are read from, and where a read of it begins and ends."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from client.cluster import EARLIEST, TopicPartition

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from client.cluster import Fetched


class Source(Protocol):
    """A source of records: a `client.cluster.Cluster`, or a `reading.data_directory`."""

    def cluster_id(self) -> str | None:
        """None: it has none."""

    def topics(self) -> dict[str, int]:
        """The number of partitions of each topic; internal topics are left out."""

    def partitions(self, topics: Iterable[str]) -> list[TopicPartition]:
        """Raises NoSuchTopic."""

    def offsets(
        self,
        partitions: Iterable[TopicPartition],
        timestamp_ms: int,
        *,
        committed_only: bool = ...,
    ) -> dict[TopicPartition, int]:
        """For EARLIEST, LATEST, or a time: the first offset at or after it, else the end, which
        with `committed_only` is where the first open transaction begins."""

    def no_later(
        self, partitions: Iterable[TopicPartition], timestamp_ms: int
    ) -> dict[TopicPartition, int]:
        """Offsets below which no record has this time or a later one. A partition of which that
        cannot be told is left out."""

    def fetch(
        self,
        partition: TopicPartition,
        offset: int,
        *,
        max_bytes: int = ...,
        max_wait_ms: int = ...,
        min_bytes: int = ...,
        committed_only: bool = ...,
    ) -> Fetched:
        """Whole entries from the one on that holds `offset`. Raises OffsetOutOfRange."""

    def topic_configs(self, name: str, *, own: bool = ...) -> dict[str, str]:
        """The settings of a topic as far as they are told, or only its own. Raises NoSuchTopic."""

    def close(self) -> None: ...


@dataclass(frozen=True)
class Bound:
    """The start or the end of a read, before any offset is known.

    One number for all partitions or one for each: an offset, EARLIEST or LATEST, or a time in ms.
    `option` is what it was given as.
    """

    option: str
    everywhere: int = EARLIEST
    each: Mapping[TopicPartition, int] = field(default_factory=dict)
    is_time: bool = False
    or_latest: bool = False
    """Where no record is as late as the time: begin at the end, instead of refusing."""

    @property
    def values(self) -> tuple[int, ...]:
        """Every number that it was given with."""
        return tuple(self.each.values()) or (self.everywhere,)
