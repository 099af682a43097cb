"""The composition root: it makes the parts of a broker, starts and stops them in order.

Start: lock and open the data directory, load the topics, listen, print one ready line. Stop: take
no more connections, answer what was asked, write and sync every log, leave the clean marker.
"""

from __future__ import annotations

import asyncio
import gc
import os
import sys
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, NamedTuple

from broker import clock, logs
from broker._version import VERSION
from broker.background import deletion_clock, scrubber
from broker.background.checkpoints import AT_MOST_EVERY_S, SYNCED_EVERY_S, Checkpoints
from broker.background.cleaner import Cleaner
from broker.background.deletion_clock import DeletionClock
from broker.background.flushing import Flushing
from broker.background.folder_removal import FolderRemoval
from broker.background.housekeeping import Housekeeping
from broker.background.log_starts import LogStarts
from broker.background.producer_expiry import ProducerExpiry
from broker.background.retention import Retention
from broker.background.scrubber import Scrubber
from broker.census import LOOK_EVERY_S as CENSUS_EVERY_S
from broker.census import Census
from broker.coordinator.classic.arrivals import Arrivals
from broker.coordinator.group_coordinator import GroupCoordinator
from broker.coordinator.loading import snapshotting
from broker.coordinator.needs import ProducerIds
from broker.coordinator.offset_coordinator import OffsetCoordinator
from broker.coordinator.transactions.coordinator import TransactionCoordinator
from broker.current_settings import CurrentSettings
from broker.event_loop import new_event_loop, on_stop_signal
from broker.fetching.conversion import Conversions
from broker.fetching.sessions import FetchSessions
from broker.handlers.context import Parts
from broker.metadata import client_quotas, controller, features
from broker.metadata.changes import Changes
from broker.metadata.client_quotas import ClientQuotas
from broker.metadata.controller import Controller
from broker.metadata.dynamic_settings import DynamicSettings
from broker.network import descriptors, secured
from broker.network.backlog import Backlog
from broker.network.connection import Connection
from broker.network.connection_counts import ConnectionCounts
from broker.network.connections import IDLE_CHECK_EVERY_S, Connections
from broker.network.descriptors import Descriptors
from broker.network.dispatch import HANDLERS, served
from broker.network.listening import CannotListen, Listening
from broker.network.secured import SecureListeners, warn_of_open_listeners
from broker.network.turn import Turn
from broker.notify import notify, tell_alive, watchdog_period_s
from broker.partitions import disk_state
from broker.partitions.disk_state import DiskState
from broker.partitions.topics import Topics
from broker.producing.appends import Appends
from broker.producing.group_commit import GroupCommit
from broker.producing.markers import Markers
from broker.producing.preparing import Preparation
from broker.request_times import RequestTimes
from broker.workers import SideBySide, Worker
from config import ConfigError
from protocol.connection import Routes
from protocol.records.convert import ExpansionLimits
from storage.data_dir import DataDirectory
from storage.disk import DiskFilesystem
from storage.errors import DataDirectoryError
from storage.filesystem import SPARES
from storage.identity import uuid_of
from storage.layout import RESERVE
from storage.metadata.image import CLIENT_METRICS_RESOURCE
from storage.metadata.metadata_log import MetadataLogSettings
from storage.metadata.opening import open_metadata
from storage.segment import OPEN
from storage.steps import run_here
from storage.trusted_time import read_clock_state

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Sequence

    from broker.background.housekeeping import Task
    from broker.background.retention_wait import RetentionWait
    from broker.console import Console
    from broker.coordinator.transactions.runtime import TransactionRuntime
    from broker.faults.injection import FaultInjection
    from broker.metadata.client_metrics import ClientMetrics
    from broker.metrics import families
    from broker.metrics.listener import MetricsListener
    from broker.network.dispatch import Handler
    from broker.network.rehearsals import Rehearsals
    from broker.security.authorizer import Authorizer
    from broker.security.credentials import NewCredential
    from broker.security.delegation_tokens import DelegationTokens
    from config import BrokerSettings
    from storage.filesystem import Filesystem
    from storage.metadata.store import MetadataStore
    from storage.trusted_time import ClockState

