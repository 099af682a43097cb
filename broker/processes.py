"""Several processes that serve one data directory: `triglot serve --processes N`.

The supervisor takes what they share, before there is any of them: the lock, the identity, the
sockets that listen. Process 0 leads the metadata log. The others follow it over a Unix socket that
has no name in the file system, and nobody but this user may connect to.
"""

from __future__ import annotations

import asyncio
import gc
import os
import socket
import struct
import sys
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from broker import clock, logs
from broker._version import VERSION
from broker.assembly import Broker
from broker.event_loop import new_event_loop
from broker.metadata.changes import Changes
from broker.metadata.followed_controller import FollowedController
from broker.metadata.follower import MetadataFollower
from broker.metadata.followers import Followers
from broker.metadata.following.machine import ObserverMachine
from broker.neighbours import Neighbours
from broker.network import descriptors
from broker.network.connection import Connection
from broker.network.forwarding import Forwarding
from broker.network.listening import CannotListen, listening_sockets
from broker.network.peer import Peer
from broker.notify import notify
from broker.partitions.internal_topics import TRANSACTION_TOPIC
from broker.security.principal import PROCESS
from broker.server import SWITCH_INTERVAL_S, Running, StartRefused, begin_background
from broker.supervision.line import ALL, BEAT, GONE, HERE, LED, READY, REFUSED, STOPPED
from broker.supervision.machine import BEAT_EVERY_S
from broker.supervision.supervisor import Supervisor
from broker.surroundings import SURROUNDINGS
from broker.workers import Worker
from config import ConfigError
from config.platforms import PORTABLE
from protocol.errors import ErrorCode, KafkaError
from protocol.messages.create_topics import CreateTopicsRequest, CreateTopicsResponse
from storage.data_dir import DataDirectory
from storage.errors import DataDirectoryError
from storage.identity import uuid_of
from storage.layout import RESERVE
from storage.metadata.image_topics import FollowedTopics
from storage.metadata.metadata_log import MetadataLogSettings
from storage.metadata.opening import open_metadata
from storage.share import LastStop, LockOfAll, Share, join_clean_states
from storage.trusted_time import read_clock_state

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from broker.network.listening import Bound
    from broker.security.credentials import NewCredential
    from broker.supervision.line import Line
    from config import BrokerSettings
    from storage.identity import MetaProperties
    from storage.metadata.delta import Delta
    from storage.reports import RecoveryReport

INTERNAL = "INTERNAL"
"""The listener of processes for each other."""
EXIT_REFUSED = 1
OF_THE_SUPERVISOR = ("NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID")
"""Variables by which the service manager watches the process that it has started."""
CREATE_WITHIN_MS = 30_000
_CREDENTIALS = struct.Struct("3i")
"""struct ucred: process, user, group."""


class Shared(NamedTuple):
    """What processes have from their supervisor."""

    settings: BrokerSettings
    identity: MetaProperties
    credentials: Sequence[NewCredential]
    bound: list[Bound]
    """Sockets of clients' listeners, by process."""
    internal: list[socket.socket]
    """Those for each other, by process."""

    @property
    def processes(self) -> int:
        return len(self.bound)

    @property
    def neighbours(self) -> Neighbours:
        names = [one.name for one in self.bound[0]]
        ports = {
            name: [one.port for bound in self.bound for one in bound if one.name == name]
            for name in names
        }
        return Neighbours(self.settings.node_id, ports)


def why_alone(*, testing: bool) -> str | None:
    """Why one process is all that can serve, whatever broker.processes says; None if that is not
    so. `testing`: a test may break the broker."""
    if testing:
        return "--testing and --faults are for one process (broker.processes)"
    if PORTABLE:
        return "several processes (broker.processes) are served by Linux alone"
    return None


