"""The follower of a controller: connects, asks what the machine says, and does what it asks for.

    follower = Follower([("127.0.0.1", 9093)], InMemory(), watcher=watcher)
    follower.run()

It goes on through lost connections and refusals, with growing waits. It is ended by
ObserverStopped, for which the operator has to do something, by the OSError of a disk, and by
whatever its watcher raises.
"""

from __future__ import annotations

from threading import Event
from typing import TYPE_CHECKING, NoReturn, Protocol, TypeVar

from broker.clock import now_ms
from broker.metadata.following.effects import (
    Append,
    Commit,
    DropPartial,
    GoTo,
    LoadSnapshot,
    ObserverStopped,
    Reset,
    Retry,
    StoreChunk,
    Truncate,
)
from broker.metadata.following.machine import MAX_WAIT_MS, PIECE_BYTES, ObserverMachine
from broker.metadata.following.replay import Replay, State, state_of_snapshot
from client.connection import Connection
from client.errors import ConnectionLost, NoVersion
from protocol.logdata.metadata_names import SnapshotId
from protocol.messages.describe_cluster import DescribeClusterRequest, DescribeClusterResponse
from protocol.messages.fetch import FetchRequest, FetchResponse
from protocol.messages.fetch_snapshot import FetchSnapshotRequest, FetchSnapshotResponse
from protocol.schema import Message
from storage.metadata.snapshots import DamagedSnapshot

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from broker.metadata.following.effects import Effect
    from client.security import ClientSecurity
    from protocol.logdata.metadata import MetadataRecord
    from storage.metadata.image import MetadataImage
    from storage.metadata.snapshots import SnapshotBatch
    from tools.observer.files import Keeping

    Address = tuple[str, int]

Answer = TypeVar("Answer", bound=Message)

CLIENT_ID = b"triglot-observer"
FETCH_BY_ID = 13
"""The metadata log is fetched by its topic id, so from this version of Fetch on."""
CONTROLLERS_MAY_BE_ASKED_FOR = 1
CONTROLLERS = 2

TIMEOUT_S = 15.0
"""For a connection, and for an answer: longer than a fetch may wait for something new."""
BACKOFF_S = 0.1
BACKOFF_MAX_S = 5.0
"""The waits between tries: the first, doubled each time, and the longest."""
SNAPSHOT_AFTER_BYTES = 20 * 1024 * 1024
"""The log is replaced by a snapshot of our own when it is longer, as Kafka's brokers do it."""


class Watcher:
    """Hears what happens, as it happens; this one does not care. Nothing may be kept of an image:
    it changes. An exception that it raises ends the follower."""

    def connected(self, address: str) -> None:
        """A controller answers there."""

    def downloading(self, snapshot_id: SnapshotId, position: int, size: int) -> None:
        """So many bytes of a snapshot are there."""

    def state(self, image: MetadataImage, end_offset: int) -> None:
        """The follower has caught up: this is the whole state below that offset. Again after a
        snapshot, or another log, took the place of what was known."""

    def changed(self, offset: int, record: MetadataRecord, image: MetadataImage) -> None:
        """A record after that state; the image is the one before it, or before its transaction."""

    def troubled(self, reason: str, wait_s: float) -> None:
        """Something went wrong and is tried again after so many seconds."""


class Line(Protocol):
    """A connection to a controller, as far as a follower uses it."""

    address: str

    def offers(self, kind: type[Message], oldest: int = 0) -> bool: ...

    def call(self, request: Message, kind: type[Answer], *, oldest: int = 0) -> Answer: ...

    def close(self) -> None: ...


class Connect(Protocol):
    """Opens a connection. Raises ConnectionLost."""

    def __call__(self, host: str, port: int, *, timeout_s: float) -> Line: ...


def connecting(security: ClientSecurity | None = None) -> Connect:
    """Opens connections with this security."""

    def connect(host: str, port: int, *, timeout_s: float) -> Connection:
        return Connection(
            host,
            port,
            timeout_s=timeout_s,
            client_id=CLIENT_ID,
            may_be_old=False,
            security=security,
        )

    return connect


