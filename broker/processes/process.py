"""One of the processes: process 0 leads the metadata log, the others follow it."""

from __future__ import annotations

import asyncio
import gc
import os
import socket
import sys
import threading
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from broker import clock, logs
from broker.assembly import Broker
from broker.event_loop import new_event_loop
from broker.metadata.changes import Changes
from broker.metadata.followed_controller import FollowedController
from broker.metadata.follower import MetadataFollower
from broker.metadata.followers import Followers
from broker.metadata.following.effects import ObserverStopped
from broker.metadata.following.machine import ObserverMachine
from broker.metadata.moves import Moves
from broker.neighbours import Neighbours
from broker.network.forwarding import Forwarding
from broker.network.peer import Peer
from broker.network.secured import warn_of_open_listeners
from broker.partitions.internal_topics import TRANSACTION_TOPIC
from broker.processes.groups_elsewhere import GroupsElsewhere
from broker.processes.internal import internal_connection
from broker.processes.offsets_elsewhere import OffsetsElsewhere
from broker.server import (
    SWITCH_INTERVAL_S,
    Running,
    StartRefused,
    begin_background,
    listen_for_scrapes,
)
from broker.supervision.line import ALL, BEAT, GONE, HERE, LED, READY, REFUSED, STOPPED
from broker.supervision.machine import BEAT_EVERY_S
from broker.surroundings import SURROUNDINGS
from broker.workers import Worker
from config import ConfigError
from protocol.errors import ErrorCode, KafkaError
from protocol.messages.create_topics import CreateTopicsRequest, CreateTopicsResponse
from storage.data_dir import DataDirectory
from storage.errors import DataDirectoryError
from storage.identity import uuid_of
from storage.layout import RESERVE
from storage.metadata.image_topics import FollowedTopics
from storage.metadata.metadata_log import MetadataLogSettings
from storage.metadata.opening import open_metadata
from storage.share import LastStop, LockOfAll, Share
from storage.trusted_time import read_clock_state

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from broker.processes.shared import Shared
    from broker.supervision.line import Line
    from storage.log import Log
    from storage.metadata.delta import Delta
    from storage.reports import RecoveryReport
    from storage.steps import Job, Steps

EXIT_REFUSED = 1
OF_THE_SUPERVISOR = ("NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID")
"""Variables by which the service manager watches the process that it has started."""
CREATE_WITHIN_MS = 30_000
SETTLED_WITHIN_S = 10.0
"""Time for answers to who waits for a log that moves; a sync takes milliseconds."""
CLEANER_PAUSE_S = 0.05
FOLLOW_AGAIN_EVERY_S = 5.0
"""Interval in which folders are tried again that the disk refused."""

T = TypeVar("T")


def serve(shared: Shared, number: int, line: Line, led: dict[str, Any]) -> int:
    """What a process does, from its fork to its exit status."""
    logs.say_always(process=number)
    for name in OF_THE_SUPERVISOR:
        os.environ.pop(name, None)
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    for other, bound in enumerate(shared.bound):
        if other != number:
            shared.internal[other].close()
            for sockets in bound.values():
                for one in sockets:
                    one.close()
    loop = new_event_loop()
    asyncio.set_event_loop(loop)
    process = Process(shared, number, line, led, loop)
    try:
        return loop.run_until_complete(process.run())
    finally:
        loop.close()


