"""Keys that are read, checked and shown, but whose part of the broker does not exist yet.

An entry goes when the part comes: a test compares this table with what `broker` and `storage`
read, so that the documentation never claims an effect that is not there, nor denies one that is.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from config.broker import BrokerSettings
from config.topic import TopicSettings

if TYPE_CHECKING:
    from config.declare import Key

NOT_YET: dict[str, tuple[str, ...]] = {
    "it is not looked at yet": (
        "default.replication.factor",
        "max.request.partition.size.limit",
        "queued.max.request.bytes",
        "socket.listen.backlog.size",
        "socket.receive.buffer.bytes",
        "socket.send.buffer.bytes",
    ),
}

# Read by this package itself: they decide what other attributes say, or whether to start.
READ_HERE = frozenset(
    {
        "advertised.listeners",
        "broker.id",
        "controller.listener.names",
        "delegation.token.master.key",
        "delegation.token.secret.key",
        "group.consumer.max.heartbeat.interval.ms",
        "group.consumer.max.session.timeout.ms",
        "group.consumer.min.heartbeat.interval.ms",
        "group.consumer.min.session.timeout.ms",
        "inter.broker.protocol.version",
        "listener.security.protocol.map",
        "listeners",
        "log.dir",
        "log.dirs",
        "message.timestamp.difference.max.ms",
        "process.roles",
        "sasl.kerberos.service.name",
        "sasl.server.callback.handler.class",
    }
)

_REASONS = {name: reason for reason, names in NOT_YET.items() for name in names}
_TOPIC_KEYS = {name: key.name for key in TopicSettings.KEYS.values() for name in key.broker}


def why_not_yet(key: Key) -> str:
    """Why a key has no effect yet, or "". A broker key waits where the topic's key does."""
    if key.unused:
        return ""
    return _REASONS.get(key.name) or _REASONS.get(_TOPIC_KEYS.get(key.name, ""), "")


def unread(source: str) -> list[str]:
    """Keys with an attribute that is mentioned nowhere in this text of all modules.

    A broker key that a topic key falls back to is read through it, and is not looked for.
    """
    from config.listener_security import ListenerSecurity  # a start needs it seldom

    keys = [key for name, key in BrokerSettings.KEYS.items() if name not in _TOPIC_KEYS]
    names = _words(source)
    return sorted(
        key.name
        for key in (*keys, *ListenerSecurity.KEYS.values(), *TopicSettings.KEYS.values())
        if key.attribute not in names and not key.unused and key.name not in READ_HERE
    )


def _words(source: str) -> set[str]:
    """The attributes named in a text: what follows a dot. `record_format` stands for its key."""
    import re

    words = set(re.findall(r"\.([a-z][a-z0-9_]+)\b", source))
    if "record_format" in words:
        words.add("message_format_version")
    return words
