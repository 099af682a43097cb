"""The topics: the part of a cluster's metadata that the data directory needs.

`TopicStore` is what it sees; `storage.metadata.store` keeps topics as records of the metadata log.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from storage.identity import uuid_text

if TYPE_CHECKING:
    from collections.abc import Container, Iterable, Mapping


class Topic:
    """One topic. `topic_id` is 16 raw bytes; `configs` are the overrides, by Kafka's names."""

    __slots__ = ("configs", "name", "partition_count", "topic_id")

    def __init__(
        self, name: str, topic_id: bytes, partition_count: int, configs: Mapping[str, str]
    ) -> None:
        self.name = name
        self.topic_id = topic_id
        self.partition_count = partition_count
        self.configs = dict(configs)

    def __repr__(self) -> str:
        return f"Topic({self.name!r}, {uuid_text(self.topic_id)}, {self.partition_count})"


class TopicStore(Protocol):
    """Topics as the data directory is told of them. A change is on disk when its call returns."""

    @property
    def led_since(self) -> int:
        """The epoch of the metadata since which no other broker has led this directory."""

    def topics(self) -> Iterable[Topic]: ...

    def names(self) -> Container[str]: ...

    def get(self, name: str) -> Topic | None: ...

    def deleted(self) -> Iterable[Topic]:
        """Topics that were removed and whose folders may still be there."""

    def forget_deleted(self, topic_id: bytes) -> None:
        """Their folders have gone."""

    def leader_epoch(self, name: str, partition: int) -> int:
        """The epoch in which this node leads the partition."""

    def process(self, name: str, partition: int) -> int:
        """The number of the process of this node that leads the partition."""

    def moves(self, name: str, partition: int) -> bool:
        """Whether it is led by nobody, for it is being moved to another process."""
