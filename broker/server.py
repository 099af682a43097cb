"""The ways in: a broker is put together, started and stopped, in order.

Start: lock and open the data directory, load the topics, listen, print one ready line. Stop: take
no more connections, answer what was asked, write and sync every log, leave the clean marker.
"""

from __future__ import annotations

import asyncio
import gc
import os
import sys
from functools import partial
from typing import TYPE_CHECKING, Any

from broker import clock, logs
from broker._version import VERSION
from broker.assembly import Broker
from broker.background import deletion_clock, scrubber
from broker.background.checkpoints import AT_MOST_EVERY_S, SYNCED_EVERY_S
from broker.background.housekeeping import Housekeeping
from broker.census import LOOK_EVERY_S as CENSUS_EVERY_S
from broker.coordinator.loading import snapshotting
from broker.event_loop import new_event_loop, on_stop_signal
from broker.metadata import client_quotas, controller
from broker.network import descriptors, secured
from broker.network.connections import IDLE_CHECK_EVERY_S
from broker.network.listening import CannotListen
from broker.network.secured import warn_of_open_listeners
from broker.notify import notify, tell_alive, watchdog_period_s
from broker.partitions.disk_state import LOOK_EVERY_S as DISK_EVERY_S
from broker.surroundings import SURROUNDINGS
from config import ConfigError
from storage.data_dir import DataDirectory
from storage.errors import DataDirectoryError
from storage.layout import RESERVE
from storage.metadata.metadata_log import MetadataLogSettings
from storage.metadata.opening import open_metadata
from storage.trusted_time import read_clock_state

if TYPE_CHECKING:
    from collections.abc import Coroutine, Sequence

    from broker.background.housekeeping import Task
    from broker.console import Console
    from broker.faults.injection import FaultInjection
    from broker.metrics.listener import MetricsListener
    from broker.security.credentials import NewCredential
    from broker.surroundings import Surroundings
    from config import BrokerSettings
    from storage.filesystem import Filesystem

STOP_WITHIN_S = 10.0
"""Time that a stop gives connections to take their answers."""
SWITCH_INTERVAL_S = 0.0005
"""Time that a thread that runs Python code (a conversion without the compiled loops) may keep the
loop waiting; the interpreter's default is ten times that."""


class StartRefused(Exception):
    """The broker can't start; the text is one line for the person who started it."""


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
            new_uuid=surroundings.new_uuid,
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
        if testing is not None:
            await testing.data_is_open()
        broker = Broker(settings, loop, directory, store, clock_state, surroundings)
        reports += broker.load(credentials)
        await _listen(broker)
        scrapes = await listen_for_scrapes(broker, files)
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
    housekeeping = begin_background(broker)
    return Running(broker, housekeeping, scrapes, testing, served)


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
        broker.listener_routes.of(listener.name)  # which says if it is that of another release


async def listen_for_scrapes(broker: Broker, files: Filesystem) -> MetricsListener | None:
    """Serve the metrics where the settings say so. Raises StartRefused."""
    settings = broker.settings.current
    port = settings.metrics_port
    if port is None:
        return None
    if port and broker.neighbours is not None:
        port += broker.neighbours.process  # each has one, as of each listener
    from broker.metrics import listener  # few brokers are watched, and imports delay the start
    from config.keystores import KeystoreError

    try:
        return await listener.listen(broker.metric_sources(), settings, files, port=port)
    except KeystoreError as error:
        raise StartRefused(f"metrics.security.protocol is SSL: {error}") from error
    except OSError as error:
        reason = error.strerror or str(error)
        where = f"{settings.metrics_host}:{port}"
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
        raise StartRefused(f"{error} (--console HOST:PORT)") from error


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
        controller=broker.metadata,
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


def begin_background(broker: Broker, more: Sequence[Task] = ()) -> Housekeeping:
    """Begin with what nobody waits for, and with `more` periodic tasks."""
    housekeeping = Housekeeping(broker.loop, [*more, *_periodic_tasks(broker)])
    broker.flushing.period_changed = partial(housekeeping.set_period, broker.flushing.look)
    broker.flushing.start()
    housekeeping.start()
    broker.retention.start()
    for soon in (
        broker.reserve.look,
        broker.deletion_clock.look,
        broker.producer_expiry.run,
        broker.checkpoints.write_recovered,
    ):
        broker.loop.call_soon(soon)  # when the broker is ready
    broker.cleaner.start()
    return housekeeping


