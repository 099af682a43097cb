"""A cluster as commands ask it: groups and transactional ids of their coordinators, partitions of
their leaders.

Connections, versions and repeated attempts are the client's. A command is for somebody who waits:
what is not ready yet is asked again until the timeout, but a connection that is lost ends it.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, TypeVar

from client import administering
from client.committing import GROUP, KINDS, coordinator
from client.connection import Connection
from client.errors import Unreachable
from client.fetching import EARLIEST as EARLIEST
from client.fetching import LATEST as LATEST
from client.fetching import list_offsets
from client.routing import NULL_IS_ALL, Again, Router
from protocol.client import said, written
from protocol.errors import ErrorCode
from protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResponse
from protocol.messages.fetch import FetchRequest, FetchResponse
from protocol.messages.metadata import MetadataRequest, MetadataResponse
from protocol.partitions import TopicPartition as TopicPartition
from protocol.partitions import by_topic
from protocol.schema import Message

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
    from types import TracebackType
    from typing import Self

    from client.routing import Topic
    from client.security import ClientSecurity

Answer = TypeVar("Answer")
Found = TypeVar("Found")
Asked = TypeVar("Asked", bound=Message)

SOON = frozenset({
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
})  # fmt: skip
"""Errors of a coordinator that is about to be one: it is asked again until the timeout."""

BROKER_RESOURCE = 4
"""In DescribeConfigs."""

# Batches of format 2; after 12 topics go by id only.
FETCH_FORMAT_2, FETCH_BY_NAME = 4, 12


class Cluster:
    """Connections are made when first needed, and closed together.

    Raises Failure for whatever ends the command. What concerns one partition only is returned: an
    ErrorCode in the place of its result.
    """

    def __init__(
        self,
        host: str,
        port: int,
        *,
        timeout_s: float,
        client_id: bytes,
        reached_at: Mapping[int, str] | None = None,
        patient: bool = False,
        security: ClientSecurity | None = None,
    ) -> None:
        """`reached_at` as in `Router`. A `patient` one waits for brokers that do not answer."""
        self.servers = written(host, port)
        self._address = (host, port)
        self._security = security
        self._router = Router(
            self.servers,
            timeout_s=timeout_s,
            client_id=client_id,
            reached=patient,
            reconnects=patient,
            reached_at=reached_at,
            security=security,
        )

    @property
    def timeout_ms(self) -> int:
        """How long a broker may take over a change, and tell other brokers."""
        return int(self._router.timeout_s * 1000)

    def forget(self) -> None:
        """Ask for topics again before they are next used."""
        self._router.forget()

    def connect(self, client_id: bytes) -> Connection:
        """A new connection to the broker that was named, of another client id; the caller closes
        it."""
        return Connection(
            *self._address,
            timeout_s=self._router.timeout_s,
            client_id=client_id,
            security=self._security,
        )

    def offers(self, kind: type[Message], *, oldest: int = 0) -> bool:
        """Whether such a request can be sent to the broker that is asked first, in this version or
        a newer one."""
        return self._router.patiently(self._router.any).offers(kind, oldest)

    def topics(self, names: Iterable[str]) -> dict[str, Topic]:
        """The topics of these names that exist."""
        wanted = list(names)
        return self._router.patiently(lambda: self._router.topics(wanted))

    def node_ids(self) -> list[int]:
        """The ids of the brokers that the cluster has now, sorted."""
        found = self.metadata(())
        return sorted(broker.node_id for broker in found.brokers)

    def metadata(self, names: Collection[str] | None) -> MetadataResponse:
        """The whole answer about topics that exist, or about all with None. Names of others make
        brokers before Kafka 0.11 create them."""
        asked = None if names is None else [MetadataRequest.Topic(name=name) for name in names]
        if not asked and not self.offers(MetadataRequest, oldest=NULL_IS_ALL):
            asked = []  # where there is neither a null nor a way to ask for none
        request = MetadataRequest(topics=asked, allow_auto_topic_creation=False)
        answer = self.ask(request, MetadataResponse)
        if answer.error_code:
            raise Unreachable(f"{self.servers}: Metadata: {said(answer.error_code)}")
        return answer

    def topic_names(self) -> dict[bytes, str]:
        """The name of every topic by its id; empty where brokers have no ids (before 2.8)."""
        topics = self._router.patiently(lambda: self._router.learn(None))
        return {topic.topic_id: name for name, topic in topics.items() if any(topic.topic_id)}

    def on_each_broker(
        self,
        ask: Callable[[Connection], Answer],
        code_of: Callable[[Answer], int],
        *,
        but: Collection[int] = (),
    ) -> list[tuple[Connection, Answer]]:
        """The answer of each broker that the cluster has now, `but` those of these ids, asked again
        while it loads."""

        def attempt(connection: Connection) -> Answer:
            return _ready(ask(connection), code_of, connection.address)

        patiently = self._router.patiently
        return [
            (connection, patiently(partial(attempt, connection)))
            for connection in patiently(partial(self._router.brokers, but))
        ]

    def coordinated(
        self,
        key: str,
        ask: Callable[[Connection], Answer],
        code_of: Callable[[Answer], int],
        *,
        kind: int = GROUP,
        soon: frozenset[ErrorCode] = SOON,
    ) -> Answer:
        """The answer of the coordinator of a group, or of a transactional id. It is looked for, and
        asked again while it is only about to be it, or says another of `soon`. Its other errors are
        the caller's."""

        def attempt() -> Answer:
            connection = coordinator(self._router, key, kind)
            return _ready(ask(connection), code_of, f"{KINDS[kind]} '{key}'", soon)

        return self._router.patiently(attempt)

    def ask(self, request: Message, kind: type[Asked], *, oldest: int = 0) -> Asked:
        """The answer of some broker to what any of them answers, in this version or a newer one."""

        def attempt() -> Asked:
            return self._router.any().call(request, kind, oldest=oldest)

        return self._router.patiently(attempt)

    def ask_node(self, node_id: int, request: Message, kind: type[Asked]) -> Asked:
        """The answer of the broker of this id, which the cluster has."""
        return self._router.patiently(lambda: self._router.node(node_id).call(request, kind))

    def create_topic(
        self,
        name: str,
        *,
        partitions: int | None,
        replicas: int | None,
        configs: Mapping[str, str],
        validate_only: bool = False,
    ) -> None:
        """See `client.administering.create_topic`."""

        def attempt() -> None:
            self._router.learn(())
            administering.create_topic(
                self._router,
                name,
                partitions,
                configs,
                replicas=replicas,
                validate_only=validate_only,
            )

        self._router.patiently(attempt)

    def change(self, request: Message, kind: type[Asked], *, oldest: int = 0) -> Asked:
        """The answer of the controller: of the broker that is one, or that passes on to it."""

        def attempt() -> Asked:
            self._router.learn(())
            controller = self._router.controller
            connection = self._router.node(controller) if controller >= 0 else self._router.any()
            wait_s = getattr(request, "timeout_ms", 0) / 1000
            return connection.call(request, kind, oldest=oldest, wait_s=wait_s)

        return self._router.patiently(attempt)

    def broker_config(self, names: Iterable[str]) -> dict[str, str]:
        """Settings of the broker that is the controller, or that passes on to it, as far as it
        tells them."""

        def attempt() -> DescribeConfigsResponse:
            self._router.learn(())
            node_id = self._router.controller
            resource = DescribeConfigsRequest.Resource(
                resource_type=BROKER_RESOURCE,
                resource_name=str(node_id),
                configuration_keys=list(names),
            )
            request = DescribeConfigsRequest(resources=[resource])
            return self._router.node(node_id).call(request, DescribeConfigsResponse)

        wanted = frozenset(names)
        answer = self._router.patiently(attempt)
        return {
            entry.name: entry.value or ""
            for result in answer.results
            if result.error_code == 0
            for entry in result.configs
            if entry.name in wanted and not entry.is_sensitive
        }

    def all_partitions(self) -> dict[TopicPartition, int]:
        """Every partition of every topic with the id of its leader, -1 for none."""
        topics = self._router.patiently(lambda: self._router.learn(None))
        return {
            TopicPartition(name, index): leader
            for name, topic in topics.items()
            for index, leader in topic.leaders.items()
        }

    def patiently(self, attempt: Callable[[], Answer]) -> Answer:
        """See `Router.patiently`."""
        return self._router.patiently(attempt)

    def by_leader(
        self, places: Iterable[TopicPartition], results: dict[TopicPartition, Found | ErrorCode]
    ) -> Iterator[tuple[Connection, list[TopicPartition]]]:
        """Partitions by the broker to ask; one without such a broker gets its code in `results`."""
        by_leader: dict[int, list[TopicPartition]] = {}
        wanted = sorted(places)
        topics = self.topics(place.topic for place in wanted)
        for place in wanted:
            topic = topics.get(place.topic)
            leader = topic.leaders.get(place.partition) if topic else None
            if leader is None:
                results[place] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            else:
                by_leader.setdefault(leader, []).append(place)
        for leader, of_leader in by_leader.items():
            try:
                yield self._router.node(leader), of_leader
            except Again:
                results.update(dict.fromkeys(of_leader, ErrorCode.LEADER_NOT_AVAILABLE))

    def offsets(
        self, partitions: Iterable[TopicPartition], timestamp_ms: int
    ) -> dict[TopicPartition, int | ErrorCode]:
        """For each partition the offset of the first record at or after a time (ms), or LATEST, or
        EARLIEST.

        Offset -1 if there is none so late. The end is the high watermark: records of transactions
        that are still open count.
        """
        places = list(partitions)
        results: dict[TopicPartition, int | ErrorCode] = {}
        for connection, of_leader in self.by_leader(places, results):
            attempt = partial(list_offsets, connection, of_leader, timestamp_ms, newest=None)
            found = self._router.patiently(attempt)
            for place, (code, offset) in found.items():
                results[place] = _code(code) or offset
        return {place: results.get(place, ErrorCode.UNKNOWN_SERVER_ERROR) for place in places}

    def fetch(
        self, wanted: Mapping[TopicPartition, int], *, partition_bytes: int, max_bytes: int
    ) -> dict[TopicPartition, bytes | ErrorCode]:
        """The bytes stored from an offset on, for each partition: whole entries, perhaps a cut one.

        The first entry may begin before the offset. At least one partition of each leader gets a
        whole entry whatever the sizes are (KIP-74), the others may get nothing.
        """
        results: dict[TopicPartition, bytes | ErrorCode] = {}
        for connection, places in self.by_leader(wanted, results):
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
        self._router.close()

    def _fetched(self, connection: Connection, request: FetchRequest) -> FetchResponse:
        def attempt() -> FetchResponse:
            answer = connection.call(
                request, FetchResponse, oldest=FETCH_FORMAT_2, newest=FETCH_BY_NAME
            )
            if answer.error_code:
                raise Unreachable(f"{connection.address}: Fetch: {said(answer.error_code)}")
            if not answer.responses and answer.throttle_time_ms:
                # Beyond its quota a client gets an empty answer at once, the next one later
                # (KIP-219).
                text = f"{connection.address}: a quota of the broker holds back what is fetched"
                raise Again(Unreachable(text), held_back=True)
            return answer

        return self._router.patiently(attempt)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def _ready(
    answer: Answer,
    code_of: Callable[[Answer], int],
    who: str,
    soon: frozenset[ErrorCode] = SOON,
) -> Answer:
    """The answer, unless its code says that it is to be asked for again. Raises Again."""
    code = code_of(answer)
    if code in soon:
        raise Again(Unreachable(f"{who}: {said(code)}"))
    return answer


def _code(code: int) -> ErrorCode | None:
    """The code of an error, None for none; one that is not known is an unknown error."""
    if code == 0:
        return None
    try:
        return ErrorCode(code)
    except ValueError:
        return ErrorCode.UNKNOWN_SERVER_ERROR
