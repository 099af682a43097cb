"""Our broker in a thread of the test's process, with a listener for its controller.

    with RunningController(tmp_path) as controller:
        controller.create_topics("orders")
        snapshot_id = controller.take_snapshot()
        with controller.connect() as follower:
            follower.call(fetch_request(...), 17)

The sockets are real, and so are the metadata log and its snapshots. What a running broker decides
for itself (when to take a snapshot, where its log begins, how often it becomes the leader) the test
decides here; it is done on the broker's loop, between two of its turns.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Generator
from typing import TYPE_CHECKING, Any

from broker import clock
from broker.event_loop import new_event_loop
from broker.server import start
from broker.surroundings import Surroundings
from config import load
from protocol.logdata.metadata import NoOpRecord
from storage.steps import run_here
from tests.support.caller import Caller

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path
    from types import TracebackType
    from typing import Self

    from broker.assembly import Broker
    from broker.metadata.controller import Controller
    from broker.server import Running
    from storage.metadata.metadata_log import MetadataLog
    from storage.metadata.snapshots import SnapshotId

HOST = "127.0.0.1"
WITHIN_S = 10.0


class RunningController:
    """One node. `settings` are keys of the broker's configuration."""

    def __init__(self, data: Path, **settings: str) -> None:
        self._now_ms: Callable[[], int] = clock.now_ms
        self._settings = load(
            overrides={
                "log.dirs": str(data),
                "listeners": f"PLAINTEXT://{HOST}:0,CONTROLLER://{HOST}:0",
                "controller.listener.names": "CONTROLLER",
                "metadata.log.max.snapshot.interval.ms": "0",
                **settings,
            }
        )
        self.loop = new_event_loop()
        self._thread = threading.Thread(target=self.loop.run_forever)
        self._running: Running
        self._snapshots = 0

    @property
    def broker(self) -> Broker:
        return self._running.broker

    @property
    def controller(self) -> Controller:
        return self.broker.controller

    @property
    def metadata(self) -> MetadataLog:
        return self.controller.store.log

    @property
    def port(self) -> int:
        """Of the controller's listener."""
        return self.broker.listening.ports["CONTROLLER"]

    def connect(self) -> Caller:
        """A connection to the controller's listener."""
        return Caller(HOST, self.port)

    def connect_as_client(self) -> Caller:
        return Caller(HOST, self.broker.listening.ports["PLAINTEXT"])

    def run(self, do: Callable[[], Any]) -> Any:
        """Have this done on the broker's loop, at once if it is steps; what it returns."""

        async def on_loop() -> Any:
            found = do()
            return run_here(found) if isinstance(found, Generator) else found

        return asyncio.run_coroutine_threadsafe(on_loop(), self.loop).result(WITHIN_S)

    # What a broker decides for itself

    def append(self, count: int = 1) -> int:
        """Append batches of one record that says nothing; the end of the log then."""
        for _ in range(count):
            self.run(lambda: self.controller.append([NoOpRecord()]))
        return self.end_offset

    @property
    def end_offset(self) -> int:
        return self.metadata.end_offset

    @property
    def epoch(self) -> int:
        return self.controller.epoch

    def begin_epoch(self) -> int:
        """Have the node become the leader once more; the new epoch."""
        self.run(lambda: self.metadata.begin_epoch(self.controller.leader_id, now_ms=0))
        return self.epoch

    def take_snapshot(self) -> SnapshotId:
        """Take one of all there is. The log and the older ones stay."""

        def take() -> SnapshotId:
            self._snapshots += 1
            work = self.metadata.begin_snapshot(f"test{self._snapshots}", now_ms=0)
            work.run()
            self.controller.snapshots.add(work.snapshot_id)
            return work.snapshot_id

        snapshot_id: SnapshotId = self.run(take)
        return snapshot_id

    def raise_start(self, offset: int) -> None:
        """Let go of the log before this offset."""
        removal = self.run(lambda: self.metadata.raise_start(offset))
        assert self.metadata.log.start_offset == offset
        if removal is not None:
            removal.set_aside()
            removal.remove()

    def set_clock(self, now_ms: int) -> None:
        """From now on the broker believes that it is this time."""
        self._now_ms = lambda: now_ms

    def __enter__(self) -> Self:
        self._thread.start()
        starting = asyncio.run_coroutine_threadsafe(
            start(self._settings, self.loop, Surroundings(now_ms=lambda: self._now_ms())), self.loop
        )
        try:
            self._running = starting.result(WITHIN_S)
        except BaseException:
            self._end_loop()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        stopping = asyncio.run_coroutine_threadsafe(self._running.stop(), self.loop)
        try:
            stopping.result(2 * WITHIN_S)
        finally:
            self._end_loop()

    def _end_loop(self) -> None:
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join(WITHIN_S)
        self.loop.close()
