"""A `GroupCaller` that changes and asks for all that the metadata of a cluster hold.

    with Administrator(kafka.host, kafka.port) as admin:
        admin.create("orders", partitions=3, configs={"cleanup.policy": "compact"})
        admin.set_quota({"user": "alice", "client-id": None}, "producer_byte_rate", 1000.0)
        before = admin.facts()

The answers are plain values, so that those of two brokers can be compared.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, NamedTuple

from protocol.errors import ErrorCode
from protocol.messages.alter_client_quotas import AlterClientQuotasRequest
from protocol.messages.alter_user_scram_credentials import AlterUserScramCredentialsRequest
from protocol.messages.api_versions import ApiVersionsRequest
from protocol.messages.create_acls import CreateAclsRequest
from protocol.messages.create_partitions import CreatePartitionsRequest
from protocol.messages.create_topics import CreateTopicsRequest
from protocol.messages.delete_acls import DeleteAclsRequest
from protocol.messages.delete_topics import DeleteTopicsRequest
from protocol.messages.describe_acls import DescribeAclsRequest
from protocol.messages.describe_client_quotas import DescribeClientQuotasRequest
from protocol.messages.describe_configs import DescribeConfigsRequest
from protocol.messages.describe_user_scram_credentials import DescribeUserScramCredentialsRequest
from protocol.messages.find_coordinator import FindCoordinatorRequest
from protocol.messages.incremental_alter_configs import IncrementalAlterConfigsRequest
from protocol.messages.init_producer_id import InitProducerIdRequest
from protocol.messages.metadata import MetadataRequest
from protocol.messages.update_features import UpdateFeaturesRequest
from storage.identity import uuid_text
from tests.support.group_caller import GroupCaller

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tests.support.group_caller import Found, Place

TOPIC, BROKER = 2, 4
SHA_256, SHA_512 = 1, 2
ANY = 1

PATIENCE_S = 30.0
#: While a coordinator makes or reads its topic.
NOT_READY = {
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
}

Entity = tuple[tuple[str, str | None], ...]


class TopicFacts(NamedTuple):
    """A broker's answers about one topic."""

    topic_id: str
    #: (leader, leader epoch, replicas, in-sync replicas) of each partition.
    partitions: list[tuple[int, int, tuple[int, ...], tuple[int, ...]]]


class Facts(NamedTuple):
    """A broker's answers about the metadata of its cluster."""

    cluster_id: str
    topics: dict[str, TopicFacts]
    #: By (resource type, name); only what somebody has set.
    configs: dict[tuple[int, str], dict[str, str | None]]
    quotas: dict[Entity, dict[str, float]]
    #: Iterations by (user, mechanism).
    users: dict[tuple[str, int], int]
    #: (resource type, name, pattern, principal, host, operation, permission)
    acls: set[tuple[int, str, int, str, str, int, int]]
    features: dict[str, int]


