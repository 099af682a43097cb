"""Topics as this node keeps them: changes become records of the metadata log.

What a running broker asks for comes in steps (`storage.steps`), one change at a time: `append`,
`creation`, `removal`, `growth`, `configuration`, `reservation`. The same at once, under plain
names, is for a start, a stop and programs without a loop.

What is told of a topic here is what the data directory needs: its name, id, number of partitions
and settings, and the epoch in which this node leads each partition.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from protocol.logdata.metadata import (
    NO_LEADER,
    ConfigRecord,
    PartitionChangeRecord,
    ProducerIdsRecord,
    RemoveTopicRecord,
    TopicRecord,
)
from storage.identity import ZERO_UUID, uuid_of, uuid_text
from storage.metadata.delta import Delta
from storage.metadata.image import TOPIC_RESOURCE, PartitionState, partition_record
from storage.metadata.image_topics import ImageTopics
from storage.metadata.spread import Spread
from storage.steps import AT_ONCE, run_here
from storage.topics import Topic

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from protocol.logdata.metadata import MetadataRecord, PartitionRecord
    from storage.metadata.metadata_log import MetadataLog
    from storage.steps import Steps

PRODUCER_ID_BLOCK = 1000
"""Producer ids reserved on disk at once (as Kafka does): the rest of a block is lost in a restart,
so that none is ever handed out twice."""
DIRECTORIES_SINCE = 17
"""The metadata.version that says in which directory a partition is (KIP-858)."""
RECORDS_OF_A_BATCH = 1024
"""Partitions whose new epoch is told in one operation."""


class MetadataStore(ImageTopics):
    """A `TopicStore` whose changes are records. `node_id` leads the partitions that it makes, and
    keeps them in the directory `directory_id` (as printed)."""

    def __init__(
        self,
        log: MetadataLog,
        node_id: int,
        directory_id: str,
        now_ms: Callable[[], int],
        *,
        processes: int = 1,
    ) -> None:
        """`processes` of the node, among which the partitions are spread, have the ids from
        `node_id` on."""
        super().__init__(lambda: log.image, node_id)
        self.log = log
        self._processes = processes
        self._directory = uuid_of(directory_id)
        self._now_ms = now_ms
        self._next_producer_id = self._reserved = log.image.next_producer_id
        self.broker_epoch = -1
        """Epoch of this node's registration; -1 before it has registered."""

    def append(self, *operations: Sequence[MetadataRecord]) -> Steps[None]:
        """Write operations, none in part, and replay them.

        Raises MetadataNotStored (an OSError), and then nothing has changed; ValueError for a
        record that the metadata.version of the log does not have. `committed` is called at the end.
        """
        yield from self.log.append(*operations, now_ms=self._now_ms())
        yield from self.committed(Delta(*operations))

    # Topics

    def create(
        self, name: str, topic_id: bytes, partition_count: int, configs: Mapping[str, str]
    ) -> Topic:
        """Make a topic. Raises ValueError if the name or the id is taken."""
        topic = Topic(name, topic_id, partition_count, configs)
        self.create_all([topic])
        return topic

    def create_all(self, topics: Sequence[Topic]) -> None:
        """Make topics, at once; as `creation`."""
        run_here(self.creation(topics))

    def creation(
        self, topics: Sequence[Topic], assigned: Mapping[str, Sequence[int]] | None = None
    ) -> Steps[None]:
        """Make topics, whose names and ids differ; all are on the disk after one sync. The
        partitions of those `assigned`, by name, are led by these processes.

        Raises ValueError if a name or an id is taken, and then has made none of them.
        """
        operations: list[list[MetadataRecord]] = []
        for topic in topics:
            if topic.name in self.image.topics:
                raise ValueError(f"there is a topic {topic.name!r} already")
            if topic.topic_id in self.image.topics_by_id:
                raise ValueError(f"topic id {uuid_text(topic.topic_id)} is taken")
            configs = (_config(topic.name, key, value) for key, value in topic.configs.items())
            partitions = yield from self._new_partitions(
                topic.topic_id, 0, topic.partition_count, (assigned or {}).get(topic.name, ())
            )
            operations.append(
                [TopicRecord(name=topic.name, topic_id=topic.topic_id), *configs, *partitions]
            )
        yield from self.append(*operations)

    def _new_partitions(
        self, topic_id: bytes, first: int, count: int, assigned: Sequence[int]
    ) -> Steps[list[PartitionRecord]]:
        mine = (self._node_id,)
        state = PartitionState(mine, mine, self._node_id, 0, 0, (self._directory,))
        spread = self._spread()
        records: list[PartitionRecord] = []
        for start in range(first, count, AT_ONCE):
            some = range(start, min(start + AT_ONCE, count))
            for number in some:
                process = assigned[number - first] if assigned else spread.next()
                records.append(partition_record(topic_id, number, state._replace(process=process)))
            yield None
        return records

    def remove(self, name: str) -> Topic:
        (topic,) = self.remove_all([name])
        return topic

    def remove_all(self, names: Sequence[str]) -> list[Topic]:
        """Remove topics, at once."""
        return run_here(self.removal(names))

    def removal(self, names: Sequence[str]) -> Steps[list[Topic]]:
        """Remove topics, with one sync. Their settings go one by one, although they would go with
        them: Apache Kafka 3.9 and 4.3 give them to a topic of the same name that comes later in the
        log they replay."""
        topics = [self._topic(self.image.topics[name]) for name in names]
        operations: list[list[MetadataRecord]] = []
        for topic in topics:
            unset = (_config(topic.name, key, None) for key in topic.configs)
            operations.append([*unset, RemoveTopicRecord(topic_id=topic.topic_id)])
        yield from self.append(*operations)
        return topics

    def set_partition_count(self, name: str, partition_count: int) -> Topic:
        return run_here(self.growth(name, partition_count))

    def growth(self, name: str, partition_count: int, assigned: Sequence[int] = ()) -> Steps[Topic]:
        """Give a topic more partitions, led by the processes that they are `assigned` to."""
        state = self.image.topics[name]
        first = len(state.partitions)
        new = yield from self._new_partitions(state.topic_id, first, partition_count, assigned)
        yield from self.append(new)
        return self._topic(state)

    def set_configs(self, name: str, configs: Mapping[str, str]) -> Topic:
        return run_here(self.configuration(name, configs))

    def configuration(self, name: str, configs: Mapping[str, str]) -> Steps[Topic]:
        """Give a topic these settings and no others."""
        state = self.image.topics[name]
        now = self.image.configs.get((TOPIC_RESOURCE, name), {})
        changed = [
            _config(name, key, configs.get(key))
            for key in {**now, **configs}
            if now.get(key) != configs.get(key)
        ]
        if changed:
            yield from self.append(changed)
        return self._topic(state)

    # Epochs

    @property
    def led_since(self) -> int:
        """The epoch of the metadata log since which no other broker has led this directory."""
        return self.log.led_since

    def begin_epoch(
        self, registration: Sequence[MetadataRecord] = (), *, process: int | None = None
    ) -> None:
        """Lead every partition in a new epoch, one more than its last, and keep it here; before
        that, say who this node is, in an operation of its own. They are spread anew.

        Where a `process` comes back, and others have gone on, it is about what that one leads, and
        about moves that nobody will end.
        """
        spread = Spread(self._processes)

        def led(topic_id: bytes, number: int, state: PartitionState) -> PartitionChangeRecord:
            return self._led(topic_id, number, state, spread.next())

        if process is None:
            self._append_any(registration, *self._changes(led))
        else:
            again = self._changes(self._led_again, of=process, or_nobody=True)
            self._append_any(registration, *again)

    def new_epoch(self, process: int) -> Steps[None]:
        """Lead what a process leads in a new epoch, for it comes back after a crash."""
        yield from self.append(*self._changes(self._led_again, of=process))

    def release(self, moves: Iterable[tuple[bytes, int]]) -> Steps[None]:
        """Have nobody lead these partitions (by topic id and number), which are to be moved:
        whoever has led one closes it before that is followed."""
        states = {move: state for move in moves if (state := self._state(*move)) is not None}
        yield from self.append(
            [
                PartitionChangeRecord(
                    partition_id=number,
                    topic_id=topic_id,
                    leader=NO_LEADER,
                    process=state.process,
                )
                for (topic_id, number), state in states.items()
            ]
        )

    def move(self, moves: Mapping[tuple[bytes, int], int]) -> Steps[None]:
        """Have these partitions led by other processes, by their numbers, unless somebody leads one
        again."""
        yield from self.append(
            [
                self._led(topic_id, number, state, process)
                for (topic_id, number), process in moves.items()
                if (state := self._state(topic_id, number)) is not None
                and state.leader == NO_LEADER
            ]
        )

    def _state(self, topic_id: bytes, number: int) -> PartitionState | None:
        topic = self.image.topics_by_id.get(topic_id)
        return None if topic is None else topic.partitions.get(number)

    def _led_again(
        self, topic_id: bytes, number: int, state: PartitionState
    ) -> PartitionChangeRecord:
        return self._led(topic_id, number, state, state.process)

    def _spread(self) -> Spread:
        """The processes as they lead now."""
        return Spread(self._processes, self.image.topics.values() if self._processes > 1 else ())

    def resign(self, departure: Sequence[MetadataRecord] = ()) -> None:
        """Lead no partition any more, as Kafka does at a clean stop: Kafka 4 would take them away
        at its start, while it reads from them already. After that, say that this node has gone."""

        def resigned(topic_id: bytes, number: int, _: PartitionState) -> PartitionChangeRecord:
            return PartitionChangeRecord(partition_id=number, topic_id=topic_id, leader=NO_LEADER)

        self._append_any(*self._changes(resigned), departure)

    def _append_any(self, *operations: Sequence[MetadataRecord]) -> None:
        told = [operation for operation in operations if operation]
        if told:
            run_here(self.append(*told))

    def _changes(
        self,
        change: Callable[[bytes, int, PartitionState], PartitionChangeRecord],
        *,
        of: int | None = None,
        or_nobody: bool = False,
    ) -> list[list[PartitionChangeRecord]]:
        """A change of each partition, or of each `of` a process (and of those that are led by
        nobody), in operations of bounded size."""
        changes = [
            change(topic.topic_id, number, topic.partitions[number])
            for topic in self.image.topics.values()
            for number in sorted(topic.partitions)
            if of is None
            or (state := topic.partitions[number]).process == of
            or (or_nobody and state.leader == NO_LEADER)
        ]
        starts = range(0, len(changes), RECORDS_OF_A_BATCH)
        return [changes[start : start + RECORDS_OF_A_BATCH] for start in starts]

    def _led(
        self, topic_id: bytes, number: int, state: PartitionState, process: int
    ) -> PartitionChangeRecord:
        change = PartitionChangeRecord(
            partition_id=number,
            topic_id=topic_id,
            leader=self._node_id,
            directories=self._adopted(state),
            process=process,
        )
        if state.isr != (self._node_id,):
            # A Kafka 4 that was stopped has taken itself out; a leader is in sync by definition.
            change.isr, change.eligible_leader_replicas, change.last_known_elr = (
                [self._node_id], [], [],
            )  # fmt: skip
        return change

    def _adopted(self, state: PartitionState) -> list[bytes] | None:
        """The directories of a partition that is here and was said to be elsewhere (its directory
        was copied, or Apache Kafka had given it none yet); None where nothing has to be said."""
        level = self.image.metadata_version
        if level < DIRECTORIES_SINCE or self._node_id not in state.replicas:
            return None
        directories = list(state.directories) or [ZERO_UUID] * len(state.replicas)
        directories[state.replicas.index(self._node_id)] = self._directory
        return directories if tuple(directories) != state.directories else None

    # Producer ids

    @property
    def has_producer_ids(self) -> bool:
        """Whether there is one that may be given out without a change of the log."""
        return self._next_producer_id < self._reserved

    def next_producer_id(self) -> int:
        """A producer id that nobody has had; a block is reserved, at once, where none is left."""
        if not self.has_producer_ids:
            run_here(self.reservation())
        producer_id = self._next_producer_id
        self._next_producer_id += 1
        return producer_id

    def reservation(self) -> Steps[None]:
        """Reserve a block of producer ids, unless one has been reserved meanwhile."""
        if self.has_producer_ids:
            return
        start = max(self._reserved, self.image.next_producer_id)
        yield from self.append(
            [
                ProducerIdsRecord(
                    broker_id=self._node_id,
                    broker_epoch=self.broker_epoch,
                    next_producer_id=start + PRODUCER_ID_BLOCK,
                )
            ]
        )
        self._next_producer_id, self._reserved = start, start + PRODUCER_ID_BLOCK


def _config(topic: str, key: str, value: str | None) -> ConfigRecord:
    return ConfigRecord(resource_type=TOPIC_RESOURCE, resource_name=topic, name=key, value=value)
