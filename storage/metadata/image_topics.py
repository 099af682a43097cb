"""Topics as an image of the metadata has them, for who changes nothing: a process that follows."""

from __future__ import annotations

from typing import TYPE_CHECKING

from protocol.errors import ErrorCode, KafkaError
from protocol.logdata.metadata import NO_LEADER
from storage.metadata.image import TOPIC_RESOURCE
from storage.topics import Topic

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Iterator, Mapping, Sequence

    from storage.metadata.delta import Delta
    from storage.metadata.image import MetadataImage, TopicState
    from storage.steps import Steps


def nobody_follows(_: Delta) -> Steps[None]:
    """Before the parts are there, and after they have gone."""
    yield from ()


class ImageTopics:
    """The part of a `TopicStore` that an image can tell."""

    def __init__(self, image: Callable[[], MetadataImage], node_id: int) -> None:
        """`image` is what holds now. Processes of the node have the ids from `node_id` on."""
        self._image = image
        self._node_id = node_id
        self.committed: Callable[[Delta], Steps[None]] = nobody_follows
        """Has those follow who keep something that is made of what was touched, before whoever
        makes a change goes on."""

    @property
    def image(self) -> MetadataImage:
        return self._image()

    def topics(self) -> Iterator[Topic]:
        return map(self._topic, list(self.image.topics.values()))

    def names(self) -> Container[str]:
        return self.image.topics

    def get(self, name: str) -> Topic | None:
        found = self.image.topics.get(name)
        return None if found is None else self._topic(found)

    def by_id(self, topic_id: bytes) -> Topic | None:
        found = self.image.topics_by_id.get(topic_id)
        return None if found is None else self._topic(found)

    def _topic(self, state: TopicState) -> Topic:
        configs = self.image.configs.get((TOPIC_RESOURCE, state.name), {})
        return Topic(state.name, state.topic_id, len(state.partitions), configs)

    def deleted(self) -> list[Topic]:
        return [
            Topic(state.name, state.topic_id, len(state.partitions), {})
            for state in self.image.removed.values()
        ]

    def forget_deleted(self, topic_id: bytes) -> None:
        self.image.forget_removed(topic_id)

    def leader_epoch(self, name: str, partition: int) -> int:
        """The epoch in which the partition is led."""
        return self.image.topics[name].partitions[partition].leader_epoch

    def process(self, name: str, partition: int) -> int:
        """The number of the process that leads the partition."""
        return self.image.topics[name].partitions[partition].process

    def moves(self, name: str, partition: int) -> bool:
        """Whether the partition is led by nobody, for it is being moved to another process."""
        return self.image.topics[name].partitions[partition].leader == NO_LEADER

    def leader_id(self, name: str, partition: int) -> int:
        """The id of the broker that leads the partition: that of a process of this node. While it
        is moved this is the one that has led it."""
        return self._node_id + self.process(name, partition)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.image.topics.values()})"


class FollowedTopics(ImageTopics):
    """Topics as a process has them that follows the controller."""

    def __init__(
        self,
        image: Callable[[], MetadataImage],
        node_id: int,
        *,
        led_since: int,
        make_elsewhere: Callable[[str, int], None],
        new_producer_id: Callable[[], int],
    ) -> None:
        """`led_since` is what the controller has told. `make_elsewhere` has it make a topic, with
        so many partitions, and returns when it is followed here; `new_producer_id` has it give one
        that nobody has had. Both are called on any thread but the loop's, and raise KafkaError."""
        super().__init__(image, node_id)
        self._led_since = led_since
        self.make_elsewhere = make_elsewhere
        self._new_producer_id = new_producer_id
        self._producer_ids: list[int] = []
        """Given and not used: one, or a few."""

    @property
    def led_since(self) -> int:
        return self._led_since

    @property
    def has_producer_ids(self) -> bool:
        return bool(self._producer_ids)

    def next_producer_id(self) -> int:
        return self._producer_ids.pop()

    def reservation(self) -> Steps[None]:
        """Producer ids are given by the controller. Raises KafkaError."""
        if not self._producer_ids:
            self._producer_ids.append((yield self._new_producer_id))

    def creation(
        self, topics: Sequence[Topic], assigned: Mapping[str, Sequence[int]] | None = None
    ) -> Steps[None]:
        """Raises KafkaError, NOT_CONTROLLER, as all changes of topics here."""
        raise _not_controller()

    def removal(self, names: Sequence[str]) -> Steps[list[Topic]]:
        raise _not_controller()

    def growth(self, name: str, partition_count: int, assigned: Sequence[int] = ()) -> Steps[Topic]:
        raise _not_controller()

    def configuration(self, name: str, configs: Mapping[str, str]) -> Steps[Topic]:
        raise _not_controller()


def _not_controller() -> KafkaError:
    return KafkaError("topics are changed by the controller", code=ErrorCode.NOT_CONTROLLER)
