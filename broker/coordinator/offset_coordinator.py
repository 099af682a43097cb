"""Commits, fetches and removal of offsets, by members and by time.

Sets of offsets that go are written as tombstones, those of one group in one batch where the size
allows it. Looking for what has expired, or belongs to a deleted topic, is done in slices.
"""

from __future__ import annotations

from collections import deque
from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING, NamedTuple

from broker import logs
from broker.coordinator.classic.group import ClassicGroup
from broker.coordinator.consumer.group import ConsumerGroup
from broker.coordinator.expiry import expired_groups
from broker.coordinator.offsets.commit import Committed
from broker.slicing import Slicer
from protocol.errors import ErrorCode, KafkaError
from protocol.logdata.offsets import (
    GroupMetadataKey,
    OffsetCommitKey,
    commit_batch,
)
from protocol.records.layout import NO_PRODUCER_EPOCH, NO_PRODUCER_ID

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Iterable, Iterator, Sequence

    StoredElsewhere = Callable[[str, str, int], "StoredOffset | None"]

    from broker.coordinator.offsets.committed import CommittedOffsets
    from broker.coordinator.runtime import GroupRuntime
    from broker.coordinator.shard import Shard
    from broker.current_settings import CurrentSettings
    from broker.producing.markers import TransactionEnd
    from protocol.logdata.commits import Entry
    from protocol.logdata.offsets import Record
    from protocol.messages.offset_commit import OffsetCommitRequest
    from protocol.messages.txn_offset_commit import TxnOffsetCommitRequest
    from storage.log import Log

SLICE_S = 0.002
"""A sweep over all groups holds the loop for so long at a time."""
PAUSE_S = 0.01
"""And then lets others work for so long."""
TOMBSTONES_AT_ONCE = 5000
"""Bounds a batch of tombstones: their keys have to fit max.message.bytes of Kafka's readers."""
JUST_DELETED_MS = 60_000
"""A partition is on its way from one process to another for less."""
JUST_DELETED_MAX = 1000
MEMBER_EPOCHS_SINCE = 9
ONE_BY_ONE_MAX = 8
"""Partitions of a commit up to which the table is quicker one by one."""


class StoredOffset(NamedTuple):
    """An offset that a group has committed, and the log that the commit is in: to be synced before
    something is done that a crash does not take back. None for one of another process, which has
    synced it."""

    offset: int
    log: Log | None