def _periodic_tasks(broker: Broker) -> list[Task]:
    """The periodic tasks, each with its seconds."""
    settings, checkpoints = broker.settings.current, broker.checkpoints
    offsets_s = settings.log_flush_offset_checkpoint_interval_ms / 1000
    aborts_s = settings.transaction_abort_timed_out_transaction_cleanup_interval_ms / 1000
    ids_s = settings.transaction_remove_expired_transaction_cleanup_interval_ms / 1000
    starts_s = settings.log_flush_start_offset_checkpoint_interval_ms / 1000
    tokens_s = settings.delegation_token_expiry_check_interval_ms / 1000
    leader = broker.parts.metadata_leader
    tokens = broker.delegation_tokens() if leader is not None else None
    expiry: list[Task] = []
    if tokens is not None:
        from broker.background.token_expiry import TokenExpiry  # few brokers have any

        expiry = [(tokens_s, TokenExpiry(tokens, broker.metadata, broker.changes).look)]
    watchdog_s = watchdog_period_s()
    return [
        *expiry,
        *([] if watchdog_s is None else [(watchdog_s, tell_alive)]),
        (broker.flushing.period_s, broker.flushing.look),
        (DISK_EVERY_S, broker.reserve.look),
        (descriptors.LOOK_EVERY_S, broker.descriptors.look),
        (max(AT_MOST_EVERY_S, offsets_s), checkpoints.write),
        (max(AT_MOST_EVERY_S, starts_s), checkpoints.write_starts),
        (AT_MOST_EVERY_S, checkpoints.write_if_due),
        (SYNCED_EVERY_S, checkpoints.note_synced),
        (IDLE_CHECK_EVERY_S, broker.connections.close_idle),
        (CENSUS_EVERY_S, partial(_count_clients, broker)),
        (deletion_clock.LOOK_EVERY_S, broker.deletion_clock.look),
        (scrubber.LOOK_EVERY_S, broker.scrubber.look),
        (secured.LOOK_EVERY_S, broker.secure_listeners.look),
        *([] if leader is None else [(controller.LOOK_EVERY_S, leader.look)]),
        (client_quotas.EXPIRE_EVERY_S, broker.quotas.expire),
        (settings.offsets_retention_check_interval_ms / 1000, broker.offsets.look_for_expired),
        (aborts_s, broker.transactions.look_for_timed_out),
        (ids_s, broker.transactions.look_for_expired),
        (settings.producer_id_expiration_check_interval_ms / 1000, broker.producer_expiry.run),
        (snapshotting.LOOK_EVERY_S, broker.groups.snapshotting.look),
    ]


def _count_clients(broker: Broker) -> None:
    """Have the census note who is connected."""
    broker.census.look(connection.context for connection in broker.connections)


class Running:
    """A started broker and how to stop it."""

    def __init__(
        self,
        broker: Broker,
        housekeeping: Housekeeping,
        scrapes: MetricsListener | None,
        testing: FaultInjection | None,
        console: Console | None,
    ) -> None:
        """`scrapes` serves the metrics, if somebody wants them."""
        self.broker = broker
        self.testing = testing
        self._housekeeping = housekeeping
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

    async def stop(self) -> bool:
        """Finish what is in flight, then close every log and mark the directory clean. Whether it
        is."""
        clean = await self.close()
        logs.info("stopped", clean=clean)
        return clean

    async def close(self) -> bool:
        """The same without a word to the log."""
        broker = self.broker
        await asyncio.sleep(0)  # what a start leaves to be done soon is begun, if it was just now
        notify(STOPPING="1")
        self._housekeeping.stop()  # which could have a listener go on
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
        broker.groups.runtime.stop()
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
        broker.reserve.release()
        broker.deletion_clock.stop()
        broker.census.stop()
        broker.groups.snapshotting.write_all()
        broker.close_metadata()
        clean = broker.directory.close(
            broker_epoch=broker.broker_epoch, run_all=broker.side_by_side
        )
        broker.side_by_side.stop()
        return clean
