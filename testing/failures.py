"""What the report of a failed test says of its broker."""

from __future__ import annotations

from typing import TYPE_CHECKING

from client.errors import Failure
from testing.control import ControlError
from testing.errors import BrokerFailed
from testing.namespace import Namespace

if TYPE_CHECKING:
    from collections.abc import Callable

    from testing.broker import Broker

LINES_MAX = 50
"""Of a section; the log has a number of its own."""
REQUESTS_OF_EACH = 5
"""Requests of a client."""
CHARACTERS_MAX = 300
"""Of a request's line."""


def sections(subject: Broker | Namespace, *, log_lines: int) -> list[tuple[str, str]]:
    """Title and text of each section: topics, groups, requests, the end of the log."""
    broker = subject.broker if isinstance(subject, Namespace) else subject
    log = _said(lambda: broker.log.splitlines())
    return [
        (f"topics of {broker!r}", _text(lambda: _topics(subject))),
        (f"groups of {broker!r}", _text(lambda: _groups(subject))),
        (f"last requests to {broker!r}", _text(lambda: _requests(subject))),
        (f"log of {broker!r}", "\n".join(log[-log_lines:] if log_lines > 0 else [])),
    ]


def _topics(subject: Broker | Namespace) -> list[str]:
    return [
        f"{name}-{index}  offsets {ends}"
        for name in subject.topics()
        for index, ends in subject.topic(name).ends().items()
    ]


def _groups(subject: Broker | Namespace) -> list[str]:
    lines = []
    for name, state in subject.groups().items():
        group = subject.group(name)
        lag = group.lag()
        committed = group.offsets().items()
        lines.append(f"{name}  {state}" + ("" if committed else ", nothing committed"))
        lines += [
            f"  {place}  committed {offset}, {lag.get(place, '?')} left"
            for place, offset in committed
        ]
    return lines


def _requests(subject: Broker | Namespace) -> list[str]:
    """The last ones of each client; on a shared broker those that name what is of this test."""
    by_client: dict[str, list[str]] = {}
    for sent in subject.conversations():
        if subject.prefix in sent.text:
            by_client.setdefault(sent.client, []).append(_cut(str(sent)))
    return [line for lines in by_client.values() for line in lines[-REQUESTS_OF_EACH:]]


def _cut(line: str) -> str:
    return line if len(line) <= CHARACTERS_MAX else f"{line[:CHARACTERS_MAX]}..."


def _text(ask: Callable[[], list[str]]) -> str:
    lines = _said(ask)
    if len(lines) > LINES_MAX:
        lines = [*lines[:LINES_MAX], f"and {len(lines) - LINES_MAX} more lines"]
    return "\n".join(lines) or "none"


def _said(ask: Callable[[], list[str]]) -> list[str]:
    """The lines, or the one that says why there are none: the broker may be gone."""
    try:
        return ask()
    except (Failure, BrokerFailed, ControlError) as error:
        return [str(error)]
