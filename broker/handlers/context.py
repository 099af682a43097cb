"""The second argument of every handler: parts of the broker, the client, and the time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from broker import logs
from broker.coordinator.effects import Caller, TopicRights
from broker.security.principal import ANONYMOUS
from config.listeners import UNROUTABLE_HOSTS
from protocol.acls import CLUSTER_NAME, OPERATIONS, REFUSALS, Operation, ResourceType
from protocol.errors import KafkaError
from protocol.records.layout import CODEC_MASK
from protocol.records.validate import first_format

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

    from broker.background.flushing import Flushing
    from broker.background.log_starts import LogStarts
    from broker.background.retention_wait import RetentionWait
    from broker.census import Census
    from broker.coordinator.group_coordinator import GroupCoordinator
    from broker.coordinator.needs import ProducerIds
    from broker.coordinator.offset_coordinator import OffsetCoordinator
    from broker.coordinator.transactions.coordinator import TransactionCoordinator
    from broker.current_settings import CurrentSettings
    from broker.fetching.conversion import Conversions
    from broker.fetching.sessions import FetchSessions
    from broker.metadata.changes import Changes
    from broker.metadata.client_metrics import ClientMetrics
    from broker.metadata.client_quotas import ClientQuotas
    from broker.metadata.controller import Controller
    from broker.metadata.controller_view import ControllerView
    from broker.metadata.dynamic_settings import DynamicSettings
    from broker.metadata.moves import Moves
    from broker.neighbours import Neighbours
    from broker.partitions.disk_state import DiskState
    from broker.partitions.topic import Partition, Topic
    from broker.partitions.topics import Topics
    from broker.producing.appends import Appends
    from broker.producing.group_commit import GroupCommit
    from broker.producing.markers import Markers
    from broker.producing.preparing import Preparation
    from broker.request_times import RequestTimes, TimedRequest
    from broker.security.authorizer import Authorizer
    from broker.security.delegation_tokens import DelegationTokens
    from broker.security.principal import Principal
    from broker.workers import Worker
    from protocol.client_usage import ClientUsage
    from protocol.connection import Request, Route, Routes
    from storage.data_dir import DataDirectory
    from storage.slices import FileSlice


class Authenticator(Protocol):
    """A connection, as far as it authenticates its client."""

    def handshake(self, request: Request) -> Any:
        """The answer to SaslHandshake, or what it waits for."""

    def authenticate(self, request: Request) -> Any:
        """The answer to SaslAuthenticate, or to a token without a header, or what it waits for."""


class Parts:
    """The parts of the broker that handlers use, the same for all connections. All of them are
    to be assigned by the one that makes it. (A dataclass would cost a start 8 ms.)"""

    appends: Appends
    authorizer: Authorizer | None
    """None where everybody may do everything."""
    census: Census
    changes: Changes
    client_metrics: Callable[[], ClientMetrics]
    """Made at first use: most starts are followed by no push."""
    clock_ms: Callable[[], int]
    cluster_id: str
    controller: ControllerView
    conversions: Conversions
    delegation_tokens: Callable[[], DelegationTokens | None]
    """None where they are not used."""
    directory: DataDirectory
    disk: DiskState
    dynamic_settings: DynamicSettings
    fetch_sessions: FetchSessions
    flushing: Flushing
    group_commit: GroupCommit
    groups: GroupCoordinator
    log_starts: LogStarts
    loop: asyncio.AbstractEventLoop
    metadata_leader: Controller | None
    """The same where it leads the metadata log, for those who follow that; None elsewhere."""
    markers: Markers
    moves: Moves | None
    """Of partitions between processes, at the controller of several; None elsewhere."""
    new_uuid: Callable[[], bytes]
    """A version 4 uuid, 16 bytes."""
    neighbours: Neighbours | None
    """None where one process serves the directory."""
    node_id: int
    offsets: OffsetCoordinator
    port_of: Callable[[str], int]
    """The port on which a listener, by its name, was opened."""
    preparation: Preparation
    producer_ids: ProducerIds
    quotas: ClientQuotas
    readers: Worker
    request_times: RequestTimes
    retention_wait: Callable[[], RetentionWait]
    """Made when a topic first waits for groups."""
    settings: CurrentSettings
    topics: Topics
    transactions: TransactionCoordinator

    __slots__ = tuple(__annotations__)


PARTS = Parts.__slots__

_ALL = {kind: sum(1 << one for one in operations) for kind, operations in OPERATIONS.items()}

NOTHING_READ: frozenset[tuple[int, int]] = frozenset()
NOTHING_WRITTEN: frozenset[int] = frozenset()
HEAD_BYTES = 23
"""Of a batch or a message, with the attributes."""
DECISIONS_MAX = 4096
"""Decisions that are remembered for one connection; then they are made anew."""


class Context(Parts):
    """The parts, and what is known of the client of one connection. Handlers run one at a time, so
    `now_ms` is set once per burst."""

    __slots__ = (
        "_decided_in",
        "_decisions",
        "_principal",
        "authenticator",
        "client_id",
        "delegation_token",
        "listener",
        "local_host",
        "local_port",
        "misreads_old_entries",
        "now_ms",
        "peer_host",
        "peer_port",
        "read",
        "routes",
        "security_protocol",
        "software_name",
        "software_version",
        "timed",
        "usage",
        "used",
        "written",
    )

    def __init__(
        self, parts: Parts, listener: str, routes: Routes, *, peer: Any, local: Any
    ) -> None:
        """`peer` and `local` are addresses as sockets tell them, or None."""
        for name in PARTS:
            setattr(self, name, getattr(parts, name))
        self.listener = listener
        """The name of the one that the client has dialled."""
        self.security_protocol = "PLAINTEXT"
        self.routes = routes
        """The APIs served to this client."""
        self.peer_host, self.peer_port = _host_and_port(peer)
        self.local_host, self.local_port = _host_and_port(local)
        self._decisions: dict[tuple[int, int, str], bool] = {}
        self._decided_in = -1
        """The generation of rules that the decisions are of."""
        self._principal = ANONYMOUS
        self.authenticator: Authenticator | None = None
        """Where the listener asks for authentication by SASL."""
        self.client_id: str | None = None
        self.delegation_token: str | None = None
        """The id of the one by which the client has logged in."""
        self.software_name = self.software_version = ""
        """Of the client, as it has said in ApiVersions (KIP-511)."""
        self.misreads_old_entries = False
        """Formats 0 and 1 are misread from Fetch v12 on, as far as anybody knows."""
        self.timed: list[TimedRequest] = []
        """Handled since the connection last looked; bounded by those of a burst."""
        self.usage: ClientUsage | None = None
        """What the census notes of the client, once it is known who that is."""
        self.used: dict[Route, None] = {}
        """The versions of APIs that the connection has used, in the order of the first use."""
        self.read = NOTHING_READ
        """Formats and codecs of a sample of what it was sent: of the first answer with records, and
        of those that were timed."""
        self.written = NOTHING_WRITTEN
        """The attributes of batches of format 2 that it has sent."""
        self.now_ms = 0

    @property
    def principal(self) -> Principal:
        """In whose name the client acts."""
        return self._principal

    @principal.setter
    def principal(self, principal: Principal) -> None:
        self._principal = principal
        self._decisions.clear()

    @property
    def is_authenticated(self) -> bool:
        """Whether the client has logged in, where the listener asks for that by SASL."""
        return self.authenticator is None or self._principal is not ANONYMOUS

    def allows(
        self, operation: int, resource_type: int, name: str, *, silent: bool = False
    ) -> bool:
        """Whether this client may do this to the resource (`protocol.acls`). A denial is said in
        the log unless it is to be `silent`: nothing was asked for that it keeps from the client."""
        authorizer = self.authorizer
        if authorizer is None:
            return True
        if self._decided_in != authorizer.acls.changes:
            self._decisions.clear()
            self._decided_in = authorizer.acls.changes
        question = operation, resource_type, name
        allowed = self._decisions.get(question)
        if allowed is None:
            allowed = self._decide(authorizer, question)
        if not allowed and not silent:
            authorizer.denied(self._principal, self.peer_host, operation, resource_type, name)
        return allowed

    def _decide(self, authorizer: Authorizer, question: tuple[int, int, str]) -> bool:
        """The answer of the rules, which is remembered."""
        if len(self._decisions) >= DECISIONS_MAX:
            self._decisions.clear()
        allowed = authorizer.allows(self._principal, self.peer_host, *question)
        self._decisions[question] = allowed
        return allowed

    def require(self, operation: int, resource_type: int, name: str) -> None:
        """Raise KafkaError with the code of the resource unless this client may do this to it."""
        if not self.allows(operation, resource_type, name):
            raise KafkaError(code=REFUSALS[resource_type])

    def operations(self, resource_type: int, name: str) -> int:
        """What this client may do to a resource, a bit for each operation (KIP-430)."""
        if self.authorizer is None:
            return _ALL[resource_type]
        return sum(
            1 << operation
            for operation in OPERATIONS[resource_type]
            if self.allows(operation, resource_type, name, silent=True)
        )

    def may_read(self, topic: str) -> bool:
        """Whether this client may read the records of a topic."""
        return self.allows(Operation.READ, ResourceType.TOPIC, topic)

    def may_describe(self, topic: str, *, silent: bool = False) -> bool:
        """Whether a topic of this name is there for this client."""
        return self.allows(Operation.DESCRIBE, ResourceType.TOPIC, topic, silent=silent)

    def may_create(self, topic: str) -> bool:
        """Whether this client may create a topic of this name: a right of the cluster, or of the
        topic."""
        return self.allows(
            Operation.CREATE, ResourceType.CLUSTER, CLUSTER_NAME, silent=True
        ) or self.allows(Operation.CREATE, ResourceType.TOPIC, topic)

    def may_write_idempotently(self) -> bool:
        """Whether this client may have a producer id: whoever may write to some topic may
        (KIP-679)."""
        authorizer = self.authorizer
        return (
            authorizer is None
            or authorizer.allows_some(
                self._principal, self.peer_host, Operation.WRITE, ResourceType.TOPIC
            )
            or self.allows(Operation.IDEMPOTENT_WRITE, ResourceType.CLUSTER, CLUSTER_NAME)
        )

    def cluster_operations(self) -> int:
        """What it may do to the cluster; nothing is told to one who may not describe it."""
        if not self.allows(Operation.DESCRIBE, ResourceType.CLUSTER, CLUSTER_NAME, silent=True):
            return 0
        return self.operations(ResourceType.CLUSTER, CLUSTER_NAME)

    def advertised(self) -> tuple[str, int]:
        """The address that this client is told to connect to: `advertised.listeners` if it is set,
        else the address that it has dialled, which it can evidently reach."""
        listener = self.settings.current.advertised_listener(self.listener)
        if listener is None:
            return self.local_host, self.local_port
        host = self.local_host if listener.host in UNROUTABLE_HOSTS else listener.host
        return host, listener.port or self.local_port

    def caller(self, request: Request) -> Caller:
        """The sender of this request, as groups keep it."""
        authorizer, rights = self.authorizer, None
        if authorizer is not None:
            rights = TopicRights(
                authorizer.acls.changes, lambda topic: self.may_describe(topic, silent=True)
            )
        return Caller(request.client_id or "", f"/{self.peer_host}", request.version, rights)

    def note_written(self, magic: int, attributes: int) -> None:
        """A set of this format has come, whose first batch or message has these attributes."""
        if magic == 2:
            self.written |= {attributes}
        if self.usage is not None:
            self.usage.note_written(magic, attributes & CODEC_MASK)

    def note_read(self, records: FileSlice | bytes) -> None:
        """Look at the first batch or message of what the client is sent."""
        if isinstance(records, bytes):
            head = records[:HEAD_BYTES]
        else:
            try:
                head = records.file.pread(min(HEAD_BYTES, records.size), records.position)
            except OSError:
                return  # who sends them meets it, too
        found = first_format(memoryview(head))
        if found is not None:
            read = found[0], found[1] & CODEC_MASK
            self.read |= {read}
            if self.usage is not None:
                self.usage.note_read(*read)

    def note_rebuilt(self, count: int) -> None:
        """So many sets of the client were stored in another form than they came in."""
        if self.usage is not None:
            self.usage.rebuilt_sets += count

    def note_converted(self, size: int, *, zstd_topic: bool) -> None:
        """Records of so many bytes were made for an answer: an older format, or gzip of zstd;
        `zstd_topic` if the compression.type of their topic is zstd."""
        if self.usage is not None and size:
            self.usage.conversions += 1
            self.usage.converted_bytes += size
            self.usage.zstd_conversions += zstd_topic

    def client(self, request: Request) -> tuple[str, str]:
        """User and client id, for whom there are quotas."""
        return self.principal.name, request.client_id or ""

    def created(self, topic: Topic) -> None:
        """Say in the log that this client created a topic."""
        logs.info(
            "topic created",
            topic=topic.name,
            partitions=len(topic.partitions),
            address=self.peer_host,
            client_id=self.client_id,
        )

    def deleted(self, topic: Topic) -> None:
        """Say in the log that this client deleted a topic."""
        logs.info(
            "topic deleted", topic=topic.name, address=self.peer_host, client_id=self.client_id
        )

    def failed(self, what: str, error: Exception, **facts: Any) -> None:
        """Say in the log that something this client asked for failed on our side."""
        if self.disk.noticed(error):
            return  # which has been said, once
        logs.error("request failed", what=what, reason=str(error), address=self.peer_host, **facts)

    def refused_batch(
        self, topic: str, partition: int, error: KafkaError, *, client_id: str | None
    ) -> None:
        """Say in the log, once a minute, that a batch of this client was not stored."""
        logs.warn_once_a_minute(
            "batch refused",
            str(error),
            self.peer_host,
            code=error.code.name,
            topic=topic,
            partition=partition,
            client_id=client_id,
        )

    def not_converted(self, partition: Partition, offset: int, error: KafkaError) -> None:
        """Say in the log, once a minute, that records could not be converted for this client."""
        logs.warn_once_a_minute(
            "records not converted",
            str(error),
            self.peer_host,
            topic=partition.topic.name,
            partition=partition.index,
            offset=offset,
            client_id=self.client_id,
        )

    def refused_subscription(self, group: str, error: KafkaError, *, client_id: str | None) -> None:
        """Say in the log, once a minute, why a subscription was refused: clients end by it."""
        logs.warn_once_a_minute(
            "subscription refused", str(error), self.peer_host, group=group, client_id=client_id
        )

    def refused_commit(self, group: str, error: KafkaError, *, client_id: str | None) -> None:
        """Say in the log, once a minute, why a commit was refused, if that says more than its
        code does."""
        if str(error) != error.code.meaning and not self.disk.noticed(error):
            logs.warn_once_a_minute(
                "commit refused", str(error), self.peer_host, group=group, client_id=client_id
            )


def _host_and_port(address: Any) -> tuple[str, int]:
    if isinstance(address, tuple) and len(address) >= 2:
        return str(address[0]), int(address[1])
    return "unknown", 0
