"""AlterUserScramCredentials: what users' passwords are checked against is set or taken away.

The client salts the password; what is kept are the two keys that follow from it (RFC 5802, 3), from
which it can't be had back. A user can be named once in a request, whatever the mechanism: the codes
and their order are those of Kafka 3.9.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.handlers.metadata_changes import changed, make_change
from broker.security.credentials import MAX_ITERATIONS
from broker.security.sasl.scram import (
    MIN_ITERATIONS,
    SHA_256,
    SHA_512,
    credential_of_salted,
)
from protocol.errors import ErrorCode, KafkaError
from protocol.logdata.metadata import RemoveUserScramCredentialRecord, UserScramCredentialRecord
from protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
)

if TYPE_CHECKING:
    from broker.handlers.context import Context
    from broker.metadata.changes import ChangeWait
    from protocol.connection import Request
    from protocol.logdata.metadata import MetadataRecord
    from storage.steps import Steps

ALGORITHMS = {one.number: one for one in (SHA_256, SHA_512)}
"""By Kafka's numbers of the mechanisms."""

Deletion = AlterUserScramCredentialsRequest.Deletion
Upsertion = AlterUserScramCredentialsRequest.Upsertion
UserResult = AlterUserScramCredentialsResponse.User


def alter_user_scram_credentials(request: Request, ctx: Context) -> ChangeWait:
    return changed(_answer(request, ctx), ctx)


def _answer(request: Request, ctx: Context) -> Steps[AlterUserScramCredentialsResponse]:
    message: AlterUserScramCredentialsRequest = request.message
    entries: dict[str, UserResult] = {}
    changes: dict[str, MetadataRecord] = {}
    every: list[Deletion | Upsertion] = [*message.deletions, *message.upsertions]
    for asked in every:
        name = asked.name
        if name not in entries:
            entries[name] = UserResult(user=name, error_code=ErrorCode.NONE)
        elif entries[name].error_code:
            continue  # the first fault of a user is the one that is told
        try:
            if changes.pop(name, None) is not None:
                raise KafkaError(
                    "a user can be changed once in a request", code=ErrorCode.DUPLICATE_RESOURCE
                )
            changes[name] = _change(asked, ctx)
        except KafkaError as error:
            entries[name].error_code, entries[name].error_message = error.code, str(error)
    try:
        yield from make_change("changing credentials", list(changes.values()), ctx)
    except KafkaError as error:
        for name in changes:
            entries[name].error_code, entries[name].error_message = error.code, str(error)
    return AlterUserScramCredentialsResponse(results=list(entries.values()))


def _change(asked: Deletion | Upsertion, ctx: Context) -> MetadataRecord:
    """The record that makes the change. Raises KafkaError."""
    if not asked.name:
        raise _unacceptable("the name of a user is empty")
    if asked.mechanism not in ALGORITHMS:
        raise KafkaError(
            f"mechanism {asked.mechanism}, wanted 1 (SCRAM-SHA-256) or 2 (SCRAM-SHA-512)",
            code=ErrorCode.UNSUPPORTED_SASL_MECHANISM,
        )
    if isinstance(asked, Upsertion):
        return _credential(asked)
    if (asked.name, asked.mechanism) not in ctx.controller.image.scram_credentials:
        raise KafkaError(
            f"user '{asked.name}' has no such credential", code=ErrorCode.RESOURCE_NOT_FOUND
        )
    return RemoveUserScramCredentialRecord(name=asked.name, mechanism=asked.mechanism)


def _credential(asked: Upsertion) -> UserScramCredentialRecord:
    if not MIN_ITERATIONS <= asked.iterations <= MAX_ITERATIONS:
        raise _unacceptable(
            f"{asked.iterations} iterations, wanted {MIN_ITERATIONS} to {MAX_ITERATIONS}"
        )
    if not asked.salted_password:
        raise _unacceptable("the salted password is empty")  # Kafka fails with a fault of its own
    made = credential_of_salted(
        ALGORITHMS[asked.mechanism],
        bytes(asked.salted_password),
        bytes(asked.salt),
        asked.iterations,
    )
    return UserScramCredentialRecord(
        name=asked.name,
        mechanism=asked.mechanism,
        salt=made.salt,
        stored_key=made.stored_key,
        server_key=made.server_key,
        iterations=made.iterations,
    )


def _unacceptable(text: str) -> KafkaError:
    return KafkaError(text, code=ErrorCode.UNACCEPTABLE_CREDENTIAL)
