"""Requests that are another process's to answer, passed on to it (KIP-590).

A client may ask any process: old clients know of no controller, and a client that does may ask one
that has just come back. So what changes the metadata goes on in an envelope, with what is known of
the client, and its answer comes back the same way:

    client -> process -> Envelope -> controller: access, quotas, the change -> all follow -> back

The first versions of OffsetCommit and OffsetFetch know of no coordinator either. Kafka keeps their
offsets in ZooKeeper, so that any broker will do, and clients ask the partition's leader. They go on
to the group's coordinator.
"""

from __future__ import annotations

import asyncio
import json
from functools import partial
from typing import TYPE_CHECKING, Any

from broker.handlers.context import Context
from broker.network.dispatch import answer
from broker.network.peer import Peer, PeerLost
from broker.pending import Durable, Later, Waiting
from broker.security.principal import Principal
from protocol.client import Conversation, WrongAnswer
from protocol.connection import Request
from protocol.eras import OFFSET_COMMIT, OFFSET_FETCH
from protocol.errors import ErrorCode, KafkaError, Malformed
from protocol.header import REQUEST_START
from protocol.messages.envelope import EnvelopeRequest, EnvelopeResponse, refused
from protocol.primitives import skip_tags
from storage.share import CONTROLLER

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from broker.network.dispatch import Handler
    from protocol.connection import Routes
    from storage.log import Log

ENVELOPE_KEY = 58
OF_THE_CONTROLLER = (19, 20, 22, 30, 31, 33, 37, 38, 39, 40, 44, 45, 46, 49, 51, 55, 57, 64)
"""Keys of the requests that are passed on: those that change the metadata, and what only the leader
of their log knows."""
OF_LOGGERS = (33, 44)
BROKER_LOGGER = 8
INIT_PRODUCER_ID = 22
ENVELOPE_BYTES_MAX = 64 * 1024 * 1024
IDLE_MAX = 4
"""Connections to a process that are kept for later requests."""


class Forwarding:
    """Belongs to the loop. A connection for each request that is on its way, for a process handles
    those of one in their order, and a change may take its time."""

    def __init__(self, connect: Callable[[int], Awaitable[Peer]], process: int) -> None:
        """`connect` connects to the process of a number, and raises PeerLost; `process` is that of
        this one."""
        self._connect = connect
        self._process = process
        self._idle: dict[int, list[Peer]] = {}
        """Connections that wait for the next request, by process."""

    def handlers(self, handlers: dict[int, Handler]) -> dict[int, Handler]:
        """A table of handlers in which those of other processes pass on."""
        return {key: self._passing_on(key, handler) for key, handler in handlers.items()}

    def _passing_on(self, key: int, handler: Handler) -> Handler:
        """The handler, if all requests with this key are for this process."""

        def to_controller(request: Request, ctx: Context) -> Any:
            if _is_for_this_process(request):
                return handler(request, ctx)
            return Later(partial(self._begin, ctx, CONTROLLER, ErrorCode.NOT_CONTROLLER))

        def to_coordinator(request: Request, ctx: Context) -> Any:
            process = _coordinator(request, ctx)
            if process == self._process:
                return handler(request, ctx)
            code = ErrorCode.COORDINATOR_NOT_AVAILABLE
            return Later(partial(self._begin, ctx, process, code))

        if key in (OFFSET_COMMIT, OFFSET_FETCH):
            return to_coordinator
        if key in OF_THE_CONTROLLER and self._process != CONTROLLER:
            return to_controller
        return handler

    def _begin(self, ctx: Context, process: int, unreachable: ErrorCode, later: Later) -> None:
        asked = self._asked(later.request, ctx, process, unreachable)
        task = asyncio.get_running_loop().create_task(asked)
        task.add_done_callback(lambda done: later.answer(done.result()))

    async def _asked(
        self, request: Request, ctx: Context, process: int, unreachable: ErrorCode
    ) -> Any:
        """The answer of that process; a refusal while it is away, after which a client looks for
        the controller, or the coordinator, and asks again."""
        api = request.route.api
        client_id = (request.client_id or "").encode()
        embedded = Conversation(client_id, max_answer_bytes=ENVELOPE_BYTES_MAX)
        sent, frame = embedded.request(request.general_message(), request.version)
        envelope = EnvelopeRequest(
            request_data=bytes(frame[4:]),
            request_principal=_known_of(ctx),
            client_host_address=ctx.peer_host.encode(),
        )
        try:
            peer = await self._to(process)
            found = await peer.ask(envelope, EnvelopeResponse)
            self._keep(process, peer)
            if found.error_code or found.response_data is None:
                return api.refused(request.message, ErrorCode(found.error_code))
            return embedded.answer(sent, api.response, found.response_data)
        except (PeerLost, WrongAnswer):
            return api.refused(request.message, unreachable)

    async def _to(self, process: int) -> Peer:
        idle = self._idle.setdefault(process, [])
        while idle:
            peer = idle.pop()
            if not peer.is_lost:
                return peer
        return await self._connect(process)

    def _keep(self, process: int, peer: Peer) -> None:
        idle = self._idle[process]
        if len(idle) < IDLE_MAX:
            idle.append(peer)
        else:
            peer.close()


