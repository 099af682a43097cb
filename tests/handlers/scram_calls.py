"""Calls about SCRAM credentials."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
)
from protocol.messages.describe_user_scram_credentials import (
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
)

if TYPE_CHECKING:
    from tests.support.caller import Caller

SHA_256, SHA_512 = 1, 2

Deletion = AlterUserScramCredentialsRequest.Deletion
Upsertion = AlterUserScramCredentialsRequest.Upsertion


def password(name: str, mechanism: int = SHA_256, **facts: Any) -> Upsertion:
    whole = {"iterations": 4096, "salt": b"salt", "salted_password": bytes(32), **facts}
    return Upsertion(name=name, mechanism=mechanism, **whole)


def no_password(name: str, mechanism: int = SHA_256) -> Deletion:
    return Deletion(name=name, mechanism=mechanism)


def alter(caller: Caller, *changes: Upsertion | Deletion) -> dict[str, int]:
    """The code that each user is told, and each is told one."""
    request = AlterUserScramCredentialsRequest(
        deletions=[one for one in changes if isinstance(one, Deletion)],
        upsertions=[one for one in changes if isinstance(one, Upsertion)],
    )
    results: list[AlterUserScramCredentialsResponse.User] = caller.call(request, 0).results
    found = {result.user: result.error_code for result in results}
    assert len(found) == len(results)
    assert all(bool(result.error_message) == bool(result.error_code) for result in results)
    return found


def describe(
    caller: Caller, *names: str, everybody: list[Any] | None = None
) -> list[DescribeUserScramCredentialsResponse.User]:
    """What is said of these users; without any, of `everybody`: null or an empty list."""
    users = [DescribeUserScramCredentialsRequest.User(name=name) for name in names] or everybody
    answer = caller.call(DescribeUserScramCredentialsRequest(users=users), 0)
    assert answer.error_code == 0
    results: list[DescribeUserScramCredentialsResponse.User] = answer.results
    return results


def credentials(caller: Caller, name: str) -> dict[int, int]:
    """Mechanisms and iterations of a user."""
    (found,) = describe(caller, name)
    return {info.mechanism: info.iterations for info in found.credential_infos}
