"""The parts of a broker, each made with those that it needs."""

from __future__ import annotations

import asyncio
import os
from functools import cache, partial
from typing import TYPE_CHECKING

from broker.background.checkpoints import Checkpoints
from broker.background.cleaner import Cleaner
from broker.background.deletion_clock import DeletionClock
from broker.background.flushing import Flushing
from broker.background.folder_removal import FolderRemoval
from broker.background.log_starts import LogStarts
from broker.background.producer_expiry import ProducerExpiry
from broker.background.retention import Retention
from broker.background.scrubber import Scrubber
from broker.census import Census
from broker.coordinator.classic.arrivals import Arrivals
from broker.coordinator.group_coordinator import GroupCoordinator
from broker.coordinator.needs import ProducerIds
from broker.coordinator.offset_coordinator import OffsetCoordinator
from broker.coordinator.transactions.coordinator import TransactionCoordinator
from broker.current_settings import CurrentSettings
from broker.fetching.conversion import Conversions, limits_of
from broker.fetching.sessions import FetchSessions
from broker.handlers.context import Parts
from broker.metadata import features
from broker.metadata.application import Application
from broker.metadata.changes import Changes
from broker.metadata.client_quotas import ClientQuotas
from broker.metadata.controller import Controller
from broker.metadata.dynamic_settings import DynamicSettings
from broker.network import descriptors
from broker.network.backlog import Backlog
from broker.network.connection import Connection
from broker.network.connection_counts import ConnectionCounts
from broker.network.connections import Connections
from broker.network.descriptors import Descriptors
from broker.network.listener_routes import ListenerRoutes
from broker.network.listening import Listening
from broker.network.secured import SecureListeners
from broker.network.turn import Turn
from broker.partitions.disk_state import DiskState, ReserveFile
from broker.partitions.topics import Topics
from broker.producing.appends import Appends
from broker.producing.group_commit import GroupCommit
from broker.producing.markers import Markers
from broker.producing.preparing import Preparation
from broker.request_times import RequestTimes
from broker.surroundings import member_id
from broker.workers import SideBySide, Worker
from storage.data_dir import DataDirectory
from storage.filesystem import SPARES
from storage.identity import uuid_of
from storage.layout import CLIENTS, CLOCK
from storage.metadata.image import CLIENT_METRICS_RESOURCE
from storage.metadata.store import MetadataStore
from storage.segment import OPEN
from storage.steps import run_here

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from broker.background.retention_wait import RetentionWait
    from broker.coordinator.transactions.runtime import TransactionRuntime
    from broker.metadata.client_metrics import ClientMetrics
    from broker.metadata.controller_view import ControllerView
    from broker.metadata.followed_controller import FollowedController
    from broker.metrics import families
    from broker.neighbours import Neighbours
    from broker.partitions.disk_state import Reserve
    from broker.partitions.topic import Topic
    from broker.security.credentials import NewCredential
    from broker.security.delegation_tokens import DelegationTokens
    from broker.surroundings import Surroundings
    from config import BrokerSettings
    from storage.metadata.image_topics import FollowedTopics
    from storage.reports import RecoveryReport
    from storage.steps import Steps
    from storage.trusted_time import ClockState

COLD_READERS = 2
LOGIN_THREADS = 4
"""Some may wait for an issuer's keys, or a slow disk, and others log in beside them."""