class Envelopes:
    """The side of who answers."""

    def __init__(self, routes: Routes) -> None:
        """`routes` are those of clients."""
        self._routes = routes

    def handler(self, request: Request, ctx: Context) -> Any:
        """Handle the request in an envelope in the name of its client."""
        try:
            inner = self._opened(request.message.request_data)
        except (Malformed, KafkaError):
            return refused(request.message, ErrorCode.INVALID_REQUEST)
        address = _text(request.message.client_host_address)
        context = Context(ctx, ctx.listener, self._routes, peer=(address, 0), local=None)
        _take_known(context, bytes(request.message.request_principal))
        context.client_id, context.now_ms = inner.client_id, ctx.now_ms
        context.used[inner.route] = None  # the process that it asked has counted it
        opened = _Opened(inner, answer(inner, context), context)
        return Later(opened.begin)

    def _opened(self, data: bytes) -> Request:
        """The request. Raises Malformed; KafkaError for an API that is not served."""
        if len(data) < REQUEST_START.size:
            raise Malformed("an envelope without a request")
        start, correlation_id, id_size = REQUEST_START.unpack_from(data)
        route = self._routes.get(start) or self._routes.find(start >> 16, start & 0xFFFF)
        position, end = REQUEST_START.size, len(data)
        client_id = None
        if id_size >= 0:
            client_id = _text(data[position : position + id_size])
            position += id_size
        if route.flexible:
            position = skip_tags(data, position, end)
        message, _ = route.decode(bytearray(data), position, end)
        return Request(route, correlation_id, client_id, message)


class _Opened:
    """A request that came in an envelope, and is answered into one: its connection, as far as it
    waits."""

    def __init__(self, inner: Request, result: Any, ctx: Context) -> None:
        """`result` is what its handler has returned."""
        self._inner = inner
        self._result = result
        self._ctx = ctx
        self._later: Later

    def begin(self, later: Later) -> None:
        """The envelope waits from now on."""
        self._later = later
        self.finish_waiting(self._inner, self._result)

    def finish_waiting(self, request: Request, result: Any) -> None:
        if isinstance(result, Waiting):
            result.start(self, request)
            return
        if isinstance(result, Durable):
            self._wait_for_disk(request, result)
            return
        out = bytearray(request.correlation_id.to_bytes(4, "big"))
        if request.route.flexible:
            out.append(0)
        request.route.encode(result, out, [])
        self._later.answer(EnvelopeResponse(response_data=bytes(out), error_code=ErrorCode.NONE))

    def _wait_for_disk(self, request: Request, result: Durable) -> None:
        def done(failed: dict[Log, str]) -> None:
            refused = result.refuse(request, result, failed) if failed else result.response
            self.finish_waiting(request, refused)

        self._ctx.group_commit.wait([one.log for one in result.partitions], done)


def _coordinator(request: Request, ctx: Context) -> int:
    """The number of the process that is to answer a request about the offsets of a group: the one
    that was asked, but for the versions that know of no coordinator. Raises KafkaError."""
    assert ctx.neighbours is not None
    if request.version > 0:
        return ctx.neighbours.process
    if not ctx.topics.are_open:  # it has come from another process, and nothing is known here yet
        raise KafkaError(code=ErrorCode.COORDINATOR_NOT_AVAILABLE)
    runtime = ctx.groups.runtime
    if not runtime.take_topic():
        return ctx.neighbours.process
    return ctx.neighbours.process_of(runtime.leader_id(request.message.group_id))


def _is_for_this_process(request: Request) -> bool:
    """Whether a request that has a key of the controller's is none for it: the level of the log is
    that of each process, and a transactional id its coordinator's."""
    key, message = request.route.api.key, request.message
    if key in OF_LOGGERS:
        return all(one.resource_type == BROKER_LOGGER for one in message.resources)
    return key == INIT_PRODUCER_ID and message.transactional_id is not None


def _known_of(ctx: Context) -> bytes:
    """Who the client is and how it has come in, by which rights are decided; in a form of our own,
    as the principal builder of each Kafka cluster has one (KIP-590)."""
    known = {
        "principal": ctx.principal,
        "security_protocol": ctx.security_protocol,
        "delegation_token": ctx.delegation_token,
    }
    return json.dumps(known).encode()


def _take_known(context: Context, data: bytes) -> None:
    """Give the context of a request in an envelope what is known of its client."""
    known = json.loads(data)
    context.principal = Principal(*known["principal"])
    context.security_protocol = known["security_protocol"]
    context.delegation_token = known["delegation_token"]


def _text(data: bytes | memoryview | bytearray) -> str:
    return bytes(data).decode("utf-8", "replace")
