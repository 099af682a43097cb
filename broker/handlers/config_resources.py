"""The resources of AlterConfigs and IncrementalAlterConfigs: topics, brokers, loggers, groups,
and what clients are asked to measure.

Each resource says which settings are its own, and takes others in their place, all or none. Codes
are those of Kafka 3.9, of groups 4.3: a fault in the settings of a topic or a group is
INVALID_CONFIG, in a broker's INVALID_REQUEST.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from broker import logs
from broker.handlers.metadata_changes import make_change
from config import ConfigError, TopicSettings
from config.describe import topic_rows
from config.keys import known_key
from protocol.acls import CLUSTER_NAME, Operation, ResourceType
from protocol.errors import ErrorCode, KafkaError
from protocol.logdata.metadata import ConfigRecord
from storage.metadata.image import (
    BROKER_RESOURCE,
    CLIENT_METRICS_RESOURCE,
    GROUP_RESOURCE,
    TOPIC_RESOURCE,
)

if TYPE_CHECKING:
    from collections import Counter
    from collections.abc import Mapping

    from broker.handlers.context import Context
    from broker.partitions.topic import Topic
    from storage.steps import Steps

TOPIC, BROKER = TOPIC_RESOURCE, BROKER_RESOURCE
BROKER_LOGGER = 8
CLIENT_METRICS, GROUP = CLIENT_METRICS_RESOURCE, GROUP_RESOURCE
RESOURCES = {TOPIC: ResourceType.TOPIC, GROUP: ResourceType.GROUP}
"""What access is checked for, by the type of the settings; of all others it is the cluster."""
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

    def replace(self, overrides: dict[str, str], *, validate_only: bool) -> Steps[None]:
        """Take these settings and no others. Raises KafkaError; then nothing has changed."""


def resource_to_alter(
    resource_type: int, name: str, named: Counter[tuple[int, str]], ctx: Context
) -> ConfigResource:
    """The resource that a request wants to change. `named` counts what the request names, for
    nothing may come twice. Raises KafkaError."""
    require_configs(Operation.ALTER_CONFIGS, resource_type, name, ctx)
    if named[resource_type, name] > 1:
        raise _invalid(f"resource '{name}' is named twice")
    if resource_type == TOPIC:
        return _TopicConfigs(name, ctx)
    if resource_type == BROKER:
        check_broker_name(name, ctx, of_others=True)
        return _BrokerConfigs(name, ctx)
    if resource_type == BROKER_LOGGER:
        if not name:
            raise _invalid("the loggers of a broker are named by its id")
        check_broker_name(name, ctx)
        return _Loggers()
    if resource_type == GROUP:
        return _GroupConfigs(name, ctx)
    if resource_type == CLIENT_METRICS:
        return _ClientMetrics(name, ctx)
    raise _invalid(
        f"settings of resource type {resource_type} can't be changed here; there are those of "
        f"topics ({TOPIC}), brokers ({BROKER}), their loggers ({BROKER_LOGGER}), groups ({GROUP}) "
        f"and client metrics ({CLIENT_METRICS})"
    )


def require_configs(operation: int, resource_type: int, name: str, ctx: Context) -> None:
    """Raise KafkaError unless this client may ask for settings, or change them: those of topics and
    groups are rights of their own, all others are rights of the cluster."""
    kind = RESOURCES.get(resource_type, ResourceType.CLUSTER)
    ctx.require(operation, kind, CLUSTER_NAME if kind == ResourceType.CLUSTER else name)


def stored_configs(resource_type: int, name: str, ctx: Context) -> Mapping[str, str]:
    """Settings that the metadata log has for this resource."""
    found: Mapping[str, str] = ctx.controller.image.configs.get((resource_type, name), {})
    return found


def check_named(resource_type: int, name: str) -> None:
    """Raise KafkaError unless a group, or a subscription to client metrics, has a name."""
    if not name:
        what = "group" if resource_type == GROUP else "client metrics subscription"
        raise _invalid(f"a {what} must be named; there are no settings of all of them")


def check_broker_name(name: str, ctx: Context, *, of_others: bool = False) -> None:
    """Raise KafkaError unless this names this broker by its id, or all of them (""), or where it
    may be `of_others` a process that serves beside it."""
    if name and not name.isdecimal():
        raise _invalid(f"a broker is named by its id, a number, or '' for all; found '{name}'")
    known = ctx.neighbours.ids if of_others and ctx.neighbours is not None else (ctx.node_id,)
    if name and int(name) not in known:
        raise _invalid(f"broker {name} is not here, this is broker {ctx.node_id}")


def topic_named(name: str, ctx: Context) -> Topic:
    """The topic. Raises KafkaError."""
    if not name:
        raise _invalid("a topic must be named; there are no settings of all topics")
    topic = ctx.topics.by_name.get(name)
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
        rows = topic_rows(self._ctx.settings.current, self._topic.overrides)
        return next((row.value for row in rows if row.name == name), None) or ""

    def replace(self, overrides: dict[str, str], *, validate_only: bool) -> Steps[None]:
        topic, ctx = self._topic, self._ctx
        try:
            if validate_only:
                TopicSettings.of(ctx.settings.current, overrides)
            else:
                yield from ctx.topics.configure(topic, overrides)
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
        return self._ctx.dynamic_settings.stored(self._name)

    def value(self, name: str) -> str:
        key, settings = known_key(name), self._ctx.dynamic_settings.of(self._name)
        assert key is not None
        return key.format(settings.value(key)) or ""

    def replace(self, overrides: dict[str, str], *, validate_only: bool) -> Steps[None]:
        try:
            yield from self._ctx.dynamic_settings.change(
                self._name, overrides, validate_only=validate_only
            )
        except ConfigError as error:
            raise _invalid(str(error)) from None
        except OSError as error:
            raise _not_stored(error, self._ctx, broker=self._name) from None


class _Stored:
    """Settings that are kept in the metadata log and nowhere else."""

    resource_type: int

    def __init__(self, name: str, ctx: Context) -> None:
        check_named(self.resource_type, name)
        self._name = name
        self._ctx = ctx

    @property
    def overrides(self) -> Mapping[str, str]:
        return stored_configs(self.resource_type, self._name, self._ctx)

    def value(self, name: str) -> str:
        return self.overrides.get(name, "")

    def _store(self, overrides: dict[str, str]) -> Steps[None]:
        before = self.overrides
        records = [
            ConfigRecord(
                resource_type=self.resource_type,
                resource_name=self._name,
                name=key,
                value=overrides.get(key),
            )
            for key in sorted(before.keys() | overrides.keys())
            if before.get(key) != overrides.get(key)
        ]
        yield from make_change("storing settings", records, self._ctx)


class _GroupConfigs(_Stored):
    """One group, whether it exists or not."""

    resource_type = GROUP

    def replace(self, overrides: dict[str, str], *, validate_only: bool) -> Steps[None]:
        from config.group import GroupConfig  # few groups have settings

        try:
            GroupConfig.of(self._ctx.settings.current, overrides)
        except ConfigError as error:
            raise KafkaError(str(error), code=ErrorCode.INVALID_CONFIG) from None
        if not validate_only:
            yield from self._store(overrides)


class _ClientMetrics(_Stored):
    """A subscription to metrics of clients (KIP-714)."""

    resource_type = CLIENT_METRICS

    def replace(self, overrides: dict[str, str], *, validate_only: bool) -> Steps[None]:
        from broker.metadata.client_metrics import check_subscription  # few brokers have one

        check_subscription(overrides)
        if not validate_only:
            yield from self._store(overrides)


class _Loggers:
    """The level of the log. It is not stored: the next start has its own level again."""

    @property
    def overrides(self) -> Mapping[str, str]:
        return {ROOT_LOGGER: log_level()}

    def value(self, name: str) -> str:
        raise _invalid(f"the level of logger {name} is no list")

    def replace(self, overrides: dict[str, str], *, validate_only: bool) -> Steps[None]:
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
        yield None


def log_level() -> str:
    """The level of `ROOT_LOGGER`, as Kafka calls it."""
    return next(name for name, level in LOG_LEVELS.items() if level == logs.level())
