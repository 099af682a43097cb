"""Every API we can speak: its key, its versions, and where its messages are declared.

A table and nothing more: importing it imports no message. The declarations of an API are
imported when its first request, or its first answer, is met.

The ranges are what may be offered to a client once the API has a handler (ApiVersions leaves out
those without). They are the union of what Kafka's releases from 0.8 to 4.4 served, less versions
that were never stable. Three entries need a word: InitProducerId is declared up to version 6, but 6
is off by default in Kafka and not offered; FetchSnapshot and Envelope are requests of brokers,
declared for the metadata log and the processes of one directory, and never offered to clients.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType

    from protocol.schema import Message

NEVER_FLEXIBLE = 32767
"""`first_flexible` of an API of which no version is flexible."""


class Api:
    """One API: a key, a range of versions, and the module that declares its messages."""

    __slots__ = ("_module", "first_flexible", "key", "max_version", "min_version", "module", "name")

    def __init__(
        self,
        key: int,
        name: str,
        module: str,
        min_version: int,
        max_version: int,
        first_flexible: int,
    ) -> None:
        self.key = key
        self.name = name
        """Kafka's name of it, as in "OffsetCommit"."""
        self.module = module
        """The name of its module in `protocol.messages`, as in "offset_commit"."""
        self.min_version = min_version
        self.max_version = max_version
        self.first_flexible = first_flexible
        self._module: ModuleType | None = None

    def __repr__(self) -> str:
        return f"Api({self.key} {self.name} {self.min_version}-{self.max_version})"

    @property
    def messages(self) -> ModuleType:
        """The module with the declarations; imported at first use."""
        if self._module is None:
            self._module = import_module(f"{__package__}.messages.{self.module}")
        return self._module

    @property
    def request(self) -> type[Message]:
        """The declaration of the request."""
        found: type[Message] = getattr(self.messages, self.name + "Request")
        return found

    @property
    def response(self) -> type[Message]:
        """The declaration of the response."""
        found: type[Message] = getattr(self.messages, self.name + "Response")
        return found

    @property
    def refused(self) -> Callable[[Message, int], Message]:
        """`refused(request, code)`: the answer that says this code wherever it must be said."""
        found: Callable[[Message, int], Message] = self.messages.refused
        return found


