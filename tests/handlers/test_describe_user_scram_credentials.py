"""DescribeUserScramCredentials, version 0. The codes are what Apache Kafka 3.9 answers."""

from __future__ import annotations

from typing import Any

import pytest

from protocol.errors import ErrorCode
from protocol.messages.describe_user_scram_credentials import DescribeUserScramCredentialsRequest
from tests.handlers.scram_calls import SHA_256, SHA_512, alter, describe, password
from tests.support.caller import Caller

SECRET = bytes(range(100, 132))
SALT = b"a salt that is not told"


@pytest.fixture(autouse=True)
def _users(caller: Caller) -> None:
    alter(caller, password("alice", salt=SALT, salted_password=SECRET), password("bob", SHA_512))
    alter(caller, password("alice", SHA_512, iterations=16384))


@pytest.mark.parametrize("everybody", [None, []])
def test_null_and_an_empty_list_are_everybody(caller: Caller, everybody: list[Any] | None) -> None:
    found = {
        result.user: [(info.mechanism, info.iterations) for info in result.credential_infos]
        for result in describe(caller, everybody=everybody)
    }

    assert found == {"alice": [(SHA_256, 4096), (SHA_512, 16384)], "bob": [(SHA_512, 4096)]}


def test_users_are_told_one_by_one_with_a_code_each(caller: Caller) -> None:
    found = describe(caller, "nobody", "alice", "bob", "bob", "twice", "twice", "")

    missing, twice = ErrorCode.RESOURCE_NOT_FOUND, ErrorCode.DUPLICATE_RESOURCE
    assert [(one.user, one.error_code, len(one.credential_infos)) for one in found] == [
        ("nobody", missing, 0),
        ("alice", 0, 2),
        ("bob", twice, 0),
        ("twice", twice, 0),
        ("", missing, 0),
    ]
    assert all(bool(one.error_message) == bool(one.error_code) for one in found)


def test_no_key_and_no_salt_is_ever_told(caller: Caller) -> None:
    sent = caller.send(DescribeUserScramCredentialsRequest(users=None), 0)
    frame = caller.recv_frame()

    assert frame.startswith(sent.to_bytes(4, "big"))
    assert b"alice" in frame
    assert SALT not in frame
    assert SECRET not in frame
    assert len(frame) < 100, "there is no room for a key in it"
