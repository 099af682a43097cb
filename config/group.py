"""Keys of one group (KIP-848, KIP-932, KIP-1071), with the names, kinds and defaults of Kafka 4.3.

A group's key falls back to the broker's key that it names. What is for groups that are not served
here is known, checked for its kind and without effect.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from config.declare import Settings, accepted, at_least, key
from config.errors import ConfigError, Problem, nearest_of
from config.kinds import boolean, int32, string

if TYPE_CHECKING:
    from collections.abc import Mapping

    from config.broker import BrokerSettings
    from config.declare import Key

SOURCE = "group settings"


class GroupConfig(Settings):
    """The settings of one consumer group (KIP-848); times in ms."""

    consumer_session_timeout_ms: int = key(
        "consumer.session.timeout.ms",
        int32,
        45_000,
        "Silence after which a member of the group is dropped.",
        check=at_least(1),
        since="4.0",
        broker=("group.consumer.session.timeout.ms",),
        dynamic=True,
    )
    consumer_heartbeat_interval_ms: int = key(
        "consumer.heartbeat.interval.ms",
        int32,
        5000,
        "Time between two heartbeats, as the group's members are told.",
        check=at_least(1),
        since="4.0",
        broker=("group.consumer.heartbeat.interval.ms",),
        dynamic=True,
    )

    @classmethod
    def of(cls, broker: BrokerSettings, overrides: Mapping[str, str]) -> GroupConfig:
        """The settings of a group. ConfigError carries all that is wrong with `overrides`."""
        problems = [
            problem
            for name, text in overrides.items()
            if (problem := fault_of(name, text)) is not None
        ]
        if problems:
            raise ConfigError(problems)
        made = cls()
        made._fill({one.attribute: value_of(one, broker, overrides) for one in cls.KEYS.values()})
        for name, least, most in (
            (
                "consumer.session.timeout.ms",
                broker.group_consumer_min_session_timeout_ms,
                broker.group_consumer_max_session_timeout_ms,
            ),
            (
                "consumer.heartbeat.interval.ms",
                broker.group_consumer_min_heartbeat_interval_ms,
                broker.group_consumer_max_heartbeat_interval_ms,
            ),
        ):
            value = value_of(cls.KEYS[name], broker, overrides)
            if name in overrides and not least <= value <= most:
                limits = (
                    name.replace("consumer.", f"group.consumer.{end}.") for end in ("min", "max")
                )
                reason = f"wanted {least} to {most} ({' and '.join(limits)})"
                problems.append(Problem(SOURCE, name, overrides[name], reason))
        if problems:
            raise ConfigError(problems)
        return made


GROUP_KEYS: dict[str, Key] = dict(
    sorted(
        {
            **GroupConfig.KEYS,
            **{
                one.name: one
                for one in (
                    *accepted(
                        "assignments are made as soon as they are due",
                        (("consumer.assignment.interval.ms", int32, 1000, at_least(0)),),
                    ),
                    *accepted(
                        "share groups are not served",
                        (
                            ("share.assignment.interval.ms", int32, 1000, at_least(0)),
                            ("share.auto.offset.reset", string, "latest"),
                            ("share.delivery.count.limit", int32, 5, at_least(2)),
                            ("share.heartbeat.interval.ms", int32, 5000, at_least(1)),
                            ("share.isolation.level", string, "read_uncommitted"),
                            ("share.partition.max.record.locks", int32, 2000, at_least(100)),
                            ("share.record.lock.duration.ms", int32, 30_000, at_least(1000)),
                            ("share.renew.acknowledge.enable", boolean, True),
                            ("share.session.timeout.ms", int32, 45_000, at_least(1)),
                        ),
                    ),
                    *accepted(
                        "streams groups are not served",
                        (
                            ("streams.assignment.interval.ms", int32, 1000, at_least(0)),
                            ("streams.heartbeat.interval.ms", int32, 5000, at_least(1)),
                            ("streams.initial.rebalance.delay.ms", int32, 3000, at_least(0)),
                            ("streams.num.standby.replicas", int32, 0, at_least(0)),
                            ("streams.session.timeout.ms", int32, 45_000, at_least(1)),
                        ),
                    ),
                )
            },
        }.items()
    )
)
"""Every key of a group by its name, sorted."""


def value_of(key: Key, broker: BrokerSettings, overrides: Mapping[str, str]) -> Any:
    """The value that holds for a group with these settings, which are known to be sound."""
    if key.name in overrides:
        return key.parse(overrides[key.name])
    return broker.value(broker.KEYS[key.broker[0]]) if key.broker else key.default


def fault_of(name: str, text: str) -> Problem | None:
    """Why a group's key cannot be set to this text, whatever the broker allows; None if it can."""
    key = GROUP_KEYS.get(name)
    if key is None:
        nearest = nearest_of(name, GROUP_KEYS)
        return Problem(SOURCE, name, None, "there is no such key of a group", nearest)
    try:
        key.parse(text)
    except ValueError as error:
        return key.problem(SOURCE, text, str(error))
    return None
