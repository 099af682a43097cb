"""How a request meets an error: what of it is refused, and what is still to be asked. Pure.

An error is said where this API and version have it. A request that names more than the fault is
about is taken apart, and the rest of it is handled by whoever handles it without the fault.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from broker.faults import fetches
from broker.faults.places import LISTS, can_be_split, merge, only, places
from protocol.connection import FETCH_KEY

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from broker.faults.engine import Hit, Place
    from broker.faults.places import NameOf
    from protocol.errors import ErrorCode
    from protocol.registry import Api

METADATA_KEY = 3
ALL_TOPICS_BEFORE = 1
"""Up to here an empty list of topics in Metadata asks for all of them."""


class Asked(NamedTuple):
    """A request, as far as faults look at it."""

    api: Api
    version: int
    message: Any
    places: Sequence[Place]
    keys: Sequence[fetches.Key]
    """What a Fetch reads, also what its session remembers; empty for other APIs."""
    name_of: NameOf


class Refusal(NamedTuple):
    """What becomes of a request that meets an error."""

    rest: Any
    """The request that is still to be handled; None if nothing of it is."""
    answer: Callable[[Any], Any]
    """The answer to the whole request, made of that to the rest (of None, if there is none)."""
    at_once: bool = False
    """Whether the rest is to be handled with what there is now, without waiting for more."""


def asked(
    api: Api,
    version: int,
    message: Any,
    name_of: NameOf,
    read_in: Callable[[int], Iterable[fetches.Key]],
) -> Asked:
    """`read_in` tells what a fetch session, by its id, remembers."""
    if api.key != FETCH_KEY:
        return Asked(api, version, message, places(message, name_of), (), name_of)
    keys = fetches.keys_read_by(message, read_in(message.session_id))
    return Asked(api, version, message, fetches.places_of(keys, name_of), keys, name_of)


def refusal(asked: Asked, hit: Hit) -> Refusal:
    """How the request meets the error of this fault."""
    api, version, message, named, _, name_of = asked
    code = hit.fault.value
    if api.key == FETCH_KEY:
        return _of_fetch(asked, hit)
    if api.key == METADATA_KEY and not named:
        return Refusal(message, partial(_all_topics, code=code))
    chosen = set(hit.places)
    is_whole = chosen >= set(named) and api.key != METADATA_KEY
    if is_whole or not _can_be_split(asked):
        return _all_of_it(api.refused(message, code))
    rest = only(message, chosen, name_of, others=True)
    if api.key == METADATA_KEY and not rest.topics and version < ALL_TOPICS_BEFORE:
        return _all_of_it(api.refused(message, code))
    refused = api.refused(only(message, chosen, name_of), code)
    return Refusal(rest, lambda answer: merge(answer, refused, name_of))


def _all_of_it(refused: Any) -> Refusal:
    return Refusal(None, lambda _: refused)


def _can_be_split(asked: Asked) -> bool:
    answered = [one for one in asked.api.response._fields if one.name in LISTS]
    return len(answered) == 1 and can_be_split(asked.message)


def _all_topics(answer: Any, code: ErrorCode) -> Any:
    """An answer to Metadata for all topics, in which each meets the error."""
    for topic in answer.topics:
        topic.error_code, topic.partitions = code, []
    return answer


def _of_fetch(asked: Asked, hit: Hit) -> Refusal:
    message, name_of, code = asked.message, asked.name_of, hit.fault.value
    if not fetches.is_in_session(message):
        chosen = set(hit.places)
        rest = only(message, chosen, name_of, others=True)
        refused = fetches.refusal(only(message, chosen, name_of), code)
        if not rest.topics:
            return _all_of_it(refused)
        return Refusal(rest, lambda answer: merge(answer, refused, name_of))
    if code in fetches.OF_SESSIONS:
        return _all_of_it(asked.api.refused(message, code))
    return Refusal(
        message,
        lambda answer: fetches.with_error(answer, asked.keys, hit.places, code, name_of),
        at_once=True,
    )
