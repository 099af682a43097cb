"""AlterClientQuotas: quotas are set and taken away. They hold from the next request on.

All changes of an entity are made or none, and those of a request that can be made are made at once.
An entity or a key that comes twice is refused; of the former Kafka makes the first change and
says that it made none.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.handlers.metadata_changes import changed, make_change
from broker.metadata.quotas import check_quota, entity_of
from protocol.errors import ErrorCode, KafkaError
from protocol.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
)
from storage.metadata.image import quota_record

if TYPE_CHECKING:
    from broker.handlers.context import Context
    from broker.metadata.changes import ChangeWait
    from protocol.connection import Request
    from protocol.logdata.metadata import MetadataRecord
    from storage.metadata.image import QuotaEntity
    from storage.steps import Steps

Asked = AlterClientQuotasRequest.Entry
Entry = AlterClientQuotasResponse.Entry


def alter_client_quotas(request: Request, ctx: Context) -> ChangeWait:
    return changed(_answer(request, ctx), ctx)


def _answer(request: Request, ctx: Context) -> Steps[AlterClientQuotasResponse]:
    message: AlterClientQuotasRequest = request.message
    entries: dict[QuotaEntity, Entry] = {}
    changes: dict[QuotaEntity, list[MetadataRecord]] = {}
    for asked in message.entries:
        parts = tuple((one.entity_type, one.entity_name) for one in asked.entity)
        named = tuple(sorted(parts, key=lambda part: part[0]))
        twice = named in entries
        entries[named] = entry = Entry(
            error_code=ErrorCode.NONE,
            entity=[Entry.Entity(entity_type=kind, entity_name=name) for kind, name in parts],
        )
        try:
            if twice:
                changes.pop(named, None)
                raise KafkaError("this entity is named twice", code=ErrorCode.INVALID_REQUEST)
            changes[named] = _changes(parts, asked.ops, ctx)
        except KafkaError as error:
            entry.error_code, entry.error_message = error.code, str(error)
    if not message.validate_only:
        try:
            records = [record for of_entity in changes.values() for record in of_entity]
            yield from make_change("changing quotas", records, ctx)
        except KafkaError as error:
            for named in changes:
                entries[named].error_code = error.code
                entries[named].error_message = str(error)
    return AlterClientQuotasResponse(entries=list(entries.values()))


def _changes(
    parts: tuple[tuple[str, str | None], ...], ops: list[Asked.Op], ctx: Context
) -> list[MetadataRecord]:
    """The records that make these changes: none for what is as wanted. Raises KafkaError."""
    quotas = ctx.controller.image.client_quotas
    entity = entity_of(parts, quotas)
    now = quotas.get(entity, {})
    wanted: dict[str, float | None] = {}
    for op in ops:
        if op.key in wanted:
            raise KafkaError(f"{op.key} is named twice", code=ErrorCode.INVALID_REQUEST)
        if not op.remove:
            check_quota(entity, op.key, op.value)
        wanted[op.key] = None if op.remove else op.value
    return [
        quota_record(entity, key, value) for key, value in wanted.items() if now.get(key) != value
    ]
