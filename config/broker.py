"""The broker's settings: every key, the layers they come from, and what follows from them.

Four layers, the later over the earlier: defaults, what was given at the start (file,
environment, `--set`), what was set at run time for all brokers, and for this one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from config.broker_cleaner import CleanerSettings
from config.broker_group import GroupSettings
from config.broker_log import LogSettings
from config.broker_metadata import MetadataSettings
from config.broker_network import NetworkSettings
from config.broker_node import NodeSettings
from config.broker_rules import broken_rules
from config.errors import ConfigError, Problem, nearest_of
from config.formats import record_format, release_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from config.declare import Key
    from config.listeners import Listener


class Given(NamedTuple):
    """A text somebody gave, and where ("server.properties:3", "--set", "AlterConfigs")."""

    text: str
    source: str


class Layers(NamedTuple):
    """What was given, by key: at the start, at run time for all brokers, and for this one."""

    static: dict[str, Given]
    all_brokers: dict[str, Given]
    this_broker: dict[str, Given]


class BrokerSettings(
    NodeSettings, MetadataSettings, NetworkSettings, LogSettings, CleanerSettings, GroupSettings
):
    """The values of all keys with an attribute; `value(name)` answers for the others too."""

    _layers: Layers
    _topic_values: dict[str, Any] | None  # see config.topic

    def __init__(self, layers: Layers | None = None) -> None:
        """From layers that are known to be sound; `read` is for those that are not."""
        layers = layers or Layers({}, {}, {})
        values = {key.attribute: key.default for key in self.KEYS.values()}
        for layer in layers:
            for name, given in layer.items():
                if key := self.KEYS.get(name):
                    values[key.attribute] = key.parse(given.text)
        for key in self.KEYS.values():
            if key.floor and not any(key.name in layer for layer in layers):
                values[key.attribute] = max(key.default, values[self.KEYS[key.floor].attribute])
        values["broker_id"] = values["node_id"]
        self._fill({**values, "_layers": layers, "_topic_values": None})

    @property
    def layers(self) -> Layers:
        return self._layers

    @property
    def data_directory(self) -> str:
        """The one folder in which everything is kept: log.dirs, else log.dir."""
        return (self.log_dirs or self.log_dir).strip()

    @property
    def record_format(self) -> int:
        """The magic of records in topics that do not set message.format.version."""
        return record_format(self.log_message_format_version)

    @property
    def knows_zstd(self) -> bool:
        """Whether inter.broker.protocol.version admits zstd (KIP-110). One node has no peers; who
        sets it low has consumers of that age in mind."""
        return release_of(self.inter_broker_protocol_version) >= (2, 1)

    @property
    def served_listeners(self) -> tuple[Listener, ...]:
        """The listeners to open, those of clients first."""
        return self.client_listeners + self.controller_listeners

    @property
    def client_listeners(self) -> tuple[Listener, ...]:
        """Where clients are served: all but those a Kafka node keeps for its controller."""
        names = self._controller_names
        return tuple(one for one in self.listeners if one.name not in names)

    @property
    def controller_listeners(self) -> tuple[Listener, ...]:
        """Where those are served who follow the metadata log; often none."""
        names = self._controller_names
        return tuple(one for one in self.listeners if one.name in names)

    @property
    def _controller_names(self) -> set[str]:
        return {name.upper() for name in self.controller_listener_names}

    def advertised_listener(self, name: str) -> Listener | None:
        """What clients of a listener are told to dial, or None: what they dialled already."""
        for listener in self.advertised_listeners or ():
            if listener.name == name:
                return listener
        return None

    def value(self, name: str) -> Any:
        """The value that holds for any known key. KeyError if there is no such key."""
        key = known_key(name)
        if key is None:
            raise KeyError(name)
        if key.attribute:
            return getattr(self, key.attribute)
        for layer in reversed(self._layers):
            if name in layer:
                return key.parse(layer[name].text)
        return key.default

    def default(self, key: Key) -> Any:
        """The value of a key that nobody gave: its default, which may have a floor."""
        return max(key.default, self.value(key.floor)) if key.floor else key.default

    def with_dynamic(
        self, *, all_brokers: Mapping[str, str], this_broker: Mapping[str, str]
    ) -> BrokerSettings:
        """New settings with these run-time layers in place of the present ones.

        ConfigError when a key cannot change at run time, or the whole makes no sense.
        """
        from config.dynamic import changed  # most brokers have no such settings

        return changed(self, all_brokers=all_brokers, this_broker=this_broker)


def known_key(name: str) -> Key | None:
    """The declaration of a key of the broker, with or without an attribute."""
    key = BrokerSettings.KEYS.get(name)
    if key is None:
        from config.accepted import accepted_key  # a start without such keys does not need it

        key = accepted_key(name)
    return key


def known_keys() -> dict[str, Key]:
    """Every key of the broker by its name, sorted."""
    from config.accepted import ACCEPTED

    return dict(sorted((BrokerSettings.KEYS | ACCEPTED).items()))


def problems_of(entries: Iterable[tuple[str, Given]]) -> list[Problem]:
    """What is wrong with each of these texts on its own."""
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


def read(layers: Layers) -> BrokerSettings:
    """Settings from layers that may be wrong. ConfigError carries every problem."""
    problems = [problem for layer in layers for problem in problems_of(layer.items())]
    if problems:
        raise ConfigError(problems)
    settings = BrokerSettings(_with_node_id(layers))
    for name, reason in broken_rules(settings, frozenset().union(*layers)):
        given = next((layer[name] for layer in reversed(layers) if name in layer), None)
        problems.append(
            Problem(given.source if given else "default", name, given and given.text, reason)
        )
    if problems:
        raise ConfigError(problems)
    return settings


def _with_node_id(layers: Layers) -> Layers:
    """node.id and broker.id are one number: whichever was given holds for both."""
    static = layers.static
    old, new = static.get("broker.id"), static.get("node.id")
    if old is None and new is None:
        return layers
    if new is None:
        assert old is not None
        if old.text.strip() == "-1":
            return layers._replace(
                static={name: one for name, one in static.items() if name != "broker.id"}
            )
        return layers._replace(static={**static, "node.id": old})
    if old is not None and old.text.strip() not in ("-1", new.text.strip()):
        raise ConfigError(
            [Problem(old.source, "broker.id", old.text, f"node.id is {new.text}; they must agree")]
        )
    return layers._replace(static={**static, "broker.id": new})


def check_broker_override(name: str, text: str) -> None:
    """ConfigError unless this key of the broker can be set to this text at run time."""
    from config.dynamic import fault_of

    fault = fault_of(name, text)
    if fault is not None:
        raise ConfigError([fault])