STOP_WITHIN_S = 10.0
"""Time that a stop gives connections to take their answers."""
COLD_READERS = 2
LOGIN_THREADS = 4
"""Some may wait for an issuer's keys, or a slow disk, and others log in beside them."""
SWITCH_INTERVAL_S = 0.0005
"""Time that a thread that runs Python code (a conversion without the compiled loops) may keep the
loop waiting; the interpreter's default is ten times that."""


class Surroundings(NamedTuple):
    """What a broker gets from outside itself, besides its loop. Tests give other things."""

    files: Filesystem = DiskFilesystem()
    now_ms: Callable[[], int] = clock.now_ms
    """Wall-clock time in ms since 1970."""
    monotonic_s: Callable[[], float] = clock.monotonic_s
    elapsed_ms: Callable[[], int] = clock.elapsed_ms
    """A clock that never jumps, in ms."""
    faulted: Callable[[dict[int, Handler]], dict[int, Handler]] | None = None
    """Makes a table of handlers of another one."""


SURROUNDINGS = Surroundings()
"""The disk, the clocks and the handlers as they are."""


class StartRefused(Exception):
    """The broker can't start; the text is one line for the person who started it."""


class Broker:
    """All parts of a broker, each made with those that it needs. Nothing below knows this class."""

    def __init__(
        self,
        settings: BrokerSettings,
        loop: asyncio.AbstractEventLoop,
        directory: DataDirectory,
        store: MetadataStore,
        clock_state: ClockState | None,
        surroundings: Surroundings,
    ) -> None:
        self.settings = CurrentSettings(settings)
        self.loop = loop
        self.directory = directory
        self.files = surroundings.files
        self.now_ms = surroundings.now_ms
        self.elapsed_ms = surroundings.elapsed_ms
        self.routes = _routes(HANDLERS, settings, surroundings.faulted)
        self.controller_routes = _controller_routes(settings)
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
        self._make_threads()
        self._make_storing(clock_state, surroundings)
        self._make_topics(store)
        self._make_groups()
        self._make_transactions()
        self._make_background()
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
            directory.path,
            self.checkpointer,
            lambda: self.settings.current.clock_jump_wait_ms,
            wall_ms=self.now_ms,
            elapsed_ms=self.elapsed_ms,
        )
        self.conversions = Conversions(
            self.converter,
            self.expander,
            _expansion_limits(settings),
            cache_max_bytes=settings.conversion_cache_max_bytes,
        )
        self.disk = DiskState(
            loop, self.readers, self.files, directory.path, settings.disk_reserve_bytes
        )
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
        self.census = Census(loop, self.files, directory.path, self.checkpointer, self.now_ms)
        self.flushing = Flushing(
            self.settings,
            directory,
            appends=self.appends,
            group_commit=self.group_commit,
            time_s=loop.time,
        )

    def _configure_storing(self, _: BrokerSettings, settings: BrokerSettings) -> None:
        self.group_commit.covers_acks = settings.log_flush_policy == "ack"
        self.disk.configure(settings.disk_reserve_bytes)
        self.conversions.configure(
            _expansion_limits(settings), cache_max_bytes=settings.conversion_cache_max_bytes
        )

    def _make_topics(self, store: MetadataStore) -> None:
        self.topics = Topics(
            store, self.directory, self.settings, _random_uuid, self.disk.require_room
        )
        self.controller = Controller(
            store,
            self.settings,
            directory_id=uuid_of(self.directory.identity.directory_id),
            disk=self.disk,
            checkpointer=self.checkpointer,
            readers=self.readers,
            new_uuid=_random_uuid,
            now_ms=self.now_ms,
        )
        self.secure_listeners = SecureListeners(
            self.loop,
            self.settings,
            self.files,
            self.readers,
            logins=self.logins,
            routes_of=self.routes_of,
            credentials=lambda: self.controller.image.scram_credentials,
            delegation_tokens=self.delegation_tokens,
        )
        self.dynamic_settings = DynamicSettings(
            self.settings,
            self.controller,
            self.topics,
            self.listening,
            check_security=self.secure_listeners.check,
        )

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
            new_member_id=_member_id,
            wall_ms=self.now_ms,
            loaded=lambda: self.offsets.look_for_deleted(),
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
        self.producer_ids = ProducerIds(self.controller.store, self.disk)
        self.transactions = TransactionCoordinator(self.topics, self._transaction_runtime)

    def _transaction_runtime(self) -> TransactionRuntime:
        # Most brokers never see a transaction.
        from broker.coordinator.transactions.runtime import TransactionRuntime

        return TransactionRuntime(
            settings=self.settings,
            loop=self.loop,
            topics=self.topics,
            disk=self.disk,
            appends=self.appends,
            group_commit=self.group_commit,
            participants=self.markers,
            producer_ids=self.producer_ids,
            transaction_version=lambda: features.transaction_version(
                self.controller.image.features
            ),
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
            loop, directory, appends=self.appends, disk=disk, worker=self.checkpointer
        )
        self.producer_expiry = ProducerExpiry(
            settings, directory, deletion_ms=self.deletion_clock.now_ms
        )
        self.folder_removal = FolderRemoval(directory.remove_deleted, disk, self.readers)
        self.housekeeping = Housekeeping(loop, self._tasks())
        self.flushing.period_changed = partial(self.housekeeping.set_period, self.flushing.look)

    def _tasks(self) -> list[Task]:
        """The periodic tasks, each with its seconds."""
        settings, checkpoints = self.settings.current, self.checkpoints
        offsets_s = settings.log_flush_offset_checkpoint_interval_ms / 1000
        aborts_s = settings.transaction_abort_timed_out_transaction_cleanup_interval_ms / 1000
        ids_s = settings.transaction_remove_expired_transaction_cleanup_interval_ms / 1000
        starts_s = settings.log_flush_start_offset_checkpoint_interval_ms / 1000
        tokens_s = settings.delegation_token_expiry_check_interval_ms / 1000
        tokens = self.delegation_tokens()
        expiry: list[Task] = []
        if tokens is not None:
            from broker.background.token_expiry import TokenExpiry  # few brokers have any

            expiry = [(tokens_s, TokenExpiry(tokens, self.controller, self.changes).look)]
        watchdog_s = watchdog_period_s()
        return [
            *expiry,
            *([] if watchdog_s is None else [(watchdog_s, tell_alive)]),
            (self.flushing.period_s, self.flushing.look),
            (disk_state.LOOK_EVERY_S, self.disk.look),
            (descriptors.LOOK_EVERY_S, self.descriptors.look),
            (max(AT_MOST_EVERY_S, offsets_s), checkpoints.write),
            (max(AT_MOST_EVERY_S, starts_s), checkpoints.write_starts),
            (AT_MOST_EVERY_S, checkpoints.write_if_due),
            (SYNCED_EVERY_S, checkpoints.note_synced),
            (IDLE_CHECK_EVERY_S, self.connections.close_idle),
            (CENSUS_EVERY_S, self.count_clients),
            (deletion_clock.LOOK_EVERY_S, self.deletion_clock.look),
            (scrubber.LOOK_EVERY_S, self.scrubber.look),
            (secured.LOOK_EVERY_S, self.secure_listeners.look),
            (controller.LOOK_EVERY_S, self.controller.look),
            (client_quotas.EXPIRE_EVERY_S, self.quotas.expire),
            (settings.offsets_retention_check_interval_ms / 1000, self.offsets.look_for_expired),
            (aborts_s, self.transactions.look_for_timed_out),
            (ids_s, self.transactions.look_for_expired),
            (settings.producer_id_expiration_check_interval_ms / 1000, self.producer_expiry.run),
            (snapshotting.LOOK_EVERY_S, self.groups.snapshotting.look),
        ]

    def count_clients(self) -> None:
        """Have the census note who is connected."""
        self.census.look(connection.context for connection in self.connections)

    def add_credentials(self, credentials: Sequence[NewCredential]) -> None:
        """Store those of users that have none of their kind; what is stored already holds."""
        known = self.controller.image.scram_credentials
        records = [
            one.record(os.urandom)
            for one in credentials
            if (one.user, one.algorithm.number) not in known
        ]
        if records:
            run_here(self.controller.append(records))
            logs.info("users were added", users=", ".join(one.name for one in records))

    def start_background(self) -> None:
        """Begin with what nobody waits for."""
        self.flushing.start()
        self.housekeeping.start()
        self.retention.start()
        for soon in (self.disk.look, self.deletion_clock.look, self.producer_expiry.run):
            self.loop.call_soon(soon)  # when the broker is ready
        self.cleaner.start()

    def _parts(self) -> Parts:
        parts = Parts()
        parts.appends = self.appends
        parts.authorizer = self._authorizer()
        parts.census = self.census
        parts.changes = self.changes
        parts.client_metrics = self.client_metrics
        parts.clock_ms = self.now_ms
        parts.cluster_id = self.directory.identity.cluster_id
        parts.controller = self.controller
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
        parts.new_uuid = _random_uuid
        parts.node_id = self.settings.current.node_id
        parts.offsets = self.offsets
        parts.port_of = lambda listener: self.listening.ports[listener]
        parts.preparation = Preparation(self.converter, self.expander, self.appends, self.disk)
        parts.producer_ids = self.producer_ids
        parts.quotas = self.quotas
        parts.readers = self.readers
        parts.request_times = self.request_times
        parts.remove_folders = self.folder_removal.remove_later
        parts.retention_wait = self.retention_wait
        parts.settings = self.settings
        parts.topics = self.topics
        parts.transactions = self.transactions
        return parts

    def _authorizer(self) -> Authorizer | None:
        """None unless one is configured."""
        settings = self.settings.current
        if not settings.authorizer_class_name:
            return None
        from broker.security.authorizer import Authorizer  # most brokers are open

        return Authorizer(
            self.controller.image.acls,
            super_users=settings.super_users,
            open_without_rules=settings.allow_everyone_if_no_acl_found,
        )

    def new_connection(self, listener: str) -> Connection:
        """The protocol of a connection to the listener of this name."""
        of_controller = {one.name for one in self.settings.current.controller_listeners}
        routes = self.controller_routes if listener in of_controller else self.routes_of(listener)
        secure = self.secure_listeners.get(listener)
        if secure is not None:
            from broker.network.secure_connection import SecureConnection  # few listeners are

            return SecureConnection(
                self.parts,
                secure,
                routes,
                backlog=self.backlog,
                turn=self.turn,
                admit=self.connections.admit,
                lost=self.connections.lost,
            )
        return Connection(
            self.parts,
            listener,
            routes,
            backlog=self.backlog,
            turn=self.turn,
            admit=self.connections.admit,
            lost=self.connections.lost,
        )

    def routes_of(self, listener: str) -> Routes:
        """What clients are served on the listener of this name."""
        if not self.settings.current.rehearses:
            return self.routes
        return self._rehearsals.routes_of(listener)

    @cached_property
    def _rehearsals(self) -> Rehearsals:
        from broker.network.rehearsals import Rehearsals  # few brokers answer as another release

        return Rehearsals(self.routes, self.settings)

    def delegation_tokens(self) -> DelegationTokens | None:
        """What knows the delegation tokens; None where they are not used."""
        return self._delegation_tokens

    @cached_property
    def _delegation_tokens(self) -> DelegationTokens | None:
        secret_key = self.settings.current.token_secret_key
        if not secret_key:
            return None
        from broker.security.delegation_tokens import DelegationTokens  # few brokers have any

        return DelegationTokens(
            lambda: self.controller.image.delegation_tokens, secret_key, self.now_ms
        )

    def client_metrics(self) -> ClientMetrics:
        """The metrics that clients push of themselves (KIP-714)."""
        return self._client_metrics

    @cached_property
    def _client_metrics(self) -> ClientMetrics:
        # Most starts are followed by no push.
        from broker.metadata.client_metrics import ClientMetrics

        return ClientMetrics(
            lambda: self.controller.image.configs,
            CLIENT_METRICS_RESOURCE,
            _random_uuid,
            max_bytes=self.settings.current.telemetry_max_bytes,
        )

    def retention_wait(self) -> RetentionWait:
        """What knows how far the groups are that retention waits for."""
        return self._retention_wait

    @cached_property
    def _retention_wait(self) -> RetentionWait:
        from broker.background.retention_wait import RetentionWait  # few topics wait for groups

        return RetentionWait(self.offsets.stored_offset, self.now_ms)

    def metric_sources(self) -> families.Sources:
        """The parts whose counters are shown."""
        from broker.metrics import families  # few brokers are watched, and imports delay the start

        found = {name: getattr(self, name) for name in families.Sources._fields}
        return families.Sources(**found)


