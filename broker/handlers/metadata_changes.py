"""Changes of the cluster's metadata that clients ask for: made durably, or refused with a code."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from broker.metadata.changes import ChangeWait
from protocol.errors import ErrorCode, KafkaError
from protocol.logdata.metadata import record_version

if TYPE_CHECKING:
    from collections.abc import Sequence

    from broker.handlers.context import Context
    from protocol.logdata.metadata import MetadataRecord
    from storage.steps import Steps

MAX_RECORDS = 10_000
"""Records that one request may write at once; Kafka's controller has the same bound. They are one
batch, which followers of the metadata log read as a whole."""


def changed(steps: Steps[Any], ctx: Context) -> ChangeWait:
    """The result of a handler whose answer these steps return when their turn has come."""
    return ChangeWait(ctx.changes, steps, ctx.peer_host)


def make_change(what: str, records: Sequence[MetadataRecord], ctx: Context) -> Steps[None]:
    """Write these records, all or none; they hold at the end. `what` is for the log.

    Raises KafkaError, and then nothing has changed: POLICY_VIOLATION for records that are too many
    or too large, UNSUPPORTED_VERSION for one that the log's metadata.version does not have, and
    KAFKA_STORAGE_ERROR when the disk refuses.
    """
    if not records:
        return
    if len(records) > MAX_RECORDS:
        raise KafkaError(
            f"{len(records)} changes in one request, at most {MAX_RECORDS} are made",
            code=ErrorCode.POLICY_VIOLATION,
        )
    controller = ctx.controller
    try:
        for record in records:
            record_version(record, controller.image.metadata_version)
    except ValueError as error:
        raise KafkaError(str(error), code=ErrorCode.UNSUPPORTED_VERSION) from None
    try:
        yield from controller.append(records)
    except OSError as error:
        ctx.failed(what, error)
        raise KafkaError(
            f"the metadata log can't be written: {error.strerror}",
            code=ErrorCode.KAFKA_STORAGE_ERROR,
        ) from None
    except ValueError as error:
        raise KafkaError(str(error), code=ErrorCode.POLICY_VIOLATION) from None
