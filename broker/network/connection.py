"""An asyncio protocol around protocol.connection: read, hand over, write.

Requests are handled inside the read callback. One readable event is one *burst*: all whole
requests are handled, their appends written (one write per log), their answers encoded, and all of
it sent by one write. A task per request would double the cost of a small one. A burst of produce
requests alone shares its writes with those of other connections in the same turn of the loop.

The next request is not started while one waits (a fetch below its minimum): Kafka's clients rely on
that order. An acks=all produce that waits for the disk does not hold back the next one; answers
leave in order all the same.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, cast

from broker import clock, logs
from broker.coordinator.waits import GroupWait
from broker.fetching.waiting import FetchWait
from broker.handlers.context import Context
from broker.handlers.delete_records import DeletionWait
from broker.handlers.describe_log_dirs import LogDirsWait
from broker.metadata.changes import ChangeWait
from broker.network.dispatch import CloseConnection, answer
from broker.network.sender import Sender
from broker.pending import Durable, Later, Silent, Sliced, Waiting
from broker.producing.failures import has_failed, translate
from broker.producing.preparing import PrepareWait
from broker.request_times import Timing
from protocol.connection import PRODUCE_KEY, UnservedRequest
from protocol.errors import Malformed

if TYPE_CHECKING:
    from collections.abc import Callable

    from broker.handlers.context import Parts
    from broker.network.backlog import Backlog
    from broker.network.turn import Turn
    from config import BrokerSettings
    from protocol.connection import Request, Routes
    from storage.log import Log

SLOWEST_BYTES_PER_S = 1024
"""A request that comes more slowly, over more than connections.max.idle.ms, is not waited for. The
slowest links that carry Kafka (GPRS, satellites) bring more, and may pause for minutes."""

PENDING = frozenset(
    {
        *(ChangeWait, DeletionWait, Durable, FetchWait, GroupWait),
        *(Later, LogDirsWait, PrepareWait, Silent, Sliced),
    }
)
"""Results of a handler that are not answers."""


class Connection(asyncio.BufferedProtocol):
    """One client. Reading stops while `read.ahead.max.bytes` are waiting to be handled."""

    over_tls = False

    def __init__(
        self,
        parts: Parts,
        listener: str,
        routes: Routes,
        *,
        backlog: Backlog,
        turn: Turn,
        admit: Callable[[Connection], bool],
        lost: Callable[[Connection], None],
    ) -> None:
        """`listener` is the name of the one that the peer has dialled, `routes` what it serves.
        `admit` is asked whether the connection may stay, `lost` is called when it has ended."""
        settings = parts.settings.current
        self._parts = parts
        self._loop = parts.loop
        self._appends = parts.appends
        self._turn = turn
        self._group_commit = parts.group_commit
        self._clock_ms = parts.clock_ms
        self._quotas = parts.quotas
        self._admit = admit
        self._lost = lost
        self._backlog = backlog
        self._listener = listener
        self._routes = routes
        self._timing = Timing(parts.request_times)
        self._wire = routes.connection(max_frame_bytes=settings.socket_request_max_bytes)
        self.configure(settings)
        self._received = self._wire.received
        self._next_request = self._wire.next_request
        self._handled: list[tuple[Request, Any]] = []
        """Requests with their results, not answered before their batches are written."""
        self._failures = 0
        self._waiting: Waiting | None = None
        self._muted: asyncio.TimerHandle | None = None
        self._closing = False
        self._ended = False
        self._reading = True
        self._held_back = False
        self._unsent_bytes = 0
        self.whole_s = 0.0
        self.last_active_s = 0.0
        self._transport: asyncio.Transport
        self._sender: Sender
        self.context: Context

    def configure(self, settings: BrokerSettings) -> None:
        """Read ahead as far as these say, from the next request on."""
        self._read_ahead_bytes: int = settings.read_ahead_max_bytes
        self._max_unanswered: int = settings.read_ahead_max_requests

    # The transport calls these.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports have the methods of asyncio.Transport, not its class.
        self._transport = transport = cast("asyncio.Transport", transport)
        parts = self._parts
        self._sender = Sender(
            self._loop, transport, parts.readers, self._on_drained, tls=self.over_tls
        )
        self.context = Context(
            parts,
            self._listener,
            self._routes,
            peer=transport.get_extra_info("peername"),
            local=transport.get_extra_info("sockname"),
        )
        self.last_active_s = self.whole_s = self._loop.time()
        if not self._admit(self):
            transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        self._closing = True
        if self._waiting is not None:
            waiting, self._waiting = self._waiting, None
            waiting.cancel()
        if self._muted is not None:
            self._muted.cancel()
        self._sender.close()
        self._backlog.forget(self)
        if self._wire.trailing_bytes:
            cause = "the client and its version of the protocol disagree"
            count = self._wire.trailing_bytes
            self._warn("bytes after the last field of requests", cause, count=count)
        self.context.census.gone(self.context)
        self._lost(self)

    def get_buffer(self, sizehint: int) -> memoryview:
        if self._handled:  # their batches are in the buffer
            self._turn.end()
        return self._wire.room()

    def buffer_updated(self, nbytes: int) -> None:
        self.last_active_s = self._loop.time()
        if self._received(nbytes):
            self.whole_s = self.last_active_s
            self._handle()

    def eof_received(self) -> bool:
        """The peer sends no more; its answers are sent before the connection is closed. What it has
        sent before while it was muted is handled in its time."""
        if self._muted is not None and self._wire.buffered:
            self._ended = True
            return True
        if self._waiting is not None:
            waiting, self._waiting = self._waiting, None
            waiting.cancel()
            self._wire.respond(waiting.request, None)
        self._closing = True
        self._close_when_done()
        return True

    def pause_writing(self) -> None:
        self._sender.pause()
        self._held_back = True
        self._backlog.note(self)

    def resume_writing(self) -> None:
        self._sender.resume()

    # Requests.

    @property
    def listener(self) -> str:
        """The name of the listener that the peer has dialled."""
        return self._listener

    @property
    def address(self) -> str:
        """The peer's address without its port."""
        return self.context.peer_host

    @property
    def idle(self) -> bool:
        """Everything is answered and nothing of the next request has come."""
        return self._wire.unanswered == 0 and self._wire.buffered == 0 and not self._sender.busy

    @property
    def held_bytes(self) -> int:
        """Memory of unsent answers, and of requests that wait behind them."""
        return self._sender.held_bytes + self._wire.held_bytes

    def cut_off(self, cause: str) -> None:
        """Close without sending the answers that are left, and say why."""
        self._closing = True
        self._warn("connection cut off", cause)
        self._transport.abort()

    def _warn(self, event: str, cause: str, **facts: int) -> None:
        client_id = self.context.client_id
        logs.warn_once_a_minute(event, cause, self.address, client_id=client_id, **facts)

    def finish_waiting(self, request: Request, result: Any) -> None:
        """The request that held back the others has its result: answer it and go on."""
        self._waiting = None
        if self._timing.open:
            self.context.timed += self._timing.waited(request, clock.monotonic_s())
        self._handled.append((request, result))
        self._failures = self._appends.failures
        self._appends.write()
        self._settle()
        if self._wire.buffered:
            self._loop.call_soon(self._handle)

    def close(self) -> None:
        """Answer what has been asked, then close. The waiting request, if any, is answered now."""
        if self._waiting is not None:
            self._waiting.finish()
        self._closing = True
        self._close_when_done()

    def hold(self) -> None:
        """Read nothing of a new client until `let_go`."""
        self._reading = False
        self._rest()
        self._loop.call_soon(self._rest)  # uvloop begins to read after connection_made all the same

    def _rest(self) -> None:
        if not self._reading and not self._transport.is_closing():
            self._transport.pause_reading()

    def let_go(self) -> None:
        """Serve one that was held."""
        self._control_reading()

    def turn_away(self, after_ms: int) -> None:
        """Read nothing of a client that comes too often, and close after this time."""
        self._closing = True
        self.hold()
        self._loop.call_later(after_ms / 1000, self._transport.close)

    def abort(self) -> None:
        self._transport.abort()

    def mute(self, for_ms: int) -> None:
        """Start no request during this time."""
        until_s = self._loop.time() + for_ms / 1000
        if self._muted is not None:
            if self._muted.when() >= until_s:
                return
            self._muted.cancel()
        self._muted = self._loop.call_at(until_s, self._unmute)

    def look(self, now_s: float, idle_max_s: float) -> None:
        """Close the connection if nothing has gone over it for so long, or if a request comes more
        slowly than anybody sends one; give back memory if it rests."""
        unsent_bytes = self._sender.unsent_bytes
        if unsent_bytes != self._unsent_bytes:
            self._unsent_bytes = unsent_bytes
            self.last_active_s = now_s  # the peer takes what it is sent
        if self._held_back or not self._wire.buffered:
            self.whole_s = now_s
        if self._muted is not None:
            self.last_active_s = now_s
        silent_s = now_s - self.last_active_s
        if idle_max_s <= 0:
            return
        if silent_s > idle_max_s and self._closing:
            self.cut_off("it does not read its answers")
        elif silent_s > idle_max_s:
            self.close()
        elif now_s - self.whole_s > idle_max_s + self._wire.buffered / SLOWEST_BYTES_PER_S:
            self.cut_off(f"a request came at less than {SLOWEST_BYTES_PER_S} bytes per second")

    def shrink(self) -> None:
        """Give back buffer memory if the connection is idle."""
        if self.idle:
            self._wire.shrink()

    def _handle(self) -> None:
        """Handle what has been received, burst by burst, as far as it may be handled now."""
        while self._may_start() and self._burst():
            pass
        if not self._handled and (self._wire.buffered or not self._reading or self._held_back):
            self._control_reading()

    def _may_start(self) -> bool:
        """Whether the next request may be started now."""
        return (
            self._waiting is None
            and self._muted is None
            and not self._closing
            and not self._sender.busy
            and self._wire.unanswered < self._max_unanswered
        )

    def _burst(self) -> bool:
        """Handle up to `read.ahead.max.requests`; whether there may be more."""
        wire = self._wire
        context = self.context
        context.now_ms = self._clock_ms()
        appends = self._appends
        handled = self._handled
        joined = bool(handled)
        if not joined:
            self._failures = appends.failures
        quotas = self._quotas
        more = only_produced = True
        try:
            for _ in range(self._max_unanswered):
                began = (wire.buffered, clock.monotonic_s()) if quotas.active else None
                request = self._next_request()
                if request is None:
                    more = False
                    break
                if request.route.api.key != PRODUCE_KEY:
                    only_produced = False
                    if appends.pending:
                        # It must see what the requests before it have written.
                        appends.write()
                result = answer(request, context)
                handled.append((request, result))
                muted = began is not None and self._charge(request, *began)
                if isinstance(result, Waiting):
                    only_produced = False
                    break
                if muted:
                    break
                if not wire.buffered:
                    more = False
                    break
        except (Malformed, CloseConnection) as error:
            if isinstance(error, UnservedRequest):
                context.census.refused(context, error)
            self._refuse(error)
            more = False
        if more or not (only_produced and appends.pending):
            appends.write()
            self._settle()
        elif not joined:
            self._turn.join(self)
        return more

    def end_turn(self) -> None:
        """Answer the produce requests that have waited for the end of the turn."""
        self._settle()
        if self._wire.buffered or not self._reading or self._held_back:
            self._control_reading()

    def _settle(self) -> None:
        """Answer what has been handled, as far as it can be answered now; it is written."""
        wire = self._wire
        handled, self._handled = self._handled, []
        if self.context.timed:
            self._timing.handled(self.context.timed, self.whole_s, clock.monotonic_s())
        if self._appends.failures != self._failures:
            self._translate(handled)
        durable: list[tuple[Request, Durable]] = []
        quotas = self._quotas
        for request, result in handled:
            kind = result.__class__
            if kind not in PENDING:
                if quotas.active:
                    result = self._throttled(request, result)
                wire.respond(request, result)
            elif kind is Durable:
                durable.append((request, result))
            elif kind is Silent:
                wire.respond(request, None)
                if has_failed(result.response):
                    self._refuse(CloseConnection("a produce with acks=0 failed", quiet=True))
            else:
                self._waiting = result
                result.start(self, request)
        if durable:
            self._wait_for_disk(durable)
        self._flush()

    def _translate(self, handled: list[tuple[Request, Any]]) -> None:
        """Some of these may not have been written: say so in codes that the clients know."""
        for request, result in handled:
            if request.route.api.key == PRODUCE_KEY:
                is_pending = isinstance(result, Durable | Silent | PrepareWait)
                translate(result.response if is_pending else result, request.version)

    def _wait_for_disk(self, durable: list[tuple[Request, Durable]]) -> None:
        """Send these answers when all that they acknowledge is on disk."""
        logs_written = {partition.log for _, result in durable for partition in result.partitions}

        def done(failed: dict[Log, str]) -> None:
            if self._timing.open:
                self._timing.synced((request for request, _ in durable), clock.monotonic_s())
            for request, result in durable:
                response = result.refuse(request, result, failed) if failed else result.response
                if self._quotas.active:
                    response = self._throttled(request, response)
                self._wire.respond(request, response)
            self._flush()
            if self._wire.buffered:
                self._handle()

        self._group_commit.wait(logs_written, done)

    def _throttled(self, request: Request, response: Any) -> Any:
        """The answer with the time that its client has to wait, which begins now."""
        from broker.network.throttling import with_throttle_time  # most brokers have no quotas

        response, wait_ms = with_throttle_time(request, response, self._quotas, self.context)
        if wait_ms:
            self.mute(wait_ms)
        return response

    def _charge(self, request: Request, buffered: int, began_s: float) -> bool:
        """Count a request that has been handled: how much was buffered before it, and when it was
        begun with. Whether its client has to wait."""
        from broker.network.throttling import charge

        size, handled_s = buffered - self._wire.buffered, clock.monotonic_s() - began_s
        client = self.context.client(request)
        throttle_ms = charge(request, self._quotas, client, size=size, handled_s=handled_s)
        if throttle_ms:
            self.mute(throttle_ms)
        return throttle_ms > 0

    def _unmute(self) -> None:
        self._muted = None
        if self._wire.buffered:
            self._handle()
        else:
            self._control_reading()
        if self._ended and self._muted is None:
            self.eof_received()

    def _flush(self) -> None:
        buffers = self._wire.outgoing()
        if buffers:
            self._sender.send(buffers)
        if self._timing.open and not self._sender.busy:
            self._timing.sent(clock.monotonic_s())
        if self._closing:
            self._close_when_done()

    def _on_drained(self) -> None:
        if self._timing.open:
            self._timing.sent(clock.monotonic_s())
        if self._closing:
            self._close_when_done()
        elif self._wire.buffered:
            self._handle()
        else:
            self._control_reading()

    def _control_reading(self) -> None:
        """Read ahead a bounded amount, so that a waiting client's end of file is still noticed."""
        if self._closing:
            return
        backlog = self._backlog
        self._held_back = (
            self._waiting is not None
            or self._muted is not None
            or self._sender.busy
            or self._wire.unanswered >= self._max_unanswered
        )
        if self._held_back:
            backlog.note(self)
        else:
            backlog.forget(self)
        read = not self._held_back or (
            self._wire.buffered < self._read_ahead_bytes and not backlog.is_half_full
        )
        if read != self._reading and not self._transport.is_closing():
            self._reading = read
            if read:
                self._transport.resume_reading()
            else:
                self._transport.pause_reading()

    def _refuse(self, error: Malformed | CloseConnection) -> None:
        """Close after the answers that are due, and say why once a minute per address."""
        self._closing = True
        self._reading = False
        self._rest()
        if not getattr(error, "quiet", False):
            self._warn("connection closed", str(error))

    def _close_when_done(self) -> None:
        if self._wire.unanswered == 0 and not self._sender.busy:
            self._transport.close()
