"""Incremental fetches (KIP-227): the broker remembers what a consumer reads, so that neither the
request nor the answer names a thousand partitions of which one has news.

    session 0, epoch -1    no session
    session 0, epoch 0     a full fetch that asks for a session
    session S, epoch 0     close S, a full fetch that asks for a new one
    session S, epoch -1    close S, a full fetch without one
    session S, epoch N     incremental: changed partitions are named, forgotten ones removed

Pure: identifiers and the time come in as arguments. Refusing a session (answering 0) is always
legal; clients then send full requests.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from protocol.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from protocol.messages.fetch import FetchRequest

FULL_EPOCH = 0
NO_SESSION_EPOCH = -1
MAX_EPOCH = 2**31 - 1
EVICT_AFTER_MS = 120_000
"""A session not used for so long gives way to a new one when the cache is full."""
MAX_PARTITIONS_PER_SESSION = 100_000
"""More partitions than this are answered without a session: its memory must have a bound."""


class FetchPartition:
    """One partition that a fetch reads. `topic` is its name up to v12, its id from v13.

    The last two fields remember what the client was told, so that an answer can leave out what has
    not changed.
    """

    __slots__ = (
        "current_leader_epoch",
        "fetch_offset",
        "index",
        "last_fetched_epoch",
        "max_bytes",
        "told_high_watermark",
        "told_log_start",
        "topic",
    )

    def __init__(
        self,
        topic: str | bytes,
        index: int,
        *,
        fetch_offset: int,
        max_bytes: int,
        current_leader_epoch: int,
        last_fetched_epoch: int,
    ) -> None:
        self.topic = topic
        self.index = index
        self.fetch_offset = fetch_offset
        self.max_bytes = max_bytes
        self.current_leader_epoch = current_leader_epoch
        self.last_fetched_epoch = last_fetched_epoch
        self.told_high_watermark = -1
        self.told_log_start = -1

    def update(self, other: FetchPartition) -> None:
        """Take over what a later request says about the same partition."""
        self.fetch_offset = other.fetch_offset
        self.max_bytes = other.max_bytes
        self.current_leader_epoch = other.current_leader_epoch
        self.last_fetched_epoch = other.last_fetched_epoch


class Session:
    """The partitions that one consumer reads."""

    __slots__ = ("epoch", "last_used_ms", "session_id", "uses_topic_ids", "wanted")

    def __init__(self, session_id: int, *, uses_topic_ids: bool, now_ms: int) -> None:
        self.session_id = session_id
        self.uses_topic_ids = uses_topic_ids
        self.epoch = 1
        self.last_used_ms = now_ms
        self.wanted: dict[tuple[str | bytes, int], FetchPartition] = {}


class Plan:
    """The partitions that one request reads, in their order; their session, and what the answer may
    omit."""

    __slots__ = ("incremental", "session_id", "wanted")

    def __init__(
        self, session_id: int, wanted: Iterable[FetchPartition], *, incremental: bool
    ) -> None:
        self.session_id = session_id
        self.wanted = list(wanted)
        self.incremental = incremental


class FetchSessions:
    """The bounded cache of sessions (`max.incremental.fetch.session.cache.slots`)."""

    def __init__(self, slots: int, random_id: Callable[[], int]) -> None:
        self._slots = slots
        self._random_id = random_id
        self._sessions: dict[int, Session] = {}

    def __len__(self) -> int:
        return len(self._sessions)

    def plan(
        self,
        *,
        session_id: int,
        epoch: int,
        wanted: list[FetchPartition],
        forgotten: list[tuple[str | bytes, int]],
        uses_topic_ids: bool,
        now_ms: int,
    ) -> Plan:
        """The partitions that this request reads. Raises KafkaError with the top-level code."""
        if epoch in (FULL_EPOCH, NO_SESSION_EPOCH):
            self._sessions.pop(session_id, None)
            if epoch == NO_SESSION_EPOCH:
                return Plan(0, wanted, incremental=False)
            return self._start(wanted, uses_topic_ids=uses_topic_ids, now_ms=now_ms)
        session = self._sessions.get(session_id)
        if session is None:
            raise KafkaError(
                f"fetch session {session_id} is not known",
                code=ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
            )
        if session.uses_topic_ids != uses_topic_ids:
            raise KafkaError(
                f"fetch session {session_id} mixes topic names and topic ids",
                code=ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR,
            )
        if epoch != session.epoch:
            raise KafkaError(
                f"fetch session {session_id} is at epoch {session.epoch}, not {epoch}",
                code=ErrorCode.INVALID_FETCH_SESSION_EPOCH,
            )
        session.epoch = 1 if epoch == MAX_EPOCH else epoch + 1
        session.last_used_ms = now_ms
        for key in forgotten:
            session.wanted.pop(key, None)
        for item in wanted:
            key = (item.topic, item.index)
            known = session.wanted.get(key)
            if known is None:
                session.wanted[key] = item
            else:
                known.update(item)
        return Plan(session_id, session.wanted.values(), incremental=True)

    def read_in(self, session_id: int) -> list[tuple[str | bytes, int]]:
        """The partitions that a session reads, by topic name or id; none if it is not known."""
        session = self._sessions.get(session_id)
        return [] if session is None else list(session.wanted)

    def end(self, session_id: int) -> None:
        """Forget a session that its client is not told of."""
        self._sessions.pop(session_id, None)

    def _start(self, wanted: list[FetchPartition], *, uses_topic_ids: bool, now_ms: int) -> Plan:
        if not wanted or len(wanted) > MAX_PARTITIONS_PER_SESSION or not self._make_room(now_ms):
            return Plan(0, wanted, incremental=False)
        session_id = self._random_id()
        while session_id <= 0 or session_id in self._sessions:
            session_id = self._random_id()
        session = Session(session_id, uses_topic_ids=uses_topic_ids, now_ms=now_ms)
        for item in wanted:
            session.wanted[item.topic, item.index] = item
        self._sessions[session_id] = session
        return Plan(session_id, session.wanted.values(), incremental=False)

    def _make_room(self, now_ms: int) -> bool:
        if len(self._sessions) < self._slots:
            return True
        oldest: Any = min(
            self._sessions.values(), key=lambda session: session.last_used_ms, default=None
        )
        if oldest is None or now_ms - oldest.last_used_ms < EVICT_AFTER_MS:
            return False
        del self._sessions[oldest.session_id]
        return True


def wanted_by(message: FetchRequest, *, by_id: bool) -> list[FetchPartition]:
    """The partitions that a request names, by the ids of their topics or by their names."""
    return [
        FetchPartition(
            topic.topic_id if by_id else topic.topic,
            partition.partition,
            fetch_offset=partition.fetch_offset,
            max_bytes=partition.partition_max_bytes,
            current_leader_epoch=partition.current_leader_epoch,
            last_fetched_epoch=partition.last_fetched_epoch,
        )
        for topic in message.topics
        for partition in topic.partitions
    ]
