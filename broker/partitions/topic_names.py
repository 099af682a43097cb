"""Kafka's rules for names of topics, the same in every release."""

from __future__ import annotations

from protocol.errors import ErrorCode, KafkaError

MAX_NAME_LENGTH = 249
_LEGAL = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-")


def name_fault(name: str) -> str | None:
    """Why this can't be the name of a topic, or None if it can."""
    if not name:
        return "a topic name can't be empty"
    if name in (".", ".."):
        return f"a topic can't be named '{name}'"
    if len(name) > MAX_NAME_LENGTH:
        return f"a topic name of {len(name)} characters, at most {MAX_NAME_LENGTH} are allowed"
    if not _LEGAL.issuperset(name):
        return "a topic name is made of ASCII letters, digits, '.', '_' and '-'"
    return None


class MetricNames:
    """Topics by their names in metrics, where '.' and '_' are the same: two that differ in nothing
    else would collide there."""

    __slots__ = ("_topics",)

    def __init__(self) -> None:
        self._topics: dict[str, dict[str, None]] = {}

    def add(self, name: str) -> None:
        self._topics.setdefault(name.replace(".", "_"), {})[name] = None

    def remove(self, name: str) -> None:
        flat = name.replace(".", "_")
        topics = self._topics[flat]
        del topics[name]
        if not topics:
            del self._topics[flat]

    def colliding(self, name: str) -> str | None:
        """Another topic with the same name in metrics."""
        topics = self._topics.get(name.replace(".", "_"), ())
        return next((other for other in topics if other != name), None)


def check_name(name: str, *taken: MetricNames) -> None:
    """Raise KafkaError (INVALID_TOPIC_EXCEPTION) unless a topic may have this name beside those."""
    fault = name_fault(name)
    if fault is None:
        other = next(filter(None, (names.colliding(name) for names in taken)), None)
        if other is None:
            return
        fault = f"'{name}' collides with topic '{other}': '.' and '_' are the same in metrics"
    raise KafkaError(fault, code=ErrorCode.INVALID_TOPIC_EXCEPTION)
