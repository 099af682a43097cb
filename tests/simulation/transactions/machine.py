"""A whole broker on a disk in memory, with a loop, threads and clocks that a simulation moves.

machine = Machine(files, random.Random(1))
machine.start()
asked = machine.ask(request, 4)
machine.turn()                   # the loop runs what is due; threads stand still
machine.work(rng)                # one thread does one job
asked.answer                     # when it has come

Nothing of the broker is replaced but what comes in from outside: the file system, the event loop,
threads, time, ids. So requests go through the real handlers, coordinators and logs.
"""

from __future__ import annotations

import struct
from collections import deque
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any, cast
from unittest.mock import patch

from broker import assembly, clock, logs
from broker.coordinator.loading import loads, snapshotting
from broker.coordinator.transactions import loading
from broker.metadata import features
from broker.surroundings import Surroundings
from config import load
from protocol.registry import APIS
from storage import segment
from storage.data_dir import DataDirectory
from storage.metadata.opening import open_metadata
from tests.support.manual_loop import ManualLoop
from tests.support.wire_client import WireClient

if TYPE_CHECKING:
    import asyncio
    import random
    from collections.abc import Callable, Iterator, Mapping

    from broker.assembly import Broker
    from protocol.registry import Api
    from protocol.schema import Message
    from storage.reports import RecoveryReport
    from tests.support.memory_filesystem import MemoryFilesystem

PATH = "/data"
EPOCH_MS = 1_700_000_000_000
API_VERSIONS = 18


class SimulatedLoop(ManualLoop):
    """An event loop of which a turn is taken by hand."""

    def __init__(self) -> None:
        super().__init__()
        self.ready: deque[tuple[Callable[..., None], tuple[Any, ...]]] = deque()
        self.workers: list[SimulatedWorker] = []

    def call_soon(self, call: Callable[..., None], *arguments: Any) -> None:
        self.ready.append((call, arguments))

    call_soon_threadsafe = call_soon

    def turn(self) -> None:
        """Run all that is due, and what comes of it."""
        while self.ready:
            call, arguments = self.ready.popleft()
            call(*arguments)


class SimulatedWorker:
    """As `broker.workers.Worker`: its jobs are done one by one, when the simulation says so."""

    def __init__(self, loop: SimulatedLoop, name: str, count: int = 1) -> None:
        self._loop = loop
        self.name = name
        self.jobs: deque[tuple[Any, Any, Any]] = deque()
        loop.workers.append(self)

    def run(self, job: Any, done: Any, failed: Any = None) -> None:
        self.jobs.append((job, done, failed))

    def do_one(self) -> None:
        job, done, failed = self.jobs.popleft()
        try:
            result = job()
        except Exception as error:
            if failed is None:
                raise
            self._loop.call_soon(failed, error)
        else:
            self._loop.call_soon(done, result)

    def stop(self) -> None:
        while self.jobs:
            self.jobs.popleft()[0]()


class OneByOne:
    """As `broker.workers.SideBySide`, in one order."""

    def __call__(self, jobs: Any) -> None:
        for job in jobs:
            job()

    def stop(self) -> None:
        """It has no threads."""


class Silent:
    """A log that nobody reads."""

    def __getattr__(self, name: str) -> Callable[..., None]:
        return lambda *_, **__: None


class Transport:
    """The broker's end of a connection to a client in this process."""

    def __init__(self) -> None:
        self.sent = bytearray()
        self.closed = False

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """Nothing is ever left in a buffer."""

    def get_write_buffer_size(self) -> int:
        return 0

    def get_extra_info(self, name: str) -> Any:
        return ("127.0.0.1", 1)

    def write(self, data: bytes) -> None:
        self.sent += data

    def writelines(self, buffers: list[bytes]) -> None:
        self.sent += b"".join(bytes(buffer) for buffer in buffers)

    def pause_reading(self) -> None:
        """Requests are never sent ahead."""

    resume_reading = pause_reading

    def is_closing(self) -> bool:
        return self.closed

    def close(self) -> None:
        self.closed = True

    abort = close


class Asked:
    """A request on a connection of its own, and the answer when it has come."""

    def __init__(self, broker: Broker, api: Api, version: int, frame: bytes) -> None:
        """`frame` is that of a request of this API, or what has become of one."""
        self._api = api
        self._version = version
        self._transport = Transport()
        connection = broker.new_connection("PLAINTEXT")
        connection.connection_made(cast("asyncio.BaseTransport", self._transport))
        taken = 0
        while taken < len(frame) and not self._transport.closed:
            room = connection.get_buffer(-1)
            count = min(len(room), len(frame) - taken)
            room[:count] = frame[taken : taken + count]
            taken += count
            connection.buffer_updated(count)
        self._connection = connection
        self._answer: Any = None

    @property
    def answer(self) -> Any:
        """None until it has come."""
        sent = self._transport.sent
        if self._answer is None and len(sent) > 4:
            size = struct.unpack_from(">i", sent)[0]
            assert len(sent) == 4 + size, "one answer, and all of it"
            body = 8 + (self._version >= self._api.first_flexible and self._api.key != API_VERSIONS)
            self._answer = self._api.response.decode(self._version, bytes(sent[body:]))
        return self._answer

    @property
    def is_closed(self) -> bool:
        return self._transport.closed

    def hang_up_when_done(self, machine: Machine) -> None:
        """Let the broker do what it can with the bytes, then go."""
        machine.settle()
        self.hang_up()
        machine.settle()

    def hang_up(self) -> None:
        """The client goes."""
        self._connection.connection_lost(None)

    @property
    def answer_size(self) -> int:
        """Bytes that were sent, whatever they say."""
        return len(self._transport.sent)

    @property
    def is_refused(self) -> bool:
        """Whether the connection was closed without an answer."""
        return self._transport.closed and not self._transport.sent


