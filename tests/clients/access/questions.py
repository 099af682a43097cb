"""What every user asks: one request for each served API, and more where versions or forms differ.

Topics `t` and `u`, groups `g` and `h` and transactional id `x` are there to be asked for together:
single rights are for the first ones. Those that a request removes or makes, `t-doomed` and
`t-new`, are put back before the next user asks.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from protocol.registry import APIS
from tests.support.caller import batch

NOBODY = 12345
"""A producer id that there is not."""
ID = "topic id of "
"""What stands before the name of a topic in place of its id."""


class Question(NamedTuple):
    name: str
    key: int
    version: int
    fields: dict[str, Any]

    @property
    def title(self) -> str:
        return f"{APIS[self.key].name} v{self.version} {self.name}".strip()


def _partitions(*names: str, **fields: Any) -> list[dict[str, Any]]:
    return [{"partitions": [dict(fields)], "name": name} for name in names]


def _by_id(*names: str) -> list[dict[str, Any]]:
    return [{"topic_id": ID + name} for name in names]


def _produce(*topics: dict[str, Any], transactional: bool = False, **more: Any) -> dict[str, Any]:
    options: dict[str, Any] = (
        {"producer_id": NOBODY, "producer_epoch": 0, "base_sequence": 0, "transactional": True}
        if transactional
        else {}
    )
    records = memoryview(batch(b"v", **options))
    sent = [{"index": 0, "records": records}]
    return {
        "acks": -1,
        "timeout_ms": 1000,
        "topic_data": [{**topic, "partition_data": sent} for topic in topics],
        **more,
    }


def _fetch(*topics: dict[str, Any]) -> dict[str, Any]:
    wanted = [{"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1000}]
    return {
        "max_wait_ms": 0,
        "min_bytes": 0,
        "topics": [{**topic, "partitions": wanted} for topic in topics],
    }


def _acl_filter(**fields: Any) -> dict[str, Any]:
    return {
        "resource_type_filter": 2,
        "resource_name_filter": "nothing-has-this-name",
        "principal_filter": None,
        "host_filter": None,
        "operation": 1,
        "permission_type": 1,
        **fields,
    }


BOTH = [{"name": "t"}, {"name": "u"}]
TOPIC, BROKER, LOGGER, GROUP = 2, 4, 8, 32
CONFIGURED = (
    (TOPIC, "t"), (TOPIC, "u"), (TOPIC, "t-missing"), (BROKER, "1"), (LOGGER, "1"), (GROUP, "g"),
)  # fmt: skip
TRANSACTION = {"transactional_id": "x", "producer_id": NOBODY, "producer_epoch": 0}
OFFSET = {"partition_index": 0, "committed_offset": 1, "committed_metadata": ""}
OFFSETS = [{**topic, "partitions": [OFFSET]} for topic in BOTH]
STRANGER = {"group_id": "g", "member_id": "stranger", "generation_id": 1}


def _configs(*kinds: int) -> list[dict[str, Any]]:
    return [
        {"resource_type": kind, "resource_name": name} for kind, name in CONFIGURED if kind in kinds
    ]


def new_topic(name: str) -> dict[str, Any]:
    return {
        "name": name,
        "num_partitions": 1,
        "replication_factor": 1,
        "assignments": [],
        "configs": [],
    }


NEW = [new_topic("t-new")]
UNKNOWN_QUOTA = {
    "entity": [{"entity_type": "user", "entity_name": "nobody"}],
    "ops": [{"key": "producer_byte_rate", "value": 1.0, "remove": True}],
}
RENAMED = {"topic": "t"}, {"topic": "u"}
PLACES = [{"name": "t", "partitions": [0]}, {"name": "u", "partitions": [0]}]
INDEXES = [{"name": name, "partition_indexes": [0]} for name in ("t", "u")]
MISSING = {"name": "t-missing"}

QUESTIONS = [
    Question("", 0, 11, _produce(*BOTH)),
    Question("one topic", 0, 11, _produce(BOTH[0])),
    Question("missing", 0, 11, _produce(MISSING)),
    Question("of ids", 0, 13, _produce(*_by_id("t", "u"))),
    Question(
        "transactional", 0, 11, _produce(BOTH[0], transactional=True, transactional_id="x")
    ),
    Question("old", 0, 3, _produce(*BOTH)),
    Question("", 1, 12, _fetch(*RENAMED)),
    Question("one topic", 1, 12, _fetch(RENAMED[0])),
    Question("missing", 1, 12, _fetch({"topic": "t-missing"})),
    Question("of ids", 1, 16, _fetch(*_by_id("t", "u"))),
    Question("old", 1, 4, _fetch(*RENAMED)),
    Question(
        "", 2, 7,
        {"replica_id": -1, "topics": _partitions("t", "u", "t-missing", partition_index=0,
                                                 timestamp=-1)},
    ),
    Question("all", 3, 12, {"topics": None, "include_topic_authorized_operations": True}),
    Question("all with the cluster", 3, 8, {
        "topics": None, "include_topic_authorized_operations": True,
        "include_cluster_authorized_operations": True,
    }),
    Question("named", 3, 9, {
        "topics": [*BOTH, MISSING], "allow_auto_topic_creation": False,
        "include_topic_authorized_operations": True,
    }),
    Question("of ids", 3, 12, {
        "topics": [{"topic_id": ID + name, "name": None} for name in ("t", "u", "nothing")],
    }),
    Question("to be created", 3, 9, {"topics": [{"name": "t-new"}]}),
    Question("", 8, 8, {
        "group_id": "g", "topics": [*OFFSETS, {**MISSING, "partitions": [OFFSET]}],
    }),
    Question("of ids", 8, 10, {
        "group_id": "g", "topics": [{**one, "partitions": [OFFSET]} for one in _by_id("t", "u")],
    }),
    Question("", 9, 7, {"group_id": "g", "topics": INDEXES}),
    Question("all", 9, 7, {"group_id": "g", "topics": None}),
    Question("groups", 9, 9, {
        "groups": [{"group_id": name, "topics": INDEXES} for name in ("g", "h")],
    }),
    Question("all of groups", 9, 9, {
        "groups": [{"group_id": name, "topics": None} for name in ("g", "h")],
    }),
    Question("of ids", 9, 10, {
        "groups": [{"group_id": "g", "topics": [
            {**one, "partition_indexes": [0]} for one in _by_id("t", "u")
        ]}],
    }),
    Question("group", 10, 3, {"key": "g", "key_type": 0}),
    Question("transaction", 10, 3, {"key": "x", "key_type": 1}),
    Question("groups", 10, 4, {"key_type": 0, "coordinator_keys": ["g", "h"]}),
    Question("transactions", 10, 4, {"key_type": 1, "coordinator_keys": ["x", "y"]}),
    Question("", 11, 7, {
        "group_id": "g", "member_id": "stranger", "session_timeout_ms": 10000,
        "rebalance_timeout_ms": 10000, "protocol_type": "consumer",
        "protocols": [{"name": "range", "metadata": b""}],
    }),
    Question("", 12, 4, STRANGER),
    Question("", 13, 4, {"group_id": "g", "members": [{"member_id": "stranger"}]}),
    Question("old", 13, 1, {"group_id": "g", "member_id": "stranger"}),
    Question("", 14, 4, {**STRANGER, "assignments": []}),
    Question("", 15, 5, {"groups": ["g", "h"], "include_authorized_operations": True}),
    Question("", 16, 4, {}),
    Question("", 19, 7, {"topics": NEW}),
    Question("to be looked at", 19, 7, {"topics": NEW, "validate_only": True}),
    Question("that is there", 19, 7, {"topics": [new_topic("t"), new_topic("u")]}),
    Question("", 20, 5, {"topic_names": ["t-doomed", "t-missing"], "timeout_ms": 9000}),
    Question("of names", 20, 6, {
        "topics": [{"name": "t-doomed", "topic_id": bytes(16)}], "timeout_ms": 9000,
    }),
    Question("of ids", 20, 6, {"topics": _by_id("t-doomed", "nothing"), "timeout_ms": 9000}),
    Question("", 21, 2, {
        "topics": _partitions("t", "t-missing", partition_index=0, offset=0), "timeout_ms": 9000,
    }),
    Question("", 22, 3, {"transactional_id": None, "transaction_timeout_ms": 9000}),
    Question("transactional", 22, 3, {"transactional_id": "x", "transaction_timeout_ms": 9000}),
    Question("", 23, 4, {"topics": [
        {"topic": name, "partitions": [{"partition": 0, "leader_epoch": 0}]}
        for name in ("t", "u", "t-missing")
    ]}),
    Question("", 24, 3, {
        **{f"v3_and_below_{key}": value for key, value in TRANSACTION.items()},
        "v3_and_below_topics": [PLACES[0]],
    }),
    Question("of others", 24, 3, {
        **{f"v3_and_below_{key}": value for key, value in TRANSACTION.items()},
        "v3_and_below_topics": PLACES,
    }),
    Question("of brokers", 24, 4, {"transactions": [{**TRANSACTION, "topics": [PLACES[0]]}]}),
    Question("", 25, 3, {**TRANSACTION, "group_id": "g"}),
    Question("", 26, 3, {**TRANSACTION, "committed": True}),
    Question("", 27, 1, {"markers": [{
        "producer_id": NOBODY, "producer_epoch": 0, "transaction_result": True,
        "coordinator_epoch": 0, "topics": [{"name": "t", "partition_indexes": [77]}],
    }]}),
    Question("", 28, 3, {**TRANSACTION, "group_id": "g", "topics": OFFSETS}),
    Question("", 29, 3, _acl_filter()),
    Question("", 30, 3, {"creations": [{
        "resource_type": 2, "resource_name": "z", "principal": "User:nobody", "host": "*",
        "operation": 3, "permission_type": 3,
    }]}),
    Question("", 31, 3, {"filters": [_acl_filter()]}),
    Question("", 32, 4, {"resources": [
        {**one, "configuration_keys": ["retention.ms"]} for one in _configs(TOPIC, BROKER, LOGGER)
    ]}),
    Question("of groups", 32, 4, {"resources": [
        {**one, "configuration_keys": None} for one in _configs(GROUP)
    ]}),
    Question("", 33, 2, {"resources": [
        {**one, "configs": []} for one in _configs(TOPIC, BROKER)
    ], "validate_only": True}),
    Question("of groups", 33, 2, {"resources": [
        {**one, "configs": []} for one in _configs(GROUP)
    ], "validate_only": True}),
    Question("", 34, 2, {"dirs": [{"path": "/nowhere", "topics": [PLACES[0]]}]}),
    Question("", 35, 4, {"topics": [{"topic": "t", "partitions": [0]}]}),
    Question("old", 35, 1, {"topics": [{"topic": "t", "partitions": [0]}]}),
    Question("", 37, 3, {"topics": [
        {"name": name, "count": 2, "assignments": None} for name in ("t", "u", "t-missing")
    ], "timeout_ms": 9000, "validate_only": True}),
    Question("", 42, 2, {"groups_names": ["g-doomed", "h"]}),
    Question("", 43, 2, {"topic_partitions": [{"topic": "t", "partitions": [0]}]}),
    Question("", 44, 1, {"resources": [
        {**one, "configs": []} for one in _configs(TOPIC, BROKER, LOGGER)
    ], "validate_only": True}),
    Question("of groups", 44, 1, {"resources": [
        {**one, "configs": []} for one in _configs(GROUP)
    ], "validate_only": True}),
    Question("", 45, 0, {"topics": [
        {"name": "t", "partitions": [{"partition_index": 0, "replicas": None}]},
    ]}),
    Question("", 46, 0, {"topics": INDEXES}),
    Question("", 47, 0, {"group_id": "g", "topics": _partitions("t", "u", partition_index=0)}),
    Question("", 48, 1, {"components": [], "strict": False}),
    Question("", 49, 1, {"entries": [UNKNOWN_QUOTA], "validate_only": True}),
    Question("", 50, 0, {"users": [{"name": "nobody"}]}),
    Question("", 51, 0, {"deletions": [{"name": "nobody", "mechanism": 1}], "upsertions": []}),
    Question("", 55, 0, {"topics": [
        {"topic_name": "__cluster_metadata", "partitions": [{"partition_index": 0}]},
    ]}),
    Question("", 57, 1, {"feature_updates": [{"feature": "no.such", "max_version_level": 1}]}),
    Question("", 60, 1, {"include_cluster_authorized_operations": True}),
    Question("", 61, 0, {"topics": [*INDEXES, {**MISSING, "partition_indexes": [0]}]}),
    Question("", 64, 0, {"broker_id": 77}),
    Question("", 65, 0, {"transactional_ids": ["x", "y"]}),
    Question("", 66, 0, {"state_filters": [], "producer_id_filters": []}),
    Question("", 68, 0, {
        "group_id": "k", "member_id": "stranger", "member_epoch": 5, "rebalance_timeout_ms": 9000,
        "subscribed_topic_names": ["t", "u"], "topic_partitions": [],
    }),
    Question("one topic", 68, 0, {
        "group_id": "g", "member_id": "stranger", "member_epoch": 5, "rebalance_timeout_ms": 9000,
        "subscribed_topic_names": ["t"], "topic_partitions": [],
    }),
    Question("", 69, 0, {"group_ids": ["g", "k"], "include_authorized_operations": True}),
    Question("", 74, 0, {}),
    Question("of types", 74, 1, {"resource_types": [TOPIC, GROUP]}),
    Question("", 75, 0, {"topics": [*BOTH, MISSING]}),
    Question("all", 75, 0, {"topics": []}),
]  # fmt: skip

NOT_ASKED = {
    17: "it is asked before anybody is known",
    18: "anybody may ask",
    36: "it is asked before anybody is known",
    38: "tests/clients/test_delegation_tokens.py asks",
    39: "tests/clients/test_delegation_tokens.py asks",
    40: "tests/clients/test_delegation_tokens.py asks",
    41: "tests/clients/test_delegation_tokens.py asks",
    71: "anybody may ask",
    72: "anybody may ask",
}
"""Served APIs without a question."""
