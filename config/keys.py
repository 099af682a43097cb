"""Every key of the broker by its name, and what is wrong with a text given for one.

The keys without effect, and those of TLS and SASL, are loaded when one of them is named, to keep
the start short.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from config.broker import BrokerSettings
from config.errors import Problem, nearest_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    from config.broker import Given
    from config.declare import Key


def known_key(name: str) -> Key | None:
    """The declaration of a key of the broker, with or without an attribute."""
    key = BrokerSettings.KEYS.get(name)
    if key is None:
        from config.accepted import accepted_key

        key = accepted_key(name)
    return key


def known_keys() -> dict[str, Key]:
    """Every key of the broker by its name, sorted."""
    from config.accepted import ACCEPTED
    from config.listener_security import ListenerSecurity

    return dict(sorted((BrokerSettings.KEYS | ListenerSecurity.KEYS | ACCEPTED).items()))


def problems_of(entries: Iterable[tuple[str, Given]]) -> list[Problem]:
    """The problems that each of these texts has on its own."""
    problems = []
    for name, given in entries:
        key = known_key(name)
        if key is None:
            problems.append(_unknown(name, given))
            continue
        try:
            key.parse(given.text)
        except ValueError as error:
            problems.append(key.problem(given.source, given.text, str(error)))
    return problems


def _unknown(name: str, given: Given) -> Problem:
    from config.accepted import REMOVED

    if name in REMOVED:
        return Problem(given.source, name, None, f"Kafka no longer has this key: {REMOVED[name]}")
    nearest = nearest_of(name, known_keys())
    return Problem(given.source, name, None, "there is no such key", nearest)
