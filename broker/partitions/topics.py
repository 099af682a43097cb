"""All topics: creating, growing and deleting them, and their settings.

A change is durable in the topic store first, then the directories follow, then it is visible; a
crash in between is finished at the next start (a partition without its directory gets one).
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

from broker import logs
from broker.partitions.internal_topics import OFFSETS_TOPIC, offsets_topic_overrides
from broker.partitions.topic import Partition, Topic
from broker.partitions.topic_names import MetricNames, check_name
from config import ConfigError, TopicSettings
from protocol.errors import ErrorCode, KafkaError
from protocol.logdata.metadata_names import METADATA_TOPIC
from storage.topics import Topic as StoredTopic

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from broker.current_settings import CurrentSettings
    from config import BrokerSettings
    from storage.data_dir import DataDirectory
    from storage.metadata.store import MetadataStore
    from storage.reports import RecoveryReport

MAX_PARTITIONS = 10_000
"""Bound on the partitions of one topic; each costs a directory and its files."""
MAX_DELETED_NAMES = 1_000
"""Bound on the names of deleted topics that are remembered; the oldest are forgotten first."""


_TOPIC_RULES = ("validation_level", "max_decompressed_batch_bytes", "max_decompression_ratio")
_FOR_TOPICS = {
    *_TOPIC_RULES,
    *(name.replace(".", "_") for key in TopicSettings.KEYS.values() for name in key.broker),
}
"""Attributes that a topic's settings or rules are made of."""


def differ_for_topics(before: BrokerSettings, settings: BrokerSettings) -> bool:
    """Whether settings of the broker differ in one that topics are made of."""
    return any(getattr(before, name) != getattr(settings, name) for name in _FOR_TOPICS)


class NewTopic(NamedTuple):
    """A topic that is wanted. `overrides` are its own settings."""

    name: str
    partition_count: int
    overrides: Mapping[str, str]


