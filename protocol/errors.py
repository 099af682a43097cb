"""The errors between a client and the broker, in two families.

`KafkaError` is told to the client: it carries one of Kafka's numbered codes. `Malformed` is
told to nobody: the bytes are not Kafka's, so the connection is closed and the log says why.

A client that is older than a code takes it for "unknown", which is fatal to it; which code
may be sent in which version of which request is decided where the answer is made.
"""

from __future__ import annotations

from enum import IntEnum


class ErrorCode(IntEnum):
    """Kafka's error codes; the number is what goes on the wire, as an int16.

    `meaning` is a sentence for logs and documentation. `retriable` tells whether Java clients
    send the request again by themselves, some of them after refreshing what they know of the
    cluster.
    """

    UNKNOWN_SERVER_ERROR = -1
    NONE = 0
    OFFSET_OUT_OF_RANGE = 1
    CORRUPT_MESSAGE = 2
    UNKNOWN_TOPIC_OR_PARTITION = 3
    INVALID_FETCH_SIZE = 4
    LEADER_NOT_AVAILABLE = 5
    NOT_LEADER_OR_FOLLOWER = 6
    REQUEST_TIMED_OUT = 7
    BROKER_NOT_AVAILABLE = 8
    REPLICA_NOT_AVAILABLE = 9
    MESSAGE_TOO_LARGE = 10
    STALE_CONTROLLER_EPOCH = 11
    OFFSET_METADATA_TOO_LARGE = 12
    NETWORK_EXCEPTION = 13
    COORDINATOR_LOAD_IN_PROGRESS = 14
    COORDINATOR_NOT_AVAILABLE = 15
    NOT_COORDINATOR = 16
    INVALID_TOPIC_EXCEPTION = 17
    RECORD_LIST_TOO_LARGE = 18
    NOT_ENOUGH_REPLICAS = 19
    NOT_ENOUGH_REPLICAS_AFTER_APPEND = 20
    INVALID_REQUIRED_ACKS = 21
    ILLEGAL_GENERATION = 22
    INCONSISTENT_GROUP_PROTOCOL = 23
    INVALID_GROUP_ID = 24
    UNKNOWN_MEMBER_ID = 25
    INVALID_SESSION_TIMEOUT = 26
    REBALANCE_IN_PROGRESS = 27
    INVALID_COMMIT_OFFSET_SIZE = 28
    TOPIC_AUTHORIZATION_FAILED = 29
    GROUP_AUTHORIZATION_FAILED = 30
    CLUSTER_AUTHORIZATION_FAILED = 31
    INVALID_TIMESTAMP = 32
    UNSUPPORTED_SASL_MECHANISM = 33
    ILLEGAL_SASL_STATE = 34
    UNSUPPORTED_VERSION = 35
    TOPIC_ALREADY_EXISTS = 36
    INVALID_PARTITIONS = 37
    INVALID_REPLICATION_FACTOR = 38
    INVALID_REPLICA_ASSIGNMENT = 39
    INVALID_CONFIG = 40
    NOT_CONTROLLER = 41
    INVALID_REQUEST = 42
    UNSUPPORTED_FOR_MESSAGE_FORMAT = 43
    POLICY_VIOLATION = 44
    OUT_OF_ORDER_SEQUENCE_NUMBER = 45
    DUPLICATE_SEQUENCE_NUMBER = 46
    INVALID_PRODUCER_EPOCH = 47
    INVALID_TXN_STATE = 48
    INVALID_PRODUCER_ID_MAPPING = 49
    INVALID_TRANSACTION_TIMEOUT = 50
    CONCURRENT_TRANSACTIONS = 51
    TRANSACTION_COORDINATOR_FENCED = 52
    TRANSACTIONAL_ID_AUTHORIZATION_FAILED = 53
    SECURITY_DISABLED = 54
    OPERATION_NOT_ATTEMPTED = 55
    KAFKA_STORAGE_ERROR = 56
    LOG_DIR_NOT_FOUND = 57
    SASL_AUTHENTICATION_FAILED = 58
    UNKNOWN_PRODUCER_ID = 59
    REASSIGNMENT_IN_PROGRESS = 60
    DELEGATION_TOKEN_AUTH_DISABLED = 61
    DELEGATION_TOKEN_NOT_FOUND = 62
    DELEGATION_TOKEN_OWNER_MISMATCH = 63
    DELEGATION_TOKEN_REQUEST_NOT_ALLOWED = 64
    DELEGATION_TOKEN_AUTHORIZATION_FAILED = 65
    DELEGATION_TOKEN_EXPIRED = 66
    INVALID_PRINCIPAL_TYPE = 67
    NON_EMPTY_GROUP = 68
    GROUP_ID_NOT_FOUND = 69
    FETCH_SESSION_ID_NOT_FOUND = 70
    INVALID_FETCH_SESSION_EPOCH = 71
    LISTENER_NOT_FOUND = 72
    TOPIC_DELETION_DISABLED = 73
    FENCED_LEADER_EPOCH = 74
    UNKNOWN_LEADER_EPOCH = 75
    UNSUPPORTED_COMPRESSION_TYPE = 76
    STALE_BROKER_EPOCH = 77
    OFFSET_NOT_AVAILABLE = 78
    MEMBER_ID_REQUIRED = 79
    PREFERRED_LEADER_NOT_AVAILABLE = 80
    GROUP_MAX_SIZE_REACHED = 81
    FENCED_INSTANCE_ID = 82
    ELIGIBLE_LEADERS_NOT_AVAILABLE = 83
    ELECTION_NOT_NEEDED = 84
    NO_REASSIGNMENT_IN_PROGRESS = 85
    GROUP_SUBSCRIBED_TO_TOPIC = 86
    INVALID_RECORD = 87
    UNSTABLE_OFFSET_COMMIT = 88
    THROTTLING_QUOTA_EXCEEDED = 89
    PRODUCER_FENCED = 90
    RESOURCE_NOT_FOUND = 91
    DUPLICATE_RESOURCE = 92
    UNACCEPTABLE_CREDENTIAL = 93
    INCONSISTENT_VOTER_SET = 94
    INVALID_UPDATE_VERSION = 95
    FEATURE_UPDATE_FAILED = 96
    PRINCIPAL_DESERIALIZATION_FAILURE = 97
    SNAPSHOT_NOT_FOUND = 98
    POSITION_OUT_OF_RANGE = 99
    UNKNOWN_TOPIC_ID = 100
    DUPLICATE_BROKER_REGISTRATION = 101
    BROKER_ID_NOT_REGISTERED = 102
    INCONSISTENT_TOPIC_ID = 103
    INCONSISTENT_CLUSTER_ID = 104
    TRANSACTIONAL_ID_NOT_FOUND = 105
    FETCH_SESSION_TOPIC_ID_ERROR = 106
    INELIGIBLE_REPLICA = 107
    NEW_LEADER_ELECTED = 108
    OFFSET_MOVED_TO_TIERED_STORAGE = 109
    FENCED_MEMBER_EPOCH = 110
    UNRELEASED_INSTANCE_ID = 111
    UNSUPPORTED_ASSIGNOR = 112
    STALE_MEMBER_EPOCH = 113
    MISMATCHED_ENDPOINT_TYPE = 114
    UNSUPPORTED_ENDPOINT_TYPE = 115
    UNKNOWN_CONTROLLER_ID = 116
    UNKNOWN_SUBSCRIPTION_ID = 117
    TELEMETRY_TOO_LARGE = 118
    INVALID_REGISTRATION = 119
    TRANSACTION_ABORTABLE = 120
    INVALID_RECORD_STATE = 121
    SHARE_SESSION_NOT_FOUND = 122
    INVALID_SHARE_SESSION_EPOCH = 123
    FENCED_STATE_EPOCH = 124
    INVALID_VOTER_KEY = 125
    DUPLICATE_VOTER = 126
    VOTER_NOT_FOUND = 127
    INVALID_REGULAR_EXPRESSION = 128
    REBOOTSTRAP_REQUIRED = 129
    STREAMS_INVALID_TOPOLOGY = 130
    STREAMS_INVALID_TOPOLOGY_EPOCH = 131
    STREAMS_TOPOLOGY_FENCED = 132
    SHARE_SESSION_LIMIT_REACHED = 133
    GROUP_DELETION_FAILED = 134
    STREAMS_TOPOLOGY_DESCRIPTION_UPDATE_FAILED = 135
    CONTROLLER_ID_NOT_REGISTERED = 136

    @property
    def meaning(self) -> str:
        return MEANINGS[self]

    @property
    def retriable(self) -> bool:
        """Whether Java clients try again by themselves."""
        return self in RETRIABLE


