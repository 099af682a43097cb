"""Start-up and shutdown, in order, and what all connections share.

Start: lock and open the data directory, load the topics, listen, print one ready line. Stop: take
no more connections, answer what is owed, write and sync every log, leave the clean marker.
"""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import sys
from functools import cached_property
from typing import TYPE_CHECKING

from broker import clock, logs
from broker._version import VERSION
from broker.background.cleaner import Cleaner
from broker.background.deletion_clock import DeletionClock
from broker.background.flushing import Flushing
from broker.background.housekeeping import Housekeeping
from broker.background.log_starts import LogStarts
from broker.background.scrubber import Scrubber
from broker.coordinator.classic.arrivals import Arrivals
from broker.coordinator.group_coordinator import GroupCoordinator
from broker.coordinator.offset_coordinator import OffsetCoordinator
from broker.current_settings import CurrentSettings
from broker.fetching.conversion import Conversions
from broker.fetching.sessions import FetchSessions
from broker.handlers.context import Parts
from broker.metadata.controller import Controller
from broker.metadata.dynamic_settings import DynamicSettings
from broker.network import descriptors
from broker.network.backlog import Backlog
from broker.network.connection import Connection
from broker.network.connection_counts import ConnectionCounts
from broker.network.connections import Connections
from broker.network.descriptors import Descriptors
from broker.network.dispatch import served
from broker.network.listening import CannotListen, Listening
from broker.notify import notify
from broker.partitions.disk_state import DiskState
from broker.partitions.topics import Topics
from broker.producing.appends import Appends
from broker.producing.group_commit import GroupCommit
from broker.producing.preparing import Preparation
from broker.workers import SideBySide, Worker
from config import ConfigError
from protocol.connection import Routes
from protocol.records.convert import ExpansionLimits
from storage.data_dir import DataDirectory
from storage.errors import DataDirectoryError
from storage.filesystem import SPARES, DiskFilesystem
from storage.layout import RESERVE
from storage.metadata.image import CLIENT_METRICS_RESOURCE
from storage.metadata.metadata_log import MetadataLogSettings
from storage.metadata.opening import open_metadata
from storage.segment import OPEN
from storage.trusted_time import read_clock_state

if TYPE_CHECKING:
    from broker.metadata.client_metrics import ClientMetrics
    from config import BrokerSettings
    from storage.metadata.store import MetadataStore
    from storage.trusted_time import ClockState

STOP_WITHIN_S = 10.0
"""How long a stop waits for answers that are owed before it closes connections all the same."""
COLD_READERS = 2
SWITCH_INTERVAL_S = 0.0005
"""How long a thread that runs Python code (a conversion without the compiled loops) may keep the
loop waiting; the interpreter's default is ten times that."""


class StartRefused(Exception):
    """The broker can't start; the text is one line for the person who started it."""


