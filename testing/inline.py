"""A broker in the event loop of the test itself."""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

from broker import logs
from broker.faults.injection import FaultInjection
from broker.server import StartRefused
from broker.server import start as start_broker
from config import ConfigError, load
from testing.contents import Contents, new_cluster
from testing.errors import BrokerFailed
from testing.folders import bytes_max, copy_data, new_folder, place_of
from testing.settings import OF_TESTS, SETTINGS, as_of, of_broker, texts
from testing.surroundings import surroundings

if TYPE_CHECKING:
    from collections.abc import Mapping
    from os import PathLike
    from types import TracebackType
    from typing import Self

    from broker.server import Running
    from client.cluster import Cluster
    from testing.control import Control


class AsyncBroker(Contents):
    """A real broker on a free port of 127.0.0.1, in the running event loop.

        async with AsyncBroker() as broker:
            producer = AIOKafkaProducer(bootstrap_servers=broker.bootstrap)

    It starts fastest, and answers only while the loop turns: what blocks has to be in a thread, as
    in `await asyncio.to_thread(broker.topic("orders").records)`. Its data is removed at the end,
    but stays behind if the process is killed.
    """

    host = "127.0.0.1"

    def __init__(
        self,
        settings: Mapping[str, object] | None = None,
        *,
        directory: str | PathLike[str] | None = None,
        memory: bool | int = False,
        as_version: str | None = None,
    ) -> None:
        """As of `Broker`."""
        self.settings = OF_TESTS | as_of(as_version) | texts(settings)
        self.port = 0
        self._directory = None if directory is None else Path(directory)
        self._memory = memory
        self._folder: str | None = None
        self._running: Running | None = None
        self._injection: FaultInjection | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._cluster: Cluster | None = None

    @property
    def bootstrap(self) -> str:
        """What clients take as bootstrap servers: `127.0.0.1:PORT`."""
        return f"{self.host}:{self.port}"

    async def start(self) -> None:
        """Start it in the running loop. Raises BrokerFailed with the reason."""
        assert self._running is None, "it is running"
        if self._folder is None:
            self._folder = new_folder("triglot-", place_of(self._memory))
            if self._directory is not None:
                copy_data(self._directory, Path(self._folder, "data"))
        logs.configure(level="warning")  # to standard error, which is the test's
        settings = of_broker(self.settings, Path(self._folder, "data"), self.bootstrap)
        self._loop = asyncio.get_running_loop()
        try:
            self._injection = FaultInjection()
            around = surroundings(settings["log.dirs"], bytes_max(self._memory))
            self._running = await start_broker(
                load(overrides=settings, overrides_from=SETTINGS),
                self._loop,
                around,
                testing=self._injection,
            )
        except (ConfigError, StartRefused) as error:
            raise BrokerFailed(f"the broker can't start: {error}") from None
        self.port = self._running.port

    async def stop(self) -> None:
        """Stop it cleanly; data and port are kept for another `start`."""
        if self._running is None:
            raise BrokerFailed("the broker does not run: start() starts it")
        running, self._running = self._running, None
        self._injection = None
        if self._cluster is not None:
            self._cluster.close()
            self._cluster = None
        await running.stop()

    @property
    def cluster(self) -> Cluster:
        """A client of it, for other threads than the loop's."""
        if self._running is None:
            raise BrokerFailed("the broker does not run: start() starts it")
        if asyncio._get_running_loop() is self._loop:
            raise BrokerFailed(
                "the broker runs in this event loop, which can't wait for it: ask it in a thread, "
                "as in `await asyncio.to_thread(broker.topics)`"
            )
        if self._cluster is None:
            self._cluster = new_cluster(self.bootstrap)
        return self._cluster

    @property
    def control(self) -> Control:
        """The interface of its faults (docs/faults.md), for the thread of the loop."""
        from testing.control import Control

        if self._injection is None:
            raise BrokerFailed("the broker does not run: start() starts it")
        return Control(self._injection.interface.call)

    async def __aenter__(self) -> Self:
        try:
            await self.start()
        except BaseException:
            self._remove()
            raise
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            if self._running is not None:
                await self.stop()
        finally:
            self._remove()

    def _remove(self) -> None:
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)
            self._folder = None
