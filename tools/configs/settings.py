"""The settings of a resource: what they are, where they come from, and changes of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from protocol.client import said
from protocol.errors import ErrorCode
from protocol.messages.alter_configs import AlterConfigsRequest, AlterConfigsResponse
from protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResponse
from protocol.messages.incremental_alter_configs import (
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from tools.errors import NotDone
from tools.selection import require_topics

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from protocol.schema import Message
    from tools.cluster import Asked, Cluster

TYPES = {"topic": 2, "broker": 4, "broker-logger": 8, "client-metrics": 16, "group": 32}
"""Kafka's numbers of the types of resources."""
OF_BROKER = frozenset({"broker", "broker-logger"})
SOURCES = {
    1: "topic",
    2: "broker",
    3: "all brokers",
    4: "server.properties",
    5: "default",
    6: "broker-logger",
    7: "client-metrics",
    8: "group",
}
OWN = {"topic": 1, "broker": 2, "broker-logger": 6, "client-metrics": 7, "group": 8}
"""The source of what is set for a resource itself."""
OF_ALL_BROKERS = 3
TELLS_SOURCE = 1
SET, DELETE = 0, 1


class Resource(NamedTuple):
    """A resource by its type, one of TYPES, and its name: of a broker its id, and nothing for what
    is set for all brokers."""

    kind: str
    name: str

    def __str__(self) -> str:
        if self.kind == "broker" and not self.name:
            return "all brokers"
        return f"{self.kind} '{self.name}'"


class Setting(NamedTuple):
    """A setting. `value` is None where it is a secret; `is_own` says whether it is set for the
    resource itself; `source` is empty where the broker does not tell (before Kafka 1.1)."""

    name: str
    value: str | None
    source: str
    is_own: bool


def settings_of(cluster: Cluster, resource: Resource) -> list[Setting]:
    """All of them, sorted by name. Raises NotDone, also where the broker tells none (before Kafka
    0.11), NoSuchTopic."""
    if resource.kind == "topic":
        require_topics(cluster, [resource.name])
    if not cluster.offers(DescribeConfigsRequest):
        raise NotDone(f"{cluster.servers} tells no settings (Kafka 0.11 is the first that does)")
    wanted = DescribeConfigsRequest.Resource(
        resource_type=TYPES[resource.kind],
        resource_name=resource.name,
        configuration_keys=None,
    )
    answer = _ask(
        cluster, resource, DescribeConfigsRequest(resources=[wanted]), DescribeConfigsResponse
    )
    own = {OWN[resource.kind]}
    if resource.kind == "broker" and not resource.name:
        own = {OF_ALL_BROKERS}
    found = []
    for result in answer.results:
        _check(resource, result.error_code, result.error_message)
        for entry in result.configs:
            tells = entry.config_source != -1
            found.append(
                Setting(
                    entry.name,
                    None if entry.is_sensitive else entry.value or "",
                    SOURCES.get(entry.config_source, "") if tells else "",
                    entry.config_source in own if tells else not entry.is_default,
                )
            )
    return sorted(found)


def alter_settings(
    cluster: Cluster, resource: Resource, new: Mapping[str, str], removed: Sequence[str]
) -> None:
    """Set some, and take others back to what holds without them. Raises NotDone, NoSuchTopic."""
    if resource.kind == "topic":
        require_topics(cluster, [resource.name])
    if not cluster.offers(IncrementalAlterConfigsRequest):
        _alter_as_a_whole(cluster, resource, new, removed)
        return
    kind = IncrementalAlterConfigsRequest.Resource
    changes = [
        *(kind.Config(name=name, config_operation=SET, value=value) for name, value in new.items()),
        *(kind.Config(name=name, config_operation=DELETE, value=None) for name in removed),
    ]
    asked = kind(resource_type=TYPES[resource.kind], resource_name=resource.name, configs=changes)
    request = IncrementalAlterConfigsRequest(resources=[asked], validate_only=False)
    answer = _ask(cluster, resource, request, IncrementalAlterConfigsResponse)
    for result in answer.responses:
        _check(resource, result.error_code, result.error_message)


def _alter_as_a_whole(
    cluster: Cluster, resource: Resource, new: Mapping[str, str], removed: Sequence[str]
) -> None:
    """The request of Kafka 0.11 to 2.2 sets all of a resource, so that the others are read and set
    again."""
    if resource.kind != "topic" or not cluster.offers(AlterConfigsRequest):
        raise NotDone(
            f"{cluster.servers} is too old to change the settings of {resource}: topics can be "
            "changed from Kafka 0.11 on, others from 2.3"
        )
    kept = {one.name: one.value or "" for one in settings_of(cluster, resource) if one.is_own}
    whole = {name: value for name, value in {**kept, **new}.items() if name not in removed}
    kind = AlterConfigsRequest.Resource
    asked = kind(
        resource_type=TYPES[resource.kind],
        resource_name=resource.name,
        configs=[kind.Config(name=name, value=value) for name, value in whole.items()],
    )
    answer = cluster.change(
        AlterConfigsRequest(resources=[asked], validate_only=False), AlterConfigsResponse
    )
    for result in answer.responses:
        _check(resource, result.error_code, result.error_message)


def _ask(cluster: Cluster, resource: Resource, request: Message, kind: type[Asked]) -> Asked:
    """Of the broker that is the resource, or of any."""
    if resource.kind not in OF_BROKER or not resource.name:
        return cluster.ask(request, kind)
    ids = cluster.node_ids()
    if not resource.name.isdecimal() or int(resource.name) not in ids:
        raise NotDone(
            f"there is no broker '{resource.name}' on {cluster.servers}: it has "
            f"{', '.join(map(str, ids))}"
        )
    return cluster.ask_node(int(resource.name), request, kind)


def _check(resource: Resource, code: int, message: str | None) -> None:
    if code:
        why = f" ({message})" if message and code != ErrorCode.UNKNOWN_SERVER_ERROR else ""
        raise NotDone(f"the settings of {resource}: {said(code)}{why}")