class Broker:
    """What handlers and connections share."""

    def __init__(
        self,
        settings: BrokerSettings,
        loop: asyncio.AbstractEventLoop,
        directory: DataDirectory,
        store: MetadataStore,
        clock_state: ClockState | None,
    ) -> None:
        self.current_settings = CurrentSettings(settings)
        self.loop = loop
        self.directory = directory
        self.node_id: int = settings.node_id
        self.cluster_id: str = directory.identity.cluster_id
        self.now_ms = clock.now_ms
        self.routes = Routes(served())
        self.controller_routes = _controller_routes(settings)
        self.listening = Listening(loop, self.new_connection)
        self.syncer = Worker(loop, "sync")
        # Not the thread that acks=all waits for: a checkpoint of many logs takes a while.
        self.checkpointer = Worker(loop, "checkpoint")
        self.deletion_clock = DeletionClock(
            clock_state,
            DiskFilesystem(),
            directory.path,
            self.checkpointer,
            lambda: self.settings.clock_jump_wait_ms,
            wall_ms=clock.now_ms,
            elapsed_ms=clock.elapsed_ms,
        )
        self.readers = Worker(loop, "read", COLD_READERS)
        self.converter = Worker(loop, "convert")
        # For what expands far, beside it: who needs less does not wait behind.
        self.expander = Worker(loop, "expand")
        self.conversions = _conversions(settings, self.converter, self.expander)
        self.disk = DiskState(
            loop, self.readers, DiskFilesystem(), directory.path, settings.disk_reserve_bytes
        )
        self.appends = Appends(self.disk)
        self.side_by_side = SideBySide()
        self.group_commit = GroupCommit(
            loop,
            self.syncer,
            self.side_by_side,
            self.disk,
            covers_acks=settings.log_flush_policy == "ack",
        )
        self.flushing = Flushing(self)
        self.log_starts = LogStarts(self)
        self.fetch_sessions = FetchSessions(
            settings.max_incremental_fetch_session_cache_slots,
            lambda: int.from_bytes(os.urandom(4), "big") >> 1,
        )
        self.topics = Topics(store, directory, settings, _random_uuid, self.disk.require_room)
        self.controller = Controller(self, DiskFilesystem(), store, _random_uuid)
        self.descriptors = Descriptors(descriptors.limit(), OPEN, SPARES, self.listening)
        self.connection_counts = ConnectionCounts(self.descriptors)
        self.groups = _group_coordinator(self)
        self.offsets = _offset_coordinator(self)
        self.cleaner = Cleaner(self)
        self.scrubber = Scrubber(self)
        self.backlog = Backlog(settings.connections_backlog_max_bytes)
        self.connections = Connections(self.current_settings, self.connection_counts)
        self.dynamic_settings = DynamicSettings(self)
        self.parts = self._parts()

    def _parts(self) -> Parts:
        return Parts(
            appends=self.appends,
            client_metrics=lambda: self.client_metrics,
            clock_ms=self.now_ms,
            cluster_id=self.cluster_id,
            controller=self.controller,
            conversions=self.conversions,
            directory=self.directory,
            disk=self.disk,
            dynamic_settings=self.dynamic_settings,
            fetch_sessions=self.fetch_sessions,
            flushing=self.flushing,
            group_commit=self.group_commit,
            groups=self.groups,
            log_starts=self.log_starts,
            loop=self.loop,
            node_id=self.node_id,
            offsets=self.offsets,
            port_of=lambda listener: self.listening.ports[listener],
            preparation=Preparation(self.converter, self.expander, self.appends, self.disk),
            readers=self.readers,
            remove_folders=self.remove_later,
            settings=self.current_settings,
            topics=self.topics,
        )

    def new_connection(self, listener: str) -> Connection:
        """The protocol of a connection to the listener of this name."""
        controller = {one.name for one in self.settings.controller_listeners}
        return Connection(
            self.parts,
            listener,
            self.controller_routes if listener in controller else self.routes,
            backlog=self.backlog,
            admit=self.connections.admit,
            lost=self.connections.lost,
        )

    @property
    def settings(self) -> BrokerSettings:
        """As they are now."""
        return self.current_settings.current

    @cached_property
    def client_metrics(self) -> ClientMetrics:
        """What clients push of themselves (KIP-714)."""
        from broker.metadata.client_metrics import (
            ClientMetrics,  # most starts are followed by no push
        )

        return ClientMetrics(
            lambda: self.controller.image.configs,
            CLIENT_METRICS_RESOURCE,
            _random_uuid,
            max_bytes=self.settings.telemetry_max_bytes,
        )

    def remove_later(self, folders: list[str], delay_ms: int) -> None:
        """Remove what is left of a deleted topic; the next start would do it as well."""

        def remove() -> None:
            self.readers.run(lambda: self._remove(folders), lambda _: None)

        self.disk.remove_later(remove, delay_ms)

    def _remove(self, folders: list[str]) -> None:
        for folder in folders:
            try:
                self.directory.remove_deleted(folder)
            except OSError as error:
                logs.warning("a deleted topic was left over", folder=folder, reason=str(error))


def _conversions(settings: BrokerSettings, worker: Worker, expander: Worker) -> Conversions:
    return Conversions(
        worker,
        expander,
        ExpansionLimits(settings.max_decompressed_batch_bytes, settings.max_decompression_ratio),
        cache_max_bytes=settings.conversion_cache_max_bytes,
    )


def _group_coordinator(broker: Broker) -> GroupCoordinator:
    return GroupCoordinator(
        settings=broker.current_settings,
        loop=broker.loop,
        topics=broker.topics,
        disk=broker.disk,
        appends=broker.appends,
        group_commit=broker.group_commit,
        side_by_side=broker.side_by_side,
        arrivals=Arrivals(broker.connection_counts.opened),
        new_member_id=_member_id,
        wall_ms=clock.now_ms,
        loaded=lambda: broker.offsets.look_for_deleted(),
    )


def _offset_coordinator(broker: Broker) -> OffsetCoordinator:
    return OffsetCoordinator(
        broker.groups.runtime,
        settings=broker.current_settings,
        loop=broker.loop,
        wall_ms=clock.now_ms,
        deletion_ms=broker.deletion_clock.now_ms,
    )


def _controller_routes(settings: BrokerSettings) -> Routes:
    """What is served on the listeners of the controller, if there are any."""
    if not settings.controller_listeners:
        return Routes({})
    from broker.network.controller_handlers import CONTROLLER_HANDLERS  # most brokers don't need it

    return Routes(served(CONTROLLER_HANDLERS))


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


def new_event_loop() -> asyncio.AbstractEventLoop:
    """uvloop's loop, or the standard one where uvloop has no build."""
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop()
    return uvloop.new_event_loop()


def serve(settings: BrokerSettings, *, as_json: bool = False) -> None:
    """Run a broker until SIGTERM or SIGINT. Raises StartRefused."""
    descriptors.raise_limit()
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    loop = new_event_loop()
    asyncio.set_event_loop(loop)
    try:
        loop.run_until_complete(_serve(settings, loop, as_json=as_json))
    finally:
        loop.close()