class OffsetCoordinator:
    """The committed offsets of all groups. Belongs to the loop.

    `wall_ms` gives ms since 1970, `deletion_ms` the same of the clock by which things are deleted.
    """

    def __init__(
        self,
        runtime: GroupRuntime,
        *,
        settings: CurrentSettings,
        loop: asyncio.AbstractEventLoop,
        wall_ms: Callable[[], int],
        deletion_ms: Callable[[], int],
    ) -> None:
        self._runtime = runtime
        self._settings = settings
        self._wall_ms = wall_ms
        self._deletion_ms = deletion_ms
        self.elsewhere: StoredElsewhere | None = None
        """What groups have committed that other processes coordinate, where there are some. Raises
        KafkaError while it is not known."""
        self._slicer = Slicer(loop, "offsets", slice_s=SLICE_S, pause_s=PAUSE_S)
        self._deleted_topics: list[tuple[str, int]] = []
        """Names, and when they were deleted, ms since 1970."""
        self._just_deleted: deque[tuple[str, int]] = deque(maxlen=JUST_DELETED_MAX)
        """Those of which the offsets have been removed here, where other processes coordinate
        groups, too: one of a partition that moved meanwhile may have been looked at by none."""
        self.commits = 0
        self.expired = 0

    # Commits

    def check_commit(self, request: OffsetCommitRequest, version: int) -> Shard:
        """The shard to commit to, if this member may commit now. Raises KafkaError.

        A commit without generation and member is that of a consumer that shares out partitions by
        itself; it is taken as long as the group has no members.
        """
        group_id = request.group_id
        shard = self._runtime.shard(group_id)
        group = shard.state.groups.get(group_id)
        generation = request.generation_id_or_member_epoch
        if group is None:
            code = ErrorCode.NONE
            if generation >= 0:
                code = (
                    ErrorCode.GROUP_ID_NOT_FOUND
                    if version >= MEMBER_EPOCHS_SINCE
                    else ErrorCode.ILLEGAL_GENERATION
                )
        elif isinstance(group, ClassicGroup):
            code = group.check_commit(
                request.member_id, generation, request.group_instance_id, self._runtime.now_ms()
            )
        else:
            code = group.check_commit(
                request.member_id, generation, version, self._runtime.now_ms()
            )
        if code:
            raise KafkaError(code=ErrorCode(code))
        return shard

    def check_transactional(self, shard: Shard, request: TxnOffsetCommitRequest) -> None:
        """Whether offsets may be committed in a transaction by this member. Raises KafkaError.

        The first versions name no member, and are taken from anybody (KIP-447).
        """
        group_id = request.group_id
        group = shard.state.groups.get(group_id)
        generation, member_id = request.generation_id_or_member_epoch, request.member_id
        instance_id, now_ms = request.group_instance_id, self._runtime.now_ms()
        if group is None:
            code = ErrorCode.ILLEGAL_GENERATION if generation >= 0 else ErrorCode.NONE
        elif isinstance(group, ClassicGroup):
            code = group.check_commit(
                member_id, generation, instance_id, now_ms, transactional=True
            )
        elif generation == -1 and not member_id and instance_id is None:
            code = ErrorCode.NONE
        else:
            code = group.check_commit(member_id, generation, MEMBER_EPOCHS_SINCE, now_ms)
            if code == ErrorCode.STALE_MEMBER_EPOCH:
                code = ErrorCode.ILLEGAL_GENERATION
        if code:
            raise KafkaError(code=ErrorCode(code))

    def require(self, shard: Shard, group_id: str, conditions: list[tuple[str, int, int]]) -> None:
        """Check what a conditional commit expects: topic, partition, offset (-1 for none).

        Raises KafkaError: INVALID_REQUEST if anything else is committed now.
        """
        if not self._settings.current.offsets_commit_conditional_enable:
            raise KafkaError(
                "a conditional commit, and offsets.commit.conditional.enable is false",
                code=ErrorCode.INVALID_REQUEST,
            )
        for topic, index, expected in conditions:
            found = shard.state.offsets.get(group_id, topic, index)
            offset = -1 if found is None else found.offset
            if offset != expected:
                raise KafkaError(
                    f"group {group_id}: {topic}-{index} is at {offset}, expected was {expected}",
                    code=ErrorCode.INVALID_REQUEST,
                )

    def commit(
        self,
        shard: Shard,
        group_id: str,
        entries: list[Entry],
        *,
        now_ms: int,
        times_ms: Sequence[int] | None = None,
        producer: tuple[int, int] | None = None,
    ) -> None:
        """Store these as one batch and show them. Times are in ms; -1 among `times_ms` is now.

        With the id and epoch of a `producer` they are part of its transaction, and are shown when
        that is committed. Raises KafkaError; then none of them is stored.
        """
        if times_ms is not None:
            times_ms = [now_ms if time_ms < 0 else time_ms for time_ms in times_ms]
        producer_id, producer_epoch = producer or (NO_PRODUCER_ID, NO_PRODUCER_EPOCH)
        if producer is not None:
            known = shard.partition.log.producers.epoch_of(producer_id)
            if producer_epoch < known:
                raise KafkaError(
                    f"producer {producer_id} commits with epoch {producer_epoch}, seen was {known}",
                    code=ErrorCode.INVALID_PRODUCER_EPOCH,
                )
        try:
            batch = commit_batch(
                group_id,
                entries,
                now_ms=now_ms,
                commit_timestamps=times_ms,
                producer_id=producer_id,
                producer_epoch=producer_epoch,
            )
        except ValueError as error:
            raise KafkaError(str(error), code=ErrorCode.INVALID_COMMIT_OFFSET_SIZE) from error
        if len(batch) > shard.partition.topic.settings.max_message_bytes:
            raise KafkaError(
                f"a commit of {len(batch)} bytes is above max.message.bytes of the offsets topic",
                code=ErrorCode.INVALID_COMMIT_OFFSET_SIZE,
            )
        base_offset = shard.write(batch, now_ms=now_ms)
        self.commits += 1
        offsets = shard.state.offsets
        if producer is None and times_ms is None and len(entries) > ONE_BY_ONE_MAX:
            _commit_runs(offsets, group_id, entries, now_ms)
            return
        for number, entry in enumerate(entries):
            topic, index = entry[:2]
            committed = _committed(entry, now_ms if times_ms is None else times_ms[number])
            if producer is None:
                offsets.commit(group_id, topic, index, *committed)
            else:
                offsets.add_pending(
                    producer_id, base_offset + number, group_id, topic, index, committed
                )

    def end_transaction(self, index: int, end: TransactionEnd, *, if_open: bool) -> None:
        """Show or drop what a transaction committed for groups of this partition, with a marker.
        With `if_open` nothing is written where the transaction has committed nothing.

        Raises KafkaError; then the transaction is still open.
        """
        shard = self._runtime.shard_at(index)
        if shard is None:
            return
        if if_open and shard.partition.log.producers.open_since(end.producer_id) < 0:
            return
        shard.write_marker(
            end.producer_id,
            end.epoch,
            commit=end.commit,
            coordinator_epoch=end.coordinator_epoch,
        )
        shard.state.offsets.complete(end.producer_id, commit=end.commit)

    def stored_offset(self, group_id: str, topic: str, index: int) -> StoredOffset | None:
        """What a group has committed for a partition, outside of open transactions; None for
        nothing. What was stored and can't be read counts as nothing.

        Raises KafkaError: COORDINATOR_LOAD_IN_PROGRESS while it is not known.
        """
        if self.elsewhere is not None and self._runtime.is_elsewhere(group_id):
            return self.elsewhere(group_id, topic, index)
        shard = self._runtime.readable_shard(group_id)
        found = None if shard is None else shard.state.offsets.get(group_id, topic, index)
        if shard is None or found is None:
            return None
        return StoredOffset(found.offset, shard.partition.log)

    def check_fetch(
        self, shard: Shard | None, group_id: str, member_id: str | None, member_epoch: int
    ) -> None:
        """Whether a member that names itself may ask. Raises KafkaError."""
        group = None if shard is None else shard.state.groups.get(group_id)
        if isinstance(group, ConsumerGroup):
            code = group.check_fetch(member_id or "", member_epoch, self._runtime.now_ms())
            if code:
                raise KafkaError(code=ErrorCode(code))

    # Going

    def delete_group(self, group_id: str) -> Shard:
        """Delete a group that has no members, and its offsets. Raises KafkaError."""
        shard = self._runtime.existing_shard(group_id)
        group = None if shard is None else shard.state.groups.get(group_id)
        if shard is None or (group is None and not shard.state.offsets.knows(group_id)):
            raise KafkaError(f"Group {group_id} not found.", code=ErrorCode.GROUP_ID_NOT_FOUND)
        if group is not None and not group.is_empty():
            raise KafkaError(f"Group {group_id} is not empty.", code=ErrorCode.NON_EMPTY_GROUP)
        self.remove(shard, group_id, _all(shard, group_id))
        if isinstance(group, ConsumerGroup):
            self._runtime.store(shard, group.tombstones())
        else:
            # Also of one that has only offsets: Kafka would make a group of their tombstones.
            self._runtime.store(shard, [(GroupMetadataKey(group=group_id), None)])
        self._runtime.forget(group_id)
        return shard

    def to_delete_from(self, group_id: str) -> tuple[Shard, frozenset[str] | None]:
        """The shard of a group of which offsets are to be deleted, and the topics that may not be
        touched because members read them; None if that is not known, and may be any.

        Raises KafkaError: GROUP_ID_NOT_FOUND, NON_EMPTY_GROUP for one whose members do not say.
        """
        shard = self._runtime.existing_shard(group_id)
        group = None if shard is None else shard.state.groups.get(group_id)
        if shard is None or (group is None and not shard.state.offsets.knows(group_id)):
            raise KafkaError(code=ErrorCode.GROUP_ID_NOT_FOUND)
        if group is None or group.is_empty():
            return shard, frozenset()
        if isinstance(group, ClassicGroup) and group.protocol_type != "consumer":
            raise KafkaError(code=ErrorCode.NON_EMPTY_GROUP)
        topics = group.subscribed_topics()
        return shard, None if topics is None else frozenset(topics)

    def remove(self, shard: Shard, group_id: str, gone: list[tuple[str, int]]) -> None:
        """Remove the offsets of these (topic, partition). Raises KafkaError."""
        for start in range(0, len(gone), TOMBSTONES_AT_ONCE):
            records: list[Record] = [
                (OffsetCommitKey(group=group_id, topic=topic, partition=index), None)
                for topic, index in gone[start : start + TOMBSTONES_AT_ONCE]
            ]
            self._runtime.store(shard, records)

    def _remove_group(self, shard: Shard, group_id: str) -> None:
        """Have the log forget an empty group that is in no offset either."""
        group = shard.state.groups[group_id]
        if isinstance(group, ConsumerGroup):
            self._runtime.store(shard, group.tombstones())
        elif group.generation_id > 0:
            self._runtime.store(shard, [(GroupMetadataKey(group=group_id), None)])
        shard.state.groups.pop(group_id, None)
        self._runtime.forget(group_id)

    def topic_deleted(self, name: str) -> None:
        """Its offsets are to go: a topic of this name that is made later has others."""
        self._deleted_topics.append((name, self._wall_ms()))
        self.look_for_deleted()

    def look_for_expired(self) -> None:
        """Let go of offsets that have expired, and of groups of which nothing is left."""
        self._start_sweep(expiry=True)

    def _start_sweep(self, *, expiry: bool = False) -> None:
        if not self._slicer.is_running:
            self._slicer.run(self._sweep(expiry=expiry), self.look_for_deleted, self._not_swept)

    def _not_swept(self, error: Exception) -> None:
        """The next one begins anew."""
        if isinstance(error, KafkaError):
            logs.error_once_a_minute("offsets not removed", str(error), "groups")
        else:
            logs.fault_once_a_minute("the expiration of offsets failed", error, "groups")

    def shard_loaded(self) -> None:
        """Another part of the groups is known: see that it has no offsets of deleted topics."""
        since_ms = self._wall_ms() - JUST_DELETED_MS
        self._deleted_topics += [one for one in self._just_deleted if one[1] >= since_ms]
        self._just_deleted.clear()
        self.look_for_deleted()

    def look_for_deleted(self) -> None:
        """Let go of the offsets of deleted topics that are still there, once all are loaded."""
        if self._deleted_topics and not self._runtime.is_loading:
            self._start_sweep()

    def _sweep(self, *, expiry: bool) -> Iterator[None]:
        """One pass over all loaded shards, a step at a time. A topic is done with when all of them
        have been looked at."""
        topics = [] if self._runtime.is_loading else list(self._deleted_topics)
        shards = list(self._runtime.loaded_shards())
        for shard in shards:
            for _ in self._sweep_one(shard, topics, expiry=expiry):
                yield
                if not shard.loaded:
                    break  # its coordinator has resigned: it is for the next one
        if topics and any(shard not in shards for shard in self._runtime.loaded_shards()):
            return  # one that has come meanwhile has to be looked at, too
        if self.elsewhere is not None:
            self._just_deleted.extend(topics)
        del self._deleted_topics[: len(topics)]

    def _sweep_one(
        self, shard: Shard, topics: Iterable[tuple[str, int]], *, expiry: bool
    ) -> Iterator[None]:
        for topic, deleted_ms in topics:
            yield from self._remove_topic(shard, topic, deleted_ms)
        if expiry:
            yield from self._expire(shard)

    def _remove_topic(self, shard: Shard, topic: str, deleted_ms: int) -> Iterator[None]:
        """By the time of the commit, for a topic of this name may have been made since."""
        offsets = shard.state.offsets
        for found in offsets.find_topic(topic):
            for group_id in found:
                places = [
                    (name, index)
                    for name, index in _all(shard, group_id)
                    if name == topic
                    and (
                        (kept := offsets.get(group_id, topic, index)) is None
                        or kept.commit_ms <= deleted_ms
                    )
                ]
                self.remove(shard, group_id, places)
                yield
            yield

    def _expire(self, shard: Shard) -> Iterator[None]:
        retention_minutes = self._settings.current.offsets_retention_minutes
        retention_ms = retention_minutes * 60_000 if retention_minutes > 0 else -1
        for found in expired_groups(shard.state, self._deletion_ms(), retention_ms):
            if found is not None:
                group_id, gone = found
                self.remove(shard, group_id, gone)
                self.expired += len(gone)
            yield
        for group_id, group in list(shard.state.groups.items()):
            awaits_nobody = group.is_empty() and group.deadline() is None
            if awaits_nobody and not shard.state.offsets.knows(group_id):
                self._remove_group(shard, group_id)
                yield


