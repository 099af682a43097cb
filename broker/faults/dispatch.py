"""Handlers with the faults before and behind them.

A table of handlers is made of another one, as access checks are added to one
(`broker.handlers.access.guarded`): a broker without faults has the table as it was.

An error is answered in place of the handler, where this API and version have it; a request that
names more than the fault is about is taken apart, and the rest of it is handled. What happens
*after* a request took effect waits until its answer could be sent: for acks=all, until
it is on disk.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, cast

from broker import logs
from broker.faults.conversations import text_of
from broker.faults.engine import Call
from broker.faults.held import Held, changed
from broker.faults.places import groups
from broker.faults.refusal import asked, refusal
from broker.network.dispatch import told
from broker.pending import Later, Silent
from protocol.messages.produce import ProduceRequest
from protocol.schema import Message
from storage.identity import uuid_text

if TYPE_CHECKING:
    from collections.abc import Mapping

    from broker.faults.conversations import Conversations
    from broker.faults.engine import Engine, Fault, Hit
    from broker.faults.refusal import Asked, Refusal
    from broker.handlers.context import Context
    from broker.network.connection import Connection
    from broker.network.dispatch import Handler
    from protocol.connection import Request


def faulted(
    handlers: Mapping[int, Handler], engine: Engine, conversations: Conversations
) -> dict[int, Handler]:
    """A table in which each call may meet a fault, and is remembered."""

    def with_faults(handler: Handler) -> Handler:
        return lambda request, ctx: _handle(handler, request, ctx, engine, conversations)

    return {key: with_faults(handler) for key, handler in handlers.items()}


def _handle(
    handler: Handler, request: Request, ctx: Context, engine: Engine, conversations: Conversations
) -> Any:
    message = request.general_message()
    if not isinstance(message, Message):
        return handler(request, ctx)  # a token of SASL, or ApiVersions of an unknown version
    ctx.client_id = request.client_id
    name_of = partial(_name_of, ctx)
    api = request.route.api
    conversations.add(
        time_ms=ctx.clock_ms(),
        client=request.client_id or "",
        address=f"{ctx.peer_host}:{ctx.peer_port}",
        api=api.name,
        version=request.version,
        text=text_of(message, request.version, name_of),
    )
    found = asked(api, request.version, message, name_of, ctx.fetch_sessions.read_in)
    hit = engine.meet(Call(api.name, request.client_id or "", found.places, groups(message)))
    if hit is None:
        return _called(handler, request, ctx)
    conversations.note_fault(f"{hit.fault.number}: {hit.fault}")
    logs.info(
        "a request meets a fault",
        fault=f"{hit.fault.number}: {hit.fault}",
        api=f"{api.name} v{request.version}",
        client_id=request.client_id,
    )
    return _met(handler, request, ctx, hit, found)


def _met(handler: Handler, request: Request, ctx: Context, hit: Hit, asked: Asked) -> Any:
    fault = hit.fault
    if fault.action == "error":
        return _with_error(handler, request, ctx, refusal(asked, hit))
    if fault.action == "close" and fault.value == "before":
        return Later(lambda later: _close(ctx, later))
    result = _called(handler, request, ctx)
    return Held(ctx, result, lambda later, response: _act(fault, ctx, later, response)).later()


def _called(handler: Handler, request: Request, ctx: Context) -> Any:
    try:
        return handler(request, ctx)
    except Exception as error:
        return told(error, handler, request, ctx)


def _act(fault: Fault, ctx: Context, later: Later, response: Any) -> None:
    """The request took effect; do with its answer what the fault says."""
    if fault.action == "delay_ms":
        ctx.loop.call_later(fault.value / 1000, later.answer, response)
    elif fault.action == "close":
        _close(ctx, later)
    elif fault.action == "throttle_ms":
        connection = cast("Connection", later.connection)
        if hasattr(response, "throttle_time_ms"):
            response.throttle_time_ms = fault.value
        later.answer(response)
        connection.mute(fault.value)
    # What is never answered goes with its connection.


def _close(ctx: Context, later: Later) -> None:
    """Close the connection when the answers before this one have been sent. Not within the call in
    which the connection takes note of the request."""
    ctx.loop.call_soon(cast("Connection", later.connection).close)


def _with_error(handler: Handler, request: Request, ctx: Context, refusal: Refusal) -> Any:
    if refusal.rest is None:
        return _silent_if_asked(request.message, refusal.answer(None))
    request.message = refusal.rest
    result = _called(handler, request, ctx)
    if not refusal.at_once:
        return changed(ctx, result, refusal.answer)

    def finish(later: Later, answer: Any) -> None:
        later.answer(refusal.answer(answer))

    return Held(ctx, result, finish, at_once=True).later()


def _silent_if_asked(message: Any, refused: Any) -> Any:
    """A producer that wants no answer gets none: its connection is closed."""
    if isinstance(message, ProduceRequest) and message.acks == 0:
        return Silent(refused)
    return refused


def _name_of(ctx: Context, topic_id: bytes) -> str:
    topic = ctx.topics.by_id.get(topic_id)
    return uuid_text(topic_id) if topic is None else topic.name
