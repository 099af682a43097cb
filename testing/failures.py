"""What the report of a failed test says of its broker."""

from __future__ import annotations

from typing import TYPE_CHECKING

from client.errors import Failure
from testing.errors import BrokerFailed
from testing.namespace import Namespace

if TYPE_CHECKING:
    from collections.abc import Callable

    from testing.broker import Broker

LINES_MAX = 50
"""Partitions, or groups, that a report names."""


def sections(subject: Broker | Namespace, *, log_lines: int) -> list[tuple[str, str]]:
    """Title and text of each section: topics, groups, the end of the log."""
    broker = subject.broker if isinstance(subject, Namespace) else subject
    log = _said(lambda: broker.log.splitlines())
    return [
        (f"topics of {broker!r}", _text(lambda: _topics(subject))),
        (f"groups of {broker!r}", _text(lambda: _groups(subject))),
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


def _text(ask: Callable[[], list[str]]) -> str:
    lines = _said(ask)
    if len(lines) > LINES_MAX:
        lines = [*lines[:LINES_MAX], f"and {len(lines) - LINES_MAX} more lines"]
    return "\n".join(lines) or "none"


def _said(ask: Callable[[], list[str]]) -> list[str]:
    """The lines, or the one that says why there are none: the broker may be gone."""
    try:
        return ask()
    except (Failure, BrokerFailed) as error:
        return [str(error)]
