"""What AlterConfigs and IncrementalAlterConfigs change: topics, brokers, and what is logged.

Each resource says which settings are its own, and takes others in their place, all or none. Codes
are those of Kafka 3.9: a fault in a topic's settings is INVALID_CONFIG, in a broker's
INVALID_REQUEST.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from broker import dynamic, logs
from config import ConfigError, TopicSettings
from config.broker import BrokerSettings, Layers, known_key
from config.describe import topic_rows
from protocol.errors import ErrorCode, KafkaError
from storage.metadata.image import BROKER_RESOURCE, TOPIC_RESOURCE

if TYPE_CHECKING:
    from collections import Counter
    from collections.abc import Mapping

    from broker.context import Context
    from broker.topics import Topic

TOPIC, BROKER = TOPIC_RESOURCE, BROKER_RESOURCE
BROKER_LOGGER, CLIENT_METRICS, GROUP = 8, 16, 32
ROOT_LOGGER = "root"
"""There is one logger for everything; Kafka's, one per class, have it above them all."""
LOG_LEVELS = {"DEBUG": "debug", "INFO": "info", "WARN": "warning", "ERROR": "error"}
"""By the names that Kafka gives them. Its TRACE and FATAL do not exist here."""


class ConfigResource(Protocol):
    """Something that has settings of its own. `overrides` are those that are set."""

    @property
    def overrides(self) -> Mapping[str, str]: ...

    def value(self, name: str) -> str:
        """The value that holds for a list, set or not, as text."""

    def replace(self, overrides: dict[str, str], *, validate_only: bool) -> None:
        """Take these settings and no others. Raises KafkaError; then nothing has changed."""


def resource_to_alter(
    resource_type: int, name: str, named: Counter[tuple[int, str]], ctx: Context
) -> ConfigResource:
    """What is to be changed. Raises KafkaError; `named` counts what the request names, for
    nothing may come twice."""
    if named[resource_type, name] > 1:
        raise _invalid(f"resource '{name}' is named twice")
    if resource_type == TOPIC:
        return _TopicConfigs(name, ctx)
    if resource_type == BROKER:
        check_broker_name(name, ctx)
        return _BrokerConfigs(name, ctx)
    if resource_type == BROKER_LOGGER:
        if not name:
            raise _invalid("the loggers of a broker are named by its id")
        check_broker_name(name, ctx)
        return _Loggers()
    raise _invalid(
        f"settings of resource type {resource_type} can't be changed here; there are those of "
        f"topics ({TOPIC}), brokers ({BROKER}) and their loggers ({BROKER_LOGGER})"
    )


def check_broker_name(name: str, ctx: Context) -> None:
    """Raise KafkaError unless this names this broker by its id, or all of them ("")."""
    if name and not name.isdecimal():
        raise _invalid(f"a broker is named by its id, a number, or '' for all; found '{name}'")
    if name and int(name) != ctx.broker.node_id:
        raise _invalid(f"broker {name} is not here, this is broker {ctx.broker.node_id}")


def topic_named(name: str, ctx: Context) -> Topic:
    """The topic. Raises KafkaError."""
    if not name:
        raise _invalid("a topic must be named; there are no settings of all topics")
    topic = ctx.broker.topics.by_name.get(name)
    if topic is None:
        raise KafkaError(f"there is no topic '{name}'", code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    return topic


def _invalid(text: str) -> KafkaError:
    return KafkaError(text, code=ErrorCode.INVALID_REQUEST)


def _not_stored(error: OSError, ctx: Context, **facts: str) -> KafkaError:
    ctx.failed("storing settings", error, **facts)
    return KafkaError(
        f"the data directory can't be written: {error.strerror}",
        code=ErrorCode.KAFKA_STORAGE_ERROR,
    )


class _TopicConfigs:
    def __init__(self, name: str, ctx: Context) -> None:
        self._topic = topic_named(name, ctx)
        self._ctx = ctx

    @property
    def overrides(self) -> Mapping[str, str]:
        return self._topic.overrides

    def value(self, name: str) -> str:
        rows = topic_rows(self._ctx.broker.settings, self._topic.overrides)
        return next((row.value for row in rows if row.name == name), None) or ""

    def replace(self, overrides: dict[str, str], *, validate_only: bool) -> None:
        topic, broker = self._topic, self._ctx.broker
        try:
            if validate_only:
                TopicSettings.of(broker.settings, overrides)
            else:
                broker.topics.configure(topic, overrides)
        except ConfigError as error:
            raise KafkaError(str(error), code=ErrorCode.INVALID_CONFIG) from None
        except OSError as error:
            raise _not_stored(error, self._ctx, topic=topic.name) from None


class _BrokerConfigs:
    """One broker, or with the name "" all of them."""

    def __init__(self, name: str, ctx: Context) -> None:
        # "01" is the same broker, and is stored once.
        self._name = str(int(name)) if name else name
        self._ctx = ctx

    @property
    def overrides(self) -> Mapping[str, str]:
        return dynamic.stored(self._ctx.broker, self._name)

    def value(self, name: str) -> str:
        key, settings = known_key(name), self._ctx.broker.settings
        assert key is not None
        if self._name == dynamic.ALL_BROKERS:
            layers = settings.layers
            settings = BrokerSettings(Layers(layers.static, layers.all_brokers, {}))
        return key.format(settings.value(name)) or ""

    def replace(self, overrides: dict[str, str], *, validate_only: bool) -> None:
        try:
            dynamic.change(self._ctx.broker, self._name, overrides, validate_only=validate_only)
        except ConfigError as error:
            raise _invalid(str(error)) from None
        except OSError as error:
            raise _not_stored(error, self._ctx, broker=self._name) from None


class _Loggers:
    """What is logged. It is not stored: the next start has its own level again."""

    @property
    def overrides(self) -> Mapping[str, str]:
        return {ROOT_LOGGER: log_level()}

    def value(self, name: str) -> str:
        raise _invalid(f"the level of logger {name} is no list")

    def replace(self, overrides: dict[str, str], *, validate_only: bool) -> None:
        for name, level in overrides.items():
            if name != ROOT_LOGGER:
                raise KafkaError(
                    f"there is no logger '{name}', only '{ROOT_LOGGER}'",
                    code=ErrorCode.INVALID_CONFIG,
                )
            if level not in LOG_LEVELS:
                raise KafkaError(
                    f"there is no level '{level}', only {', '.join(LOG_LEVELS)}",
                    code=ErrorCode.INVALID_CONFIG,
                )
        if not validate_only:
            wanted = overrides.get(ROOT_LOGGER)
            logs.set_level(None if wanted is None else LOG_LEVELS[wanted])


def log_level() -> str:
    """The level of `ROOT_LOGGER`, as Kafka calls it."""
    return next(name for name, level in LOG_LEVELS.items() if level == logs.level())
