"""Codes that an old client has never heard of are told in words that it knows."""

from __future__ import annotations

import pytest

from protocol.eras import (
    DELETE_TOPICS,
    HEARTBEAT,
    OFFSET_COMMIT,
    OFFSET_FETCH,
    SUBSTITUTES,
    SYNC_GROUP,
    code_for,
)
from protocol.errors import ErrorCode
from protocol.registry import APIS

Code = ErrorCode


@pytest.mark.parametrize(
    ("api", "version", "code", "sent"),
    [
        (OFFSET_COMMIT, 8, Code.GROUP_ID_NOT_FOUND, Code.ILLEGAL_GENERATION),
        (OFFSET_COMMIT, 9, Code.GROUP_ID_NOT_FOUND, Code.GROUP_ID_NOT_FOUND),
        (OFFSET_COMMIT, 8, Code.STALE_MEMBER_EPOCH, Code.UNSUPPORTED_VERSION),
        (OFFSET_COMMIT, 9, Code.STALE_MEMBER_EPOCH, Code.STALE_MEMBER_EPOCH),
        (OFFSET_COMMIT, 0, Code.FENCED_MEMBER_EPOCH, Code.UNSUPPORTED_VERSION),
        (OFFSET_COMMIT, 10, Code.FENCED_MEMBER_EPOCH, Code.FENCED_MEMBER_EPOCH),
        (OFFSET_COMMIT, 0, Code.COORDINATOR_LOAD_IN_PROGRESS, Code.COORDINATOR_LOAD_IN_PROGRESS),
        (OFFSET_FETCH, 0, Code.COORDINATOR_LOAD_IN_PROGRESS, Code.COORDINATOR_LOAD_IN_PROGRESS),
        (HEARTBEAT, 4, Code.COORDINATOR_LOAD_IN_PROGRESS, Code.NONE),
        (HEARTBEAT, 0, Code.UNKNOWN_MEMBER_ID, Code.UNKNOWN_MEMBER_ID),
        (SYNC_GROUP, 5, Code.COORDINATOR_LOAD_IN_PROGRESS, Code.REBALANCE_IN_PROGRESS),
        (DELETE_TOPICS, 2, Code.TOPIC_DELETION_DISABLED, Code.INVALID_REQUEST),
        (DELETE_TOPICS, 3, Code.TOPIC_DELETION_DISABLED, Code.TOPIC_DELETION_DISABLED),
    ],
)
def test_each_version_gets_a_code_of_its_time(
    api: int, version: int, code: ErrorCode, sent: ErrorCode
) -> None:
    assert code_for(api, version, code) == sent


def test_every_substitute_is_for_an_api_that_exists_and_is_another_code() -> None:
    for (key, code), (_, instead) in SUBSTITUTES.items():
        assert key in APIS
        assert instead != code