def _expansion_limits(settings: BrokerSettings) -> ExpansionLimits:
    return ExpansionLimits(settings.max_decompressed_batch_bytes, settings.max_decompression_ratio)


def _routes(
    handlers: dict[int, Handler],
    settings: BrokerSettings,
    faulted: Callable[[dict[int, Handler]], dict[int, Handler]] | None = None,
) -> Routes:
    """The APIs of a table, with checks of access before them where access is checked, and faults
    before these where a test asks for some."""
    if settings.authorizer_class_name:
        from broker.handlers.access import guarded  # most brokers are open

        handlers = guarded(handlers)
    if faulted is not None:
        handlers = faulted(handlers)
    return Routes(served(handlers))


def _controller_routes(settings: BrokerSettings) -> Routes:
    """The APIs on the listeners of the controller, if there are any."""
    if not settings.controller_listeners:
        return Routes({})
    from broker.network.controller_handlers import CONTROLLER_HANDLERS  # most brokers don't need it

    return _routes(CONTROLLER_HANDLERS, settings)


def _random_uuid() -> bytes:
    """A version 4 uuid as 16 bytes, whose text form does not begin with '-' (a dash would look
    like an option to Kafka's tools)."""
    while True:
        raw = bytearray(os.urandom(16))
        raw[6] = raw[6] & 0x0F | 0x40
        raw[8] = raw[8] & 0x3F | 0x80
        if raw[0] >> 2 != 62:
            return bytes(raw)


