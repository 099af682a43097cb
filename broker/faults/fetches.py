"""Errors in answers to Fetch.

A session (KIP-227) reads partitions that a request does not name, and both sides have to go on
agreeing about them. So such a fetch is handled, at once with what there is, and the error takes the
place of what was found.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from broker.faults.places import merge, only
from protocol.errors import ErrorCode
from protocol.messages.fetch import FetchRequest, FetchResponse, refused
from protocol.schema import ZERO_UUID

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from broker.faults.engine import Place
    from broker.faults.places import NameOf

NO_SESSION = (0, -1)
OF_SESSIONS = frozenset(
    {
        ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
        ErrorCode.INVALID_FETCH_SESSION_EPOCH,
        ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR,
    }
)
"""Errors of the whole request; all others are said for each partition."""

Key = tuple[str | bytes, int]
"""A topic's name up to version 12, its id later; a partition."""


def is_in_session(message: FetchRequest) -> bool:
    """Whether the request begins, uses or ends a session."""
    return (message.session_id, message.session_epoch) != NO_SESSION


def refusal(message: FetchRequest, code: ErrorCode) -> FetchResponse:
    """The answer to a fetch without a session: everything that it names meets the error."""
    response = refused(message, code)
    if code not in OF_SESSIONS and response.responses:
        response.error_code = ErrorCode.NONE
    return response


def keys_read_by(message: FetchRequest, remembered: Iterable[Key]) -> list[Key]:
    """All that a fetch reads: what it names, and what its session remembers."""
    keys: dict[Key, None] = {
        (topic.topic or topic.topic_id, one.partition): None
        for topic in message.topics
        for one in topic.partitions
    }
    if message.session_epoch > 0:
        keys |= dict.fromkeys(remembered)
        for topic in message.forgotten_topics_data:
            for index in topic.partitions:
                keys.pop((topic.topic or topic.topic_id, index), None)
    return list(keys)


def places_of(keys: Iterable[Key], name_of: NameOf) -> list[Place]:
    """These partitions by their topics' names."""
    return [_place(topic, index, name_of) for topic, index in keys]


def with_error(
    answer: Any, keys: Iterable[Key], hit: Sequence[Place], code: ErrorCode, name_of: NameOf
) -> Any:
    """An answer of a session in which these places meet the error. `keys` are all partitions that
    the session reads; the answer names those alone that have news."""
    if answer.error_code != ErrorCode.NONE:
        return answer
    chosen = set(hit)
    asked = [
        _asked(topic, index) for topic, index in keys if _place(topic, index, name_of) in chosen
    ]
    error = refused(FetchRequest(max_wait_ms=0, min_bytes=0, topics=asked), code)
    return merge(only(answer, chosen, name_of, others=True), error, name_of)


def _place(topic: str | bytes, index: int, name_of: NameOf) -> Place:
    return (name_of(topic) if isinstance(topic, bytes) else topic), index


def _asked(topic: str | bytes, index: int) -> FetchRequest.Topic:
    partition = FetchRequest.Topic.Partition(partition=index, fetch_offset=0, partition_max_bytes=0)
    if isinstance(topic, bytes):
        return FetchRequest.Topic(topic_id=topic, partitions=[partition])
    return FetchRequest.Topic(topic_id=ZERO_UUID, topic=topic, partitions=[partition])
