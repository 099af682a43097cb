"""A cluster as a client sees it: topics and their ends, fetch, produce, committed offsets.

Brokers of every age are spoken to, from Kafka 0.8 to 4, each request in the newest version that
both sides know. Nothing here creates a topic but `create_topic`.
"""

from __future__ import annotations

import difflib
import time
from typing import TYPE_CHECKING, Any

from client import administering, committing, fetching, producing
from client.errors import ConnectionLost, NoSuchTopic, Refused, Unreachable
from client.fetching import EARLIEST, LATEST, Fetched, FetchFrom, OffsetOutOfRange
from client.idempotence import IdempotentProducer
from client.producing import EntryBytes, ProduceUnknown, Producing
from client.routing import RETRY_S, Again, Router, TopicPartition
from client.transactions import TIMEOUT_MS, TransactionalProducer
from protocol.errors import ErrorCode
from protocol.messages.list_offsets import ListOffsetsRequest
from protocol.schema import ZERO_UUID

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence
    from types import TracebackType
    from typing import Self

    from client.committing import Committed
    from client.connection import Connection
    from client.security import ClientSecurity

__all__ = [
    "EARLIEST",
    "LATEST",
    "Cluster",
    "Fetched",
    "OffsetOutOfRange",
    "ProduceUnknown",
    "Producing",
    "TopicPartition",
]

CLIENT_ID = b"triglot-pipeline"
FETCH_BYTES = 8 << 20
TOPICS_NAMED = 5
"""So many are named where none is like the one that is wanted."""
DEBUGGING_REPLICA = -2
"""ListOffsets by this one tells the end of the log itself."""


