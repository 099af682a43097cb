"""What can go wrong between a client and the broker, in two families.

`KafkaError` is told to the client: it carries one of Kafka's numbered codes. `Malformed` is
told to nobody: the bytes are not Kafka's, so the connection is closed and the log says why.

A client that is older than a code takes it for "unknown", which is fatal to it; which code
may be sent in which version of which request is decided where the answer is made.
"""

from __future__ import annotations

from enum import IntEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from typing import Self


class ErrorCode(IntEnum):
    """Kafka's error codes; the number is what goes on the wire, as an int16.

    `meaning` is a sentence for logs and documentation. `retriable` tells whether Java clients
    send the request again by themselves, some of them after refreshing what they know of the
    cluster.
    """

    meaning: str

    def __new__(cls, code: int, meaning: str) -> Self:
        member = int.__new__(cls, code)
        member._value_ = code
        member.meaning = meaning
        return member

    UNKNOWN_SERVER_ERROR = -1, "The broker failed in a way it did not foresee."
    NONE = 0, "All went well."
    OFFSET_OUT_OF_RANGE = 1, "The offset lies below the log's start or above its end."
    CORRUPT_MESSAGE = 2, "A record set has a wrong checksum, size or content."
    UNKNOWN_TOPIC_OR_PARTITION = 3, "There is no such topic or partition here."
    INVALID_FETCH_SIZE = 4, "The fetch asks for a negative number of bytes."
    LEADER_NOT_AVAILABLE = 5, "The partition has no leader yet."
    NOT_LEADER_OR_FOLLOWER = 6, "The partition is not served by this node."
    REQUEST_TIMED_OUT = 7, "The work was not done within the time the client allowed."
    BROKER_NOT_AVAILABLE = 8, "The broker asked for is not up."
    REPLICA_NOT_AVAILABLE = 9, "A replica of the partition is not up."
    MESSAGE_TOO_LARGE = 10, "A batch is larger than the topic accepts."
    STALE_CONTROLLER_EPOCH = 11, "The controller that asks has been replaced."
    OFFSET_METADATA_TOO_LARGE = 12, "The text committed with an offset is too long."
    NETWORK_EXCEPTION = 13, "The connection broke; clients use this code among themselves."
    COORDINATOR_LOAD_IN_PROGRESS = 14, "The coordinator is still reading its log."
    COORDINATOR_NOT_AVAILABLE = 15, "There is no coordinator to ask at the moment."
    NOT_COORDINATOR = 16, "Another node coordinates this group or transaction."
    INVALID_TOPIC_EXCEPTION = 17, "The topic's name is illegal, or clients may not write to it."
    RECORD_LIST_TOO_LARGE = 18, "A batch is larger than a segment file may be."
    NOT_ENOUGH_REPLICAS = 19, "Fewer replicas are in sync than the topic demands; not written."
    NOT_ENOUGH_REPLICAS_AFTER_APPEND = 20, "Written, but to fewer replicas than demanded."
    INVALID_REQUIRED_ACKS = 21, "The number of acknowledgements is not -1, 0 or 1."
    ILLEGAL_GENERATION = 22, "The group has moved on to another generation."
    INCONSISTENT_GROUP_PROTOCOL = 23, "The member shares no protocol with its group."
    INVALID_GROUP_ID = 24, "The group's name may not be used here."
    UNKNOWN_MEMBER_ID = 25, "The group does not know this member."
    INVALID_SESSION_TIMEOUT = 26, "The session timeout is outside the broker's limits."
    REBALANCE_IN_PROGRESS = 27, "The group is rebalancing, and the member should rejoin."
    INVALID_COMMIT_OFFSET_SIZE = 28, "A commit of offsets is too large to be stored."
    TOPIC_AUTHORIZATION_FAILED = 29, "The caller may not do this with the topic."
    GROUP_AUTHORIZATION_FAILED = 30, "The caller may not do this with the group."
    CLUSTER_AUTHORIZATION_FAILED = 31, "The caller may not do this with the cluster."
    INVALID_TIMESTAMP = 32, "A record's timestamp is too far from the broker's clock."
    UNSUPPORTED_SASL_MECHANISM = 33, "The broker does not offer this SASL mechanism."
    ILLEGAL_SASL_STATE = 34, "A SASL request came when none was due."
    UNSUPPORTED_VERSION = 35, "The broker does not speak this version, or not this part of it."
    TOPIC_ALREADY_EXISTS = 36, "A topic of this name exists."
    INVALID_PARTITIONS = 37, "The number of partitions is not possible."
    INVALID_REPLICATION_FACTOR = 38, "The number of replicas is not possible."
    INVALID_REPLICA_ASSIGNMENT = 39, "The replicas cannot be placed as asked."
    INVALID_CONFIG = 40, "A configuration key is unknown or its value is bad."
    NOT_CONTROLLER = 41, "This node does not lead the cluster."
    INVALID_REQUEST = 42, "The request contradicts itself."
    UNSUPPORTED_FOR_MESSAGE_FORMAT = 43, "The topic's record format cannot hold what is asked."
    POLICY_VIOLATION = 44, "A rule of the operator forbids it."
    OUT_OF_ORDER_SEQUENCE_NUMBER = 45, "A batch of this producer is missing before this one."
    DUPLICATE_SEQUENCE_NUMBER = 46, "The batch has been written before."
    INVALID_PRODUCER_EPOCH = 47, "A newer producer holds this producer id."
    INVALID_TXN_STATE = 48, "The transaction is in a state that does not allow it."
    INVALID_PRODUCER_ID_MAPPING = 49, "The transactional id belongs to another producer id."
    INVALID_TRANSACTION_TIMEOUT = 50, "The transaction timeout is longer than allowed."
    CONCURRENT_TRANSACTIONS = 51, "The producer's last transaction is not finished yet."
    TRANSACTION_COORDINATOR_FENCED = 52, "The coordinator that asks has been replaced."
    TRANSACTIONAL_ID_AUTHORIZATION_FAILED = 53, "The caller may not use the transactional id."
    SECURITY_DISABLED = 54, "The broker has no authorizer."
    OPERATION_NOT_ATTEMPTED = 55, "Not tried, because another part of the request failed."
    KAFKA_STORAGE_ERROR = 56, "The disk failed or is full."
    LOG_DIR_NOT_FOUND = 57, "The broker has no such log directory."
    SASL_AUTHENTICATION_FAILED = 58, "The credentials were refused."
    UNKNOWN_PRODUCER_ID = 59, "The partition remembers nothing of this producer."
    REASSIGNMENT_IN_PROGRESS = 60, "The partition is being moved."
    DELEGATION_TOKEN_AUTH_DISABLED = 61, "The broker does not use delegation tokens."
    DELEGATION_TOKEN_NOT_FOUND = 62, "There is no such delegation token."
    DELEGATION_TOKEN_OWNER_MISMATCH = 63, "The delegation token belongs to someone else."
    DELEGATION_TOKEN_REQUEST_NOT_ALLOWED = 64, "Tokens are not given out on such a connection."
    DELEGATION_TOKEN_AUTHORIZATION_FAILED = 65, "The caller may not do this with the token."
    DELEGATION_TOKEN_EXPIRED = 66, "The delegation token has expired."
    INVALID_PRINCIPAL_TYPE = 67, "The principal is of a type that cannot be used here."
    NON_EMPTY_GROUP = 68, "The group still has members."
    GROUP_ID_NOT_FOUND = 69, "There is no such group."
    FETCH_SESSION_ID_NOT_FOUND = 70, "There is no such fetch session; it may have been evicted."
    INVALID_FETCH_SESSION_EPOCH = 71, "The fetch session is at another epoch."
    LISTENER_NOT_FOUND = 72, "The leader has no listener of the name the client used."
    TOPIC_DELETION_DISABLED = 73, "The broker is configured to keep its topics."
    FENCED_LEADER_EPOCH = 74, "The client's leader epoch is out of date."
    UNKNOWN_LEADER_EPOCH = 75, "The client's leader epoch is newer than the broker's."
    UNSUPPORTED_COMPRESSION_TYPE = 76, "This version of the request cannot carry the codec."
    STALE_BROKER_EPOCH = 77, "The broker that asks has registered again since."
    OFFSET_NOT_AVAILABLE = 78, "The new leader does not know its high watermark yet."
    MEMBER_ID_REQUIRED = 79, "The member should join again with the id it is given here."
    PREFERRED_LEADER_NOT_AVAILABLE = 80, "The preferred leader is not up."
    GROUP_MAX_SIZE_REACHED = 81, "The group is full."
    FENCED_INSTANCE_ID = 82, "Another process has taken over this static member."
    ELIGIBLE_LEADERS_NOT_AVAILABLE = 83, "No replica that could lead is up."
    ELECTION_NOT_NEEDED = 84, "The partition already has the leader it should have."
    NO_REASSIGNMENT_IN_PROGRESS = 85, "The partition is not being moved."
    GROUP_SUBSCRIBED_TO_TOPIC = 86, "The group reads this topic, so its offsets must stay."
    INVALID_RECORD = 87, "A record breaks a rule, and its batch was refused."
    UNSTABLE_OFFSET_COMMIT = 88, "An offset waits for the end of a transaction."
    THROTTLING_QUOTA_EXCEEDED = 89, "The caller is over its quota of changes."
    PRODUCER_FENCED = 90, "A newer instance uses this transactional id."
    RESOURCE_NOT_FOUND = 91, "The thing named in the request does not exist."
    DUPLICATE_RESOURCE = 92, "The request names the same thing twice."
    UNACCEPTABLE_CREDENTIAL = 93, "The credential does not meet the broker's rules."
    INCONSISTENT_VOTER_SET = 94, "The sender has other voters in mind."
    INVALID_UPDATE_VERSION = 95, "The feature cannot be set to this version."
    FEATURE_UPDATE_FAILED = 96, "A feature could not be updated."
    PRINCIPAL_DESERIALIZATION_FAILURE = 97, "A forwarded principal could not be read."
    SNAPSHOT_NOT_FOUND = 98, "There is no such snapshot."
    POSITION_OUT_OF_RANGE = 99, "The position lies outside the snapshot."
    UNKNOWN_TOPIC_ID = 100, "No topic has this id."
    DUPLICATE_BROKER_REGISTRATION = 101, "Another broker has registered with this id."
    BROKER_ID_NOT_REGISTERED = 102, "No broker has registered with this id."
    INCONSISTENT_TOPIC_ID = 103, "The topic's id is not the one the request knows."
    INCONSISTENT_CLUSTER_ID = 104, "The request is meant for another cluster."
    TRANSACTIONAL_ID_NOT_FOUND = 105, "There is no such transactional id."
    FETCH_SESSION_TOPIC_ID_ERROR = 106, "The fetch session mixes topic names and topic ids."
    INELIGIBLE_REPLICA = 107, "The replica may not become part of the in-sync set."
    NEW_LEADER_ELECTED = 108, "The change led to the election of another leader."
    OFFSET_MOVED_TO_TIERED_STORAGE = 109, "The records have moved to remote storage."
    FENCED_MEMBER_EPOCH = 110, "The coordinator has fenced the member's epoch."
    UNRELEASED_INSTANCE_ID = 111, "The static member's id is still in use."
    UNSUPPORTED_ASSIGNOR = 112, "The group cannot use this assignor."
    STALE_MEMBER_EPOCH = 113, "The member's epoch is out of date."
    MISMATCHED_ENDPOINT_TYPE = 114, "The request came to a listener of the other kind."
    UNSUPPORTED_ENDPOINT_TYPE = 115, "The broker does not know this kind of endpoint."
    UNKNOWN_CONTROLLER_ID = 116, "No controller has this id."
    UNKNOWN_SUBSCRIPTION_ID = 117, "The client's telemetry subscription is out of date."
    TELEMETRY_TOO_LARGE = 118, "The telemetry is larger than the broker takes."
    INVALID_REGISTRATION = 119, "The controller refuses the broker's registration."
    TRANSACTION_ABORTABLE = 120, "The transaction must be aborted; the producer may go on."
    INVALID_RECORD_STATE = 121, "The record cannot be acknowledged in its present state."
    SHARE_SESSION_NOT_FOUND = 122, "There is no such share session."
    INVALID_SHARE_SESSION_EPOCH = 123, "The share session is at another epoch."
    FENCED_STATE_EPOCH = 124, "The share partition's state is at a newer epoch."
    INVALID_VOTER_KEY = 125, "The voter's key is not the one expected."
    DUPLICATE_VOTER = 126, "The voter is already in the set."
    VOTER_NOT_FOUND = 127, "The voter is not in the set."
    INVALID_REGULAR_EXPRESSION = 128, "The subscription's regular expression is not valid."
    REBOOTSTRAP_REQUIRED = 129, "The client has found the wrong cluster or node; start afresh."
    STREAMS_INVALID_TOPOLOGY = 130, "The topology cannot be run."
    STREAMS_INVALID_TOPOLOGY_EPOCH = 131, "The topology's epoch is not possible."
    STREAMS_TOPOLOGY_FENCED = 132, "The topology's epoch is out of date."
    SHARE_SESSION_LIMIT_REACHED = 133, "There are as many share sessions as allowed."
    GROUP_DELETION_FAILED = 134, "The group could not be deleted."
    STREAMS_TOPOLOGY_DESCRIPTION_UPDATE_FAILED = 135, "The topology's text was not stored."
    CONTROLLER_ID_NOT_REGISTERED = 136, "No controller has registered with this id."

    @property
    def retriable(self) -> bool:
        """Whether Java clients try again by themselves."""
        return self in RETRIABLE


RETRIABLE = frozenset({
    2, 3, 5, 6, 7, 9, 13, 14, 15, 16, 19, 20, 41, 51, 56, 70, 71, 72, 74, 75, 78, 80, 83, 84,
    88, 89, 100, 103, 106, 122, 123, 133,
})  # fmt: skip


class KafkaError(Exception):
    """Something a client is told. Carries the code; the text is for the log and new clients."""

    code: ErrorCode = ErrorCode.UNKNOWN_SERVER_ERROR

    def __init__(self, message: str = "", *, code: ErrorCode | None = None) -> None:
        if code is not None:
            self.code = code
        super().__init__(message or self.code.meaning)


class Malformed(Exception):
    """The bytes are not Kafka's. The connection is closed; there is no one to answer."""