def frame_of(request: Message, version: int) -> bytes:
    """The bytes of a request with their length."""
    frames = WireClient.__new__(WireClient)
    frames.client_id = "simulated"
    return frames.frame(request, version)


class Machine:
    """A data directory, and the broker that runs on it or has died there."""

    def __init__(
        self,
        files: MemoryFilesystem,
        chance: random.Random,
        settings: Mapping[str, str],
        transaction_version: int,
        *,
        loads_at_once: bool,
    ) -> None:
        """`chance` makes the ids of topics and members. `loads_at_once`: a start knows all groups
        and transactional ids, as where there are few; else threads load them meanwhile."""
        self._at_once_bytes = 1 << 30 if loads_at_once else -1
        self.files = files
        self.now_ms = EPOCH_MS
        self.reports: list[RecoveryReport] = []
        self.broker: Broker
        self.loop: SimulatedLoop
        self.transaction_version = transaction_version
        self._chance = chance
        self._settings = load(overrides={"log.dirs": PATH, **settings})

    @contextmanager
    def in_place(self) -> Iterator[None]:
        """The world as it is for the broker; nothing else may be done with it."""
        with ExitStack() as stack:
            for module, name, stand_in in (
                (assembly, "Worker", SimulatedWorker),
                (assembly, "SideBySide", OneByOne),
                (clock, "monotonic_s", lambda: self.loop.time()),
                (features, "transaction_version", lambda _: self.transaction_version),
                (loads, "Worker", SimulatedWorker),
                (loads, "AT_ONCE_BYTES", self._at_once_bytes),
                (loading, "AT_ONCE_BYTES", self._at_once_bytes),
                (snapshotting, "Worker", SimulatedWorker),
                (loading, "Worker", SimulatedWorker),
                (logs, "_logger", Silent()),
                (logs, "fault_once_a_minute", self._fault),
            ):
                stack.enter_context(patch.object(module, name, stand_in))
            yield

    def _fault(self, what: str, error: Exception, *_: object, **__: object) -> None:
        """The broker met a fault of its own, which it would only log."""
        raise AssertionError(what) from error

    def start(self) -> None:
        """As `broker.server.start`, without listeners and periodic tasks."""
        segment.OPEN.forget(*segment.OPEN)  # a new process has none
        self.files.mtime_ms = self.now_ms
        files, settings = self.files, self._settings
        directory = DataDirectory.take(
            files, PATH, node_id=1, new_uuid=lambda: self._chance.randbytes(16)
        )
        store, self.reports = open_metadata(
            files, PATH, directory.identity, now_ms=lambda: self.now_ms
        )
        self.loop = SimulatedLoop()
        loop: Any = self.loop
        surroundings = Surroundings(
            files,
            lambda: self.now_ms,
            monotonic_s=lambda: self.loop.time(),
            elapsed_ms=lambda: int(self.loop.time() * 1000),
            new_uuid=lambda: self._chance.randbytes(16),
        )
        self.broker = assembly.Broker(settings, loop, directory, store, None, surroundings)
        self.reports += self.broker.load()

    def crash(self, rng: random.Random, *, power: bool) -> None:
        """The process dies, or the machine: of what was not synced any part is left."""
        self.files.capacity = None
        self.files.cut_at = None
        if power:
            self.files = self.files.power_cut(rng)
        else:
            self.files.kill()

    def stop(self) -> bool:
        """A stop in good order, as `Running.stop`. Whether the directory was left clean."""
        self.settle()
        broker = self.broker
        broker.transactions.stop()
        broker.groups.loads.stop()
        broker.changes.stop()
        broker_epoch = broker.controller.close()
        return broker.directory.close(broker_epoch=broker_epoch)

    def ask(self, request: Message, version: int) -> Asked:
        api = APIS[type(request).key]
        return Asked(self.broker, api, version, frame_of(request, version))

    def send(self, request: Message, version: int, frame: bytes) -> Asked:
        """The same with other bytes than the request's."""
        return Asked(self.broker, APIS[type(request).key], version, frame)

    def turn(self) -> None:
        self.loop.turn()

    def work(self, rng: random.Random) -> None:
        """One thread does one job."""
        busy = [worker for worker in self.loop.workers if worker.jobs]
        if busy:
            rng.choice(busy).do_one()

    def settle(self) -> None:
        """Threads and loop go on until nothing is left to do."""
        for _ in range(10_000):
            self.loop.turn()
            busy = [worker for worker in self.loop.workers if worker.jobs]
            if not busy and not self.loop.ready:
                return
            for worker in busy:
                worker.do_one()
        raise AssertionError("jobs wait for each other")

    def pass_ms(self, ms: int) -> None:
        self.now_ms += ms
        self.files.mtime_ms = self.now_ms
        self.loop.pass_s(ms / 1000)