class Cluster:
    """A blocking client. Connects when first asked for something; a pickled copy connects anew.

    One thread may fetch and ask while another one produces; otherwise it is for one thread at a
    time. Requests that may be repeated safely, all but Produce, are repeated over leader changes
    and lost connections for `timeout_s` after the first failure; those that a quota holds back for
    as long as it does. Raises Unreachable, NoSuchTopic and Refused.
    """

    def __init__(
        self,
        servers: str,
        *,
        timeout_s: float = 30.0,
        patient: bool = False,
        reached_at: Mapping[int, str] | None = None,
        security: ClientSecurity | None = None,
        client_id: bytes = CLIENT_ID,
    ) -> None:
        """`servers` is a list as in `host:port,[::1]:9092`, tried in turn. Raises WrongUse.

        A cluster that has never answered fails at once; a `patient` client waits for it too.
        `reached_at` as in `Router`.
        """
        self.servers = servers
        self.timeout_s = timeout_s
        self.security = security
        self.client_id = client_id
        self._router = Router(
            servers,
            timeout_s=timeout_s,
            client_id=client_id,
            reached=patient,
            reached_at=reached_at,
            security=security,
        )
        self._fetched_ids: dict[str, bytes] = {}

    # What there is.

    def cluster_id(self) -> str | None:
        """None if the brokers are too old to have one (before Kafka 0.10.1)."""
        self._router.patiently(lambda: self._router.learn(()))
        return self._router.cluster_id

    def topics(self) -> dict[str, int]:
        """The number of partitions of each topic; internal topics are left out."""
        found = self._router.patiently(lambda: self._router.learn(None))
        return {name: len(topic.leaders) for name, topic in found.items() if not topic.internal}

    def existing(self, topics: Iterable[str]) -> list[str]:
        """Those of these topics that are there. Their leaders are known then: who reads or writes
        many topics asks for all of them at once, and not for each when its turn comes."""
        wanted = list(dict.fromkeys(topics))
        found = self._router.patiently(lambda: self._router.learn(wanted))
        return [name for name in wanted if name in found]

    def partitions(self, topics: Iterable[str]) -> list[TopicPartition]:
        """All partitions of these topics, sorted. Raises NoSuchTopic; creates nothing."""
        names = sorted(set(topics))

        def attempt() -> list[TopicPartition]:
            found = self._router.learn(names)
            for name in names:
                if name not in found:
                    raise no_topic(name, f"on {self.servers}", self.topics())
                if not found[name].leaders:
                    raise Again(Unreachable(f"topic '{name}' has no partitions yet"))
            return [TopicPartition(name, index) for name in names for index in found[name].leaders]

        return sorted(self._router.patiently(attempt))

    def offsets(
        self,
        partitions: Iterable[TopicPartition],
        timestamp_ms: int,
        *,
        committed_only: bool = False,
    ) -> dict[TopicPartition, int]:
        """EARLIEST, LATEST, or for a time (ms) the first offset at or after it, the end where there
        is none.

        With `committed_only` the end is where the first open transaction begins. Brokers that do
        not know this, before Kafka 0.11, have no transactions.

        Brokers before Kafka 0.10.1 know times of segments only, and so does any broker of topics in
        format 0. There it is the start of the last segment that was complete by then: nothing that
        was written after the time lies before it.
        """
        found: dict[TopicPartition, int] = {}
        left = set(partitions)

        def attempt() -> None:
            failure: Again | None = None
            for connection, places in self._by_leader(left).items():
                found_there = self._list(connection, places, timestamp_ms, committed_only)
                for place, (code, offset) in found_there.items():
                    if code:
                        failure = fetching.failed("ListOffsets", place, code)
                    else:
                        found[place] = offset
                        left.discard(place)
            if left:
                raise failure or Again(Unreachable(f"no answer about the offsets of {min(left)}"))

        self._router.patiently(attempt)
        for instead in (LATEST, EARLIEST):
            without = [
                place for place, offset in found.items() if offset == instead != timestamp_ms
            ]
            if without:
                found |= self.offsets(without, instead, committed_only=committed_only)
        return found

    def no_later(
        self, partitions: Iterable[TopicPartition], timestamp_ms: int
    ) -> dict[TopicPartition, int]:
        """Offsets below which no record has this time (ms) or a later one. Partitions are left out
        whose leader does not know the times of records: before Kafka 0.10.1, and in format 0."""
        wanted = sorted(partitions)

        def attempt() -> dict[TopicPartition, int]:
            found: dict[TopicPartition, int] = {}
            for connection, places in self._by_leader(wanted).items():
                if not connection.offers(ListOffsetsRequest, fetching.OF_SEGMENTS + 1):
                    continue
                told = fetching.list_offsets(connection, places, timestamp_ms, newest=None)
                found |= {place: offset for place, (code, offset) in told.items() if not code}
            return found

        found = self._router.patiently(attempt)
        none = [place for place, offset in found.items() if offset == LATEST]
        return found | self.offsets(none, LATEST)

    def appended(self, partition: TopicPartition) -> int:
        """The end of the leader's log, which LATEST tells only as far as it is replicated."""

        def attempt() -> int:
            connection, _ = self._router.leader(partition)
            found = fetching.list_offsets(
                connection, [partition], LATEST, newest=None, replica_id=DEBUGGING_REPLICA
            )
            code, offset = found.get(partition, (ErrorCode.UNKNOWN_SERVER_ERROR, 0))
            if code:
                raise fetching.failed("ListOffsets", partition, code)
            return offset

        return self._router.patiently(attempt)

    def topic_ids(self, topics: Iterable[str]) -> dict[str, bytes]:
        """The ids that these topics have now, of those that are there and have one."""
        names = sorted(set(topics))
        found = self._router.patiently(lambda: self._router.learn(names))
        return {
            name: topic.topic_id for name, topic in found.items() if topic.topic_id != ZERO_UUID
        }

    # Reading.

    def expect(self, topic: str, topic_id: bytes) -> None:
        """Fetch from the topic that had this id; from another of its name raise NoSuchTopic."""
        self._fetched_ids[topic] = topic_id

    def fetch(
        self,
        partition: TopicPartition,
        offset: int,
        *,
        max_bytes: int = FETCH_BYTES,
        max_wait_ms: int = 500,
        min_bytes: int = 1,
        committed_only: bool = False,
    ) -> Fetched:
        """The entries from an offset on, or nothing if nothing has come within `max_wait_ms`.

        About `max_bytes` at most, or one entry that is larger. Raises OffsetOutOfRange, and
        CorruptData for what cannot be an entry. A topic that was deleted since the first fetch from
        it, and made again, is another one: NoSuchTopic.
        """
        wanted = FetchFrom(partition, offset, max_bytes, max_wait_ms, min_bytes, committed_only)
        ids = self._fetched_ids

        def attempt() -> Fetched:
            connection, topic_id = self._router.leader(partition)
            # None is known where brokers have no ids, or not all of them yet.
            if topic_id != ZERO_UUID and ids.setdefault(partition.topic, topic_id) != topic_id:
                raise NoSuchTopic(f"{partition} was deleted, and made again, while it was read")
            return fetching.fetch(connection, topic_id, wanted)

        return self._router.patiently(attempt)

    # Writing.

    def formats(self, partition: TopicPartition) -> tuple[int, int]:
        """The oldest and the newest record format (magic) that Produce takes there.

        Kafka 0.8 and 0.9: (0, 0); 0.10: (0, 1); 0.11 to 3.x and triglot: (0, 2); 4: (2, 2).
        """
        leader = self._router.leader
        return self._router.patiently(
            lambda: producing.formats(leader(partition, producing.PURPOSE)[0])
        )

    def produce(
        self, partition: TopicPartition, entries: Sequence[EntryBytes], *, magic: int = 2
    ) -> int:
        """Write entries of one format to all replicas: the offset that the first record got.

        Raises Refused for what the broker does not take (`code` says why); entries after the one
        that was refused may have been stored. Raises ProduceUnknown. What a broker is only not
        ready for is sent again until the timeout.
        """
        deadline = time.monotonic() + self.timeout_s
        base_offset, left = -1, _sets(entries, magic)
        while True:
            begun = self._begin(partition, left, magic)
            try:
                found = self.finish_produce(begun)
            except ProduceUnknown as error:
                if not error.may_send_rest:
                    raise
                if time.monotonic() > deadline:
                    raise error.in_the_end() from None
                if error.stored and base_offset < 0:
                    base_offset = error.base_offset
                left = left[error.stored :]
            else:
                return found if base_offset < 0 else base_offset
            self._router.forget()
            time.sleep(RETRY_S)

    def begin_produce(
        self, partition: TopicPartition, entries: Sequence[EntryBytes], *, magic: int = 2
    ) -> Producing:
        """Send entries as `produce` does, and leave the answers to `finish_produce`.

        Several may be begun before the first is finished, for one partition too; they are finished
        in any order. Connections have at most `producing.MAX_IN_FLIGHT` requests on their way: one
        more waits for an answer. Raises what `produce` does but ProduceUnknown.
        """
        return self._begin(partition, _sets(entries, magic), magic)

    def finish_produce(self, begun: Producing) -> int:
        """Wait for the answers to what was begun: the offset that the first record got.

        Raises Refused and ProduceUnknown. After either, what was begun later for the same partition
        may have been stored all the same: finish that too, then look at the partition's end.
        """
        return producing.finish(begun)

    # Topics and groups.

    def create_topic(
        self, name: str, partitions: int, configs: Mapping[str, str] | None = None
    ) -> None:
        """Make it, with the brokers' default number of replicas, and wait until it has leaders.

        Raises Refused; `code` is 36 (TOPIC_ALREADY_EXISTS) if there is one of this name.
        """
        router = self._router
        self.cluster_id()
        unanswered = False

        def make() -> None:
            nonlocal unanswered
            try:
                administering.create_topic(router, name, partitions, configs or {})
            except ConnectionLost:
                unanswered = True
                raise
            except Refused as refused:
                if refused.code == ErrorCode.REQUEST_TIMED_OUT:
                    # It may be made all the same.
                    unanswered = True
                    raise Again(refused) from None
                if not unanswered or refused.code != ErrorCode.TOPIC_ALREADY_EXISTS:
                    raise

        def attempt() -> None:
            topic = router.learn((name,)).get(name)
            if topic is None or len(topic.leaders) < partitions or -1 in topic.leaders.values():
                raise Again(Unreachable(f"topic '{name}' was made and has no leaders yet"))

        router.patiently(make)
        router.patiently(attempt)

    def topic_configs(self, name: str, *, own: bool = False) -> dict[str, str]:
        """The settings of a topic that the broker tells, or only those set for this topic itself.

        Empty from a broker that does not tell (before Kafka 0.11). Raises NoSuchTopic.
        """
        router = self._router
        return router.patiently(lambda: administering.topic_configs(router, name, own=own))

    def commit_offsets(self, group: str, offsets: Mapping[TopicPartition, int]) -> None:
        """Commit the next offsets to read, as somebody outside the group.

        Raises Refused, for a group that has members too.
        """
        router = self._router
        router.patiently(
            lambda: committing.commit(committing.coordinator(router, group), group, offsets)
        )

    def committed_offsets(
        self, group: str, partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, int]:
        """The committed offset of each of these partitions that has one."""
        router, wanted = self._router, list(partitions)
        found = router.patiently(
            lambda: committing.committed(committing.coordinator(router, group), group, wanted)
        )
        return {place: one.offset for place, one in found.items()}

    def committed(self, group: str) -> dict[TopicPartition, Committed]:
        """All that a group has committed, once transactions that would change it have ended.

        Raises Refused.
        """
        router = self._router
        return router.patiently(
            lambda: committing.committed(
                committing.coordinator(router, group), group, None, stable=True
            )
        )

    def groups(self) -> dict[str, str]:
        """The state of each group by its id; "" from brokers that do not tell (before Kafka 2.6).

        Raises Refused.
        """
        router = self._router
        return router.patiently(lambda: committing.groups(router))

    def transactional_producer(
        self, transactional_id: str, *, timeout_ms: int = TIMEOUT_MS
    ) -> TransactionalProducer:
        """One that shares this client's connections, and so its thread; not initialized yet."""
        return TransactionalProducer(self._router, transactional_id, timeout_ms=timeout_ms)

    def idempotent_producer(self) -> IdempotentProducer:
        """One that shares this client's connections, and so its thread."""
        return IdempotentProducer(self._router)

    def close(self) -> None:
        """Close all connections. What is asked for next connects again."""
        self._router.close()

    def _begin(
        self, partition: TopicPartition, sets: Sequence[EntryBytes], magic: int
    ) -> Producing:
        router = self._router
        return router.patiently(lambda: producing.begin(router, partition, sets, magic=magic))

    def _by_leader(
        self, places: Iterable[TopicPartition]
    ) -> dict[Connection, list[TopicPartition]]:
        wanted = sorted(places)
        self._router.topics(place.topic for place in wanted)
        found: dict[Connection, list[TopicPartition]] = {}
        for place in wanted:
            connection, _ = self._router.leader(place)
            found.setdefault(connection, []).append(place)
        return found

    def _list(
        self,
        connection: Connection,
        places: list[TopicPartition],
        timestamp_ms: int,
        committed_only: bool,
    ) -> dict[TopicPartition, tuple[int, int]]:
        found = fetching.list_offsets(
            connection, places, timestamp_ms, newest=None, committed_only=committed_only
        )
        old = [
            place
            for place, (code, _) in found.items()
            if code == ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT
        ]
        if old:
            of_segments = fetching.OF_SEGMENTS
            found |= fetching.list_offsets(connection, old, timestamp_ms, newest=of_segments)
        return found

    def __getstate__(self) -> dict[str, Any]:
        return {
            "servers": self.servers,
            "timeout_s": self.timeout_s,
            "security": self.security,
            "client_id": self.client_id,
            # Who has answered once is worth waiting for.
            "patient": self._router.reached,
        }

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(**state)  # type: ignore[misc]

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def no_topic(name: str, where: str, known: Collection[str]) -> NoSuchTopic:
    """The failure that says so, with the topics that are `known` there, or the nearest of them."""
    near = difflib.get_close_matches(name, known, 1)
    if near:
        more = f"did you mean '{near[0]}'?"
    elif not known:
        more = "it has no topics"
    elif len(known) > TOPICS_NAMED:
        more = f"none of its {len(known)} topics has a similar name"
    else:
        more = f"it has {', '.join(sorted(known))}"
    return NoSuchTopic(f"there is no topic '{name}' {where}: {more}")


def _sets(entries: Sequence[EntryBytes], magic: int) -> list[EntryBytes]:
    found = producing.sets(entries, magic)
    if not found:
        raise ValueError("no entries")
    return found
