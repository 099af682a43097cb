"""The error codes that clients of each age know.

A client takes a code that is younger than itself for "unknown", which is fatal to it. So where a
younger code would be the right one, an older client gets the nearest that it knows.
"""

from __future__ import annotations

from protocol.errors import ErrorCode

PRODUCE, FETCH, LIST_OFFSETS, METADATA = 0, 1, 2, 3
OFFSET_COMMIT, OFFSET_FETCH = 8, 9
HEARTBEAT, SYNC_GROUP = 12, 14
DELETE_TOPICS = 20
INIT_PRODUCER_ID = 22
ADD_PARTITIONS_TO_TXN, ADD_OFFSETS_TO_TXN, END_TXN = 24, 25, 26
TXN_OFFSET_COMMIT = 28

NEVER = 2**15 - 1
"""For a code that no version of this API may have."""

SUBSTITUTES: dict[tuple[int, int], tuple[int, int]] = {
    (PRODUCE, ErrorCode.KAFKA_STORAGE_ERROR): (4, ErrorCode.NOT_LEADER_OR_FOLLOWER),
    (PRODUCE, ErrorCode.INVALID_RECORD): (8, ErrorCode.CORRUPT_MESSAGE),
    (PRODUCE, ErrorCode.TRANSACTION_ABORTABLE): (11, ErrorCode.INVALID_TXN_STATE),
    (FETCH, ErrorCode.KAFKA_STORAGE_ERROR): (6, ErrorCode.NOT_LEADER_OR_FOLLOWER),
    (LIST_OFFSETS, ErrorCode.OFFSET_NOT_AVAILABLE): (5, ErrorCode.LEADER_NOT_AVAILABLE),
    (METADATA, ErrorCode.LISTENER_NOT_FOUND): (6, ErrorCode.LEADER_NOT_AVAILABLE),
    (OFFSET_COMMIT, ErrorCode.GROUP_ID_NOT_FOUND): (9, ErrorCode.ILLEGAL_GENERATION),
    (OFFSET_COMMIT, ErrorCode.STALE_MEMBER_EPOCH): (9, ErrorCode.UNSUPPORTED_VERSION),
    (OFFSET_COMMIT, ErrorCode.FENCED_MEMBER_EPOCH): (9, ErrorCode.UNSUPPORTED_VERSION),
    (HEARTBEAT, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS): (NEVER, ErrorCode.NONE),
    (SYNC_GROUP, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS): (
        NEVER,
        ErrorCode.REBALANCE_IN_PROGRESS,
    ),
    (INIT_PRODUCER_ID, ErrorCode.PRODUCER_FENCED): (4, ErrorCode.INVALID_PRODUCER_EPOCH),
    (ADD_PARTITIONS_TO_TXN, ErrorCode.PRODUCER_FENCED): (2, ErrorCode.INVALID_PRODUCER_EPOCH),
    (ADD_OFFSETS_TO_TXN, ErrorCode.PRODUCER_FENCED): (2, ErrorCode.INVALID_PRODUCER_EPOCH),
    (END_TXN, ErrorCode.PRODUCER_FENCED): (2, ErrorCode.INVALID_PRODUCER_EPOCH),
    (TXN_OFFSET_COMMIT, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS): (
        2,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ),
    (TXN_OFFSET_COMMIT, ErrorCode.TRANSACTION_ABORTABLE): (4, ErrorCode.INVALID_TXN_STATE),
    (DELETE_TOPICS, ErrorCode.TOPIC_DELETION_DISABLED): (3, ErrorCode.INVALID_REQUEST),
}
"""(API, code) -> the first version that knows the code, and what older versions get instead."""


def code_for(key: int, version: int, code: int) -> int:
    """The code to send in this version of this API."""
    since, older = SUBSTITUTES.get((key, code), (0, code))
    return code if version >= since else older
