"""One of the processes of a directory, as far as they are alike: it begins, opens what it leads,
serves, and stops.

    leading     process 0, which leads the metadata log
    following   the others, which follow it
"""

from __future__ import annotations

import asyncio
import gc
import socket
from abc import ABC, abstractmethod
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from broker import clock, logs
from broker.assembly import Broker
from broker.metadata.changes import Changes
from broker.metadata.following.effects import ObserverStopped
from broker.neighbours import Neighbours
from broker.network.peer import Peer
from broker.network.peers import Peers
from broker.network.secured import warn_of_open_listeners
from broker.processes.groups_elsewhere import GroupsElsewhere
from broker.processes.handover import BrokerHandover
from broker.processes.internal import internal_connection
from broker.processes.offsets_elsewhere import OffsetsElsewhere
from broker.processes.shared_reserve import SharedReserve
from broker.server import Running, StartRefused, begin_background, listen_for_scrapes
from broker.supervision.line import AGAIN, BEAT, FULL, READY, REFUSED, ROOM, STOPPED
from broker.supervision.machine import BEAT_EVERY_S
from broker.surroundings import SURROUNDINGS
from config import ConfigError
from storage.data_dir import DataDirectory
from storage.errors import DataDirectoryError, is_disk_full
from storage.share import LockOfAll, Share

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from broker.metrics.listener import MetricsListener
    from broker.processes.shared import Figures, Shared
    from broker.supervision.line import Line
    from storage.reports import RecoveryReport
    from storage.steps import Steps

EXIT_REFUSED = 1
FOLLOW_AGAIN_EVERY_S = 5.0
"""Interval in which folders are tried again that the disk refused."""

T = TypeVar("T")


class PutInOrder(Exception):
    """The directory was not one that several processes can serve, and now it is: another process is
    to begin in the place of this one, which has been all of them."""


class Process(ABC):
    """One of the processes, in itself. Belongs to the loop."""

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
        self._learning: asyncio.Task[None] | None = None
        self._stop = asyncio.Event()
        others = [one for one in range(shared.processes) if one != number]
        self._neighbours = Neighbours(
            shared.settings.node_id,
            shared.ports,
            number,
            GroupsElsewhere([partial(self._connect, one) for one in others]),
            Peers(self._connect),
        )
        self._reserve = SharedReserve(line, decides_size=number == 0)
        self._internal: asyncio.AbstractServer | None = None
        self._figures: MetricsListener | None = None

    async def run(self) -> int:
        gc.disable()
        try:
            with self._line.beating(BEAT_EVERY_S):  # one log may take minutes
                reports = await self._before_the_stop(self._begin())
            if reports is None:
                self._line.say(STOPPED, clean=False)
                return 0
            running = await self._serve(reports)
        except PutInOrder:
            self._line.say(AGAIN)
            return 0
        except (DataDirectoryError, ConfigError, ObserverStopped, StartRefused, OSError) as error:
            if is_disk_full(error):  # it is tried again, with the room of the reserve
                self._reserve.noticed(str(error))
            self._line.say(REFUSED, why=str(error))
            return EXIT_REFUSED
        self._beat()
        self._line.say(READY, computing_s=clock.process_s())
        await self._wait_for_the_stop()
        if self._figures is not None:
            self._figures.close()
        clean, broker = await running.stop(), self._broker
        self._line.say(STOPPED, clean=clean, broker_epoch=broker.broker_epoch)
        return 0

    @abstractmethod
    async def _begin(self) -> list[RecoveryReport]:
        """Know the metadata, and open what is led here; what was found on the way. Raises
        PutInOrder, DataDirectoryError, ConfigError, ObserverStopped, OSError."""

    @property
    @abstractmethod
    def _changes(self) -> Changes:
        """The queue in which the parts follow the metadata."""

    def _told(self, word: str, number: int) -> None:
        """The supervisor says this. `number` is that of another process, or -1."""
        if word in (FULL, ROOM):
            self._reserve.told(full=word == FULL)

    async def _wait_for_the_stop(self) -> None:
        await self._stop.wait()

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
        offsets = OffsetsElsewhere(broker.topics, self._coordinator, self._connect)
        broker.offsets.elsewhere = offsets.stored_offset
        broker.retention.learn = partial(self._learn, offsets)
        broker.secure_listeners.open()
        if self._number:
            await self._listen_to_others()
        else:  # it is said once for all of them
            warn_of_open_listeners(self._settings, self._settings.client_listeners)
        scrapes = await listen_for_scrapes(broker, SURROUNDINGS.files)
        if self._shared.figures is not None:
            self._figures = await self._listen_to_the_console(self._shared.figures)
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

    async def _listen_to_others(self) -> None:
        self._internal = await self._loop.create_unix_server(
            partial(internal_connection, self._broker),
            sock=self._shared.internal[self._number].dup(),
        )

    async def _listen_to_the_console(self, figures: Figures) -> MetricsListener:
        from broker.metrics.listener import Credentials, MetricsListener  # few have a console

        sources = self._broker.metric_sources()
        listener = MetricsListener(sources, Credentials(None, figures.token))
        await listener.open_on(figures.sockets[self._number])
        return listener

    def _beat(self) -> None:
        """Say that the loop turns, now and from now on."""
        self._line.say(BEAT)
        self._loop.call_later(BEAT_EVERY_S, self._beat)

    def _directory(self, share: Share | None) -> DataDirectory:
        """The directory with this share in it; with none, all of it."""
        files, path = SURROUNDINGS.files, self._settings.data_directory
        return DataDirectory(
            files, path, LockOfAll(), self._shared.identity, SURROUNDINGS.new_uuid, share
        )

    async def _opened(self) -> list[RecoveryReport]:
        """Open the logs, as the first of the changes: others wait, and what else the loop has to do
        is done between two logs."""
        self._broker.topics.handover = BrokerHandover(self._broker)
        opened: asyncio.Future[list[RecoveryReport]] = self._loop.create_future()
        self._changes.make(self._broker.open(), opened.set_result, opened.set_exception)
        return await opened

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

    def _follow_again(self) -> None:
        """Make what the disk has refused, if it has room by now."""
        if self._broker.topics.refused:
            self._changes.make(self._refused_again(), self._tell_refused, not_followed)

    def _refused_again(self) -> Steps[None]:
        topics = self._broker.topics
        refused = [one for one in topics.refused if self._broker.store.by_id(one) is not None]
        topics.refused.clear()
        yield from topics.follow(refused)

    def _tell_refused(self, _: None) -> None:
        store = self._broker.store
        for topic_id, error in self._broker.topics.refused.items():
            self._broker.disk.noticed(error)
            stored = store.by_id(topic_id)
            if stored is not None:
                logs.error_once_a_minute(
                    "a topic is not served, for its folders are not made", str(error), stored.name
                )


def not_followed(error: Exception) -> None:
    logs.error("a change of the metadata was not followed", exc_info=error)
