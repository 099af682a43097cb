"""Settings of the broker that change while it runs: from the metadata log into every part.

They are records of the metadata log, of resource type 4: with the name "" for all brokers, with a
node id for one. `change` checks and writes them, `apply` takes what is written. A part that looks
at `broker.settings` each time needs nothing more; those that keep a copy are told here, so this
module is the list of them.

    AlterConfigs -> changed settings, checked whole -> records, durable -> replayed -> apply
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker import logs
from broker.network.listening import CannotListen
from config import ConfigError, TopicSettings
from config.dynamic import ALTERED, fault_of, sound_part, with_dynamic
from config.errors import Problem
from config.keys import known_key
from protocol.logdata.metadata import ConfigRecord
from protocol.records.convert import ExpansionLimits
from storage.metadata.image import BROKER_RESOURCE

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from broker.network.listening import Bound
    from broker.server import Broker
    from config import BrokerSettings

ALL_BROKERS = ""

_TOPIC_RULES = ("validation_level", "max_decompressed_batch_bytes", "max_decompression_ratio")
_FOR_TOPICS = {
    *_TOPIC_RULES,
    *(name.replace(".", "_") for key in TopicSettings.KEYS.values() for name in key.broker),
}
"""Attributes that a topic's settings or rules are made of."""


def stored(broker: Broker, name: str) -> dict[str, str]:
    """The settings in the metadata log of a broker, by its id, or of all ("")."""
    found: dict[str, str] = broker.controller.image.configs.get((BROKER_RESOURCE, name), {})
    return found


def apply(broker: Broker) -> None:
    """Take the settings that the metadata log has for this broker, and tell all that keep a copy.

    What no longer may be set is warned of and left out; it stays in the log, until somebody
    deletes it, for the version or the Kafka that it was written for.
    """
    old = broker.settings
    sound = sound_part(
        old,
        all_brokers=stored(broker, ALL_BROKERS),
        this_broker=stored(broker, str(broker.node_id)),
    )
    for problem in sound.ignored:
        logs.warning("a stored setting is ignored", reason=str(problem))
    if sound.settings.layers == old.layers:
        return
    broker.current_settings.replace(sound.settings)
    if sound.settings != old:
        _tell(broker, old, sound.settings)


def change(
    broker: Broker, name: str, wanted: Mapping[str, str], *, validate_only: bool = False
) -> None:
    """Give one broker, or all of them (""), these settings and no others.

    Raises ConfigError, and OSError when they can't be stored; then nothing has changed. What is
    stored already and ignored is no fault, as long as it is not changed.
    """
    before = stored(broker, name)
    changed = {key: text for key, text in wanted.items() if before.get(key) != text}
    faults = [
        fault
        for key, text in changed.items()
        if (fault := fault_of(key, text, of_all=name == ALL_BROKERS)) is not None
    ]
    if faults:
        raise ConfigError(faults)
    settings = _checked_together(broker, name, wanted, changed)
    bound = _bind(broker, settings)
    if validate_only:
        broker.listening.release(bound)
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
        broker.controller.append(records)
    except OSError:
        broker.listening.release(bound)
        raise
    apply(broker)
    _listen(broker, bound)
    _tell_without_effect(changed)


def _bind(broker: Broker, settings: BrokerSettings) -> Bound:
    """Take the addresses of the listeners that these settings have and the broker has not.
    ConfigError when that cannot be."""
    old = broker.settings
    if settings.served_listeners == old.served_listeners:
        return {}
    if settings.controller_listeners != old.controller_listeners:
        reason = "those of the controller are opened at the start and closed at the end"
        raise ConfigError([Problem(ALTERED, "listeners", None, reason)])
    try:
        return broker.listening.bind(settings.served_listeners)
    except CannotListen as error:
        raise ConfigError([Problem(ALTERED, "listeners", None, str(error))]) from None


def _listen(broker: Broker, bound: Bound) -> None:
    """Serve the listeners that hold now. Connections to one that is gone are closed, once they
    have the answers they are owed."""
    served = broker.settings.served_listeners
    broker.listening.take(served, bound)
    names = {listener.name for listener in served}
    broker.connections.close_those_on_other_listeners(names)


def _tell_without_effect(changed: Iterable[str]) -> None:
    for name in changed:
        key = known_key(name)
        if key is not None and key.unused:
            logs.info("a setting was taken without effect", key=name, reason=key.unused)


def _checked_together(
    broker: Broker, name: str, wanted: Mapping[str, str], changed: Mapping[str, str]
) -> BrokerSettings:
    """All settings as they will be. ConfigError unless they make sense together, and every topic's
    with them."""
    layers = {one: stored(broker, one) for one in (ALL_BROKERS, str(broker.node_id))}
    kept = sound_part(
        broker.settings,
        all_brokers=layers[ALL_BROKERS],
        this_broker=layers[str(broker.node_id)],
    ).settings.layers
    sound = {ALL_BROKERS: kept.all_brokers, str(broker.node_id): kept.this_broker}
    texts = {one: {key: given.text for key, given in layer.items()} for one, layer in sound.items()}
    texts[name] = {key: text for key, text in wanted.items() if key in texts[name]} | dict(changed)
    settings = with_dynamic(
        broker.settings,
        all_brokers=texts[ALL_BROKERS],
        this_broker=texts[str(broker.node_id)],
    )
    if not _differ_for_topics(broker.settings, settings):
        return settings
    for topic in broker.topics:
        try:
            TopicSettings.of(settings, topic.overrides)
        except ConfigError as error:
            reason = f"topic '{topic.name}' has settings that do not go with it: {error.reason}"
            raise ConfigError([Problem(ALTERED, next(iter(changed), ""), None, reason)]) from None
    return settings


def _differ_for_topics(old: BrokerSettings, new: BrokerSettings) -> bool:
    return any(getattr(old, name) != getattr(new, name) for name in _FOR_TOPICS)


def _tell(broker: Broker, old: BrokerSettings, new: BrokerSettings) -> None:
    broker.group_commit.covers_acks = new.log_flush_policy == "ack"
    broker.flushing.configure(new)
    broker.disk.configure(new.disk_reserve_bytes)
    broker.scrubber.configure(new.log_scrub_interval_ms)
    broker.conversions.configure(
        ExpansionLimits(new.max_decompressed_batch_bytes, new.max_decompression_ratio),
        cache_max_bytes=new.conversion_cache_max_bytes,
    )
    if new.log_cleaner_backoff_ms != old.log_cleaner_backoff_ms:
        broker.cleaner.configure()
    if _differ_for_topics(old, new):
        _tell_topics(broker, new)
    broker.topics.take(new)


def _tell_topics(broker: Broker, settings: BrokerSettings) -> None:
    for topic in broker.topics:
        try:
            topic.apply(topic.overrides, settings)
        except ConfigError as error:  # both came from elsewhere, and nobody compared them
            logs.warning("a topic keeps the settings it had", topic=topic.name, reason=error.reason)


class DynamicSettings:
    """The settings that the metadata log has for brokers."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    def stored(self, name: str) -> dict[str, str]:
        return stored(self._broker, name)

    def apply(self) -> None:
        apply(self._broker)

    def change(self, name: str, wanted: Mapping[str, str], *, validate_only: bool = False) -> None:
        change(self._broker, name, wanted, validate_only=validate_only)