def _member_id(prefix: str) -> str:
    """A new one: the prefix and a version 4 uuid in its text form."""
    digits = _random_uuid().hex()
    return "-".join((prefix, digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]))


def serve(
    settings: BrokerSettings,
    surroundings: Surroundings = SURROUNDINGS,
    *,
    as_json: bool = False,
    credentials: Sequence[NewCredential] = (),
    testing: FaultInjection | None = None,
    console: str | None = None,
) -> None:
    """Run a broker until SIGTERM or SIGINT. `credentials` are for users that have none, `testing`
    has the faults that tests ask for, `console` is the module that serves console.port. Raises
    StartRefused."""
    descriptors.raise_limit()
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    loop = new_event_loop()
    asyncio.set_event_loop(loop)
    try:
        starting = start(
            settings,
            loop,
            surroundings,
            credentials=credentials,
            testing=testing,
            console=console,
        )
        loop.run_until_complete(_serve(starting, loop, as_json=as_json))
    finally:
        loop.close()


async def _serve(
    starting: Coroutine[Any, Any, Running], loop: asyncio.AbstractEventLoop, *, as_json: bool
) -> None:
    gc.disable()
    running = await starting
    stop = asyncio.Event()
    on_stop_signal(loop, stop.set)
    running.announce(as_json=as_json)
    # What start-up made lives as long as the process; the collector need not look at it again.
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 50)
    gc.enable()
    await stop.wait()
    await running.stop()