def serve_processes(
    settings: BrokerSettings,
    *,
    as_json: bool = False,
    credentials: Sequence[NewCredential] = (),
) -> None:
    """Run as many processes as `settings` say until SIGTERM or SIGINT. Raises StartRefused."""
    count = settings.broker_processes or len(os.sched_getaffinity(0))
    files, path = SURROUNDINGS.files, settings.data_directory
    descriptors.raise_limit()
    directory = None
    try:
        directory = DataDirectory.take(
            files,
            path,
            node_id=settings.node_id,
            new_uuid=SURROUNDINGS.new_uuid,
            cluster_id=settings.cluster_id,
            for_processes=True,
        )
        shared = Shared(
            settings,
            directory.identity,
            credentials,
            [_bind(settings, number) for number in range(count)],
            [_internal_socket() for _ in range(count)],
        )
    except (DataDirectoryError, OSError) as error:
        if directory is not None:
            directory.release()
        raise StartRefused(str(error)) from error

    def announce() -> None:
        # Whoever comes back from now on comes back from a crash, to a directory that is ours.
        supervisor.led |= {"was_clean": False, "led_alone": True}
        _announce(shared, as_json=as_json)

    supervisor = Supervisor(count, partial(_serve, shared), announce)
    finish = supervisor.run()
    if finish.clean:
        try:
            join_clean_states(files, path, count, broker_epoch=supervisor.broker_epoch)
        except (OSError, ValueError, KeyError, TypeError) as error:
            logs.error("the stop is not noted as a clean one", reason=str(error))
    directory.release()
    if finish.failed:
        raise StartRefused(supervisor.refusal or "a process could not start; its log says why")


def _bind(settings: BrokerSettings, number: int) -> Bound:
    """Listen for clients of a process: on the ports of the settings, counted up. Raises
    CannotListen."""
    bound: Bound = {}
    for listener in settings.client_listeners:
        wanted = listener._replace(port=listener.port and listener.port + number)
        sockets = listening_sockets(wanted)
        bound[wanted._replace(port=sockets[0].getsockname()[1])] = sockets
    return bound


def _internal_socket() -> socket.socket:
    one = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    one.setblocking(False)
    one.bind(b"\0triglot-" + os.urandom(16).hex().encode())
    one.listen()
    return one


def _announce(shared: Shared, *, as_json: bool) -> None:
    """Print the ready line."""
    first = next(iter(shared.bound[0]))
    ports = shared.neighbours.ports[first.name]
    data = os.path.abspath(shared.settings.data_directory)  # noqa: PTH100 - start-up time
    started_ms = clock.process_age_ms()
    host = next(iter(shared.bound[0].values()))[0].getsockname()[0]
    if as_json:
        import json

        facts = {
            "event": "ready",
            "version": VERSION,
            "host": host,
            "port": ports[0],
            "ports": list(ports),
            "data": data,
            "started_ms": started_ms,
        }
        line = json.dumps(facts)
    else:
        told = ", ".join(map(str, ports))
        line = (
            f"triglot {VERSION} ready: {shared.processes} processes, listening on {host}:{told}, "
            f"data in {data}, started in {started_ms} ms"
        )
    print(line, file=sys.stdout, flush=True)
    notify(READY="1", STATUS=f"{shared.processes} processes, data in {data}")


# In a process


def _serve(shared: Shared, number: int, line: Line, led: dict[str, Any]) -> int:
    """What a process does, from its fork to its exit status."""
    logs.say_always(process=number)
    for name in OF_THE_SUPERVISOR:
        os.environ.pop(name, None)
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    for other, bound in enumerate(shared.bound):
        if other != number:
            shared.internal[other].close() if other else None
            for sockets in bound.values():
                for one in sockets:
                    one.close()
    loop = new_event_loop()
    asyncio.set_event_loop(loop)
    process = _Process(shared, number, line, led, loop)
    try:
        return loop.run_until_complete(process.run())
    finally:
        loop.close()


