"""Keys of a subscription to the metrics of clients (KIP-714): what, how often, and of whom."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from config.declare import Check, Settings, key
from config.errors import ConfigError, Problem, nearest_of
from config.kinds import int32, names

if TYPE_CHECKING:
    from collections.abc import Mapping

SOURCE = "client metrics settings"

DEFAULT_INTERVAL_MS = 300_000
MIN_INTERVAL_MS, MAX_INTERVAL_MS = 100, 3_600_000
ALL_METRICS = "*"

CLIENT_FACTS = (
    "client_instance_id",
    "client_id",
    "client_software_name",
    "client_software_version",
    "client_source_address",
    "client_source_port",
)
"""The names that `match` can test."""


class Condition(NamedTuple):
    """A regular expression that a fact about a client, one of CLIENT_FACTS, must match whole."""

    fact: str
    expression: str


def conditions_of(entries: tuple[str, ...]) -> list[Condition]:
    """The entries of `match`, `FACT=EXPRESSION` each; of one fact the last counts, as in Kafka.
    ValueError with the wish."""
    found = {}
    for entry in entries:
        fact, equals, expression = (part.strip() for part in entry.partition("="))
        if fact not in CLIENT_FACTS or not equals or "=" in expression:
            raise ValueError(f"wanted FACT=EXPRESSION with one of {', '.join(CLIENT_FACTS)}")
        found[fact] = Condition(fact, expression)
    return list(found.values())


def _are_conditions(entries: tuple[str, ...]) -> bool:
    try:
        conditions_of(entries)
    except ValueError:
        return False
    return True


class ClientMetricsConfig(Settings):
    """One subscription."""

    metrics: tuple[str, ...] = key(
        "metrics",
        names,
        (),
        "How the names of the metrics begin that clients are asked for; * is all of them.",
        since="3.7",
        dynamic=True,
    )
    interval_ms: int = key(
        "interval.ms",
        int32,
        DEFAULT_INTERVAL_MS,
        f"Time between two pushes of a client, {MIN_INTERVAL_MS} to {MAX_INTERVAL_MS} ms. Of "
        "several subscriptions for one client the shortest holds.",
        since="3.7",
        dynamic=True,
    )
    match: tuple[str, ...] = key(
        "match",
        names,
        (),
        "Which clients are asked: FACT=EXPRESSION, separated by commas; none is all of them.",
        check=Check(_are_conditions, f"FACT=EXPRESSION with one of {', '.join(CLIENT_FACTS)}"),
        since="3.7",
        dynamic=True,
    )

    @classmethod
    def of(cls, given: Mapping[str, str]) -> ClientMetricsConfig:
        """The subscription with these settings. ConfigError carries all that is wrong."""
        problems = []
        values = {one.attribute: one.default for one in cls.KEYS.values()}
        for name, text in given.items():
            one = cls.KEYS.get(name)
            if one is None:
                nearest = nearest_of(name, cls.KEYS)
                reason = "there is no such key of a client metrics subscription"
                problems.append(Problem(SOURCE, name, None, reason, nearest))
                continue
            try:
                values[one.attribute] = one.parse(text)
            except ValueError as error:
                problems.append(one.problem(SOURCE, text, str(error)))
        if problems:
            raise ConfigError(problems)
        made = cls()
        made._fill(values)
        return made

    @property
    def interval_is_allowed(self) -> bool:
        """Whether Kafka would take it; to say so is left to the caller, for it has another code
        than what is no number."""
        return MIN_INTERVAL_MS <= self.interval_ms <= MAX_INTERVAL_MS

    @property
    def conditions(self) -> list[Condition]:
        """All of them must hold of a client."""
        return conditions_of(self.match)