async def start(
    settings: BrokerSettings,
    loop: asyncio.AbstractEventLoop,
    surroundings: Surroundings = SURROUNDINGS,
    *,
    credentials: Sequence[NewCredential] = (),
    testing: FaultInjection | None = None,
    console: str | None = None,
) -> Running:
    """Open the data directory and listen. Raises StartRefused; nothing is left open then."""
    if testing is not None:
        surroundings, loop = _under_test(testing, surroundings, loop)
    files, now_ms = surroundings.files, surroundings.now_ms
    path = settings.data_directory
    try:
        clock_state = read_clock_state(files, path)
        directory = DataDirectory.take(
            files,
            path,
            node_id=settings.node_id,
            new_uuid=_random_uuid,
            cluster_id=settings.cluster_id,
        )
    except (DataDirectoryError, OSError) as error:
        raise StartRefused(_why(error, path)) from error
    files.remove(f"{path}/{RESERVE}")  # recovery may need the room
    broker = scrapes = None
    try:
        store, reports = open_metadata(
            files,
            path,
            directory.identity,
            now_ms=now_ms,
            settings=MetadataLogSettings(
                settings.metadata_log_segment_bytes, settings.metadata_log_segment_ms
            ),
        )
        broker = Broker(settings, loop, directory, store, clock_state, surroundings)
        broker.dynamic_settings.apply()
        broker.controller.register()
        broker.add_credentials(credentials)
        reports += broker.topics.load(now_ms=now_ms())
        broker.groups.start(broker.controller.image.configs)
        broker.transactions.start()
        await _listen(broker)
        scrapes = await _listen_for_scrapes(broker, files)
        await _open_control_port(testing, broker)
        served = await _open_console(broker, console, files)
    except (DataDirectoryError, ConfigError, OSError, StartRefused) as error:
        if broker is not None:
            broker.listening.close()
        if scrapes is not None:
            scrapes.close()
        directory.close()
        raise StartRefused(_why(error, path)) from error
    for report in reports:
        logs.warning("found in the data directory", finding=str(report))
    broker.groups.report_torn_commits(reports)
    broker.start_background()
    return Running(broker, scrapes, testing, served)


