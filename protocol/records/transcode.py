"""The loops over single records by the fastest means present: `_loops` in C, or `loops` in Python.

Rules and errors are in `loops`, and both give the same bytes. The compiled twin returns None for
input that it cannot take; then the one in Python is asked, which knows what to say. So a build
without it is slower and differs in nothing else. `IMPLEMENTATION` names the one in use, so that the
broker can say it at start-up.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from protocol.records import loops
from protocol.records.loops import MessageScan, RecordScan, renumber_records
from protocol.records.record import read_fields

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import ParamSpec, TypeVar

    from protocol.records.loops import Data

    Parameters = ParamSpec("Parameters")
    Result = TypeVar("Result")
    Fields = TypeVar("Fields", bound=tuple[int, ...])

__all__ = [
    "IMPLEMENTATION",
    "MessageScan",
    "RecordScan",
    "first_of",
    "messages_from_messages",
    "messages_from_records",
    "place_messages",
    "records_from_messages",
    "renumber_records",
    "scan_messages",
    "scan_records",
    "skip_messages",
]

IMPLEMENTATION = "interpreted"
scan_messages = loops.scan_messages
scan_records = loops.scan_records
messages_from_records = loops.messages_from_records
messages_from_messages = loops.messages_from_messages
records_from_messages = loops.records_from_messages
place_messages = loops.place_messages
skip_messages = loops.skip_messages


def first_of(
    compiled: Callable[Parameters, Result | None], interpreted: Callable[Parameters, Result]
) -> Callable[Parameters, Result]:
    """The compiled loop, and the interpreted one where that gives up."""

    def loop(*args: Parameters.args, **kwargs: Parameters.kwargs) -> Result:
        found = compiled(*args, **kwargs)
        return interpreted(*args, **kwargs) if found is None else found

    return loop


def _named(
    compiled: Callable[Parameters, Fields | None], named: Callable[[Fields], Result]
) -> Callable[Parameters, Result | None]:
    def loop(*args: Parameters.args, **kwargs: Parameters.kwargs) -> Result | None:
        found = compiled(*args, **kwargs)
        return None if found is None else named(found)

    return loop


def _explained_scan(
    data: Data, count: int, base_timestamp: int, *, oldest_ms: int, newest_ms: int
) -> RecordScan:
    """As `scan_records`, of records that the compiled loop gave up on: the one in Python begins
    where that found the fault. It would take a microsecond for each of the records before."""
    sound = _loops.sound_records(data, count)
    if sound is not None:
        for _ in read_fields(bytes(data), count, *sound):
            pass
    return loops.scan_records(data, count, base_timestamp, oldest_ms=oldest_ms, newest_ms=newest_ms)


try:
    from protocol.records import _loops
except ImportError:
    pass  # built where there was no C compiler
else:
    IMPLEMENTATION = "compiled"
    scan_messages = first_of(_named(_loops.scan_messages, MessageScan._make), loops.scan_messages)
    scan_records = first_of(_named(_loops.scan_records, RecordScan._make), _explained_scan)
    messages_from_records = first_of(_loops.messages_from_records, loops.messages_from_records)
    messages_from_messages = first_of(_loops.messages_from_messages, loops.messages_from_messages)
    records_from_messages = first_of(_loops.records_from_messages, loops.records_from_messages)
    place_messages = first_of(_loops.place_messages, loops.place_messages)
    skip_messages = first_of(_loops.skip_messages, loops.skip_messages)
