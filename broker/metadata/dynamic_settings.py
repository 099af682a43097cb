"""Settings of the broker that change while it runs: from the metadata log to the parts.

They are records of the metadata log, of resource type 4: with the name "" for all brokers, with a
node id for one. `change` checks and writes them, `apply` takes what is written. Parts hear of
changes from `broker.current_settings`.

    AlterConfigs -> changed settings, checked whole -> records, durable -> replayed -> apply
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from broker import logs
from broker.partitions.topics import differ_for_topics
from config import BrokerSettings, ConfigError, TopicSettings
from config.broker import Layers
from config.dynamic import ALTERED, fault_of, sound_part, with_dynamic
from config.errors import Problem
from config.keys import known_key
from protocol.logdata.metadata import ConfigRecord
from storage.metadata.image import BROKER_RESOURCE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from broker.current_settings import CurrentSettings
    from broker.metadata.controller_view import ControllerView
    from broker.partitions.topic import Topic
    from config.dynamic import Sound
    from config.listeners import Listener
    from storage.steps import Steps

ALL_BROKERS = ""


class Listeners(Protocol):
    """The sockets on which clients connect, as far as a change of `listeners` concerns them."""

    def bind(self, wanted: Sequence[Listener]) -> Any:
        """Take the addresses that are not open yet. Raises OSError; then nothing has changed."""

    def release(self, bound: Any) -> None:
        """Give up what was bound."""

    def take(self, wanted: Sequence[Listener], bound: Any) -> None:
        """Serve these and no others."""


class DynamicSettings:
    """Belongs to the loop."""

    def __init__(
        self,
        settings: CurrentSettings,
        controller: ControllerView,
        topics: Iterable[Topic],
        listeners: Listeners,
        *,
        check_security: Callable[[BrokerSettings], None],
        alone: bool = True,
    ) -> None:
        """`check_security` raises ConfigError for settings whose TLS or SASL can't be served. A
        broker that is `alone` can open other listeners; those of several processes are opened by
        their supervisor at the start."""
        self._settings = settings
        self._controller = controller
        self._topics = topics
        self._listeners = listeners
        self._check_security = check_security
        self._alone = alone
        self._this_broker = str(settings.current.node_id)

    def stored(self, name: str) -> dict[str, str]:
        """The settings in the metadata log of a broker, by its id, or of all ("")."""
        found: dict[str, str] = self._controller.image.configs.get((BROKER_RESOURCE, name), {})
        return found

    def of(self, name: str) -> BrokerSettings:
        """The settings that hold for a broker, by its id, or for all of them ("")."""
        if name:
            return self._sound_part(name).settings
        layers = self._settings.current.layers
        return BrokerSettings(Layers(layers.static, layers.all_brokers, {}))

    def apply(self) -> None:
        """Let the settings hold that the metadata log has for this broker.

        What no longer may be set is warned of and left out; it stays in the log, until somebody
        deletes it, for the version or the Kafka that it was written for.
        """
        current = self._settings.current
        sound = self._sound_part(self._this_broker)
        for problem in sound.ignored:
            logs.warning("a stored setting is ignored", reason=str(problem))
        if sound.settings.layers != current.layers:
            self._settings.replace(sound.settings)

    def change(
        self, name: str, wanted: Mapping[str, str], *, validate_only: bool = False
    ) -> Steps[None]:
        """Give one broker, or all of them (""), these settings and no others.

        Raises ConfigError, and OSError when they can't be stored; then nothing has changed. What is
        stored already and ignored is no fault, as long as it is not changed.
        """
        before = self.stored(name)
        changed = {key: text for key, text in wanted.items() if before.get(key) != text}
        faults = [
            fault
            for key, text in changed.items()
            if (fault := fault_of(key, text, of_all=name == ALL_BROKERS)) is not None
        ]
        if faults:
            raise ConfigError(faults)
        settings = self._checked_together(name, wanted, changed)
        self._check_security(settings)
        bound = self._bind(settings)
        if validate_only:
            self._release(bound)
            return
        records = [
            ConfigRecord(
                resource_type=BROKER_RESOURCE, resource_name=name, name=key, value=wanted.get(key)
            )
            for key in sorted({*changed, *(before.keys() - wanted.keys())})
        ]
        if not records:
            return
        try:
            yield from self._controller.append(records)
        except OSError:
            self._release(bound)
            raise
        if bound is not None:
            self._listeners.take(self._settings.current.served_listeners, bound)
        _log_without_effect(changed)

    def _sound_part(self, broker: str) -> Sound:
        return sound_part(
            self._settings.current,
            all_brokers=self.stored(ALL_BROKERS),
            this_broker=self.stored(broker),
        )

    def _bind(self, settings: BrokerSettings) -> Any:
        """Take the addresses of the listeners that these settings have and the broker has not.
        ConfigError when that cannot be."""
        current = self._settings.current
        if not self._alone:
            if settings.served_listeners != current.served_listeners:
                reason = "those of several processes (broker.processes) are opened at the start"
                raise ConfigError([Problem(ALTERED, "listeners", None, reason)])
            return None
        if (
            settings.served_listeners != current.served_listeners
            and settings.controller_listeners != current.controller_listeners
        ):
            reason = "those of the controller are opened at the start and closed at the end"
            raise ConfigError([Problem(ALTERED, "listeners", None, reason)])
        try:
            return self._listeners.bind(settings.served_listeners)
        except OSError as error:
            raise ConfigError([Problem(ALTERED, "listeners", None, str(error))]) from None

    def _release(self, bound: Any) -> None:
        if bound is not None:
            self._listeners.release(bound)

    def _checked_together(
        self, name: str, wanted: Mapping[str, str], changed: Mapping[str, str]
    ) -> BrokerSettings:
        """All settings as they will be, of the broker of this name. ConfigError unless they make
        sense together, and every topic's with them."""
        broker = name or self._this_broker
        kept = self._sound_part(broker).settings.layers
        sound = {ALL_BROKERS: kept.all_brokers, broker: kept.this_broker}
        texts = {
            one: {key: given.text for key, given in layer.items()} for one, layer in sound.items()
        }
        texts[name] = {key: text for key, text in wanted.items() if key in texts[name]}
        texts[name] |= changed
        current = self._settings.current
        settings = with_dynamic(
            current,
            all_brokers=texts[ALL_BROKERS],
            this_broker=texts[broker],
        )
        if not differ_for_topics(current, settings):
            return settings
        for topic in self._topics:
            try:
                TopicSettings.of(settings, topic.overrides)
            except ConfigError as error:
                reason = f"topic '{topic.name}' has settings that do not go with it: {error.reason}"
                problem = Problem(ALTERED, next(iter(changed), ""), None, reason)
                raise ConfigError([problem]) from None
        return settings


def _log_without_effect(changed: Iterable[str]) -> None:
    for name in changed:
        key = known_key(name)
        if key is not None and key.unused:
            logs.info("a setting was taken without effect", key=name, reason=key.unused)