def _why(error: Exception, path: str) -> str:
    if isinstance(error, OSError):
        return f"the data directory {path} can't be used: {error.strerror or error}"
    return str(error)


async def _listen(broker: Broker) -> None:
    """Open the listeners that the metadata log has for this broker, else those of the start."""
    settings = broker.settings.current
    set_while_running = "listeners" in settings.layers.this_broker
    if set_while_running:
        logs.info(
            "the listeners are those that were set while the broker ran",
            listeners=", ".join(str(one) for one in settings.listeners),
        )
    wanted = settings.served_listeners
    broker.secure_listeners.open()
    try:
        broker.listening.take(wanted, broker.listening.bind(wanted))
    except CannotListen as error:
        help_ = (
            "it was set while the broker ran, and holds over the file and --listen"
            if set_while_running
            else "--listen HOST:PORT chooses another address"
        )
        raise StartRefused(f"{error} ({help_})") from error
    await broker.listening.begun()
    warn_of_open_listeners(settings, wanted)
    for listener in settings.client_listeners:
        broker.routes_of(listener.name)  # which says in the log if it is that of another release


async def _listen_for_scrapes(broker: Broker, files: Filesystem) -> MetricsListener | None:
    settings = broker.settings.current
    if settings.metrics_port is None:
        return None
    from broker.metrics import listener  # few brokers are watched, and imports delay the start
    from config.keystores import KeystoreError

    try:
        return await listener.listen(broker.metric_sources(), settings, files)
    except KeystoreError as error:
        raise StartRefused(f"metrics.security.protocol is SSL: {error}") from error
    except OSError as error:
        reason = error.strerror or str(error)
        where = f"{settings.metrics_host}:{settings.metrics_port}"
        raise StartRefused(
            f"can't listen on {where}: {reason} (metrics.port and metrics.host)"
        ) from error


async def _open_console(broker: Broker, module: str | None, files: Filesystem) -> Console | None:
    settings = broker.settings.current
    if settings.console_port is None:
        return None
    if module is None:
        raise StartRefused("console.port is set, and only `triglot serve` has a console")
    from broker.console import CannotServe, open_console  # few brokers have one

    try:
        return await open_console(
            settings, broker.metric_sources(), module, ports=broker.listening.ports, files=files
        )
    except CannotServe as error:
        raise StartRefused(str(error)) from error
    except OSError as error:
        reason = error.strerror or str(error)
        where = f"{settings.console_host}:{settings.console_port}"
        raise StartRefused(f"can't listen on {where}: {reason} (--console HOST:PORT)") from error


