"""What the proxy changes in answers, and learns from them. Pure."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

from protocol.header import API_VERSIONS_KEY
from protocol.registry import APIS
from protocol.schema import ZERO_UUID
from storage.identity import uuid_text

if TYPE_CHECKING:
    from collections.abc import Iterator

    from protocol.registry import Api

METADATA_KEY = 3
LISTS = ("brokers", "coordinators", "node_endpoints")
"""Lists of brokers with their addresses: Metadata and DescribeCluster, FindCoordinator, and what
answers of Produce, Fetch and share groups say of new leaders (KIP-951)."""
ITSELF = ("node_id", "host", "port")
"""The broker in FindCoordinator up to version 3."""
NAMES_MAX = 100_000
"""Topics whose names are remembered; the first learned go first."""


@cache
def is_looked_at(api: Api, version: int) -> bool:
    """Whether answers of this version have to be decoded."""
    names = {field.name for field in api.response._fields if field.versions.holds(version)}
    return api.key == API_VERSIONS_KEY or bool(
        names.intersection(LISTS) or names.issuperset(ITSELF)
    )


def brokers_in(answer: Any) -> Iterator[Any]:
    """The structs of an answer that have the host and the port of a broker."""
    for name in LISTS:
        yield from (one for one in getattr(answer, name, None) or () if _is_address(one))
    if all(hasattr(answer, name) for name in ITSELF) and _is_address(answer):
        yield answer


def _is_address(struct: Any) -> bool:
    """An answer of an error has the fields, with no broker in them."""
    return bool(struct.host) and struct.port > 0


def limit_versions(answer: Any) -> bool:
    """Leave in an answer to ApiVersions what is known here alone; whether that changed it."""
    known = []
    for told in answer.api_keys:
        api = APIS.get(told.api_key)
        if api is None:
            continue
        first = max(told.min_version, api.min_version)
        last = min(told.max_version, api.max_version)
        if first <= last:
            changed = (first, last) != (told.min_version, told.max_version)
            known.append(_of_versions(told, first, last) if changed else told)
    is_changed = known != list(answer.api_keys)
    answer.api_keys = known
    return is_changed


def _of_versions(told: Any, first: int, last: int) -> Any:
    return type(told)(api_key=told.api_key, min_version=first, max_version=last)


class TopicNames:
    """Names of topics by their ids, as answers to Metadata tell them: who uses an id has asked."""

    def __init__(self) -> None:
        self._names: dict[bytes, str] = {}

    def __call__(self, topic_id: bytes) -> str:
        """The name; the id as text, if it was never told."""
        return self._names.get(topic_id) or uuid_text(topic_id)

    def learn(self, metadata: Any) -> None:
        for topic in metadata.topics:
            if topic.name and topic.topic_id != ZERO_UUID:
                self._names[topic.topic_id] = topic.name
        while len(self._names) > NAMES_MAX:
            del self._names[next(iter(self._names))]
