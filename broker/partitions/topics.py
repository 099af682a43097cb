"""All topics: creating, growing and deleting them, and their settings.

A change is durable in the topic store first, then the directories follow, then it is visible
(`follow`, whoever made it); a crash in between is finished at the next start (a partition without
its directory gets one).

Changes come in steps (`storage.steps`): files are made and synced on a thread, and much work is
done in pieces. They are to be made one at a time, and whole.
"""

from __future__ import annotations

from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from broker import logs
from broker.partitions.internal_topics import (
    OFFSETS_TOPIC,
    TRANSACTION_TOPIC,
    offsets_topic_overrides,
    transaction_topic_overrides,
)
from broker.partitions.topic import Partition, Topic
from broker.partitions.topic_names import MetricNames, check_name
from config import ConfigError, TopicSettings
from protocol.errors import ErrorCode, KafkaError
from protocol.logdata.metadata_names import METADATA_TOPIC
from storage.metadata.image_topics import FollowedTopics
from storage.new_partitions import make_all
from storage.topics import Topic as StoredTopic

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from broker.current_settings import CurrentSettings
    from broker.partitions.handover import Handover
    from config import BrokerSettings
    from storage.data_dir import DataDirectory
    from storage.log import Log
    from storage.metadata.store import MetadataStore
    from storage.new_partitions import NewFolders
    from storage.reports import RecoveryReport
    from storage.steps import Steps

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
    """A topic that is wanted. `overrides` are its own settings; `assigned` are the processes that
    are to lead its partitions, by their numbers, if that is not left to the store."""

    name: str
    partition_count: int
    overrides: Mapping[str, str]
    assigned: Sequence[int] = ()


