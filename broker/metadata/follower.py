"""A process that follows the controller's metadata log, and has its parts follow in turn.

It asks for what comes next when its parts have followed what came before: so the offset that it
asks for tells the controller what this process serves by (`broker.metadata.observers`), and that is
what a change waits for before it is answered.

    fetch -> batches -> replayed -> Application -> fetch from there on

Nothing is kept on the disk: the log is the controller's, and a process that begins asks for all of
it, most of it as a snapshot. It goes on through lost connections, and through a controller that
dies and comes back.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from broker import logs
from broker.metadata.following.effects import (
    Append,
    Commit,
    DropPartial,
    GoTo,
    LoadSnapshot,
    Reset,
    Retry,
    StoreChunk,
    Truncate,
)
from broker.metadata.following.replay import Replay, State, state_of_snapshot
from protocol.logdata.metadata import KRaftVersionRecord
from protocol.messages.fetch import FetchRequest, FetchResponse
from protocol.messages.fetch_snapshot import FetchSnapshotResponse
from protocol.schema import Message
from storage.metadata.delta import Delta, difference
from storage.metadata.snapshot_reading import DamagedSnapshot, read_snapshot_bytes

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from broker.metadata.following.effects import Effect
    from broker.metadata.following.machine import ObserverMachine
    from protocol.logdata.metadata import MetadataRecord
    from protocol.logdata.metadata_names import SnapshotId
    from storage.metadata.image import MetadataImage

Answer = TypeVar("Answer", bound=Message)

WAIT_S = 0.02
WAIT_MAX_S = 0.5
"""The waits between tries: the first, doubled each time, and the longest. A controller that died
is back within a second."""


class Controller(Protocol):
    """A connection to the controller."""

    def ask(self, request: Message, kind: type[Answer]) -> Awaitable[Answer]:
        """Raises ConnectionError."""

    def close(self) -> None: ...


class MetadataFollower:
    """Belongs to the loop."""

    def __init__(
        self,
        machine: ObserverMachine,
        connect: Callable[[], Awaitable[Controller]],
        *,
        follow: Callable[[Delta], Awaitable[None]],
        caught_up: Callable[[], Awaitable[None]],
    ) -> None:
        """`connect` raises ConnectionError. `follow` has the parts follow, and is not called before
        `caught_up`, which is called once: the image is as new as the controller's was then, and
        stays as it is until that is over."""
        self._machine = machine
        self._connect = connect
        self._follow = follow
        self._caught_up = caught_up
        self._replay = Replay(self._changed, keeps_removed=True)
        self._records: list[MetadataRecord] = []
        """Replayed, and not followed yet."""
        self._snapshot = bytearray()
        self.image = self._replay.image
        """What the parts serve by: what has been replayed, but while another log, or a snapshot,
        takes the place of all there is."""
        self._catches_up = True
        self._serves = False
        self._wait_s = 0.0
        self._retries = False

    @property
    def end_offset(self) -> int:
        """All below it has been replayed."""
        return self._replay.state.end_offset

    @property
    def epoch(self) -> int:
        """That of the controller, as far as it is known."""
        return self._machine.leader_epoch

    @property
    def kraft_version(self) -> int:
        """That of the log; 0 where it names none."""
        found = self._replay.state.controls.get(KRaftVersionRecord)
        return found.k_raft_version if isinstance(found, KRaftVersionRecord) else 0

    async def run(self) -> None:
        """Follow until cancelled. Raises ObserverStopped for a log that is not understood."""
        while True:
            try:
                controller = await self._connect()
                try:
                    while True:
                        await self._turn(controller)
                finally:
                    controller.close()
            except ConnectionError as error:
                self._machine.disconnected()
                await self._pause(str(error))

    async def _turn(self, controller: Controller) -> None:
        """Ask once, and do what the answer wants."""
        request = self._machine.next_request()
        # The controller is to hear that this one has all before the parts are made of it.
        from_the_end = self._catches_up and self._machine.caught_up
        answer: Any
        if isinstance(request, FetchRequest):
            if from_the_end:
                request.max_wait_ms = 0
            answer = await controller.ask(request, FetchResponse)
        else:
            answer = await controller.ask(request, FetchSnapshotResponse)
        for effect in self._machine.received(answer):
            await self._do(effect)
        if self._retries:
            self._retries = False
            await self._pause("the controller refused")
        else:
            self._wait_s = 0.0
        if from_the_end and self._catches_up and self._machine.caught_up:
            await self._catch_up()

    async def _pause(self, reason: str) -> None:
        self._wait_s = min(max(self._wait_s * 2, WAIT_S), WAIT_MAX_S)
        if self._wait_s >= WAIT_MAX_S:
            logs.error_once_a_minute("the controller is not reached", reason, "metadata")
        await asyncio.sleep(self._wait_s)

    # Effects

    async def _do(self, effect: Effect) -> None:
        match effect:
            case StoreChunk(_, position, data, _):
                del self._snapshot[position:]
                self._snapshot += data
            case DropPartial():
                self._snapshot.clear()
            case LoadSnapshot(snapshot_id):
                await self._load(snapshot_id)
            case Append(data=data):
                self._replay.wait(data)
            case Commit(end_offset):
                self._replay.commit(end_offset)
                await self._parts_follow()
            case Truncate():
                # Only what is agreed upon comes here, so this is another log than it was.
                self._machine.truncated(0)
                self._begin_anew()
            case Reset():
                self._begin_anew()
            case Retry():
                self._retries = True
            case GoTo():
                raise ConnectionError("the controller is another one")

    def _begin_anew(self) -> None:
        """All of the log comes again, and takes the place of what there is when it is there."""
        self._snapshot.clear()
        self._take(State())

    async def _load(self, snapshot_id: SnapshotId) -> None:
        data, self._snapshot = bytes(self._snapshot), bytearray()
        try:
            state = state_of_snapshot(
                read_snapshot_bytes(data, snapshot_id.file_name),
                end_offset=snapshot_id.end_offset,
                epoch=snapshot_id.epoch,
                where=f"snapshot {snapshot_id}",
            )
        except DamagedSnapshot as error:
            reason = f"position {error.position}: {error.reason}"
            for effect in self._machine.damaged(reason):
                await self._do(effect)
            return
        self._machine.loaded()
        self._take(state)

    def _take(self, state: State) -> None:
        self._replay.replace(state)
        self._catches_up = True

    async def _catch_up(self) -> None:
        """What is replayed is as new as the controller's: it counts from now on."""
        before, self.image = self.image, self._replay.image
        self._records.clear()
        self._catches_up = False
        if self._serves:
            await self._follow(difference(before, self.image))
        else:
            self._serves = True
            await self._caught_up()

    def _changed(self, _: int, record: MetadataRecord, __: MetadataImage) -> None:
        self._records.append(record)

    async def _parts_follow(self) -> None:
        records, self._records = self._records, []
        if records and not self._catches_up:
            await self._follow(Delta(records))