class Broker:
    """All parts of a broker. Nothing below knows this class."""

    def __init__(
        self,
        settings: BrokerSettings,
        loop: asyncio.AbstractEventLoop,
        directory: DataDirectory,
        store: MetadataStore | FollowedTopics,
        clock_state: ClockState | None,
        surroundings: Surroundings,
        followed: FollowedController | None = None,
        neighbours: Neighbours | None = None,
    ) -> None:
        """`followed` is the controller, where that is another process; else it is made here, and
        leads the metadata log that is `store`."""
        self.settings = CurrentSettings(settings)
        self.neighbours = neighbours
        self.broker_epoch = -1
        self.loop = loop
        self.directory = directory
        self.files = surroundings.files
        self.now_ms = surroundings.now_ms
        self.elapsed_ms = surroundings.elapsed_ms
        self.new_uuid = surroundings.new_uuid
        routes = self.listener_routes = ListenerRoutes(self.settings, surroundings.faulted)
        self.routes, self.controller_routes = routes.of_clients, routes.of_controller
        self.listening = Listening(loop, self.new_connection)
        self.descriptors = Descriptors(descriptors.limit(), OPEN, SPARES, self.listening)
        self.connection_counts = ConnectionCounts(self.descriptors)
        self.quotas = ClientQuotas(settings, surroundings.monotonic_s)
        self.quotas.configure(store.image.client_quotas)
        self.connections = Connections(
            loop, self.settings, self.connection_counts, self.quotas, self.listening
        )
        self.request_times = RequestTimes()
        self.backlog = Backlog(settings.connections_backlog_max_bytes)
        self.fetch_sessions = FetchSessions(
            settings.max_incremental_fetch_session_cache_slots,
            lambda: int.from_bytes(os.urandom(4), "big") >> 1,
        )
        self.delegation_tokens = cache(self._make_delegation_tokens)
        """What knows the delegation tokens; None where they are not used."""
        self.client_metrics = cache(self._make_client_metrics)
        """The metrics that clients push of themselves (KIP-714)."""
        self.retention_wait = cache(self._make_retention_wait)
        """What knows how far the groups are that retention waits for."""
        self._make_threads()
        self._make_storing(clock_state, surroundings)
        self._make_topics(store, followed)
        self._make_groups()
        self._make_transactions()
        self._make_background()
        self.application = Application(
            lambda: self.metadata.image,
            self.topics,
            self.groups,
            client_metrics=self.client_metrics,
            delegation_tokens=self.delegation_tokens,
            dynamic_settings=self.dynamic_settings,
            quotas=self.quotas,
        )
        self.parts = self._parts()

    def _make_threads(self) -> None:
        loop = self.loop
        self.syncer = Worker(loop, "sync")
        # Not the thread that acks=all waits for: a checkpoint of many logs takes a while.
        self.checkpointer = Worker(loop, "checkpoint")
        # Nor that of checkpoints: a change of metadata is waited for.
        self.changer = Worker(loop, "metadata")
        self.changes = Changes(loop, self.changer)
        self.readers = Worker(loop, "read", COLD_READERS)
        # Not those who read for consumers: a login may wait for its issuer.
        self.logins = Worker(loop, "login", LOGIN_THREADS)
        self.converter = Worker(loop, "convert")
        # For what expands far, beside it: who needs less does not wait behind.
        self.expander = Worker(loop, "expand")
        self.side_by_side = SideBySide()

    def _make_storing(self, clock_state: ClockState | None, surroundings: Surroundings) -> None:
        """The parts between the requests and the disk."""
        settings, loop, directory = self.settings.current, self.loop, self.directory
        self.deletion_clock = DeletionClock(
            clock_state,
            self.files,
            f"{directory.path}/{directory.own(CLOCK)}",
            self.checkpointer,
            lambda: self.settings.current.clock_jump_wait_ms,
            wall_ms=self.now_ms,
            elapsed_ms=self.elapsed_ms,
        )
        self.conversions = Conversions(
            self.converter,
            self.expander,
            limits_of(settings),
            cache_max_bytes=settings.conversion_cache_max_bytes,
        )
        self.reserve: Reserve = surroundings.reserve or ReserveFile(
            self.files, directory.path, settings.disk_reserve_bytes, self.readers.run
        )
        self.disk = DiskState(loop, self.files, directory.path, self.reserve)
        self.appends = Appends(self.disk)
        self.turn = Turn(loop, self.appends)
        self.group_commit = GroupCommit(
            loop,
            self.syncer,
            self.side_by_side,
            self.disk,
            write_queued=self.appends.write,
            time_s=surroundings.monotonic_s,
            covers_acks=settings.log_flush_policy == "ack",
        )
        self.settings.subscribe(self._configure_storing)
        clients = f"{directory.path}/{directory.own(CLIENTS)}"
        self.census = Census(loop, self.files, clients, self.checkpointer, self.now_ms)
        self.flushing = Flushing(
            self.settings,
            directory,
            appends=self.appends,
            group_commit=self.group_commit,
            time_s=loop.time,
        )

    def _configure_storing(self, _: BrokerSettings, settings: BrokerSettings) -> None:
        self.group_commit.covers_acks = settings.log_flush_policy == "ack"
        self.reserve.configure(settings.disk_reserve_bytes)
        self.conversions.configure(
            limits_of(settings), cache_max_bytes=settings.conversion_cache_max_bytes
        )

    def _make_topics(
        self, store: MetadataStore | FollowedTopics, followed: FollowedController | None
    ) -> None:
        self.store = store
        self.topics = Topics(
            store,
            self.directory,
            self.settings,
            self.new_uuid,
            self.disk.require_room,
            now_ms=self.now_ms,
            removed=self._topic_removed,
        )
        self._leader = None if followed is not None else self._made_controller()
        self.metadata: ControllerView = followed or self.controller
        self.secure_listeners = SecureListeners(
            self.loop,
            self.settings,
            self.files,
            self.readers,
            logins=self.logins,
            routes_of=self.listener_routes.of,
            credentials=lambda: self.metadata.image.scram_credentials,
            delegation_tokens=self.delegation_tokens,
        )
        self.dynamic_settings = DynamicSettings(
            self.settings,
            self.metadata,
            self.topics,
            self.listening,
            check_security=self.secure_listeners.check,
            alone=self.neighbours is None,
        )

    def _made_controller(self) -> Controller:
        assert isinstance(self.store, MetadataStore)
        return Controller(
            self.store,
            self.settings,
            directory_id=uuid_of(self.directory.identity.directory_id),
            disk=self.disk,
            checkpointer=self.checkpointer,
            readers=self.readers,
            new_uuid=self.new_uuid,
            now_ms=self.now_ms,
        )

    @property
    def controller(self) -> Controller:
        """The leader of the metadata log. Not to be asked for in a process that follows it."""
        assert self._leader is not None
        return self._leader

    def _make_groups(self) -> None:
        self.groups = GroupCoordinator(
            settings=self.settings,
            loop=self.loop,
            topics=self.topics,
            disk=self.disk,
            appends=self.appends,
            group_commit=self.group_commit,
            side_by_side=self.side_by_side,
            arrivals=Arrivals(self.connection_counts.opened),
            new_member_id=partial(member_id, self.new_uuid),
            wall_ms=self.now_ms,
            loaded=lambda: self.offsets.shard_loaded(),
        )
        self.offsets = OffsetCoordinator(
            self.groups.runtime,
            settings=self.settings,
            loop=self.loop,
            wall_ms=self.now_ms,
            deletion_ms=self.deletion_clock.now_ms,
        )
        self.markers = Markers(
            topics=self.topics,
            appends=self.appends,
            disk=self.disk,
            offsets=self.offsets,
            wall_ms=self.now_ms,
        )

    def _make_transactions(self) -> None:
        self.producer_ids = ProducerIds(self.store, self.disk)
        self.transactions = TransactionCoordinator(self.topics, self._transaction_runtime)
        if self.neighbours is not None:
            from broker.coordinator.transactions.shared import SharedTransactions  # most are alone

            self.transactions = SharedTransactions(
                self.topics, self._transaction_runtime, self.loop, self.neighbours
            )

    def _transaction_runtime(self, kind: Callable[..., TransactionRuntime]) -> TransactionRuntime:
        return kind(
            settings=self.settings,
            loop=self.loop,
            topics=self.topics,
            disk=self.disk,
            appends=self.appends,
            group_commit=self.group_commit,
            participants=self.markers,
            producer_ids=self.producer_ids,
            transaction_version=lambda: features.transaction_version(self.metadata.image.features),
            wall_ms=self.now_ms,
        )

    def _make_background(self) -> None:
        settings, loop, directory, disk = self.settings, self.loop, self.directory, self.disk
        self.cleaner = Cleaner(
            loop,
            settings,
            self.topics,
            directory,
            disk=disk,
            group_commit=self.group_commit,
            readers=self.readers,
            wall_ms=self.now_ms,
            deletion_ms=self.deletion_clock.now_ms,
        )
        self.log_starts = LogStarts(
            directory,
            disk,
            self.group_commit,
            syncer=self.syncer,
            readers=self.readers,
            is_replacing=self.cleaner.is_replacing,
        )
        self.retention = Retention(
            loop,
            settings,
            self.topics,
            log_starts=self.log_starts,
            disk=disk,
            syncer=self.syncer,
            deletion_clock=self.deletion_clock,
            wait=self.retention_wait,
            now_ms=self.now_ms,
        )
        self.scrubber = Scrubber(
            settings, directory, disk=disk, readers=self.readers, now_ms=self.now_ms
        )
        self.checkpoints = Checkpoints(
            loop, directory, self.appends, self.group_commit, disk=disk, worker=self.checkpointer
        )
        self.producer_expiry = ProducerExpiry(
            settings, directory, deletion_ms=self.deletion_clock.now_ms
        )
        self.folder_removal = FolderRemoval(directory.remove_deleted, disk, self.readers)

    def load(self, credentials: Sequence[NewCredential] = ()) -> list[RecoveryReport]:
        """Lead what the metadata log says, open the logs and begin to load groups and transactions.
        `credentials` are for users that have none of their kind. Raises OSError."""
        self.lead(credentials)
        return run_here(self.open())

    def lead(self, credentials: Sequence[NewCredential] = (), *, comes_back: bool = False) -> None:
        """Lead what the metadata log says, and put the directory in order. `comes_back` is for a
        process of several that died. Raises OSError."""
        self.dynamic_settings.apply()
        if self._leader is not None:
            self._leader.register(comes_back=comes_back)
            self._leader.add_credentials(credentials, os.urandom)
        self.directory.begin(self.store)

    def open(self) -> Steps[list[RecoveryReport]]:
        """Open the logs, and begin to load groups and transactions. Raises OSError."""
        reports = yield from self.topics.load(now_ms=self.now_ms())
        self.store.committed = self.application.follow
        self.groups.start(self.metadata.image.configs)
        self.transactions.start()
        return reports

    def close_metadata(self) -> None:
        """Write what a stop has to, where the log is led."""
        if self._leader is not None:
            self.broker_epoch = self._leader.close()

    def _topic_removed(self, topic: Topic, folders: list[str]) -> None:
        self.folder_removal.remove_later(folders, topic.settings.file_delete_delay_ms)
        self.offsets.topic_deleted(topic.name)
        self.transactions.left((topic.name, one.index) for one in topic.partitions)

    def _parts(self) -> Parts:
        settings, parts = self.settings.current, Parts()
        parts.appends = self.appends
        parts.authorizer = None
        if settings.authorizer_class_name:
            from broker.security.authorizer import authorizer_of  # most brokers are open

            parts.authorizer = authorizer_of(settings, self.metadata.image.acls)
        parts.census = self.census
        parts.changes = self.changes
        parts.client_metrics = self.client_metrics
        parts.clock_ms = self.now_ms
        parts.cluster_id = self.directory.identity.cluster_id
        parts.controller = self.metadata
        parts.metadata_leader = self._leader
        parts.conversions = self.conversions
        parts.delegation_tokens = self.delegation_tokens
        parts.directory = self.directory
        parts.disk = self.disk
        parts.dynamic_settings = self.dynamic_settings
        parts.fetch_sessions = self.fetch_sessions
        parts.flushing = self.flushing
        parts.group_commit = self.group_commit
        parts.groups = self.groups
        parts.log_starts = self.log_starts
        parts.loop = self.loop
        parts.markers = self.markers
        parts.moves = None
        parts.new_uuid = self.new_uuid
        parts.neighbours = self.neighbours
        parts.node_id = settings.node_id
        parts.offsets = self.offsets
        parts.port_of = lambda listener: self.listening.ports[listener]
        parts.preparation = Preparation(self.converter, self.expander, self.appends, self.disk)
        parts.producer_ids = self.producer_ids
        parts.quotas = self.quotas
        parts.readers = self.readers
        parts.request_times = self.request_times
        parts.retention_wait = self.retention_wait
        parts.settings = self.settings
        parts.topics = self.topics
        parts.transactions = self.transactions
        return parts

    def new_connection(self, listener: str) -> Connection:
        """The protocol of a connection to the listener of this name."""
        routes = self.listener_routes.of(listener)
        secure = self.secure_listeners.get(listener)
        made: Callable[..., Connection] = partial(Connection, self.parts, listener)
        if secure is not None:
            from broker.network.secure_connection import SecureConnection  # few listeners are

            made = partial(SecureConnection, self.parts, secure)
        return made(
            routes,
            backlog=self.backlog,
            turn=self.turn,
            admit=self.connections.admit,
            lost=self.connections.lost,
        )

    def _make_delegation_tokens(self) -> DelegationTokens | None:
        secret_key = self.settings.current.token_secret_key
        if not secret_key:
            return None
        from broker.security.delegation_tokens import DelegationTokens  # few brokers have any

        return DelegationTokens(
            lambda: self.metadata.image.delegation_tokens, secret_key, self.now_ms
        )

    def _make_client_metrics(self) -> ClientMetrics:
        # Most starts are followed by no push.
        from broker.metadata.client_metrics import ClientMetrics

        return ClientMetrics(
            lambda: self.metadata.image.configs,
            CLIENT_METRICS_RESOURCE,
            self.new_uuid,
            max_bytes=self.settings.current.telemetry_max_bytes,
        )

    def _make_retention_wait(self) -> RetentionWait:
        from broker.background.retention_wait import RetentionWait  # few topics wait for groups

        return RetentionWait(self.offsets.stored_offset, self.now_ms)

    def metric_sources(self) -> families.Sources:
        """The parts whose counters are shown."""
        from broker.metrics import families  # few brokers are watched, and imports delay the start

        found = {name: getattr(self, name) for name in families.Sources._fields}
        return families.Sources(**found)