class Topics:
    """All topics: by name, by id, and by the bytes of the name as requests carry them."""

    def __init__(
        self,
        store: MetadataStore,
        directory: DataDirectory,
        settings: CurrentSettings,
        new_id: Callable[[], bytes],
        require_room: Callable[[], None],
    ) -> None:
        self._store = store
        self._directory = directory
        self._current = settings
        self._new_id = new_id
        self._require_room = require_room
        settings.subscribe(self._configure)
        self.by_name: dict[str, Topic] = {}
        self.by_id: dict[bytes, Topic] = {}
        self.by_utf8: dict[bytes, Topic] = {}
        self.metric_names = MetricNames()
        self.version = 0
        """Grows with every topic that comes, grows or goes."""
        self._deleted: dict[str, None] = {}
        """Names of deleted topics that nobody has wanted back since, oldest first."""

    def __iter__(self) -> Iterator[Topic]:
        return iter(self.by_name.values())

    def load(self, *, now_ms: int) -> list[RecoveryReport]:
        """Open all that the store and the data directory hold; what was found on the way.

        Stored settings that cannot be used (those of a later Kafka, or damaged) are warned of; what
        is taken in their place (`config.stored`) is stored when the topic is next changed. Raises
        OSError.
        """
        for stored in self._store.topics():
            self._add(self._served(stored))
        reports = self._directory.open_logs(
            self._store, lambda stored: self.by_name[stored.name].settings, now_ms=now_ms
        )
        for stored in self._store.topics():
            topic = self.by_name[stored.name]
            for index in range(stored.partition_count):
                log = self._directory.logs[stored.name, index]
                topic.partitions.append(Partition(topic, index, log))
        return reports

    def _served(self, stored: StoredTopic) -> Topic:
        try:
            return Topic(stored.name, stored.topic_id, stored.configs, self._settings)
        except ConfigError:
            from config.stored import readable_topic_part  # few starts need it

            overrides, problems = readable_topic_part(self._settings, stored.configs)
            for problem in problems:
                logs.warning("a stored setting is not used", topic=stored.name, reason=str(problem))
            return Topic(stored.name, stored.topic_id, overrides, self._settings)

    def partition(self, name: str, index: int) -> Partition | None:
        """The partition, or None when there is no such topic or no such partition."""
        topic = self.by_name.get(name)
        if topic is None or not 0 <= index < len(topic.partitions):
            return None
        return topic.partitions[index]

    def create(
        self, name: str, partition_count: int, overrides: Mapping[str, str], *, now_ms: int
    ) -> Topic:
        """Create a topic; it can be used when this returns. The name has been checked.

        Raises ConfigError for its settings, OSError when the disk refuses; then there is no topic.
        """
        (made,) = self.create_all([NewTopic(name, partition_count, overrides)], now_ms=now_ms)
        if isinstance(made, OSError):
            raise made
        return made

    def create_all(self, wanted: Sequence[NewTopic], *, now_ms: int) -> list[Topic | OSError]:
        """Create topics, whose names have been checked and differ, with one sync for all of them.

        Each can be used when this returns; there is none where the disk refused its folders, and
        the error is in its place. Raises ConfigError for their settings, OSError when the disk
        refuses them all; then there is none of them.
        """
        self._require_room()
        topics = [
            Topic(one.name, self._new_id(), self._overrides(one), self._settings) for one in wanted
        ]
        half_made = [topic.name for topic in topics if self._store.get(topic.name) is not None]
        self._take_back(half_made)  # on a disk that did not even let it be undone
        self._directory.forget_deleted()
        stored = [
            StoredTopic(topic.name, topic.topic_id, one.partition_count, topic.overrides)
            for topic, one in zip(topics, wanted, strict=True)
        ]
        try:
            self._store.create_all(stored)
        except OSError:
            self._take_back_quietly(topics)
            raise
        made: list[Topic | OSError] = []
        for topic, kept in zip(topics, stored, strict=True):
            try:
                self._open(topic, kept, now_ms)
            except OSError as error:
                made.append(error)
            else:
                self._add(topic)
                made.append(topic)
        self._take_back_quietly(topics)
        return made

    def _take_back_quietly(self, topics: list[Topic]) -> None:
        """Undo what is half made of these; what the disk does not let go stays until the next one
        of its name is made."""
        with suppress(OSError):
            self._take_back(
                [
                    topic.name
                    for topic in topics
                    if topic.name not in self.by_name and self._store.get(topic.name) is not None
                ]
            )

    def _overrides(self, wanted: NewTopic) -> dict[str, str]:
        if wanted.name == OFFSETS_TOPIC:
            return {**offsets_topic_overrides(self._settings), **wanted.overrides}
        return dict(wanted.overrides)

    def _take_back(self, names: list[str]) -> None:
        """Remove what there is of topics that could not be made. Raises OSError, and then some of
        them are left."""
        refused, gone = None, []
        for name in names:
            stored = self._store.get(name)
            assert stored is not None
            try:
                for folder in self._directory.delete_topic(stored):
                    self._directory.remove_deleted(folder)
            except OSError as error:
                refused = error
            else:
                gone.append(name)
        if gone:
            for stored in self._store.remove_all(gone):
                self._store.forget_deleted(stored.topic_id)
        if refused is not None:
            raise refused

    def delete(self, topic: Topic) -> list[str]:
        """Delete a topic; fetches that wait on it are answered.

        Returns the folders that its data was set aside in, to be removed later. Raises OSError.
        """
        (folders,) = self.delete_all([topic])
        if isinstance(folders, OSError):
            raise folders
        return folders

    def delete_all(self, topics: Sequence[Topic]) -> list[list[str] | OSError]:
        """Delete topics with one sync, and have fetches that wait on them answered.

        Returns for each the folders that its data was set aside in, or why it was not; then the
        next start does it. Raises OSError.
        """
        stored = self._store.remove_all([topic.name for topic in topics])
        self.version += 1
        for topic in topics:
            del self.by_name[topic.name]
            del self.by_id[topic.topic_id]
            del self.by_utf8[topic.name.encode()]
            self.metric_names.remove(topic.name)
            self._deleted[topic.name] = None
            for partition in topic.partitions:
                partition.wake_all()
        while len(self._deleted) > MAX_DELETED_NAMES:
            del self._deleted[next(iter(self._deleted))]
        folders = self._directory.delete_topics(stored)
        self._tell_found()
        for one, found in zip(stored, folders, strict=True):
            if not isinstance(found, OSError):
                self._store.forget_deleted(one.topic_id)
        return folders

    def grow(self, topic: Topic, partition_count: int, *, now_ms: int) -> None:
        """Give a topic more partitions; existing ones are not touched.

        Raises OSError. Those that were stored by then come with the next growth, or start.
        """
        self._require_room()
        self._directory.forget_deleted()
        stored = self._store.get(topic.name)
        assert stored is not None
        if stored.partition_count < partition_count:
            stored = self._store.set_partition_count(topic.name, partition_count)
        self._open(topic, stored, now_ms)

    def configure(self, topic: Topic, overrides: Mapping[str, str]) -> None:
        """Replace a topic's settings. Raises ConfigError, and then nothing has changed."""
        TopicSettings.of(self._settings, overrides)
        self._store.set_configs(topic.name, dict(overrides))
        topic.apply(dict(overrides), self._settings)

    @property
    def _settings(self) -> BrokerSettings:
        return self._current.current

    def _configure(self, before: BrokerSettings, settings: BrokerSettings) -> None:
        if not differ_for_topics(before, settings):
            return
        for topic in self:
            try:
                topic.apply(topic.overrides, settings)
            except ConfigError as error:  # both came from elsewhere, and nobody compared them
                logs.warning(
                    "a topic keeps the settings it had", topic=topic.name, reason=error.reason
                )

    def forget_deletion(self, name: str) -> bool:
        """Forget that a topic of this name was deleted; whether one was, and is still missing."""
        if name not in self._deleted:
            return False
        del self._deleted[name]
        return True

    def create_automatically(self, name: str, *, now_ms: int) -> Topic:
        """The topic that a Metadata request asked for by name and that does not exist yet.

        Raises KafkaError with the code that belongs into the answer.
        """
        check_name(name, self.metric_names)
        if name == METADATA_TOPIC:  # kept by the controller, and no topic like others
            raise KafkaError(code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        settings = self._settings
        count = settings.num_partitions
        if name == OFFSETS_TOPIC:
            count = settings.offsets_topic_num_partitions
        return self.create(name, count, {}, now_ms=now_ms)

    def _open(self, topic: Topic, stored: StoredTopic, now_ms: int) -> None:
        for index in range(len(topic.partitions), stored.partition_count):
            log = self._directory.create_partition(stored, index, topic.settings, now_ms=now_ms)
            topic.partitions.append(Partition(topic, index, log))
            self._tell_found()
        self.version += 1

    def _tell_found(self) -> None:
        for report in self._directory.taken_reports():
            logs.warning("found in the data directory", finding=str(report))

    def _add(self, topic: Topic) -> None:
        self._deleted.pop(topic.name, None)
        self.by_name[topic.name] = topic
        self.by_id[topic.topic_id] = topic
        self.by_utf8[topic.name.encode()] = topic
        self.metric_names.add(topic.name)
