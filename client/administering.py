"""Making topics, and reading their settings."""

from __future__ import annotations

from typing import TYPE_CHECKING

from client.errors import NoSuchTopic, Refused, Unreachable
from client.routing import Again
from protocol.client import said
from protocol.errors import ErrorCode
from protocol.messages.create_topics import CreateTopicsRequest, CreateTopicsResponse
from protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResponse

if TYPE_CHECKING:
    from collections.abc import Mapping

    from client.routing import Router

TOPIC_RESOURCE = 2
# Where a setting comes from, told from version 1 of DescribeConfigs on.
TELLS_SOURCE, OF_THE_TOPIC = 1, 1
# From here on CreateTopics takes -1 for the broker's own number of partitions, and of replicas
# (Kafka 2.4); before 1 there is no asking without doing.
OWN_NUMBERS, VALIDATES = 4, 1


def create_topic(
    router: Router,
    name: str,
    partitions: int | None,
    configs: Mapping[str, str],
    *,
    replicas: int | None = None,
    validate_only: bool = False,
) -> None:
    """Make a topic, or with `validate_only` only ask whether it would be made. None is the broker's
    own number, and 1 before Kafka 2.4, which has none.

    Raises Refused, if the topic exists too, Again, ConnectionLost.
    """
    connection = router.node(router.controller) if router.controller >= 0 else router.any()
    if not connection.offers(CreateTopicsRequest):
        raise Refused(
            f"{connection.address} makes no topics when asked to (Kafka before 0.10.1): make "
            f"'{name}' there with its own tools"
        )
    version = connection.version(CreateTopicsRequest)
    if validate_only and version < VALIDATES:
        raise Refused(f"{connection.address} does not say whether it would make a topic")
    own_number = -1 if version >= OWN_NUMBERS else 1
    kind = CreateTopicsRequest.Topic
    topic = kind(
        name=name,
        num_partitions=own_number if partitions is None else partitions,
        replication_factor=own_number if replicas is None else replicas,
        assignments=[],
        configs=[kind.Config(name=key, value=value) for key, value in configs.items()],
    )
    timeout_ms = int(router.timeout_s * 1000)
    request = CreateTopicsRequest(
        topics=[topic], timeout_ms=timeout_ms, validate_only=validate_only
    )
    answer = connection.call(request, CreateTopicsResponse, wait_s=router.timeout_s)
    for made in answer.topics:
        if made.error_code in (ErrorCode.NOT_CONTROLLER, ErrorCode.THROTTLING_QUOTA_EXCEEDED):
            router.learn(())
            raise Again(Unreachable(f"topic '{name}': {said(made.error_code)}"))
        if made.error_code:
            why = f" ({made.error_message})" if made.error_message else ""
            text = f"cannot make topic '{name}': {said(made.error_code)}{why}"
            raise Refused(text, made.error_code)


def topic_configs(router: Router, name: str, *, own: bool) -> dict[str, str]:
    """The settings of a topic; empty from a broker that does not tell (before Kafka 0.11).

    Raises NoSuchTopic, Refused, ConnectionLost.
    """
    connection = router.any()
    if not connection.offers(DescribeConfigsRequest):
        return {}
    version = connection.version(DescribeConfigsRequest)
    resource = DescribeConfigsRequest.Resource(
        resource_type=TOPIC_RESOURCE, resource_name=name, configuration_keys=None
    )
    request = DescribeConfigsRequest(resources=[resource])
    answer = connection.call(request, DescribeConfigsResponse)
    settings = {}
    for result in answer.results:
        if result.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            raise NoSuchTopic(f"there is no topic '{name}' on {router.servers}")
        if result.error_code:
            text = f"the settings of topic '{name}': {said(result.error_code)}"
            raise Refused(text, result.error_code)
        for entry in result.configs:
            is_own = (
                entry.config_source == OF_THE_TOPIC
                if version >= TELLS_SOURCE
                else not entry.is_default
            )
            if entry.value is not None and (is_own or not own):
                settings[entry.name] = entry.value
    return settings
