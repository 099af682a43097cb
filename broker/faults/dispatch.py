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
from broker.faults import fetches
from broker.faults.conversations import text_of
from broker.faults.engine import Call
from broker.faults.held import Held, changed
from broker.faults.places import LISTS, can_be_split, merge, only, places
from broker.network.dispatch import told
from broker.pending import Later, Silent
from protocol.connection import FETCH_KEY
from protocol.messages.produce import ProduceRequest
from protocol.schema import Message
from storage.identity import uuid_text

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from broker.faults.conversations import Conversations
    from broker.faults.engine import Engine, Fault, Hit, Place
    from broker.faults.places import NameOf
    from broker.handlers.context import Context
    from broker.network.connection import Connection
    from broker.network.dispatch import Handler
    from protocol.connection import Request
    from protocol.errors import ErrorCode

METADATA_KEY = 3
ALL_TOPICS_BEFORE = 1
"""Up to here an empty list of topics in Metadata asks for all of them."""


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
    named = places(message, name_of)
    if api.key == FETCH_KEY:
        named = _read_by(request, ctx, named, name_of)
    hit = engine.meet(Call(api.name, request.client_id or "", named))
    if hit is None:
        return _called(handler, request, ctx)
    conversations.note_fault(f"{hit.fault.number}: {hit.fault}")
    logs.info(
        "a request meets a fault",
        fault=f"{hit.fault.number}: {hit.fault}",
        api=f"{api.name} v{request.version}",
        client_id=request.client_id,
    )
    return _met(handler, request, ctx, hit, named, name_of)


def _met(
    handler: Handler,
    request: Request,
    ctx: Context,
    hit: Hit,
    named: Sequence[Place],
    name_of: NameOf,
) -> Any:
    fault = hit.fault
    if fault.action == "error":
        return _with_error(handler, request, ctx, hit, named, name_of)
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


def _with_error(
    handler: Handler,
    request: Request,
    ctx: Context,
    hit: Hit,
    named: Sequence[Place],
    name_of: NameOf,
) -> Any:
    message, code, api = request.message, hit.fault.value, request.route.api
    if api.key == FETCH_KEY:
        return _fetch_with_error(handler, request, ctx, hit, name_of)
    if api.key == METADATA_KEY and not named:
        return changed(ctx, _called(handler, request, ctx), partial(_all_topics, code=code))
    chosen = set(hit.places)
    is_whole = chosen >= set(named) and api.key != METADATA_KEY
    if is_whole or not _can_be_split(request):
        return _silent_if_asked(message, api.refused(message, code))
    rest = only(message, chosen, name_of, others=True)
    if api.key == METADATA_KEY and not rest.topics and request.version < ALL_TOPICS_BEFORE:
        return api.refused(message, code)
    refused = api.refused(only(message, chosen, name_of), code)
    request.message = rest
    return changed(
        ctx, _called(handler, request, ctx), lambda answer: merge(answer, refused, name_of)
    )


def _can_be_split(request: Request) -> bool:
    answered = [one for one in request.route.api.response._fields if one.name in LISTS]
    return len(answered) == 1 and can_be_split(request.message)


def _silent_if_asked(message: Any, refused: Any) -> Any:
    """A producer that wants no answer gets none: its connection is closed."""
    if isinstance(message, ProduceRequest) and message.acks == 0:
        return Silent(refused)
    return refused


def _all_topics(answer: Any, code: ErrorCode) -> Any:
    """An answer to Metadata for all topics, in which each meets the error."""
    for topic in answer.topics:
        topic.error_code, topic.partitions = code, []
    return answer


def _fetch_with_error(
    handler: Handler, request: Request, ctx: Context, hit: Hit, name_of: NameOf
) -> Any:
    message, code = request.message, hit.fault.value
    if not fetches.is_in_session(message):
        chosen = set(hit.places)
        rest = only(message, chosen, name_of, others=True)
        refused = fetches.refusal(only(message, chosen, name_of), code)
        if not rest.topics:
            return refused
        request.message = rest
        return changed(
            ctx, _called(handler, request, ctx), lambda answer: merge(answer, refused, name_of)
        )
    if code in fetches.OF_SESSIONS:
        return request.route.api.refused(message, code)
    keys = _keys_read_by(message, ctx)

    def finish(later: Later, answer: Any) -> None:
        later.answer(fetches.with_error(answer, keys, hit.places, code, name_of))

    return Held(ctx, _called(handler, request, ctx), finish, at_once=True).later()


def _keys_read_by(message: Any, ctx: Context) -> list[fetches.Key]:
    """All that a fetch reads: what it names, and what its session remembers."""
    keys = {
        (topic.topic or topic.topic_id, one.partition): None
        for topic in message.topics
        for one in topic.partitions
    }
    if message.session_epoch > 0:
        keys |= dict.fromkeys(ctx.fetch_sessions.read_in(message.session_id))
        for topic in message.forgotten_topics_data:
            for index in topic.partitions:
                keys.pop((topic.topic or topic.topic_id, index), None)
    return list(keys)


def _read_by(request: Request, ctx: Context, named: list[Place], name_of: NameOf) -> list[Place]:
    if request.message.session_epoch <= 0:
        return named
    return [
        (name_of(topic) if isinstance(topic, bytes) else topic, index)
        for topic, index in _keys_read_by(request.message, ctx)
    ]


def _name_of(ctx: Context, topic_id: bytes) -> str:
    topic = ctx.topics.by_id.get(topic_id)
    return uuid_text(topic_id) if topic is None else topic.name
