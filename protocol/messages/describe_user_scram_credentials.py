"""DescribeUserScramCredentials (50): which users have SCRAM credentials; never the secrets.

0  the first
"""

from __future__ import annotations

from protocol.schema import Message, Struct, array, int8, int16, int32, string


class DescribeUserScramCredentialsRequest(Message, key=50, versions="0", flexible="0+"):
    class User(Struct):
        name: str = string()

    # Null or empty is all.
    users: list[User] | None = array(User, nullable="")


class DescribeUserScramCredentialsResponse(Message, key=50, versions="0", flexible="0+"):
    class User(Struct):
        class CredentialInfo(Struct):
            # 1 SCRAM-SHA-256, 2 SCRAM-SHA-512.
            mechanism: int = int8()
            iterations: int = int32()

        user: str = string()
        error_code: int = int16()
        error_message: str | None = string(nullable="", default=None)
        credential_infos: list[CredentialInfo] = array(CredentialInfo)

    throttle_time_ms: int = int32(default=0)
    error_code: int = int16()
    error_message: str | None = string(nullable="", default=None)
    results: list[User] = array(User)


def refused(
    request: DescribeUserScramCredentialsRequest, code: int
) -> DescribeUserScramCredentialsResponse:
    """An answer of an error and no users."""
    return DescribeUserScramCredentialsResponse(error_code=code, results=[])