class _Process:
    """One of the processes, in itself."""

    def __init__(
        self,
        shared: Shared,
        number: int,
        line: Line,
        led: dict[str, Any],
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        self._shared = shared
        self._number = number
        self._line = line
        self._led = led
        self._loop = loop
        self._settings = shared.settings.of_process(number)
        self._broker: Broker
        self._beat_s = 0.0
        self._following: asyncio.Task[None] | None = None
        self._follows = Changes(loop, Worker(loop, "follow"))
        self._followers = Followers(shared.neighbours.ids[1:])
        self._internal: asyncio.AbstractServer | None = None

    async def run(self) -> int:
        gc.disable()
        stop = asyncio.Event()
        self._line.listen(self._loop, stop=stop.set, told=self._told)
        self._beat()
        try:
            reports = await (self._follow() if self._number else self._lead())
        except (DataDirectoryError, ConfigError, CannotListen, OSError) as error:
            self._line.say(REFUSED, why=str(error))
            return EXIT_REFUSED
        for report in reports:
            logs.warning("found in the data directory", finding=str(report))
        broker = self._broker
        bound = self._shared.bound[self._number]
        broker.secure_listeners.open()
        broker.listening.take(list(bound), bound)
        await broker.listening.begun()
        running = Running(broker, begin_background(broker), None, None, None)
        gc.collect()
        gc.freeze()
        gc.set_threshold(50_000, 20, 50)
        gc.enable()
        self._line.say(READY)
        await stop.wait()
        if self._following is not None:
            self._following.cancel()
        self._line.say(STOPPED, clean=await running.stop(), broker_epoch=broker.broker_epoch)
        return 0

    def _beat_between(self) -> None:
        """The loop does not turn while logs are opened, and nothing hangs."""
        now_s = SURROUNDINGS.monotonic_s()
        if now_s - self._beat_s >= BEAT_EVERY_S:
            self._beat_s = now_s
            self._line.say(BEAT)

    def _told(self, word: str, number: int) -> None:
        """The supervisor tells the controller of the others."""
        node_id = self._shared.settings.node_id + number
        if word == ALL:
            self._broker.directory.checkpoints.all_opened()
        elif word == HERE and number:
            self._followers.came(node_id)
        elif word == GONE:
            self._followers.gone(node_id)
            leader = self._broker.controller
            self._broker.changes.make(leader.store.new_epoch(number), _nothing, _not_begun)

    def _answer_when_followed(self, broker: Broker) -> None:
        leader, followers = broker.controller, self._followers
        leader.observers.heard = followers.followed
        broker.changes.followed = lambda then: followers.wait(leader.committed_offset, then)

    def _beat(self) -> None:
        """Say that the loop turns, now and from now on."""
        self._line.say(BEAT)
        self._loop.call_later(BEAT_EVERY_S, self._beat)

    def _directory(self, share: Share) -> DataDirectory:
        directory = DataDirectory(
            SURROUNDINGS.files,
            self._settings.data_directory,
            LockOfAll(),
            self._shared.identity,
            SURROUNDINGS.new_uuid,
            share,
        )
        directory.opened_one = self._beat_between
        return directory

    async def _lead(self) -> list[RecoveryReport]:
        files, settings = SURROUNDINGS.files, self._settings
        path = settings.data_directory
        clock_state = read_clock_state(files, path)
        files.remove(f"{path}/{RESERVE}")  # recovery may need the room
        store, reports = open_metadata(
            files,
            path,
            self._shared.identity,
            now_ms=SURROUNDINGS.now_ms,
            settings=MetadataLogSettings(
                settings.metadata_log_segment_bytes, settings.metadata_log_segment_ms
            ),
            processes=self._shared.processes,
        )
        share = Share(0, self._last_stop())
        directory = self._directory(share)
        self._broker = broker = Broker(
            settings,
            self._loop,
            directory,
            store,
            clock_state,
            SURROUNDINGS,
            neighbours=self._shared.neighbours,
        )
        self._require_what_is_served(broker)
        reports += broker.load(self._shared.credentials, comes_back=bool(self._led))
        self._answer_when_followed(broker)
        self._internal = await self._loop.create_unix_server(
            partial(_internal_connection, broker), sock=self._shared.internal[0].dup()
        )
        assert share.last_stop is not None
        self._line.say(
            LED,
            since=store.led_since,
            was_clean=share.last_stop.was_clean,
            led_alone=share.last_stop.led_alone,
        )
        return reports

    def _require_what_is_served(self, broker: Broker) -> None:
        """Raises DataDirectoryError for a directory of which several processes can't serve all."""
        if TRANSACTION_TOPIC in broker.store.image.topics:
            raise DataDirectoryError(
                f"the directory has transactions ({TRANSACTION_TOPIC}), which are for one process: "
                "start it without --processes"
            )
        broker.dynamic_settings.apply()
        if "listeners" in broker.settings.current.layers.this_broker:
            raise DataDirectoryError(
                "listeners were set while the broker ran, which is for one process: start it "
                "without --processes and delete them (kafka-configs --delete-config listeners)"
            )

    def _last_stop(self) -> LastStop | None:
        """What the controller found when all began; for one that comes back, a crash."""
        if not self._led:
            return None
        return LastStop(was_clean=False, led_alone=True)

    async def _follow(self) -> list[RecoveryReport]:
        identity, settings = self._shared.identity, self._settings
        caught_up = asyncio.Event()
        follower = MetadataFollower(
            ObserverMachine(
                cluster_id=identity.cluster_id,
                replica_id=settings.node_id,
                directory_id=uuid_of(identity.directory_id),
            ),
            self._connect,
            follow=self._parts_follow,
            caught_up=caught_up.set,
        )
        self._following = self._loop.create_task(follower.run())
        await caught_up.wait()
        led = self._led
        last_stop = LastStop(was_clean=led["was_clean"], led_alone=led["led_alone"])
        share = Share(self._number, last_stop)
        first_id = self._shared.settings.node_id
        self._broker = Broker(
            settings,
            self._loop,
            self._directory(share),
            FollowedTopics(
                lambda: follower.image,
                first_id,
                led_since=led["since"],
                make_elsewhere=self._make_topic,
            ),
            None,
            SURROUNDINGS._replace(faulted=Forwarding(self._connect).handlers),
            followed=FollowedController(follower, first_id),
            neighbours=self._shared.neighbours,
        )
        return self._broker.load()

    async def _connect(self) -> Peer:
        address = self._shared.internal[0].getsockname()

        async def connect(protocol: Callable[[], asyncio.BaseProtocol]) -> None:
            one = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            one.setblocking(False)
            try:
                one.connect(address)  # at once, or refused
                await self._loop.create_unix_connection(protocol, sock=one)
            except BaseException:
                one.close()
                raise

        return await Peer.connected(connect, f"process-{self._number}".encode())

    def _make_topic(self, name: str, partitions: int) -> None:
        """Have the controller make a topic; on a thread of its own. Raises KafkaError."""
        topic = CreateTopicsRequest.Topic(
            name=name, num_partitions=partitions, replication_factor=-1, assignments=[], configs=[]
        )
        request = CreateTopicsRequest(topics=[topic], timeout_ms=CREATE_WITHIN_MS)

        async def ask() -> CreateTopicsResponse:
            peer = await self._connect()
            try:
                return await peer.ask(request, CreateTopicsResponse)
            finally:
                peer.close()

        try:
            answer = asyncio.run_coroutine_threadsafe(ask(), self._loop).result()
        except ConnectionError as error:
            raise KafkaError(str(error), code=ErrorCode.COORDINATOR_NOT_AVAILABLE) from error
        code = answer.topics[0].error_code
        if code not in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS):
            raise KafkaError(code=ErrorCode(code))

    async def _parts_follow(self, delta: Delta) -> None:
        followed: asyncio.Future[None] = self._loop.create_future()

        def failed(error: Exception) -> None:
            logs.error("a change of the metadata was not followed", exc_info=error)
            followed.set_result(None)

        authorizer, image = self._broker.parts.authorizer, self._broker.metadata.image
        if authorizer is not None and authorizer.acls is not image.acls:
            authorizer.take(image.acls)  # a snapshot has taken the place of all
        # Not by the queue of the changes that clients ask for: one of them may wait for this.
        steps = self._broker.application.follow(delta)
        self._follows.make(steps, followed.set_result, failed)
        await followed


class _InternalConnection(Connection):
    """Of another process; anybody else is turned away."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self.context.principal = PROCESS
        one = transport.get_extra_info("socket")
        found = one.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
        _, user, _ = _CREDENTIALS.unpack(found)
        if user != os.getuid():
            logs.warning("a stranger at the internal socket", user=user)
            transport.close()


def _internal_connection(broker: Broker) -> _InternalConnection:
    return _InternalConnection(
        broker.parts,
        INTERNAL,
        broker.listener_routes.internal,
        backlog=broker.backlog,
        turn=broker.turn,
        admit=lambda _: True,
        lost=lambda _: None,
    )


def _nothing(_: None) -> None:
    """A new epoch has begun, and all follow."""


def _not_begun(error: Exception) -> None:
    logs.error("a process that died is led in its old epoch", reason=str(error))
