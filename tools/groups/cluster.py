"""The brokers of a cluster, each asked for what only it knows: groups their coordinator, partitions
their leader."""

from __future__ import annotations

from threading import Event
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from broker.clock import monotonic_s
from protocol.client import said
from protocol.errors import ErrorCode
from protocol.messages.fetch import FetchRequest, FetchResponse
from protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from protocol.messages.list_offsets import ListOffsetsResponse
from protocol.messages.metadata import MetadataRequest, MetadataResponse
from protocol.partitions import TopicPartition as TopicPartition
from protocol.partitions import by_topic, list_offsets
from tools.groups.connection import Connection, NotDone

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping
    from types import TracebackType
    from typing import Self

Answer = TypeVar("Answer")

LATEST, EARLIEST = -1, -2
"""Times that ListOffsets takes for the end and the start of a log."""
RETRY_S = 0.1
SOON = frozenset({
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
})  # fmt: skip
"""What a coordinator says that is about to be one: asked again until the timeout."""

# From version 4 on naming a topic that does not exist need not make it (Kafka 0.11).
METADATA_MAKES_NO_TOPICS = 4
# Batches of format 2; after 12 topics go by id only.
FETCH_FORMAT_2, FETCH_BY_NAME = 4, 12
LIST_ONE_OFFSET = 1


class Found(NamedTuple):
    """An offset in a log and the timestamp (ms) of the record there; -1 for none."""

    offset: int
    timestamp_ms: int


class Topic(NamedTuple):
    """`leaders` has the node id of the leader of each partition, -1 for none."""

    topic_id: bytes
    leaders: dict[int, int]


