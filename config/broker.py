"""The broker's settings: every key, the layers they come from, and what follows from them.

Four layers, the later over the earlier: defaults, what was given at the start (file,
environment, `--set`), what was set at run time for all brokers, and for this one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from config.broker_authorization import AuthorizationSettings
from config.broker_cleaner import CleanerSettings
from config.broker_group import GroupSettings
from config.broker_log import LogSettings
from config.broker_metadata import MetadataSettings
from config.broker_network import NetworkSettings
from config.broker_node import NodeSettings
from config.formats import NAMES, record_format, release_name, release_of
from config.listeners import LISTENER_PREFIX

if TYPE_CHECKING:
    from config.declare import Key
    from config.listeners import Listener

FOLLOW_AS_VERSION = ("inter.broker.protocol.version", "log.message.format.version")
"""Keys whose default is not above as.version."""
SECURITY_PREFIXES = ("ssl.", "sasl.", "connection", LISTENER_PREFIX)
"""How the keys of TLS and SASL begin."""


OF_ONE_LISTENER = ".as.version"


def as_version_of(listener: str) -> str:
    """The name of `as.version` for a listener."""
    return f"{LISTENER_PREFIX}{listener.lower()}{OF_ONE_LISTENER}"


class Given(NamedTuple):
    """A text somebody gave, and where ("server.properties:3", "--set", "AlterConfigs"). The text
    may be a password, and is not shown."""

    text: str
    source: str

    def __repr__(self) -> str:
        return f"Given({self.source})"


class Layers(NamedTuple):
    """The given texts by key: at the start, at run time for all brokers, and for this one."""

    static: dict[str, Given]
    all_brokers: dict[str, Given]
    this_broker: dict[str, Given]


class BrokerSettings(
    NodeSettings,
    MetadataSettings,
    NetworkSettings,
    AuthorizationSettings,
    LogSettings,
    CleanerSettings,
    GroupSettings,
):
    """The values of all keys with an attribute; `value(key)` answers for the others too."""

    _layers: Layers
    security_given: tuple[tuple[str, str], ...]
    """Names and texts of the keys of TLS and SASL that were given (config.listener_security): who
    keeps what is made of them is told when they change."""
    _topic_values: dict[str, Any] | None  # see config.topic

    def __init__(self, layers: Layers | None = None) -> None:
        """From layers that are known to be sound; `config.sources.read` is for others."""
        layers = layers or Layers({}, {}, {})
        values = {key.attribute: key.default for key in self.KEYS.values()}
        for layer in layers:
            for name, given in layer.items():
                if key := self.KEYS.get(name):
                    values[key.attribute] = key.parse(given.text)
        for key in self.KEYS.values():
            if key.floor and not any(key.name in layer for layer in layers):
                values[key.attribute] = max(key.default, values[self.KEYS[key.floor].attribute])
        if values["as_version"] is not None:
            of_release = NAMES[values["as_version"]]
            for key in map(self.KEYS.__getitem__, FOLLOW_AS_VERSION):
                if not any(key.name in layer for layer in layers):
                    values[key.attribute] = min(key.default, of_release, key=release_of)
        values["broker_id"] = values["node_id"]
        security = {
            name: given.text
            for layer in layers
            for name, given in layer.items()
            if name.startswith(SECURITY_PREFIXES) and name not in self.KEYS
        }
        values["security_given"] = tuple(sorted(security.items()))
        self._fill({**values, "_layers": layers, "_topic_values": None})

    @property
    def layers(self) -> Layers:
        return self._layers

    def of_process(self, number: int) -> BrokerSettings:
        """The same for one of the processes that serve a data directory: a broker with an id of its
        own, counted from that of the first."""
        node_id = Given(str(self.node_id + number), "--processes")
        static = {**self._layers.static, "node.id": node_id}
        return BrokerSettings(self._layers._replace(static=static))

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
        """Listeners for clients: all but those a Kafka node keeps for its controller."""
        names = self._controller_names
        return tuple(one for one in self.listeners if one.name not in names)

    @property
    def controller_listeners(self) -> tuple[Listener, ...]:
        """Listeners for followers of the metadata log; often none."""
        names = self._controller_names
        return tuple(one for one in self.listeners if one.name in names)

    @property
    def rehearses(self) -> bool:
        """Whether any client is answered as by a broker of another release."""
        return (
            self.as_version is not None
            or bool(self.as_version_client_ids)
            or any(name.endswith(OF_ONE_LISTENER) for name, _ in self.security_given)
        )

    def as_version_on(self, listener: str) -> str | None:
        """The release as whose broker clients of a listener are answered, None for all versions."""
        given = dict(self.security_given).get(as_version_of(listener))
        return self.as_version if given is None else release_name(given.strip())

    def security_protocol(self, listener: str) -> str | None:
        """The protocol that a listener of this name speaks, or None if nothing says which. As in
        Kafka, a node that is its own controller needs no map for that."""
        for name, protocol in self.listener_security_protocol_map:
            if name == listener:
                return protocol
        mapped = any("listener.security.protocol.map" in layer for layer in self._layers)
        return "PLAINTEXT" if not mapped and listener in self._controller_names else None

    @property
    def _controller_names(self) -> set[str]:
        return {name.upper() for name in self.controller_listener_names}

    def advertised_listener(self, name: str) -> Listener | None:
        """The address that clients of a listener are given; None for the one that they dialled."""
        for listener in self.advertised_listeners or ():
            if listener.name == name:
                return listener
        return None

    def value(self, key: Key) -> Any:
        """The value that holds for any known key (see `config.keys`)."""
        if key.name in self.KEYS:
            return getattr(self, key.attribute)
        for layer in reversed(self._layers):
            if key.name in layer:
                return key.parse(layer[key.name].text)
        return key.default

    def default(self, key: Key) -> Any:
        """The value of a key that nobody gave: its default, which may have a floor."""
        return max(key.default, self.value(self.KEYS[key.floor])) if key.floor else key.default