class Follower:
    """One observer at work. `image` is the state, which only changes while `run` runs."""

    def __init__(
        self,
        addresses: Sequence[Address],
        kept: Keeping,
        *,
        watcher: Watcher | None = None,
        replica_id: int = -1,
        directory_id: bytes = bytes(16),
        timeout_s: float = TIMEOUT_S,
        backoff_s: float = BACKOFF_S,
        piece_bytes: int = PIECE_BYTES,
        max_wait_ms: int = MAX_WAIT_MS,
        snapshot_after_bytes: int = SNAPSHOT_AFTER_BYTES,
        connect: Connect | None = None,
    ) -> None:
        """`addresses` are tried in turn; a leader that is elsewhere is found by itself. `kept` has
        what an earlier run left, and stays open when `run` ends. The rest as in ObserverMachine; a
        fetch waits for half of `timeout_s` at most."""
        self.kept = kept
        self.machine = ObserverMachine(
            cluster_id=kept.cluster_id,
            held=kept.held(),
            replica_id=replica_id,
            directory_id=directory_id,
            piece_bytes=piece_bytes,
            max_wait_ms=min(max_wait_ms, int(timeout_s * 500)),
        )
        self._replay = Replay()
        self._watcher = watcher or Watcher()
        self._addresses = list(addresses)
        self._leader: Address | None = None
        self._connect = connect or connecting()
        self._timeout_s = timeout_s
        self._backoff_s = backoff_s
        self._snapshot_after_bytes = snapshot_after_bytes
        self._turn = 0
        self._tries = 0
        self._wait: Retry | None = None
        self._elsewhere = False

    @property
    def image(self) -> MetadataImage:
        """The state below `end_offset`."""
        return self._replay.image

    @property
    def end_offset(self) -> int:
        return self._replay.state.end_offset

    def run(self) -> NoReturn:
        """Follow. Raises ObserverStopped, OSError, and what the watcher raises."""
        self._restore()
        while True:
            try:
                self._follow()
            except ConnectionLost as error:
                self.machine.disconnected()
                self._pause(str(error))
            except NoVersion as error:
                raise ObserverStopped(str(error)) from None

    # One connection

    def _follow(self) -> None:
        """Connect, and ask and answer until there is reason to connect anew."""
        host, port = self._next_address()
        connection = self._connect(host, port, timeout_s=self._timeout_s)
        try:
            self._greet(connection)
            self._elsewhere = False
            while not self._elsewhere:
                self._perform(self._ask(connection))
                if self._wait is None:
                    self._tries = 0
                else:
                    retry, self._wait = self._wait, None
                    self._pause(retry.reason)
        finally:
            connection.close()

    def _next_address(self) -> Address:
        leader, self._leader = self._leader, None
        if leader is not None:
            return leader
        self._turn += 1
        return self._addresses[(self._turn - 1) % len(self._addresses)]

    def _greet(self, connection: Line) -> None:
        """Make sure that it is a controller, and of the cluster that is followed."""
        if not connection.offers(FetchSnapshotRequest):
            raise ObserverStopped(
                f"{connection.address} is not a controller's listener. Give the address of one; "
                "triglot opens one with listeners=PLAINTEXT://:9092,CONTROLLER://:9093 and "
                "controller.listener.names=CONTROLLER"
            )
        self._watcher.connected(connection.address)
        if not connection.offers(DescribeClusterRequest, oldest=CONTROLLERS_MAY_BE_ASKED_FOR):
            return
        answer = connection.call(
            DescribeClusterRequest(
                include_cluster_authorized_operations=False, endpoint_type=CONTROLLERS
            ),
            DescribeClusterResponse,
            oldest=CONTROLLERS_MAY_BE_ASKED_FOR,
        )
        if answer.error_code or not answer.cluster_id:
            return
        known = self.kept.cluster_id
        if known is not None and known != answer.cluster_id:
            raise ObserverStopped(
                f"the controller at {connection.address} is of cluster {answer.cluster_id}, but "
                f"what is here is of cluster {known}: give the address of that cluster's "
                "controller, or an empty directory to follow this one"
            )
        self.kept.know(answer.cluster_id)
        self.machine.cluster_id = answer.cluster_id

    def _ask(self, connection: Line) -> list[Effect]:
        request = self.machine.next_request()
        if isinstance(request, FetchSnapshotRequest):
            return self.machine.received(connection.call(request, FetchSnapshotResponse))
        assert isinstance(request, FetchRequest)
        return self.machine.received(connection.call(request, FetchResponse, oldest=FETCH_BY_ID))

    def _pause(self, reason: str) -> None:
        wait_s = min(self._backoff_s * 2 ** min(self._tries, 16), BACKOFF_MAX_S)
        self._tries += 1
        self._watcher.troubled(reason, wait_s)
        Event().wait(wait_s)

    # Effects

    def _perform(self, effects: list[Effect]) -> None:
        for effect in effects:
            if isinstance(effect, LoadSnapshot):
                self._load(effect)
            else:
                self._do(effect)
        if self.machine.caught_up and self._replay.changed is None:
            self._watcher.state(self.image, self.end_offset)
            self._replay.changed = self._watcher.changed
        if self.kept.log_bytes > self._snapshot_after_bytes:
            self._compact()

    def _do(self, effect: Effect) -> None:
        kept = self.kept
        match effect:
            case StoreChunk(snapshot_id, position, data, size):
                kept.store_chunk(snapshot_id, position, data)
                self._watcher.downloading(snapshot_id, position + len(data), size)
            case DropPartial(snapshot_id):
                kept.drop_partial(snapshot_id)
            case Append(data=data):
                kept.append(data)
                self._replay.wait(data)
            case Commit(end_offset):
                self._replay.commit(end_offset)
            case Truncate(end_offset):
                self._truncate(end_offset)
            case Reset():
                kept.reset()
                self._begin_with(State())
            case Retry():
                self._wait = effect
            case GoTo(host=host, port=port):
                self._leader = None if host is None else (host, port)
                self._elsewhere = True

    def _begin_with(self, state: State) -> None:
        """The state is another one; it is told of as a whole when it has caught up."""
        self._replay.replace(state)
        self._replay.changed = None

    def _load(self, effect: LoadSnapshot) -> None:
        snapshot_id = effect.snapshot_id
        try:
            state = _state(self.kept.read_partial(snapshot_id), snapshot_id)
        except DamagedSnapshot as error:
            self._perform(self.machine.damaged(f"position {error.position}: {error.reason}"))
            return
        self.kept.publish(snapshot_id)
        self.machine.loaded()
        self._begin_with(state)

    def _truncate(self, end_offset: int) -> None:
        actual = self.kept.truncate(end_offset)
        self.machine.truncated(actual)
        if self.end_offset <= actual:
            self._replay.cut(actual)
            return
        # What was replayed has gone from the leader, as when it was set back to an older copy.
        self._begin_with(self._kept_state())
        self._replay.wait(self.kept.log())
        self._replay.commit(self.machine.committed_offset)

    def _restore(self) -> None:
        """Take what an earlier run left. How much of its log counts, the leader has to say."""
        if self.kept.held().end_offset:
            self._replay.replace(self._kept_state())
            self._replay.wait(self.kept.log())

    def _kept_state(self) -> State:
        batches, held = self.kept.snapshot(), self.kept.held()
        if batches is None:
            return State()
        return _state(batches, SnapshotId(held.start_offset, held.epochs[0][0]))

    def _compact(self) -> None:
        """Let a snapshot of the state take the place of the log, if all of the log is in it."""
        state = self._replay.state
        if not self._replay.at_rest or state.end_offset != self.machine.end_offset:
            return
        snapshot_id = self.kept.compact(state, unique="observer", now_ms=now_ms())
        if snapshot_id is not None:
            self.machine.compacted(snapshot_id)


def _state(batches: Iterable[SnapshotBatch], snapshot_id: SnapshotId) -> State:
    return state_of_snapshot(
        batches,
        end_offset=snapshot_id.end_offset,
        epoch=snapshot_id.epoch,
        where=f"snapshot {snapshot_id}",
    )