def _committed(entry: Entry, time_ms: int) -> Committed:
    """A partition of a request as it is kept in memory."""
    _, _, offset, leader_epoch, metadata, expire_ms = entry
    if expire_ms != -1:
        leader_epoch = -1  # the form of the record that has a time to expire has no epoch
    return Committed(offset, leader_epoch, metadata or "", time_ms, expire_ms)


def _commit_runs(
    offsets: CommittedOffsets, group_id: str, entries: list[Entry], now_ms: int
) -> None:
    """Many partitions at once: those of a topic together, where they are only numbers."""
    for topic, run in groupby(entries, itemgetter(0)):
        some = list(run)
        _, indexes, values, leader_epochs, texts, expiries = zip(*some, strict=True)
        if any(texts) or max(expiries) != -1:
            for entry in some:
                offsets.commit(group_id, topic, entry[1], *_committed(entry, now_ms))
        else:
            offsets.commit_run(group_id, topic, indexes, values, leader_epochs, now_ms)


def _all(shard: Shard, group_id: str) -> list[tuple[str, int]]:
    """Partitions with an offset of the group, or with one that an open transaction may commit."""
    offsets = shard.state.offsets
    topics = offsets.topics(group_id)
    places = [(topic, index) for topic, indexes in topics.items() for index in indexes]
    return list(dict.fromkeys([*places, *offsets.pending(group_id)]))