APIS: dict[int, Api] = {
    api.key: api
    for api in (
        Api(0, "Produce", "produce", 0, 13, 9),
        Api(1, "Fetch", "fetch", 0, 18, 12),
        Api(2, "ListOffsets", "list_offsets", 0, 11, 6),
        Api(3, "Metadata", "metadata", 0, 13, 9),
        Api(8, "OffsetCommit", "offset_commit", 0, 10, 8),
        Api(9, "OffsetFetch", "offset_fetch", 0, 10, 6),
        Api(10, "FindCoordinator", "find_coordinator", 0, 6, 3),
        Api(11, "JoinGroup", "join_group", 0, 9, 6),
        Api(12, "Heartbeat", "heartbeat", 0, 4, 4),
        Api(13, "LeaveGroup", "leave_group", 0, 5, 4),
        Api(14, "SyncGroup", "sync_group", 0, 5, 4),
        Api(15, "DescribeGroups", "describe_groups", 0, 6, 5),
        Api(16, "ListGroups", "list_groups", 0, 5, 3),
        Api(17, "SaslHandshake", "sasl_handshake", 0, 1, NEVER_FLEXIBLE),
        Api(18, "ApiVersions", "api_versions", 0, 5, 3),
        Api(19, "CreateTopics", "create_topics", 0, 7, 5),
        Api(20, "DeleteTopics", "delete_topics", 0, 6, 4),
        Api(21, "DeleteRecords", "delete_records", 0, 2, 2),
        Api(22, "InitProducerId", "init_producer_id", 0, 6, 2),
        Api(23, "OffsetForLeaderEpoch", "offset_for_leader_epoch", 0, 4, 4),
        Api(24, "AddPartitionsToTxn", "add_partitions_to_txn", 0, 5, 3),
        Api(25, "AddOffsetsToTxn", "add_offsets_to_txn", 0, 4, 3),
        Api(26, "EndTxn", "end_txn", 0, 5, 3),
        Api(27, "WriteTxnMarkers", "write_txn_markers", 0, 2, 1),
        Api(28, "TxnOffsetCommit", "txn_offset_commit", 0, 6, 3),
        Api(29, "DescribeAcls", "describe_acls", 0, 3, 2),
        Api(30, "CreateAcls", "create_acls", 0, 3, 2),
        Api(31, "DeleteAcls", "delete_acls", 0, 3, 2),
        Api(32, "DescribeConfigs", "describe_configs", 0, 4, 4),
        Api(33, "AlterConfigs", "alter_configs", 0, 2, 2),
        Api(34, "AlterReplicaLogDirs", "alter_replica_log_dirs", 0, 2, 2),
        Api(35, "DescribeLogDirs", "describe_log_dirs", 0, 5, 2),
        Api(36, "SaslAuthenticate", "sasl_authenticate", 0, 2, 2),
        Api(37, "CreatePartitions", "create_partitions", 0, 3, 2),
        Api(38, "CreateDelegationToken", "create_delegation_token", 0, 3, 2),
        Api(39, "RenewDelegationToken", "renew_delegation_token", 0, 2, 2),
        Api(40, "ExpireDelegationToken", "expire_delegation_token", 0, 2, 2),
        Api(41, "DescribeDelegationToken", "describe_delegation_token", 0, 3, 2),
        Api(42, "DeleteGroups", "delete_groups", 0, 3, 2),
        Api(43, "ElectLeaders", "elect_leaders", 0, 2, 2),
        Api(44, "IncrementalAlterConfigs", "incremental_alter_configs", 0, 1, 1),
        Api(45, "AlterPartitionReassignments", "alter_partition_reassignments", 0, 1, 0),
        Api(46, "ListPartitionReassignments", "list_partition_reassignments", 0, 0, 0),
        Api(47, "OffsetDelete", "offset_delete", 0, 0, NEVER_FLEXIBLE),
        Api(48, "DescribeClientQuotas", "describe_client_quotas", 0, 1, 1),
        Api(49, "AlterClientQuotas", "alter_client_quotas", 0, 1, 1),
        Api(50, "DescribeUserScramCredentials", "describe_user_scram_credentials", 0, 0, 0),
        Api(51, "AlterUserScramCredentials", "alter_user_scram_credentials", 0, 0, 0),
        Api(55, "DescribeQuorum", "describe_quorum", 0, 2, 0),
        Api(57, "UpdateFeatures", "update_features", 0, 2, 0),
        Api(58, "Envelope", "envelope", 0, 0, 0),
        Api(59, "FetchSnapshot", "fetch_snapshot", 0, 1, 0),
        Api(60, "DescribeCluster", "describe_cluster", 0, 2, 0),
        Api(61, "DescribeProducers", "describe_producers", 0, 0, 0),
        Api(64, "UnregisterBroker", "unregister_broker", 0, 0, 0),
        Api(65, "DescribeTransactions", "describe_transactions", 0, 0, 0),
        Api(66, "ListTransactions", "list_transactions", 0, 2, 0),
        Api(68, "ConsumerGroupHeartbeat", "consumer_group_heartbeat", 0, 1, 0),
        Api(69, "ConsumerGroupDescribe", "consumer_group_describe", 0, 1, 0),
        Api(71, "GetTelemetrySubscriptions", "get_telemetry_subscriptions", 0, 0, 0),
        Api(72, "PushTelemetry", "push_telemetry", 0, 0, 0),
        Api(74, "ListConfigResources", "list_config_resources", 0, 1, 0),
        Api(75, "DescribeTopicPartitions", "describe_topic_partitions", 0, 0, 0),
        Api(76, "ShareGroupHeartbeat", "share_group_heartbeat", 1, 1, 0),
        Api(77, "ShareGroupDescribe", "share_group_describe", 1, 1, 0),
        Api(78, "ShareFetch", "share_fetch", 1, 2, 0),
        Api(79, "ShareAcknowledge", "share_acknowledge", 1, 2, 0),
        Api(88, "StreamsGroupHeartbeat", "streams_group_heartbeat", 0, 1, 0),
        Api(89, "StreamsGroupDescribe", "streams_group_describe", 0, 1, 0),
        Api(90, "DescribeShareGroupOffsets", "describe_share_group_offsets", 0, 1, 0),
        Api(91, "AlterShareGroupOffsets", "alter_share_group_offsets", 0, 0, 0),
        Api(92, "DeleteShareGroupOffsets", "delete_share_group_offsets", 0, 0, 0),
        Api(
            93,
            "StreamsGroupTopologyDescriptionUpdate",
            "streams_group_topology_description_update",
            0,
            0,
            0,
        ),
    )
}
"""By key, in ascending order."""
