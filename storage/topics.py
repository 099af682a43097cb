"""Which topics there are: the part of a cluster's metadata that storage needs.

`TopicStore` is what the broker sees. `JsonTopicStore` keeps everything in one small JSON file at
the top of the data directory, replaced as a whole at each change; it holds the place of a metadata
log, so the interface is kept small.

What if the file is lost: the partitions are still there, but nobody knows which topics they are
of. The broker does not start then; an empty cluster that looks healthy would be worse.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from storage.errors import DataDirectoryError
from storage.identity import uuid_of, uuid_text
from storage.layout import PARTITION_METADATA, TOPICS, partition_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from storage.filesystem import Filesystem

FILE_VERSION = 1
PRODUCER_ID_BLOCK = 1000
"""Producer ids reserved on disk at once (as Kafka does): the rest of a block is lost in a restart,
so that none is ever handed out twice."""


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
    """Topics and the two counters that must survive. A change is on disk when its call returns."""

    def topics(self) -> Iterable[Topic]: ...

    def get(self, name: str) -> Topic | None: ...

    def by_id(self, topic_id: bytes) -> Topic | None: ...

    def create(
        self, name: str, topic_id: bytes, partition_count: int, configs: Mapping[str, str]
    ) -> Topic:
        """Raises ValueError if the name or the id is taken."""

    def remove(self, name: str) -> Topic:
        """Raises KeyError for an unknown name. The topic counts as `deleted` from then on."""

    def deleted(self) -> Iterable[Topic]:
        """Topics that were removed and whose folders may still be there."""

    def forget_deleted(self, topic_id: bytes) -> None:
        """Their folders have gone. On the disk with the next change."""

    def set_partition_count(self, name: str, partition_count: int) -> Topic: ...

    def set_configs(self, name: str, configs: Mapping[str, str]) -> Topic: ...

    @property
    def leader_epoch(self) -> int:
        """The epoch in which this node leads its partitions; -1 before the first start."""

    def begin_epoch(self) -> int:
        """One more than the last; called once per start."""

    def next_producer_id(self) -> int:
        """An id that was never given before and never will be again."""


class JsonTopicStore:
    """The topics in `triglot-topics.json`. Use `load`."""

    __slots__ = (
        "_by_id", "_deleted", "_files", "_leader_epoch", "_next_producer_id", "_path", "_reserved",
        "_topics",
    )  # fmt: skip

    def __init__(self, files: Filesystem, path: str) -> None:
        self._files = files
        self._path = path
        self._topics: dict[str, Topic] = {}
        self._by_id: dict[bytes, Topic] = {}
        self._deleted: dict[bytes, Topic] = {}
        self._leader_epoch = -1
        self._next_producer_id = 0
        self._reserved = 0

    @classmethod
    def load(cls, files: Filesystem, folder: str) -> JsonTopicStore:
        """Read the file of a data directory; a directory without partitions may have none.

        Raises DataDirectoryError if the file is malformed, or missing where it cannot be.
        """
        store = cls(files, f"{folder}/{TOPICS}")
        try:
            data = files.read_bytes(store._path)
        except FileNotFoundError:
            for name in files.list_dir(folder):
                if partition_of(name) and files.exists(f"{folder}/{name}/{PARTITION_METADATA}"):
                    raise DataDirectoryError(
                        f"{store._path} is missing, but there are partitions such as {name}: "
                        f"restore the file, or use an empty directory"
                    ) from None
            return store
        store._read(data)
        return store

    def _read(self, data: bytes) -> None:
        import json  # a start of an empty directory does without it

        try:
            content = json.loads(data)
        except json.JSONDecodeError as error:
            raise DataDirectoryError(
                f"{self._path}, line {error.lineno}, column {error.colno}: {error.msg}"
            ) from error
        except RecursionError as error:
            raise DataDirectoryError(
                f"{self._path}: nested too deeply to be a list of topics"
            ) from error
        except UnicodeDecodeError as error:
            raise DataDirectoryError(f"{self._path}, byte {error.start}: not UTF-8") from error
        where = "version"
        try:
            if content["version"] != FILE_VERSION:
                raise ValueError(f"{content['version']!r}, known is {FILE_VERSION}")
            where = "leader_epoch"
            self._leader_epoch = _whole(content["leader_epoch"], at_least=-1)
            where = "next_producer_id"
            self._next_producer_id = self._reserved = _whole(content["next_producer_id"])
            where = "topics"
            for number, entry in enumerate(content["topics"]):
                where = f"topics[{number}]"
                self._add(_topic(entry))
            for number, entry in enumerate(content.get("deleted", [])):
                where = f"deleted[{number}]"
                topic = _topic(entry)
                self._deleted[topic.topic_id] = topic
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            reason = f"{error} is missing" if isinstance(error, KeyError) else str(error)
            raise DataDirectoryError(f"{self._path}, {where}: {reason}") from error

    def _add(self, topic: Topic) -> None:
        if topic.name in self._topics:
            raise ValueError(f"there is a topic {topic.name!r} already")
        if topic.topic_id in self._by_id:
            raise ValueError(f"topic id {uuid_text(topic.topic_id)} is taken")
        self._topics[topic.name] = topic
        self._by_id[topic.topic_id] = topic

    def _store(self) -> None:
        import json

        content: dict[str, object] = {
            "version": FILE_VERSION,
            "leader_epoch": self._leader_epoch,
            "next_producer_id": self._reserved,
            "topics": [_entry(topic) for topic in self._topics.values()],
        }
        if self._deleted:
            content["deleted"] = [_entry(topic) for topic in self._deleted.values()]
        self._files.write_atomic(self._path, json.dumps(content, indent=1).encode() + b"\n")

    def topics(self) -> Iterable[Topic]:
        return list(self._topics.values())

    def get(self, name: str) -> Topic | None:
        return self._topics.get(name)

    def by_id(self, topic_id: bytes) -> Topic | None:
        return self._by_id.get(topic_id)

    def create(
        self, name: str, topic_id: bytes, partition_count: int, configs: Mapping[str, str]
    ) -> Topic:
        topic = Topic(name, topic_id, partition_count, configs)
        self._add(topic)
        try:
            self._store()
        except OSError:
            self._drop(topic)
            raise
        return topic

    def _drop(self, topic: Topic) -> None:
        del self._topics[topic.name]
        del self._by_id[topic.topic_id]

    def remove(self, name: str) -> Topic:
        topic = self._topics[name]
        before = dict(self._topics)
        self._drop(topic)
        self._deleted[topic.topic_id] = Topic(name, topic.topic_id, topic.partition_count, {})
        try:
            self._store()
        except OSError:
            self._topics = before
            self._by_id[topic.topic_id] = topic
            del self._deleted[topic.topic_id]
            raise
        return topic

    def deleted(self) -> Iterable[Topic]:
        return list(self._deleted.values())

    def forget_deleted(self, topic_id: bytes) -> None:
        self._deleted.pop(topic_id, None)

    def set_partition_count(self, name: str, partition_count: int) -> Topic:
        topic = self._topics[name]
        return self._replace(Topic(name, topic.topic_id, partition_count, topic.configs))

    def set_configs(self, name: str, configs: Mapping[str, str]) -> Topic:
        topic = self._topics[name]
        return self._replace(Topic(name, topic.topic_id, topic.partition_count, configs))

    def _replace(self, topic: Topic) -> Topic:
        before = self._topics[topic.name]
        self._topics[topic.name] = self._by_id[topic.topic_id] = topic
        try:
            self._store()
        except OSError:
            self._topics[topic.name] = self._by_id[topic.topic_id] = before
            raise
        return topic

    @property
    def leader_epoch(self) -> int:
        return self._leader_epoch

    def begin_epoch(self) -> int:
        self._leader_epoch += 1
        try:
            self._store()
        except OSError:
            self._leader_epoch -= 1
            raise
        return self._leader_epoch

    @property
    def reserved_producer_id(self) -> int:
        """The file says that no id from here on has been given."""
        return self._reserved

    def next_producer_id(self) -> int:
        if self._next_producer_id == self._reserved:
            self._reserved += PRODUCER_ID_BLOCK
            try:
                self._store()
            except OSError:
                self._reserved -= PRODUCER_ID_BLOCK
                raise
        producer_id = self._next_producer_id
        self._next_producer_id += 1
        return producer_id


def _entry(topic: Topic) -> dict[str, object]:
    return {
        "name": topic.name,
        "topic_id": uuid_text(topic.topic_id),
        "partitions": topic.partition_count,
        "configs": topic.configs,
    }


def _topic(entry: dict[str, object]) -> Topic:
    name, text, configs = entry["name"], entry["topic_id"], entry["configs"]
    if not isinstance(name, str) or not isinstance(text, str) or not isinstance(configs, dict):
        raise TypeError("name and topic_id are strings, configs is an object")
    for key, value in configs.items():
        if not isinstance(value, str):
            raise TypeError(f"config {key} is {value!r}, not a string")
    return Topic(name, uuid_of(text), _whole(entry["partitions"], at_least=1), configs)


def _whole(value: object, *, at_least: int = 0) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < at_least:
        raise ValueError(f"{value!r} is not a whole number of at least {at_least}")
    return value
