"""AlterUserScramCredentials (51): SCRAM credentials are set or taken away.

0  the first
"""

from __future__ import annotations

from protocol.schema import Message, Struct, array, binary, int8, int16, int32, string


class AlterUserScramCredentialsRequest(Message, key=51, versions="0", flexible="0+"):
    class Deletion(Struct):
        name: str = string()
        mechanism: int = int8()

    class Upsertion(Struct):
        name: str = string()
        # 1 SCRAM-SHA-256, 2 SCRAM-SHA-512.
        mechanism: int = int8()
        iterations: int = int32()
        salt: bytes = binary()
        salted_password: bytes = binary()

    deletions: list[Deletion] = array(Deletion)
    upsertions: list[Upsertion] = array(Upsertion)


class AlterUserScramCredentialsResponse(Message, key=51, versions="0", flexible="0+"):
    class User(Struct):
        user: str = string()
        error_code: int = int16()
        error_message: str | None = string(nullable="", default=None)

    throttle_time_ms: int = int32(default=0)
    results: list[User] = array(User)


def refused(
    request: AlterUserScramCredentialsRequest, code: int
) -> AlterUserScramCredentialsResponse:
    """The answer in which every user named, once each, meets the same error."""
    names = [asked.name for asked in request.deletions]
    names += [asked.name for asked in request.upsertions]
    return AlterUserScramCredentialsResponse(
        results=[
            AlterUserScramCredentialsResponse.User(user=name, error_code=code)
            for name in dict.fromkeys(names)
        ]
    )