class Topics:
    """All topics: by name, by id, and by the bytes of the name as requests carry them."""

    def __init__(
        self,
        store: MetadataStore | FollowedTopics,
        directory: DataDirectory,
        settings: CurrentSettings,
        new_id: Callable[[], bytes],
        require_room: Callable[[], None],
        *,
        now_ms: Callable[[], int],
        removed: Callable[[Topic, list[str]], None],
    ) -> None:
        """`removed` is told of a topic that has gone, and of the folders that have its data, which
        are to be removed later. `now_ms` gives ms since 1970."""
        self._store = store
        self._directory = directory
        self._current = settings
        self._new_id = new_id
        self._require_room = require_room
        self._now_ms = now_ms
        self._removed = removed
        settings.subscribe(self._configure)
        self.by_name: dict[str, Topic] = {}
        self.by_id: dict[bytes, Topic] = {}
        self.by_utf8: dict[bytes, Topic] = {}
        self.metric_names = MetricNames()
        self.version = 0
        """Grows with every topic that comes, grows or goes."""
        self.are_open = False
        """Whether a start has opened all of them."""
        self._deleted: dict[str, None] = {}
        """Names of deleted topics that nobody has wanted back since, oldest first."""
        self._wanted: dict[bytes, Topic] = {}
        """Topics that are being made, by their ids."""
        self.refused: dict[bytes, OSError] = {}
        """What the disk did not let follow of what the store says, by the topic's id; whoever has
        asked for it takes it out."""
        self.handover: Handover | None = None
        """Told of partitions that move to another process, where there are several."""

    def __iter__(self) -> Iterator[Topic]:
        return iter(self.by_name.values())

    def load(self, *, now_ms: int) -> Steps[list[RecoveryReport]]:
        """Open all that the store and the data directory, which has been begun, hold; what was
        found on the way.

        Stored settings that cannot be used (those of a later Kafka, or damaged) are warned of; what
        is taken in their place (`config.stored`) is stored when the topic is next changed. Raises
        OSError.
        """
        for stored in self._store.topics():
            self._add(self._served(stored))
        reports = yield from self._directory.opening(
            self._store, lambda stored: self.by_name[stored.name].settings, now_ms=now_ms
        )
        for stored in self._store.topics():
            topic = self.by_name[stored.name]
            for index in range(stored.partition_count):
                log = self._directory.logs.get((stored.name, index))
                if log is None:
                    log = self._directory.elsewhere(stored, index, topic.settings)
                topic.partitions.append(self._partition(topic, index, log))
        self.are_open = True
        return reports

    def _served(self, stored: StoredTopic) -> Topic:
        try:
            return Topic(stored.name, stored.topic_id, stored.configs, self._settings)
        except ConfigError:
            overrides = self._readable(stored)
            return Topic(stored.name, stored.topic_id, overrides, self._settings)

    def _readable(self, stored: StoredTopic) -> dict[str, str]:
        """The stored settings of a topic, as far as they can be used."""
        from config.stored import readable_topic_part  # few topics need it

        overrides, problems = readable_topic_part(self._settings, stored.configs)
        for problem in problems:
            logs.warning("a stored setting is not used", topic=stored.name, reason=str(problem))
        return overrides

    def partition(self, name: str, index: int) -> Partition | None:
        """The partition, or None when there is no such topic or no such partition."""
        topic = self.by_name.get(name)
        if topic is None or not 0 <= index < len(topic.partitions):
            return None
        return topic.partitions[index]

    def led(self, name: str, index: int) -> Partition:
        """The partition, which is led here and may be read. Raises KafkaError:
        UNKNOWN_TOPIC_OR_PARTITION, and what its log says, such as NOT_LEADER_OR_FOLLOWER."""
        partition = self.partition(name, index)
        if partition is None:
            raise KafkaError(code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        partition.log.require_available()
        return partition

    def create(self, name: str, partition_count: int, overrides: Mapping[str, str]) -> Steps[Topic]:
        """Create a topic; it can be used when this returns. The name has been checked.

        Raises ConfigError for its settings, OSError when the disk refuses; then there is no topic.
        """
        (made,) = yield from self.create_all([NewTopic(name, partition_count, overrides)])
        if isinstance(made, OSError):
            raise made
        return made

    def create_all(self, wanted: Sequence[NewTopic]) -> Steps[list[Topic | OSError]]:
        """Create topics, whose names have been checked and differ, with one sync for all of them.

        Each can be used at the end; there is none where the disk refused its folders, and the error
        is in its place. Raises ConfigError for their settings, OSError when the disk refuses them
        all; then there is none of them.
        """
        self._require_room()
        topics = []
        for one in wanted:
            topics.append(Topic(one.name, self._new_id(), self._overrides(one), self._settings))
            yield None
        half_made = [topic.name for topic in topics if self._store.get(topic.name) is not None]
        yield from self._take_back(half_made)  # on a disk that did not even let it be undone
        yield from self._directory.forgetting_deleted()
        self._wanted = {topic.topic_id: topic for topic in topics}
        try:
            yield from self._store.creation(
                [
                    StoredTopic(topic.name, topic.topic_id, one.partition_count, topic.overrides)
                    for topic, one in zip(topics, wanted, strict=True)
                ],
                {one.name: one.assigned for one in wanted if one.assigned},
            )
        except OSError:
            yield from self._take_back_quietly(topics)
            raise
        finally:
            self._wanted = {}
        made = [self.refused.pop(topic.topic_id, topic) for topic in topics]
        yield from self._take_back_quietly(topics)
        return made

    def follow(self, topic_ids: Iterable[bytes]) -> Steps[None]:
        """Make what is here as the store says of these topics: new ones come, others grow or go,
        and their partitions are led in the epochs of the store. What the disk does not let follow
        is in `refused`."""
        gone, new = [], []
        for topic_id in topic_ids:
            stored, topic = self._store.by_id(topic_id), self.by_id.get(topic_id)
            if stored is not None and topic is not None:
                yield from self._follow(topic, stored)
            elif stored is not None:
                new.append(stored)
            elif topic is not None:
                gone.append(topic)
        if gone:
            yield from self._remove(gone)
        if new:
            yield from self._make(new)

    def _follow(self, topic: Topic, stored: StoredTopic) -> Steps[None]:
        """Let a topic grow, and lead its partitions in the epochs of the store."""
        for partition in topic.partitions:
            if self._directory.leads(topic.name, partition.index) == partition.led_elsewhere:
                yield from self._move(partition, stored)
            partition.leader_id = self._store.leader_id(topic.name, partition.index)
            epoch = self._store.leader_epoch(topic.name, partition.index)
            if epoch != partition.log.leader_epoch:
                partition.log.set_leader_epoch(epoch)
        if stored.partition_count == len(topic.partitions):
            return
        folders = self._directory.new_folders(stored, len(topic.partitions))
        yield folders.make
        try:
            yield from self._open(topic, stored, folders)
        except OSError as error:
            self.refused[topic.topic_id] = error

    def _move(self, partition: Partition, stored: StoredTopic) -> Steps[None]:
        """Close a partition that is no longer led here, or open one that is from now on. One that
        the disk does not let open is `refused`."""
        from storage import handing_over  # most serve alone

        topic, index, log = partition.topic, partition.index, partition.log
        assert self.handover is not None
        if not partition.led_elsewhere:
            nobody_uses_it = self.handover.leaves(log)
            partition.log = self._directory.elsewhere(stored, index, topic.settings)
            partition.wake_all()
            self.handover.moved(partition)
            yield nobody_uses_it
            yield from handing_over.closing(self._directory, topic.name, index)
            return
        try:
            reports = yield from handing_over.opening(
                self._directory,
                stored,
                index,
                topic.settings,
                led_since=self._store.led_since,
                now_ms=self._now_ms(),
            )
        except OSError as error:
            self.refused[topic.topic_id] = error
            return
        partition.log = self._directory.logs[topic.name, index]
        self.handover.moved(partition)
        for report in reports:
            logs.warning("found in the data directory", finding=str(report))

    def _make(self, new: Sequence[StoredTopic]) -> Steps[None]:
        """Make the folders of new topics, all in one job, and show the topics."""
        folders = [self._directory.new_folders(stored, 0) for stored in new]
        yield partial(make_all, folders)
        for stored, of_topic in zip(new, folders, strict=True):
            topic = self._wanted.get(stored.topic_id) or self._served(stored)
            try:
                yield from self._open(topic, stored, of_topic)
            except OSError as error:
                self.refused[topic.topic_id] = error
            else:
                self._add(topic)

    def _take_back_quietly(self, topics: list[Topic]) -> Steps[None]:
        """Undo what is half made of these; what the disk does not let go stays until the next one
        of its name is made."""
        with suppress(OSError):
            yield from self._take_back(
                [
                    topic.name
                    for topic in topics
                    if topic.name not in self.by_name and self._store.get(topic.name) is not None
                ]
            )

    def _overrides(self, wanted: NewTopic) -> dict[str, str]:
        if wanted.name == OFFSETS_TOPIC:
            return {**offsets_topic_overrides(self._settings), **wanted.overrides}
        if wanted.name == TRANSACTION_TOPIC:
            return {**transaction_topic_overrides(self._settings), **wanted.overrides}
        return dict(wanted.overrides)

    def _take_back(self, names: list[str]) -> Steps[None]:
        """Remove what there is of topics that could not be made. Raises OSError, and then some of
        them are left."""
        if not names:
            return
        refused, gone = None, []
        found = [stored for name in names if (stored := self._store.get(name)) is not None]
        for stored, folders in zip(
            found, (yield from self._directory.deletion(found)), strict=True
        ):
            try:
                if isinstance(folders, OSError):
                    raise folders
                yield partial(self._remove_all, folders)
            except OSError as error:
                refused = error
            else:
                gone.append(stored.name)
        if gone:
            for stored in (yield from self._store.removal(gone)):
                self._store.forget_deleted(stored.topic_id)
        if refused is not None:
            raise refused

    def _remove_all(self, folders: Sequence[str]) -> None:
        """Remove these; on any thread. Raises OSError."""
        for folder in folders:
            self._directory.remove_deleted(folder)

    def delete(self, topic: Topic) -> Steps[None]:
        """Delete a topic; fetches that wait on it are answered. Raises OSError; if its folders are
        why, it is deleted all the same, and the next start removes them."""
        (refused,) = yield from self.delete_all([topic])
        if refused is not None:
            raise refused

    def delete_all(self, topics: Sequence[Topic]) -> Steps[list[OSError | None]]:
        """Delete topics with one sync, and have fetches that wait on them answered.

        Returns for each why its data was not set aside, if it was not; then the next start does it.
        Raises OSError, and then none is deleted.
        """
        yield from self._store.removal([topic.name for topic in topics])
        return [self.refused.pop(topic.topic_id, None) for topic in topics]

    def _remove(self, topics: Sequence[Topic]) -> Steps[None]:
        """Take away topics that are out of the store."""
        self.version += 1
        stored = []
        for topic in topics:
            del self.by_name[topic.name]
            del self.by_id[topic.topic_id]
            del self.by_utf8[topic.name.encode()]
            self.metric_names.remove(topic.name)
            self._deleted[topic.name] = None
            for partition in topic.partitions:
                partition.wake_all()
            stored.append(StoredTopic(topic.name, topic.topic_id, len(topic.partitions), {}))
        while len(self._deleted) > MAX_DELETED_NAMES:
            del self._deleted[next(iter(self._deleted))]
        folders: Sequence[list[str] | OSError]
        try:
            folders = yield from self._directory.deletion(stored)
        except OSError as error:
            folders = [error] * len(topics)
        self._tell_found()
        for topic, found in zip(topics, folders, strict=True):
            if isinstance(found, OSError):
                self.refused[topic.topic_id] = found
            else:
                self._store.forget_deleted(topic.topic_id)
                self._removed(topic, found)

    def grow(self, topic: Topic, count: int, assigned: Sequence[int] = ()) -> Steps[None]:
        """Give a topic more partitions, `assigned` as in NewTopic; existing ones are not touched.

        Raises OSError. Those that were stored by then come with the next growth, or start.
        """
        self._require_room()
        yield from self._directory.forgetting_deleted()
        stored = self._store.get(topic.name)
        assert stored is not None
        if stored.partition_count < count:
            yield from self._store.growth(topic.name, count, assigned)
        else:
            yield from self._follow(topic, stored)
        refused = self.refused.pop(topic.topic_id, None)
        if refused is not None:
            raise refused

    def configure(self, topic: Topic, overrides: Mapping[str, str]) -> Steps[None]:
        """Replace a topic's settings. Raises ConfigError, and then nothing has changed."""
        TopicSettings.of(self._settings, overrides)
        yield from self._store.configuration(topic.name, dict(overrides))

    def take_settings(self, name: str) -> None:
        """Let the settings hold that the store has for the topic of this name, if it is here."""
        topic, stored = self.by_name.get(name), self._store.get(name)
        if topic is None or stored is None or topic.overrides == stored.configs:
            return
        try:
            topic.apply(stored.configs, self._settings)
        except ConfigError:
            topic.apply(self._readable(stored), self._settings)

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

    def create_automatically(self, name: str) -> Steps[Topic]:
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
        elif name == TRANSACTION_TOPIC:
            count = settings.transaction_state_log_num_partitions
        if isinstance(self._store, FollowedTopics):
            yield partial(self._store.make_elsewhere, name, count)
            return self.by_name[name]
        return (yield from self.create(name, count, {}))

    def _open(self, topic: Topic, stored: StoredTopic, folders: NewFolders) -> Steps[None]:
        """Open the partitions that a topic has not yet. They are there together, or those before
        the one for which the disk refused. Raises OSError."""
        opened: list[Partition] = []
        try:
            for index in range(len(topic.partitions), stored.partition_count):
                if not self._directory.leads(stored.name, index):
                    log = self._directory.elsewhere(stored, index, topic.settings)
                    opened.append(self._partition(topic, index, log))
                    continue
                if index not in folders.made:
                    if folders.error is not None:
                        raise folders.error
                    yield from self._directory.clear(stored, index)
                log = self._directory.create_partition(
                    stored, index, topic.settings, now_ms=self._now_ms(), folders=folders
                )
                opened.append(self._partition(topic, index, log))
                yield None
        finally:
            topic.partitions.extend(opened)
            self.version += 1
            self._tell_found()

    def _partition(self, topic: Topic, index: int, log: Log) -> Partition:
        return Partition(topic, index, log, leader_id=self._store.leader_id(topic.name, index))

    def _tell_found(self) -> None:
        for report in self._directory.taken_reports():
            logs.warning("found in the data directory", finding=str(report))

    def _add(self, topic: Topic) -> None:
        self._deleted.pop(topic.name, None)
        self.by_name[topic.name] = topic
        self.by_id[topic.topic_id] = topic
        self.by_utf8[topic.name.encode()] = topic
        self.metric_names.add(topic.name)
