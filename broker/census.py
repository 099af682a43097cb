"""The clients that were seen, and how they used the broker: the memory behind `triglot clients`.

A connection is looked at when it uses a version of an API for the first time, and when it ends; its
other requests cost one look into a set. Clients that cannot be told apart (same address, client id
and software) are one. `CLIENTS_MAX` of them are kept, in memory and in `clients.json`, which is
written in the background each minute and at a stop. It is read when somebody first asks, or after a
minute: no start waits for it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from broker import logs
from broker.slicing import Slicer
from protocol.client_usage import API_VERSIONS, ClientIdentity, ClientUsage
from protocol.connection import PRODUCE_KEY
from protocol.records.layout import CODEC_MASK
from storage.layout import CLIENTS

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Iterable, Iterator

    from broker.workers import Worker
    from protocol.connection import Request, Route, Routes, UnservedRequest
    from storage.clients_file import SeenClients
    from storage.filesystem import Filesystem

    Row = dict[str, Any]

LOOK_EVERY_S = 60.0
CLIENTS_MAX = 1_000
"""Clients that are remembered; whoever was seen longest ago goes first, and is counted."""
ROUTES_MAX = 512
"""Versions of APIs that are remembered of one connection: more than there are."""
SLICE_S, PAUSE_S = 0.001, 0.001
"""Rows of a thousand clients are made in slices of the loop."""


class Caller(Protocol):
    """The client of one connection, as far as it is told from others."""

    client_id: str | None
    peer_host: str
    read: frozenset[tuple[int, int]]
    routes: Routes
    software_name: str
    software_version: str
    usage: ClientUsage | None
    used: dict[Route, None]
    written: frozenset[int]

    @property
    def is_authenticated(self) -> bool:
        """Whether it has logged in, where it has to."""


class Census:
    """Belongs to the loop; `worker` reads and writes the file."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        files: Filesystem,
        path: str,
        worker: Worker,
        now_ms: Callable[[], int],
    ) -> None:
        """`path` is that of the file in which clients are remembered."""
        self._files = files
        self._path = path
        self._worker = worker
        self._now_ms = now_ms
        self._clients: dict[ClientIdentity, ClientUsage] = {}  # whoever was seen last is last
        self._forgotten = 0
        self._loop = loop
        self._is_read = self._is_changed = self._is_stopped = False

    def __len__(self) -> int:
        """Clients that are remembered."""
        return len(self._clients)

    @property
    def forgotten(self) -> int:
        """Clients that had to make room for others."""
        return self._forgotten

    def used(self, caller: Caller, request: Request) -> None:
        """Note a version of an API that a connection uses for the first time."""
        route = request.route
        if len(caller.used) < ROUTES_MAX:
            caller.used[route] = None
        if caller.usage is not None:
            caller.usage.note_request(route.api.name, route.version)
            self._is_changed = True
        elif route.api.name != API_VERSIONS:  # by which it tells who it is
            self._begin(caller, request.client_id)

    def refused(self, caller: Caller, error: UnservedRequest) -> None:
        """Note a request that closes the connection, because it is not served."""
        if caller.usage is None:
            self._begin(caller, error.client_id)
        if caller.usage is not None:
            caller.usage.note_refusal(error.api_name, error.version)
            self._is_changed = True

    def gone(self, caller: Caller) -> None:
        """A connection has ended."""
        if caller.usage is None and caller.used:
            self._begin(caller, caller.client_id)
        self._see(caller)

    def look(self, callers: Iterable[Caller]) -> None:
        """Note who is connected, and have the file written if there is anything new."""
        # One connection of each client: there may be ten thousand, and the loop waits.
        here = {id(caller.usage): caller for caller in callers if caller.usage is not None}
        for caller in here.values():
            self._see(caller)
        if not self._is_read:
            self._worker.run(self._read, self._take)
        elif self._is_changed:
            self._is_changed = False
            self.tell(self._write)

    def tell(self, done: Callable[[list[Row], int], None]) -> None:
        """Call `done` with an object for each client (`ClientUsage.to_json`), whoever was seen last
        at the end, and the count of those forgotten."""
        if not self._is_read:

            def read(found: SeenClients) -> None:
                self._take(found)
                self.tell(done)

            self._worker.run(self._read, read)
            return
        rows: list[Row] = []

        def steps() -> Iterator[None]:
            for usage in [*self._clients.values()]:
                rows.append(usage.to_json())
                yield

        slicer = Slicer(self._loop, "clients", slice_s=SLICE_S, pause_s=PAUSE_S)
        slicer.run(steps(), lambda: done(rows, self._forgotten))

    def stop(self) -> None:
        """Write the file, in this thread: the worker has stopped."""
        self._is_stopped = True
        if not self._clients:
            return
        if not self._is_read:
            self._take(self._read())
        rows = [usage.to_json() for usage in self._clients.values()]
        self._store(rows, self._forgotten)

    def _begin(self, caller: Caller, client_id: str | None) -> None:
        """Find out who the client of a connection is, and note what it has shown so far."""
        if PRODUCE_KEY not in caller.routes.served:
            return  # the controller's listener, which serves no clients
        if not caller.is_authenticated:
            return  # a stranger, who could have the others forgotten
        release = caller.routes.of(client_id).release
        identity = ClientIdentity(
            caller.peer_host,
            client_id or "",
            caller.software_name,
            caller.software_version,
            "" if release is None else release.name,
        ).cut()
        usage = self._clients.get(identity)
        if usage is None:
            usage = self._clients[identity] = ClientUsage(identity, self._now_ms())
            self._make_room()
        caller.usage = usage
        usage.connections += 1
        for route in caller.used:
            usage.note_request(route.api.name, route.version)
        for magic, codec in caller.read:
            usage.note_read(magic, codec)
        for attributes in caller.written:
            usage.note_written(2, attributes & CODEC_MASK)
        self._is_changed = True

    def _see(self, caller: Caller) -> None:
        """The client of this connection is here."""
        usage = caller.usage
        if usage is None:
            return
        if self._clients.pop(usage.identity, None) is usage:
            self._clients[usage.identity] = usage
        else:  # it was forgotten, and maybe has come again by another connection
            self._begin(caller, usage.identity.client_id)
            assert caller.usage is not None
            usage = caller.usage
        usage.last_ms = self._now_ms()
        self._is_changed = True

    def _make_room(self) -> None:
        while len(self._clients) > CLIENTS_MAX:
            del self._clients[next(iter(self._clients))]
            self._forgotten += 1

    def _take(self, found: SeenClients) -> None:
        """Put what was seen before this start behind what was seen since."""
        if self._is_read:
            return
        self._is_read = True
        clients = {usage.identity: usage for usage in found.clients}
        for identity, usage in self._clients.items():
            earlier = clients.pop(identity, None)
            if earlier is not None:
                usage.add(earlier)
            clients[identity] = usage
        self._clients = clients
        self._forgotten += found.forgotten
        self._make_room()

    def _read(self) -> SeenClients:
        from storage.clients_file import SeenClients, read_clients  # it takes a module for JSON
        from storage.errors import MalformedFile

        try:
            return read_clients(self._files, self._path)
        except FileNotFoundError:
            pass
        except MalformedFile as error:
            logs.warning("the clients seen before are forgotten", reason=str(error))
        except OSError as error:
            reason = error.strerror or str(error)
            logs.warning("the clients seen before are forgotten", reason=reason, file=CLIENTS)
        return SeenClients([], 0)

    def _write(self, rows: list[Row], forgotten: int) -> None:
        if not self._is_stopped:
            self._worker.run(lambda: self._store(rows, forgotten), lambda _: None)

    def _store(self, rows: list[Row], forgotten: int) -> None:
        from storage.clients_file import encode_clients

        try:
            self._files.write_atomic(self._path, encode_clients(rows, forgotten))
        except OSError as error:
            reason = error.strerror or str(error)
            logs.warn_once_a_minute("the clients were not noted", reason, CLIENTS)