RETRIABLE = frozenset({
    2, 3, 5, 6, 7, 9, 13, 14, 15, 16, 19, 20, 41, 51, 56, 70, 71, 72, 74, 75, 78, 80, 83, 84,
    88, 89, 100, 103, 106, 122, 123, 133,
})  # fmt: skip

MEANINGS: dict[int, str] = {
    -1: "The broker failed in a way it did not foresee.",
    0: "All went well.",
    1: "The offset lies below the log's start or above its end.",
    2: "A record set has a wrong checksum, size or content.",
    3: "There is no such topic or partition here.",
    4: "The fetch asks for a negative number of bytes.",
    5: "The partition has no leader yet.",
    6: "The partition is not served by this node.",
    7: "The work was not done within the time the client allowed.",
    8: "The broker asked for is not up.",
    9: "A replica of the partition is not up.",
    10: "A batch is larger than the topic accepts.",
    11: "The controller that asks has been replaced.",
    12: "The text committed with an offset is too long.",
    13: "The connection broke; clients use this code among themselves.",
    14: "The coordinator is still reading its log.",
    15: "There is no coordinator to ask at the moment.",
    16: "Another node coordinates this group or transaction.",
    17: "The topic's name is illegal, or clients may not write to it.",
    18: "A batch is larger than a segment file may be.",
    19: "Fewer replicas are in sync than the topic demands; not written.",
    20: "Written, but to fewer replicas than demanded.",
    21: "The number of acknowledgements is not -1, 0 or 1.",
    22: "The group has moved on to another generation.",
    23: "The member shares no protocol with its group.",
    24: "The group's name may not be used here.",
    25: "The group does not know this member.",
    26: "The session timeout is outside the broker's limits.",
    27: "The group is rebalancing, and the member should rejoin.",
    28: "A commit of offsets is too large to be stored.",
    29: "The caller may not do this with the topic.",
    30: "The caller may not do this with the group.",
    31: "The caller may not do this with the cluster.",
    32: "A record's timestamp is too far from the broker's clock.",
    33: "The broker does not offer this SASL mechanism.",
    34: "A SASL request came when none was due.",
    35: "The broker does not speak this version, or not this part of it.",
    36: "A topic of this name exists.",
    37: "The number of partitions is not possible.",
    38: "The number of replicas is not possible.",
    39: "The replicas cannot be placed as asked.",
    40: "A configuration key is unknown or its value is bad.",
    41: "This node does not lead the cluster.",
    42: "The request contradicts itself.",
    43: "The topic's record format cannot hold what is asked.",
    44: "A rule of the operator forbids it.",
    45: "A batch of this producer is missing before this one.",
    46: "The batch has been written before.",
    47: "A newer producer holds this producer id.",
    48: "The transaction is in a state that does not allow it.",
    49: "The transactional id belongs to another producer id.",
    50: "The transaction timeout is longer than allowed.",
    51: "The producer's last transaction is not finished yet.",
    52: "The coordinator that asks has been replaced.",
    53: "The caller may not use the transactional id.",
    54: "The broker has no authorizer.",
    55: "Not tried, because another part of the request failed.",
    56: "The disk failed or is full.",
    57: "The broker has no such log directory.",
    58: "The credentials were refused.",
    59: "The partition remembers nothing of this producer.",
    60: "The partition is being moved.",
    61: "The broker does not use delegation tokens.",
    62: "There is no such delegation token.",
    63: "The delegation token belongs to someone else.",
    64: "Tokens are not given out on such a connection.",
    65: "The caller may not do this with the token.",
    66: "The delegation token has expired.",
    67: "The principal is of a type that cannot be used here.",
    68: "The group still has members.",
    69: "There is no such group.",
    70: "There is no such fetch session; it may have been evicted.",
    71: "The fetch session is at another epoch.",
    72: "The leader has no listener of the name the client used.",
    73: "The broker is configured to keep its topics.",
    74: "The client's leader epoch is out of date.",
    75: "The client's leader epoch is newer than the broker's.",
    76: "This version of the request cannot carry the codec.",
    77: "The broker that asks has registered again since.",
    78: "The new leader does not know its high watermark yet.",
    79: "The member should join again with the id it is given here.",
    80: "The preferred leader is not up.",
    81: "The group is full.",
    82: "Another process has taken over this static member.",
    83: "No replica that could lead is up.",
    84: "The partition already has the leader it should have.",
    85: "The partition is not being moved.",
    86: "The group reads this topic, so its offsets must stay.",
    87: "A record breaks a rule, and its batch was refused.",
    88: "An offset waits for the end of a transaction.",
    89: "The caller is over its quota of changes.",
    90: "A newer instance uses this transactional id.",
    91: "The thing named in the request does not exist.",
    92: "The request names the same thing twice.",
    93: "The credential does not meet the broker's rules.",
    94: "The sender has other voters in mind.",
    95: "The feature cannot be set to this version.",
    96: "A feature could not be updated.",
    97: "A forwarded principal could not be read.",
    98: "There is no such snapshot.",
    99: "The position lies outside the snapshot.",
    100: "No topic has this id.",
    101: "Another broker has registered with this id.",
    102: "No broker has registered with this id.",
    103: "The topic's id is not the one the request knows.",
    104: "The request is meant for another cluster.",
    105: "There is no such transactional id.",
    106: "The fetch session mixes topic names and topic ids.",
    107: "The replica may not become part of the in-sync set.",
    108: "The change led to the election of another leader.",
    109: "The records have moved to remote storage.",
    110: "The coordinator has fenced the member's epoch.",
    111: "The static member's id is still in use.",
    112: "The group cannot use this assignor.",
    113: "The member's epoch is out of date.",
    114: "The request came to a listener of the other kind.",
    115: "The broker does not know this kind of endpoint.",
    116: "No controller has this id.",
    117: "The client's telemetry subscription is out of date.",
    118: "The telemetry is larger than the broker takes.",
    119: "The controller refuses the broker's registration.",
    120: "The transaction must be aborted; the producer may go on.",
    121: "The record cannot be acknowledged in its present state.",
    122: "There is no such share session.",
    123: "The share session is at another epoch.",
    124: "The share partition's state is at a newer epoch.",
    125: "The voter's key is not the one expected.",
    126: "The voter is already in the set.",
    127: "The voter is not in the set.",
    128: "The subscription's regular expression is not valid.",
    129: "The client has found the wrong cluster or node; start afresh.",
    130: "The topology cannot be run.",
    131: "The topology's epoch is not possible.",
    132: "The topology's epoch is out of date.",
    133: "There are as many share sessions as allowed.",
    134: "The group could not be deleted.",
    135: "The topology's text was not stored.",
    136: "No controller has registered with this id.",
}


class KafkaError(Exception):
    """Something a client is told. Carries the code; the text is for the log and new clients."""

    code: ErrorCode = ErrorCode.UNKNOWN_SERVER_ERROR

    def __init__(self, message: str = "", *, code: ErrorCode | None = None) -> None:
        if code is not None:
            self.code = code
        super().__init__(message or self.code.meaning)


class Malformed(Exception):
    """The bytes are not Kafka's. The connection is closed; there is no one to answer."""