def _under_test(
    testing: FaultInjection, surroundings: Surroundings, loop: asyncio.AbstractEventLoop
) -> tuple[Surroundings, asyncio.AbstractEventLoop]:
    """What the broker gets in place of these."""
    loop = testing.begin(
        loop,
        now_ms=surroundings.now_ms,
        monotonic_s=surroundings.monotonic_s,
        elapsed_ms=surroundings.elapsed_ms,
    )
    changed = surroundings._replace(
        files=testing.faulty(surroundings.files),
        now_ms=testing.clock.now_ms,
        monotonic_s=testing.clock.monotonic_s,
        elapsed_ms=testing.clock.elapsed_ms,
        faulted=testing.faulted,
    )
    return changed, loop


async def _open_control_port(testing: FaultInjection | None, broker: Broker) -> None:
    if testing is None:
        return
    from broker.faults.events import Events
    from broker.faults.listings import Listings

    events = Events(
        broker.loop,
        broker.groups,
        broker.topics,
        controller=broker.controller,
        changes=broker.changes,
        directory=broker.directory,
        is_being_cleaned=broker.cleaner.is_at_work_on,
        now_ms=broker.now_ms,
    )
    listings = Listings(broker.topics, broker.groups, broker.connections)
    try:
        await testing.open(broker.connections, events, listings)
    except ValueError as error:
        raise StartRefused(str(error)) from error
    except OSError as error:
        reason = error.strerror or str(error)
        raise StartRefused(f"can't open the control port (--testing): {reason}") from error


class Running:
    """A started broker and how to stop it."""

    def __init__(
        self,
        broker: Broker,
        scrapes: MetricsListener | None,
        testing: FaultInjection | None,
        console: Console | None,
    ) -> None:
        """`scrapes` serves the metrics, if somebody wants them."""
        self.broker = broker
        self.testing = testing
        self._console = console
        self._scrapes = scrapes
        self.host, self.port = broker.listening.address

    def announce(self, *, as_json: bool) -> None:
        """Print the ready line, and tell the service manager."""
        started_ms = clock.process_age_ms()
        data = os.path.abspath(self.broker.settings.current.data_directory)  # noqa: PTH100 - start-up time
        control = None if self.testing is None else self.testing.control
        if as_json:
            import json

            facts = {
                "event": "ready",
                "version": VERSION,
                "host": self.host,
                "port": self.port,
                "data": data,
                "started_ms": started_ms,
            }
            if self._console is not None:
                facts["console"] = self._console.url
            line = json.dumps(facts if control is None else {**facts, "testing": control})
        else:
            line = (
                f"triglot {VERSION} ready: listening on {self.host}:{self.port}, "
                f"data in {data}, started in {started_ms} ms"
            )
            if self._console is not None:
                line += f"; console at {self._console.url}"
            if control is not None:
                line += f"; TESTING IS ON, by the control port {control}"
        print(line, file=sys.stdout, flush=True)
        notify(READY="1", STATUS=f"listening on {self.host}:{self.port}, data in {data}")

    async def stop(self) -> None:
        """Finish what is in flight, then close every log and mark the directory clean."""
        broker = self.broker
        notify(STOPPING="1")
        broker.housekeeping.stop()  # which could have a listener go on
        broker.retention.stop()
        broker.checkpoints.stop()
        broker.descriptors.release()
        broker.listening.close()
        if self._console is not None:
            self._console.stop()
        if self._scrapes is not None:
            self._scrapes.close()
        if self.testing is not None:
            self.testing.close()
        await broker.cleaner.stop()
        await broker.connections.close(STOP_WITHIN_S)
        broker.transactions.stop()
        broker.groups.loads.stop()
        broker.groups.snapshotting.stop()
        broker.changer.stop()
        broker.changes.stop()
        broker.syncer.stop()
        broker.checkpointer.stop()
        broker.readers.stop()
        broker.logins.abandon()
        broker.cleaner.discard_unfinished()
        broker.converter.stop()
        broker.expander.stop()
        broker.disk.release()
        broker.deletion_clock.stop()
        broker.census.stop()
        broker.groups.snapshotting.write_all()
        broker_epoch = broker.controller.close()
        clean = broker.directory.close(broker_epoch=broker_epoch, run_all=broker.side_by_side)
        broker.side_by_side.stop()
        logs.info("stopped", clean=clean)