async def _serve(
    settings: BrokerSettings, loop: asyncio.AbstractEventLoop, *, as_json: bool
) -> None:
    running = await start(settings, loop)
    stop = asyncio.Event()
    for name in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(name, stop.set)
    running.announce(as_json=as_json)
    # What start-up made lives as long as the process; the collector need not look at it again.
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 50)
    await stop.wait()
    await running.stop()


async def start(settings: BrokerSettings, loop: asyncio.AbstractEventLoop) -> Running:
    """Open the data directory and listen. Raises StartRefused; nothing is left open then."""
    files = DiskFilesystem()
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
    broker = None
    try:
        store, reports = open_metadata(
            files,
            path,
            directory.identity,
            now_ms=clock.now_ms,
            settings=MetadataLogSettings(
                settings.metadata_log_segment_bytes, settings.metadata_log_segment_ms
            ),
        )
        broker = Broker(settings, loop, directory, store, clock_state)
        broker.dynamic_settings.apply()
        broker.controller.register()
        reports += broker.topics.load(now_ms=clock.now_ms())
        broker.groups.start(broker.controller.image.configs)
        await _listen(broker)
        scrapes = None if settings.metrics_port is None else await _listen_for_scrapes(broker)
    except (DataDirectoryError, ConfigError, OSError, StartRefused) as error:
        if broker is not None:
            broker.listening.close()
        directory.close()
        raise StartRefused(_why(error, path)) from error
    for report in reports:
        logs.warning("found in the data directory", finding=str(report))
    broker.groups.report_torn_commits(reports)
    housekeeping = Housekeeping(broker)
    housekeeping.start()
    broker.cleaner.start()
    return Running(broker, scrapes, housekeeping)


def _why(error: Exception, path: str) -> str:
    if isinstance(error, OSError):
        return f"the data directory {path} can't be used: {error.strerror or error}"
    return str(error)


async def _listen(broker: Broker) -> None:
    """Open the listeners that the metadata log has for this broker, else those of the start."""
    settings = broker.settings
    set_while_running = "listeners" in settings.layers.this_broker
    if set_while_running:
        logs.info(
            "the listeners are those that were set while the broker ran",
            listeners=", ".join(str(one) for one in settings.listeners),
        )
    wanted = settings.served_listeners
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


async def _listen_for_scrapes(broker: Broker) -> asyncio.Server:
    from broker import metrics  # few brokers are watched, and every import delays the start

    host, port = broker.settings.metrics_host, broker.settings.metrics_port
    assert port is not None
    try:
        server = await metrics.listen(broker, host, port)
    except OSError as error:
        reason = error.strerror or str(error)
        raise StartRefused(
            f"can't listen on {host}:{port}: {reason} (metrics.port and metrics.host)"
        ) from error
    taken = server.sockets[0].getsockname()[1]
    logs.info("metrics are served", url=f"http://{host}:{taken}/metrics")
    return server


class Running:
    """A started broker and how to stop it."""

    def __init__(
        self, broker: Broker, scrapes: asyncio.AbstractServer | None, housekeeping: Housekeeping
    ) -> None:
        """`scrapes` serves the metrics, if somebody wants them."""
        self.broker = broker
        self._scrapes = scrapes
        self._housekeeping = housekeeping
        self.host, self.port = broker.listening.address

    def announce(self, *, as_json: bool) -> None:
        """Print the ready line, and tell the service manager."""
        started_ms = clock.process_age_ms()
        data = os.path.abspath(self.broker.settings.data_directory)  # noqa: PTH100 - start-up time
        if as_json:
            import json

            line = json.dumps(
                {
                    "event": "ready",
                    "version": VERSION,
                    "host": self.host,
                    "port": self.port,
                    "data": data,
                    "started_ms": started_ms,
                }
            )
        else:
            line = (
                f"triglot {VERSION} ready: listening on {self.host}:{self.port}, "
                f"data in {data}, started in {started_ms} ms"
            )
        print(line, file=sys.stdout, flush=True)
        notify(READY="1", STATUS=f"listening on {self.host}:{self.port}, data in {data}")

    async def stop(self) -> None:
        """Finish what is in flight, then close every log and mark the directory clean."""
        broker = self.broker
        notify(STOPPING="1")
        self._housekeeping.stop()  # which could have a listener go on
        broker.descriptors.release()
        broker.listening.close()
        if self._scrapes is not None:
            self._scrapes.close()
        await broker.cleaner.stop()
        await broker.connections.close(STOP_WITHIN_S)
        broker.groups.loads.stop()
        broker.groups.snapshotting.stop()
        broker.syncer.stop()
        broker.checkpointer.stop()
        broker.readers.stop()
        broker.cleaner.discard_unfinished()
        broker.converter.stop()
        broker.expander.stop()
        broker.disk.release()
        broker.deletion_clock.stop()
        broker.groups.snapshotting.write_all()
        broker_epoch = broker.controller.close()
        clean = broker.directory.close(broker_epoch=broker_epoch, run_all=broker.side_by_side)
        broker.side_by_side.stop()
        logs.info("stopped", clean=clean)