class Cluster:
    """Connections are made when first needed, and closed together.

    Raises NotDone for whatever ends the command. What concerns one partition only is returned: an
    ErrorCode in the place of its result.
    """

    def __init__(self, host: str, port: int, *, timeout_s: float) -> None:
        self._timeout_s = timeout_s
        self.bootstrap = Connection(host, port, timeout_s=timeout_s)
        self._connections = {(host, port): self.bootstrap}
        self._brokers: dict[int, tuple[str, int]] = {}
        self._topics: dict[str, Topic] = {}

    def brokers(self) -> list[Connection]:
        """A connection to each broker that the cluster has now."""
        self._ask_metadata([])
        return [self._connection(*address) for address in self._brokers.values()]

    def topics(self, names: Iterable[str]) -> dict[str, Topic]:
        """Those of these topics that exist."""
        wanted = list(dict.fromkeys(names))
        unknown = [name for name in wanted if name not in self._topics]
        if unknown:
            self._ask_metadata(unknown)
        return {name: self._topics[name] for name in wanted if name in self._topics}

    def topic_names(self) -> dict[bytes, str]:
        """The name of every topic by its id; empty where brokers have no ids (before 2.8)."""
        self._ask_metadata(None)
        return {topic.topic_id: name for name, topic in self._topics.items() if any(topic.topic_id)}

    def coordinated(
        self, group: str, ask: Callable[[Connection], Answer], code_of: Callable[[Answer], int]
    ) -> Answer:
        """What the coordinator of the group answers, asked again while it is only about to be it.

        Its other errors are the caller's.
        """

        def attempt() -> tuple[int, Answer | None]:
            code, connection = self._find_coordinator(group)
            if connection is None:
                return code, None
            answer = ask(connection)
            return code_of(answer), answer

        code, answer = self.patiently(attempt)
        if answer is None or code in SOON:
            raise NotDone(f"group '{group}': {said(code)}")
        return answer

    def patiently(self, attempt: Callable[[], tuple[int, Answer]]) -> tuple[int, Answer]:
        """What an attempt gives, a code and an answer; made again until the timeout while the code
        is SOON."""
        deadline = monotonic_s() + self._timeout_s
        while True:
            code, answer = attempt()
            if code not in SOON or monotonic_s() > deadline:
                return code, answer
            Event().wait(RETRY_S)

    def offsets(
        self, wanted: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, Found | ErrorCode]:
        """For each partition the first record at or after a time (ms), or LATEST, or EARLIEST.

        Offset -1 if there is none so late. The end is the high watermark: records of transactions
        that are still open count.
        """
        results: dict[TopicPartition, Found | ErrorCode] = {}
        for connection, places in self._by_leader(wanted, results):
            request = list_offsets({place: wanted[place] for place in places})
            answer = connection.call(request, ListOffsetsResponse, oldest=LIST_ONE_OFFSET)
            for of_topic in answer.topics:
                for entry in of_topic.partitions:
                    place = TopicPartition(of_topic.name, entry.partition_index)
                    results[place] = _code(entry.error_code) or Found(entry.offset, entry.timestamp)
        return {place: results.get(place, ErrorCode.UNKNOWN_SERVER_ERROR) for place in wanted}

    def fetch(
        self, wanted: Mapping[TopicPartition, int], *, partition_bytes: int, max_bytes: int
    ) -> dict[TopicPartition, bytes | ErrorCode]:
        """What is stored from an offset on, for each partition: whole entries, perhaps a cut one.

        The first entry may begin before the offset. At least one partition of each leader gets a
        whole entry whatever the sizes are (KIP-74), the others may get nothing.
        """
        results: dict[TopicPartition, bytes | ErrorCode] = {}
        for connection, places in self._by_leader(wanted, results):
            request = FetchRequest(max_wait_ms=0, min_bytes=0, max_bytes=max_bytes, topics=[])
            for topic, partitions in by_topic(places).items():
                entries = [
                    FetchRequest.Topic.Partition(
                        partition=index,
                        fetch_offset=wanted[TopicPartition(topic, index)],
                        partition_max_bytes=partition_bytes,
                    )
                    for index in partitions
                ]
                request.topics.append(FetchRequest.Topic(topic=topic, partitions=entries))
            answer = self._fetched(connection, request)
            for of_topic in answer.responses:
                for entry in of_topic.partitions:
                    place = TopicPartition(of_topic.topic, entry.partition_index)
                    results[place] = _code(entry.error_code) or bytes(entry.records or b"")
        return {place: results.get(place, ErrorCode.UNKNOWN_SERVER_ERROR) for place in wanted}

    def close(self) -> None:
        """Close all connections."""
        for connection in self._connections.values():
            connection.close()

    def _find_coordinator(self, group: str) -> tuple[int, Connection | None]:
        request = FindCoordinatorRequest(key=group, coordinator_keys=[group])
        answer = self.bootstrap.call(request, FindCoordinatorResponse)
        found = answer.coordinators[0] if answer.coordinators else answer
        if found.error_code:
            return found.error_code, None
        return 0, self._connection(found.host, found.port)

    def _by_leader(
        self,
        wanted: Iterable[TopicPartition],
        results: dict[TopicPartition, Found | ErrorCode] | dict[TopicPartition, bytes | ErrorCode],
    ) -> Iterator[tuple[Connection, list[TopicPartition]]]:
        """Partitions by the broker to ask; what has no such broker gets its code in `results`."""
        by_leader: dict[int, list[TopicPartition]] = {}
        places = sorted(wanted)
        topics = self.topics(place.topic for place in places)
        for place in places:
            topic = topics.get(place.topic)
            leader = topic.leaders.get(place.partition) if topic else None
            if leader is None:
                results[place] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            elif leader not in self._brokers:
                results[place] = ErrorCode.LEADER_NOT_AVAILABLE
            else:
                by_leader.setdefault(leader, []).append(place)
        for leader, of_leader in by_leader.items():
            yield self._connection(*self._brokers[leader]), of_leader

    def _fetched(self, connection: Connection, request: FetchRequest) -> FetchResponse:
        while True:
            answer = connection.call(
                request, FetchResponse, oldest=FETCH_FORMAT_2, newest=FETCH_BY_NAME
            )
            if answer.error_code:
                raise NotDone(f"{connection.address}: Fetch: {said(answer.error_code)}")
            if answer.responses or not answer.throttle_time_ms:
                return answer
            # Beyond its quota a client gets an empty answer at once, the next one later (KIP-219).
            Event().wait(RETRY_S)

    def _ask_metadata(self, names: list[str] | None) -> None:
        """Learn of brokers and of these topics; None means all topics."""
        asked = None if names is None else [MetadataRequest.Topic(name=name) for name in names]
        request = MetadataRequest(topics=asked, allow_auto_topic_creation=False)
        answer = self.bootstrap.call(request, MetadataResponse, oldest=METADATA_MAKES_NO_TOPICS)
        if answer.error_code:
            raise NotDone(f"{self.bootstrap.address}: Metadata: {said(answer.error_code)}")
        self._brokers = {broker.node_id: (broker.host, broker.port) for broker in answer.brokers}
        for topic in answer.topics:
            if topic.error_code == 0 and topic.name is not None:
                leaders = {entry.partition_index: entry.leader_id for entry in topic.partitions}
                self._topics[topic.name] = Topic(topic.topic_id, leaders)

    def _connection(self, host: str, port: int) -> Connection:
        connection = self._connections.get((host, port))
        if connection is None:
            try:
                connection = Connection(host, port, timeout_s=self._timeout_s)
            except NotDone as error:
                raise NotDone(f"{error}; {self.bootstrap.address} named that address") from None
            self._connections[host, port] = connection
        return connection

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def _code(code: int) -> ErrorCode | None:
    """The code of an error, None for none; one that is not known is an unknown error."""
    if code == 0:
        return None
    try:
        return ErrorCode(code)
    except ValueError:
        return ErrorCode.UNKNOWN_SERVER_ERROR
