"""The settings given at run time: which may be, and as many of the stored ones as still hold.

They are two layers over those of the start: one for all brokers, one for this one. A change is
checked whole before it is made. What was stored by another version, or by Kafka, is taken as far as
it can be: a broker that refused to start over a setting could not be helped by its administrator.
So it is with topics (`config.stored`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from config.broker import Given, Layers
from config.errors import ConfigError, Problem
from config.keys import known_key, problems_of
from config.listeners import LISTENER_PREFIX
from config.sources import read

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from config.broker import BrokerSettings
    from config.declare import Key

ALTERED = "AlterConfigs"
OF_ONE_LISTENER = ("ssl.key.password", "ssl.keystore.", "ssl.truststore.")
"""Keys, or how they begin, that Kafka changes for single listeners alone."""
OF_ONE_BROKER = (
    *("listeners", "advertised.listeners", "listener.security.protocol.map"),
    "principal.builder.class",
    *("ssl.", "sasl.", LISTENER_PREFIX),
)
"""Keys, or how they begin, that Kafka does not let all brokers of a cluster share."""
OF_ALL_LISTENERS = ("max.connections", "max.connection.creation.rate", "num.network.threads")
"""Keys of one listener that all brokers can share all the same."""


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
    if name.startswith(OF_ONE_LISTENER):
        reason = f"can be changed for one listener, as {LISTENER_PREFIX}NAME.{name}, not for all"
        return Problem(ALTERED, name, None, reason)
    if of_all and _is_of_one_broker(name):
        reason = "can be set for one broker, by its id, not for all of them"
        return Problem(ALTERED, name, None, reason)
    return next(iter(problems_of([(name, Given(text, ALTERED))])), None)


def _is_of_one_broker(name: str) -> bool:
    if name.startswith(LISTENER_PREFIX) and name.endswith(OF_ALL_LISTENERS):
        return False
    return name.startswith(OF_ONE_BROKER)


def _why(key: Key) -> str:
    return key.unused or "it is read at the start only"


def with_dynamic(
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
    layers = settings.layers
    if not (given or layers.all_brokers or layers.this_broker):
        return Sound(settings, ignored)
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