class Process:
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
        self._following: asyncio.Task[None] | None = None
        self._follows = Changes(loop, Worker(loop, "follow"))
        self._learning: asyncio.Task[None] | None = None
        self._stop = asyncio.Event()
        others = [one for one in range(shared.processes) if one != number]
        self._neighbours = Neighbours(
            shared.settings.node_id,
            shared.ports,
            number,
            GroupsElsewhere([partial(self._connect, one) for one in others]),
        )
        self._followers = Followers(self._neighbours.ids[1:])
        self._internal: asyncio.AbstractServer | None = None

    async def run(self) -> int:
        gc.disable()
        try:
            with self._line.beating(BEAT_EVERY_S):  # one log may take minutes
                reports = await self._before_the_stop(
                    self._follow() if self._number else self._lead()
                )
            if reports is None:
                self._line.say(STOPPED, clean=False)
                return 0
            running = await self._serve(reports)
        except (DataDirectoryError, ConfigError, ObserverStopped, StartRefused, OSError) as error:
            self._line.say(REFUSED, why=str(error))
            return EXIT_REFUSED
        self._beat()
        self._line.say(READY)
        if self._following is None:
            await self._stop.wait()
        else:
            await self._before_the_stop(self._following)
        clean, broker = await running.stop(), self._broker
        self._line.say(STOPPED, clean=clean, broker_epoch=broker.broker_epoch)
        return 0

    async def _before_the_stop(self, doing: Awaitable[T]) -> T | None:
        """What this comes to; None if this process is to stop before that."""
        done = asyncio.ensure_future(doing)
        stop = self._loop.create_task(self._stop.wait())
        await asyncio.wait((done, stop), return_when=asyncio.FIRST_COMPLETED)
        stop.cancel()
        if done.done():
            return done.result()
        done.cancel()
        return None

    async def _serve(self, reports: list[RecoveryReport]) -> Running:
        for report in reports:
            logs.warning("found in the data directory", finding=str(report))
        broker, bound = self._broker, self._shared.bound[self._number]
        broker.groups.report_torn_commits(reports)
        broker.topics.settled = self._settled
        offsets = OffsetsElsewhere(broker.topics, self._coordinator, self._connect)
        broker.offsets.elsewhere = offsets.stored_offset
        broker.retention.learn = partial(self._learn, offsets)
        broker.secure_listeners.open()
        if self._number:
            await self._listen_to_others()
        else:  # it is said once for all of them
            warn_of_open_listeners(self._settings, self._settings.client_listeners)
        scrapes = await listen_for_scrapes(broker, SURROUNDINGS.files)
        broker.listening.take(list(bound), bound)
        await broker.listening.begun()
        more = (FOLLOW_AGAIN_EVERY_S, self._follow_again)
        running = Running(broker, begin_background(broker, [more]), scrapes, None, None)
        gc.collect()
        gc.freeze()
        gc.set_threshold(50_000, 20, 50)
        gc.enable()
        return running

    def _coordinator(self, group: str) -> int | None:
        runtime = self._broker.groups.runtime
        if not runtime.is_elsewhere(group):
            return None
        return runtime.leader_id(group) - self._shared.settings.node_id

    def _learn(self, offsets: OffsetsElsewhere, then: Callable[[], None]) -> None:
        self._learning = self._loop.create_task(offsets.look())
        self._learning.add_done_callback(lambda _: then())

    def _settled(self, log: Log) -> Job:
        """Write what is queued for a log that is to be closed; the job waits for those who wait for
        it, and for a compaction that is at work on it."""
        broker, answered = self._broker, threading.Event()
        broker.appends.write()
        broker.group_commit.wait([log], lambda _: answered.set())

        def wait() -> None:
            answered.wait(SETTLED_WITHIN_S)
            while broker.cleaner.is_at_work_on(log):
                clock.sleep(CLEANER_PAUSE_S)

        return wait

    async def _listen_to_others(self) -> None:
        self._internal = await self._loop.create_unix_server(
            partial(internal_connection, self._broker),
            sock=self._shared.internal[self._number].dup(),
        )

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
        first_id = self._shared.settings.node_id
        broker.parts.moves = Moves(
            leader.store,
            broker.changes,
            lambda number: number == 0 or followers.lives(first_id + number),
        )
        broker.changes.followed = lambda then: followers.wait(leader.committed_offset, then)

    def _beat(self) -> None:
        """Say that the loop turns, now and from now on."""
        self._line.say(BEAT)
        self._loop.call_later(BEAT_EVERY_S, self._beat)

    def _directory(self, share: Share) -> DataDirectory:
        files, path = SURROUNDINGS.files, self._settings.data_directory
        files.remove(f"{path}/{share.own(RESERVE)}")  # recovery may need the room
        return DataDirectory(
            files, path, LockOfAll(), self._shared.identity, SURROUNDINGS.new_uuid, share
        )

    async def _opened(self, changes: Changes) -> list[RecoveryReport]:
        """Open the logs, as the first of the changes: others wait, and what else the loop has to do
        is done between two logs."""
        opened: asyncio.Future[list[RecoveryReport]] = self._loop.create_future()
        changes.make(self._broker.open(), opened.set_result, opened.set_exception)
        return await opened

    async def _lead(self) -> list[RecoveryReport]:
        files, settings = SURROUNDINGS.files, self._settings
        path = settings.data_directory
        clock_state = read_clock_state(files, path)
        share = Share(0, self._last_stop())
        directory = self._directory(share)
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
        self._broker = broker = Broker(
            settings,
            self._loop,
            directory,
            store,
            clock_state,
            SURROUNDINGS,
            neighbours=self._neighbours,
        )
        self._require_what_is_served(broker)
        broker.lead(self._shared.credentials, comes_back=bool(self._led))
        self._answer_when_followed(broker)
        self._line.listen(self._loop, stop=self._stop.set, told=self._told)
        await self._listen_to_others()
        assert share.last_stop is not None
        self._line.say(
            LED,
            since=store.led_since,
            was_clean=share.last_stop.was_clean,
            led_alone=share.last_stop.led_alone,
        )
        if not self._led:
            await self._all_follow(broker)
        return reports + await self._opened(broker.changes)

    async def _all_follow(self, broker: Broker) -> None:
        """Wait for the others, so that all open their logs at once: none would be answered while
        one is recovered here."""
        all_follow = asyncio.Event()
        self._followers.all_come()
        self._followers.wait(broker.controller.committed_offset, all_follow.set)
        await all_follow.wait()

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
        self._line.listen(self._loop, stop=self._stop.set, told=self._told)
        identity, settings = self._shared.identity, self._settings
        opened: asyncio.Future[list[RecoveryReport]] = self._loop.create_future()

        async def caught_up() -> None:
            opened.set_result(await self._open_what_is_led(follower))

        follower = MetadataFollower(
            ObserverMachine(
                cluster_id=identity.cluster_id,
                replica_id=settings.node_id,
                directory_id=uuid_of(identity.directory_id),
            ),
            self._connect,
            follow=self._parts_follow,
            caught_up=caught_up,
        )
        self._following = self._loop.create_task(follower.run())
        await asyncio.wait((self._following, opened), return_when=asyncio.FIRST_COMPLETED)
        if not opened.done():
            self._following.result()  # raises what has ended it
        return opened.result()

    async def _open_what_is_led(self, follower: MetadataFollower) -> list[RecoveryReport]:
        settings, led = self._settings, self._led
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
            neighbours=self._neighbours,
        )
        self._broker.lead()
        return await self._opened(self._follows)

    async def _connect(self, number: int = 0) -> Peer:
        """To another process, the controller if none is named. Raises PeerLost."""
        address = self._shared.addresses[number]

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
            _not_followed(error)
            followed.set_result(None)

        authorizer, image = self._broker.parts.authorizer, self._broker.metadata.image
        if authorizer is not None and authorizer.acls is not image.acls:
            authorizer.take(image.acls)  # a snapshot has taken the place of all
        # Not by the queue of the changes that clients ask for: one of them may wait for this.
        steps = self._broker.application.follow(delta)
        self._follows.make(steps, followed.set_result, failed)
        await followed
        self._tell_refused(None)

    def _follow_again(self) -> None:
        """Make what the disk has refused, if it has room by now."""
        if self._broker.topics.refused:
            changes = self._follows if self._number else self._broker.changes
            changes.make(self._refused_again(), self._tell_refused, _not_followed)

    def _refused_again(self) -> Steps[None]:
        topics = self._broker.topics
        refused = [one for one in topics.refused if self._broker.store.by_id(one) is not None]
        topics.refused.clear()
        yield from topics.follow(refused)

    def _tell_refused(self, _: None) -> None:
        store = self._broker.store
        for topic_id, error in self._broker.topics.refused.items():
            stored = store.by_id(topic_id)
            if stored is not None:
                logs.error_once_a_minute(
                    "a topic is not served, for its folders are not made", str(error), stored.name
                )


def _nothing(_: None) -> None:
    """A new epoch has begun, and all follow."""


def _not_followed(error: Exception) -> None:
    logs.error("a change of the metadata was not followed", exc_info=error)


def _not_begun(error: Exception) -> None:
    logs.error("a process that died is led in its old epoch", reason=str(error))