class Administrator(GroupCaller):
    """Changes are made one at a time, and each must be accepted."""

    def create(
        self,
        name: str,
        partitions: int = 1,
        *,
        configs: Mapping[str, str] | None = None,
        assignments: tuple[int, ...] = (),
    ) -> str:
        """Create a topic; its id as text. `assignments` has the one replica of each partition."""
        topic = CreateTopicsRequest.Topic
        given = [
            topic.Assignment(partition_index=number, broker_ids=[node])
            for number, node in enumerate(assignments)
        ]
        asked = topic(
            name=name,
            num_partitions=-1 if given else partitions,
            replication_factor=-1 if given else 1,
            assignments=given,
            configs=[topic.Config(name=key, value=value) for key, value in (configs or {}).items()],
        )
        (answer,) = self.call(CreateTopicsRequest(topics=[asked]), 7).topics
        assert answer.error_code == 0, (name, answer.error_code, answer.error_message)
        return uuid_text(answer.topic_id)

    def delete_topic(self, name: str) -> None:
        """Kafka wants to be given time for it."""
        request = DeleteTopicsRequest(topic_names=[name], timeout_ms=10_000)
        (deleted,) = self.call(request, 5).responses
        assert deleted.error_code == 0, deleted.error_code

    def grow(self, name: str, count: int) -> None:
        """Give the topic so many partitions."""
        asked = CreatePartitionsRequest.Topic(name=name, count=count, assignments=None)
        request = CreatePartitionsRequest(topics=[asked], timeout_ms=10_000, validate_only=False)
        (answer,) = self.call(request, 3).results
        assert answer.error_code == 0, answer.error_message

    def alter(self, kind: int, name: str, **configs: str | None) -> None:
        """Set configs, or take away those whose value is None. `_` stands for `.`."""
        resource = IncrementalAlterConfigsRequest.Resource
        asked = resource(
            resource_type=kind,
            resource_name=name,
            configs=[
                resource.Config(
                    name=key.replace("_", "."), config_operation=int(value is None), value=value
                )
                for key, value in configs.items()
            ],
        )
        request = IncrementalAlterConfigsRequest(resources=[asked], validate_only=False)
        (answer,) = self.call(request, 1).responses
        assert answer.error_code == 0, answer.error_message

    def set_quota(self, entity: Mapping[str, str | None], key: str, value: float | None) -> None:
        """Set a quota, or remove it by None. A name of None in `entity` is the default."""
        entry = AlterClientQuotasRequest.Entry
        asked = entry(
            entity=[
                entry.Entity(entity_type=kind, entity_name=name) for kind, name in entity.items()
            ],
            ops=[entry.Op(key=key, value=value or 0.0, remove=value is None)],
        )
        request = AlterClientQuotasRequest(entries=[asked], validate_only=False)
        (answer,) = self.call(request, 1).entries
        assert answer.error_code == 0, answer.error_message

    def set_password(self, user: str, mechanism: int, salted: bytes | None) -> None:
        """Give a user a salted password of 4096 iterations, or take it away by None."""
        request = AlterUserScramCredentialsRequest
        deleted, upserted = [], []
        if salted is None:
            deleted = [request.Deletion(name=user, mechanism=mechanism)]
        else:
            upserted = [
                request.Upsertion(
                    name=user,
                    mechanism=mechanism,
                    iterations=4096,
                    salt=b"salt of " + user.encode(),
                    salted_password=salted,
                )
            ]
        (answer,) = self.call(request(deletions=deleted, upsertions=upserted), 0).results
        assert answer.error_code == 0, answer.error_message

    def allow(self, kind: int, name: str, principal: str, operation: int, pattern: int = 3) -> None:
        """Add an access control entry; the authorizer must be on."""
        asked = CreateAclsRequest.Creation(
            resource_type=kind,
            resource_name=name,
            resource_pattern_type=pattern,
            principal=principal,
            host="*",
            operation=operation,
            permission_type=3,
        )
        (answer,) = self.call(CreateAclsRequest(creations=[asked]), 3).results
        assert answer.error_code == 0, answer.error_message

    def disallow(self, principal: str) -> None:
        """Remove all access control entries of a principal."""
        asked = DeleteAclsRequest.Filter(
            resource_type_filter=ANY,
            resource_name_filter=None,
            pattern_type_filter=ANY,
            principal_filter=principal,
            host_filter=None,
            operation=ANY,
            permission_type=ANY,
        )
        (answer,) = self.call(DeleteAclsRequest(filters=[asked]), 3).filter_results
        assert answer.error_code == 0, answer.error_message
        assert answer.matching_acls

    def new_producer_id(self) -> int:
        request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=2**31 - 1)
        answer = self.call(request, 4)
        while answer.error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
            time.sleep(0.1)  # Kafka's first answer, while it asks its controller for a block of ids
            answer = self.call(request, 4)
        assert answer.error_code == 0, answer.error_code
        producer_id: int = answer.producer_id
        return producer_id

    def update_feature(self, name: str, level: int) -> None:
        asked = UpdateFeaturesRequest.FeatureUpdate(feature=name, max_version_level=level)
        answer = self.call(UpdateFeaturesRequest(feature_updates=[asked]), 1)
        assert answer.error_code == 0, answer.error_message

    def commit_when_ready(
        self, group: str, offsets: Mapping[Place, int | tuple[int, str | None]]
    ) -> None:
        """Commit, as soon as there is a coordinator: Kafka makes its topic when first asked."""
        self.find_coordinator(group)
        deadline = time.monotonic() + PATIENCE_S
        while True:
            codes = set(self.commit(group, offsets).values())
            if codes == {0}:
                return
            assert codes <= NOT_READY, codes
            assert time.monotonic() < deadline, codes
            time.sleep(0.1)

    def committed_when_ready(self, group: str) -> dict[Place, Found]:
        """All that the group has committed, as soon as that has been loaded."""
        self.find_coordinator(group)
        deadline = time.monotonic() + PATIENCE_S
        while True:
            (answer,) = self.fetch_offsets(group, None).groups
            if answer.error_code == 0:
                return self.offsets_in(answer.topics)
            assert answer.error_code in NOT_READY, answer.error_code
            assert time.monotonic() < deadline, answer.error_code
            time.sleep(0.1)

    def find_coordinator(self, group: str) -> None:
        """Wait until the group has one, whose topic is made by the first who asks."""
        deadline = time.monotonic() + PATIENCE_S
        while self.call(FindCoordinatorRequest(key=group, key_type=0), 3).error_code:
            assert time.monotonic() < deadline, "no coordinator"
            time.sleep(0.1)

    # What there is

    def facts(self, node_id: int = 1, *, acls: bool = False) -> Facts:
        """All of it. `acls` can only be asked for when the authorizer is on."""
        answer = self.call(MetadataRequest(topics=None, allow_auto_topic_creation=False), 12)
        topics = {topic.name: _topic_facts(topic) for topic in answer.topics}
        resources = [(TOPIC, name) for name in topics] + [(BROKER, ""), (BROKER, str(node_id))]
        return Facts(
            answer.cluster_id,
            topics,
            self._configs(resources),
            self._quotas(),
            self._users(),
            self._acls() if acls else set(),
            self.features(),
        )

    def features(self) -> dict[str, int]:
        """The finalized ones."""
        who = ApiVersionsRequest(client_software_name="triglot", client_software_version="1")
        answer = self.call(who, 3)
        assert answer.error_code == 0
        return {found.name: found.max_version_level for found in answer.finalized_features}

    def _configs(
        self, resources: list[tuple[int, str]]
    ) -> dict[tuple[int, str], dict[str, str | None]]:
        resource = DescribeConfigsRequest.Resource
        request = DescribeConfigsRequest(
            resources=[
                resource(resource_type=kind, resource_name=name, configuration_keys=None)
                for kind, name in resources
            ]
        )
        found = {}
        for result in self.call(request, 4).results:
            assert result.error_code == 0, result.error_message
            kind = result.resource_type
            # Topics and brokers inherit from "all brokers"; only what is their own is wanted.
            own = 1 if kind == TOPIC else 2 if result.resource_name else 3
            configs = {c.name: c.value for c in result.configs if c.config_source == own}
            if configs:
                found[kind, result.resource_name] = configs
        return found

    def _quotas(self) -> dict[Entity, dict[str, float]]:
        answer = self.call(DescribeClientQuotasRequest(components=[], strict=False), 1)
        assert answer.error_code == 0, answer.error_message
        return {
            tuple(sorted((e.entity_type, e.entity_name) for e in entry.entity)): {
                quota.key: quota.value for quota in entry.values
            }
            for entry in answer.entries
        }

    def _users(self) -> dict[tuple[str, int], int]:
        answer = self.call(DescribeUserScramCredentialsRequest(users=None), 0)
        assert answer.error_code == 0, answer.error_message
        return {
            (result.user, info.mechanism): info.iterations
            for result in answer.results
            for info in result.credential_infos
        }

    def _acls(self) -> set[tuple[int, str, int, str, str, int, int]]:
        request = DescribeAclsRequest(
            resource_type_filter=ANY,
            resource_name_filter=None,
            pattern_type_filter=ANY,
            principal_filter=None,
            host_filter=None,
            operation=ANY,
            permission_type=ANY,
        )
        answer = self.call(request, 3)
        assert answer.error_code == 0, answer.error_message
        return {
            (
                resource.resource_type,
                resource.resource_name,
                resource.pattern_type,
                acl.principal,
                acl.host,
                acl.operation,
                acl.permission_type,
            )
            for resource in answer.resources
            for acl in resource.acls
        }


def _topic_facts(topic: Any) -> TopicFacts:
    return TopicFacts(
        uuid_text(topic.topic_id),
        [
            (p.leader_id, p.leader_epoch, tuple(p.replica_nodes), tuple(p.isr_nodes))
            for p in sorted(topic.partitions, key=lambda p: p.partition_index)
        ],
    )
