"""Access rules as requests and records carry them: the codes of KIP-11, KIP-290 and KIP-939.

They are plain numbers: a check of access is made for each topic of each request, and members of an
enumeration are dear to hash.
"""

from __future__ import annotations

from protocol.errors import ErrorCode

UNKNOWN, ANY = 0, 1
"""Of every kind of code; neither can stand in a rule."""


class ResourceType:
    """What a rule is about."""

    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5
    DELEGATION_TOKEN = 6
    USER = 7


class PatternType:
    """How a name is meant. In a filter, MATCH asks for all rules that are about a resource."""

    MATCH = 2
    LITERAL = 3
    PREFIXED = 4


class Operation:
    """What is done."""

    ALL = 2
    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12
    CREATE_TOKENS = 13
    DESCRIBE_TOKENS = 14
    TWO_PHASE_COMMIT = 15


class Permission:
    """Whether a rule takes or gives."""

    DENY = 2
    ALLOW = 3


REFUSALS = {
    ResourceType.TOPIC: ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    ResourceType.GROUP: ErrorCode.GROUP_AUTHORIZATION_FAILED,
    ResourceType.CLUSTER: ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    ResourceType.TRANSACTIONAL_ID: ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    ResourceType.DELEGATION_TOKEN: ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED,
}
"""The code for a client that may not do something to a resource of this type."""
OPERATIONS = {
    ResourceType.TOPIC: (
        Operation.READ, Operation.WRITE, Operation.CREATE, Operation.DELETE, Operation.ALTER,
        Operation.DESCRIBE, Operation.DESCRIBE_CONFIGS, Operation.ALTER_CONFIGS,
    ),
    ResourceType.GROUP: (Operation.READ, Operation.DELETE, Operation.DESCRIBE),
    ResourceType.CLUSTER: (
        Operation.CREATE, Operation.ALTER, Operation.DESCRIBE, Operation.CLUSTER_ACTION,
        Operation.DESCRIBE_CONFIGS, Operation.ALTER_CONFIGS, Operation.IDEMPOTENT_WRITE,
    ),
}  # fmt: skip
"""What can be done to the resources of which clients are told what they may do."""
CLUSTER_NAME = "kafka-cluster"
"""The name of the one resource of type CLUSTER."""
WILDCARD = "*"
"""In a rule: the literal name of every resource, and the host of every address."""
WILDCARD_PRINCIPAL = "User:*"

# As tools print them.
RESOURCE_TYPE_NAMES = {
    2: "topic", 3: "group", 4: "cluster", 5: "transactional-id", 6: "delegation-token", 7: "user",
}  # fmt: skip
PATTERN_TYPE_NAMES = {3: "literal", 4: "prefixed"}
OPERATION_NAMES = {
    2: "all", 3: "read", 4: "write", 5: "create", 6: "delete", 7: "alter", 8: "describe",
    9: "cluster-action", 10: "describe-configs", 11: "alter-configs", 12: "idempotent-write",
    13: "create-tokens", 14: "describe-tokens", 15: "two-phase-commit",
}  # fmt: skip
PERMISSION_NAMES = {2: "deny", 3: "allow"}
