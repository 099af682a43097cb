"""The answers of DescribeConfigs on topics and the broker, from the declarations.

Sources and types have Kafka's numbers. Synonyms are in the order in which they would hold:
the topic's own value, what was set at run time for this broker, for all brokers, what was
given at the start, the default; within each in the order of the keys a value falls back to.

Where a topic's time comes from a broker key in hours or minutes, its row says so. Kafka 3.9
gives no synonyms then and calls the value a default, because it looks for the key in
milliseconds alone. For the broker's own keys we do as Kafka does: a key that nobody gave has
no synonyms of other names.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from config.keys import known_key, known_keys
from config.not_yet import why_not_yet
from config.topic import TopicSettings, inherited_value

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from config.broker import BrokerSettings
    from config.declare import Key

TOPIC = 1
THIS_BROKER = 2
ALL_BROKERS = 3
STATIC = 4
DEFAULT = 5
CLIENT_METRICS = 7
GROUP = 8

# What a broker key's value falls back to, beside the key itself.
FALL_BACKS = {
    "log.retention.ms": ("log.retention.ms", "log.retention.minutes", "log.retention.hours"),
    "log.roll.ms": ("log.roll.ms", "log.roll.hours"),
    "log.roll.jitter.ms": ("log.roll.jitter.ms", "log.roll.jitter.hours"),
    "log.flush.interval.ms": ("log.flush.interval.ms", "log.flush.scheduler.interval.ms"),
}


class Synonym(NamedTuple):
    """A value that would hold if those before it were not there."""

    name: str
    value: str | None
    source: int


class ConfigRow(NamedTuple):
    """One row of DescribeConfigs. `value` is None for a password and for no value.

    `source` and `type` are Kafka's numbers; `synonyms` begins with the value that holds.
    """

    name: str
    value: str | None
    source: int
    type: int
    read_only: bool
    sensitive: bool
    documentation: str
    synonyms: list[Synonym]


def topic_rows(broker: BrokerSettings, overrides: Mapping[str, str]) -> list[ConfigRow]:
    """A topic's rows, sorted by name. `overrides` are its own settings, known to be sound."""
    rows = []
    for name, key in sorted(TopicSettings.KEYS.items()):
        if name in overrides:
            value = key.parse(overrides[name])
            own = [Synonym(name, key.format(value), TOPIC)]
        else:
            value = inherited_value(broker, key)
            own = []
        synonyms = [*own, *_broker_synonyms(broker, key.broker)]
        rows.append(_row(key, key.format(value), synonyms, read_only=False))
    return rows


def broker_rows(broker: BrokerSettings) -> list[ConfigRow]:
    """The broker's rows, sorted by name: every known key, and those of one listener if given.

    Keys that Kafka keeps for its own tests are shown only where they were given.
    """
    keys = known_keys()
    given = {name for layer in broker.layers for name in layer}
    for name in given - keys.keys():
        if key := known_key(name):
            keys[name] = key
    rows = []
    for name, key in sorted(keys.items()):
        if key.internal and name not in given:
            continue
        value = key.format(broker.value(key))
        synonyms = list(_broker_synonyms(broker, FALL_BACKS.get(name, (name,))))
        while synonyms and synonyms[0].name != name:
            del synonyms[0]
        rows.append(_row(key, value, synonyms, read_only=not key.dynamic))
    return rows


def group_rows(broker: BrokerSettings, overrides: Mapping[str, str]) -> list[ConfigRow]:
    """A group's rows, sorted by name. Of `overrides`, those that cannot be are left out."""
    from config.group import GROUP_KEYS, fault_of, value_of  # few groups have settings

    sound = {name: text for name, text in overrides.items() if fault_of(name, text) is None}
    rows = []
    for name, key in GROUP_KEYS.items():
        value = key.format(value_of(key, broker, sound))
        own = [Synonym(name, value, GROUP)] if name in sound else []
        behind = _broker_synonyms(broker, key.broker)
        rows.append(_row(key, value, [*own, *behind], read_only=False))
    return rows


def client_metrics_rows(given: Mapping[str, str]) -> list[ConfigRow]:
    """The rows of a subscription to metrics of clients, sorted by name."""
    from config.client_metrics import ClientMetricsConfig  # few brokers have one

    rows = []
    for name, key in sorted(ClientMetricsConfig.KEYS.items()):
        value = key.format(key.parse(given[name]) if name in given else key.default)
        own = [Synonym(name, value, CLIENT_METRICS)] if name in given else []
        rows.append(_row(key, value, own, read_only=False))
    return rows


def all_brokers_rows(broker: BrokerSettings) -> list[ConfigRow]:
    """Rows of what was set at run time for all brokers, by name, whatever this one has instead."""
    rows = []
    for name, given in sorted(broker.layers.all_brokers.items()):
        key = known_key(name)
        assert key is not None
        text = None if key.sensitive else key.format(key.parse(given.text))
        rows.append(_row(key, text, [Synonym(name, text, ALL_BROKERS)], read_only=not key.dynamic))
    return rows


def documentation_of(key: Key) -> str:
    """A key's sentence, with the reason where it has no effect, or none yet."""
    if key.unused:
        return f"{key.doc} Accepted without effect: {key.unused}.".lstrip()
    reason = why_not_yet(key)
    return f"{key.doc} Without effect so far: {reason}." if reason else key.doc


def _row(key: Key, value: str | None, synonyms: list[Synonym], *, read_only: bool) -> ConfigRow:
    return ConfigRow(
        key.name,
        None if key.sensitive else value,
        synonyms[0].source if synonyms else DEFAULT,
        key.kind.code,
        read_only,
        key.sensitive,
        documentation_of(key),
        synonyms,
    )


def _broker_synonyms(broker: BrokerSettings, names: Iterable[str]) -> Iterator[Synonym]:
    """Every value given for these broker keys, then their defaults."""
    keys = [key for name in names if (key := known_key(name))]
    layers = (
        (THIS_BROKER, broker.layers.this_broker),
        (ALL_BROKERS, broker.layers.all_brokers),
        (STATIC, broker.layers.static),
    )
    for source, layer in layers:
        for key in keys:
            if key.name in layer:
                text = key.format(key.parse(layer[key.name].text))
                yield Synonym(key.name, None if key.sensitive else text, source)
    for key in keys:
        if key.default is not None:
            text = key.format(broker.default(key))
            yield Synonym(key.name, None if key.sensitive else text, DEFAULT)
