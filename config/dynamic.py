"""The settings that are given at run time: what may be, and what of those stored still may.

They are two layers over those of the start: one for all brokers, one for this one. A change is
checked whole before it is made. What was stored by another version, or by Kafka, is taken as far as
it can be: a broker that refused to start over a setting could not be helped by its administrator.
Topics are stricter, see `known_topic_part`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from config.broker import BrokerSettings, Given, Layers, known_key, problems_of, read
from config.errors import ConfigError, Problem
from config.topic import SOURCE, TopicSettings

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from config.declare import Key

ALTERED = "AlterConfigs"
READ_AT_THE_START = {
    "listeners": "its sockets are opened at the start",
    "listener.security.protocol.map": "listeners are opened at the start",
}
"""Keys that Kafka takes at run time and this broker does not, though they mean something here."""
OF_ONE_BROKER = frozenset({"advertised.listeners"})
"""Keys that all brokers of a cluster cannot share."""


class Sound(NamedTuple):
    """Settings with what of the stored ones can hold, and what is wrong with the others."""

    settings: BrokerSettings
    ignored: list[Problem]


def fault_of(name: str, text: str, *, of_all: bool = False) -> Problem | None:
    """Why a broker's key cannot be set to this text at run time, or None if it can.

    `of_all` is for the layer of all brokers.
    """
    key = known_key(name)
    if key is None:
        return problems_of([(name, Given(text, ALTERED))])[0]
    if not key.dynamic:
        return Problem(ALTERED, name, None, f"cannot be changed at run time: {_why(key)}")
    if of_all and name in OF_ONE_BROKER:
        reason = "can be set for one broker, by its id, not for all of them"
        return Problem(ALTERED, name, None, reason)
    return next(iter(problems_of([(name, Given(text, ALTERED))])), None)


def _why(key: Key) -> str:
    return key.unused or READ_AT_THE_START.get(key.name, "it is read at the start only")


def changed(
    settings: BrokerSettings, *, all_brokers: Mapping[str, str], this_broker: Mapping[str, str]
) -> BrokerSettings:
    """These settings with other run-time layers. ConfigError carries all that is wrong."""
    problems = [
        fault
        for layer, of_all in ((all_brokers, True), (this_broker, False))
        for name, text in layer.items()
        if (fault := fault_of(name, text, of_all=of_all)) is not None
    ]
    if problems:
        raise ConfigError(problems)
    return read(_layered(settings, all_brokers.items(), this_broker.items()))


def sound_part(
    settings: BrokerSettings, *, all_brokers: Mapping[str, str], this_broker: Mapping[str, str]
) -> Sound:
    """These settings with as much of the run-time layers as can hold together.

    Where the whole makes no sense, settings are taken one after the other, those of all brokers
    first, as long as each fits to what has been taken.
    """
    ignored: list[Problem] = []
    given: list[tuple[bool, str, str]] = []
    for layer, of_all in ((all_brokers, True), (this_broker, False)):
        for name, text in layer.items():
            fault = fault_of(name, text, of_all=of_all)
            if fault is None:
                given.append((of_all, name, text))
            else:
                ignored.append(fault)
    try:
        return Sound(_with(settings, given), ignored)
    except ConfigError:
        pass
    taken: list[tuple[bool, str, str]] = []
    left, refusals = given, list[Problem]()
    progress = True
    while progress:  # two settings may fit only together with a third
        progress, candidates, left, refusals = False, left, [], []
        for one in candidates:
            try:
                _with(settings, [*taken, one])
            except ConfigError as error:
                left.append(one)
                refusals.append(Problem(ALTERED, one[1], one[2], error.reason))
            else:
                taken.append(one)
                progress = True
    return Sound(_with(settings, taken), ignored + refusals)


def _with(settings: BrokerSettings, given: list[tuple[bool, str, str]]) -> BrokerSettings:
    return read(
        _layered(
            settings,
            [(name, text) for of_all, name, text in given if of_all],
            [(name, text) for of_all, name, text in given if not of_all],
        )
    )


def _layered(
    settings: BrokerSettings,
    all_brokers: Iterable[tuple[str, str]],
    this_broker: Iterable[tuple[str, str]],
) -> Layers:
    every, this = (
        {name: Given(text, ALTERED) for name, text in layer} for layer in (all_brokers, this_broker)
    )
    return Layers(settings.layers.static, every, this)


def known_topic_part(overrides: Mapping[str, str]) -> tuple[dict[str, str], list[Problem]]:
    """A topic's stored settings without those that nobody here knows, and these.

    A known one with a text that cannot be stays, for `TopicSettings.of` to refuse: without what the
    topic says of its retention the broker would drop records by its own.
    """
    known = {name: text for name, text in overrides.items() if name in TopicSettings.KEYS}
    reason = "there is no such key of a topic"
    return known, [Problem(SOURCE, name, None, reason) for name in overrides.keys() - known.keys()]
