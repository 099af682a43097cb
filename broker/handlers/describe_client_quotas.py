"""DescribeClientQuotas: the quotas that are set, of the entities that a filter lets through.

An entity passes if every component matches; `strict` lets no entity through that has a type besides
those of the components.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.metadata.client_quotas import IP
from broker.metadata.quotas import ENTITY_TYPES
from protocol.errors import ErrorCode, KafkaError
from protocol.messages.describe_client_quotas import (
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
)

if TYPE_CHECKING:
    from broker.handlers.context import Context
    from protocol.connection import Request
    from storage.metadata.image import QuotaEntity

EXACT, DEFAULT, ANY = 0, 1, 2

Component = DescribeClientQuotasRequest.Component
Entry = DescribeClientQuotasResponse.Entry


def describe_client_quotas(request: Request, ctx: Context) -> DescribeClientQuotasResponse:
    message: DescribeClientQuotasRequest = request.message
    try:
        wanted: dict[str, Component] = {}
        for component in message.components:
            _check(component, wanted)
            wanted[component.entity_type] = component
    except KafkaError as error:
        return DescribeClientQuotasResponse(
            error_code=error.code, error_message=str(error), entries=None
        )
    return DescribeClientQuotasResponse(
        error_code=ErrorCode.NONE,
        entries=[
            Entry(
                entity=[Entry.Entity(entity_type=kind, entity_name=name) for kind, name in entity],
                values=[Entry.Value(key=key, value=value) for key, value in quotas.items()],
            )
            for entity, quotas in ctx.controller.image.client_quotas.items()
            if _passes(entity, wanted, strict=message.strict)
        ],
    )


def _check(component: Component, before: dict[str, Component]) -> None:
    kind, match_type, name = component.entity_type, component.match_type, component.match
    if not kind:
        raise _invalid("the type of an entity is empty")
    if kind in before:
        raise _invalid(f"entity type '{kind}' is in the filter twice")
    if kind not in ENTITY_TYPES:
        raise KafkaError(
            f"entity type '{kind}', wanted one of {', '.join(ENTITY_TYPES)}",
            code=ErrorCode.UNSUPPORTED_VERSION,
        )
    if match_type not in (EXACT, DEFAULT, ANY):
        raise _invalid(f"match type {match_type}, wanted {EXACT} to {ANY}")
    if (name is None) == (match_type == EXACT):
        raise _invalid(f"match type {match_type} with the name {name!r}: {EXACT} alone has one")
    if before and IP in (kind, *before):
        raise _invalid("the quota of an address is for nothing else")


def _passes(entity: QuotaEntity, wanted: dict[str, Component], *, strict: bool) -> bool:
    names = dict(entity)
    if strict and names.keys() != wanted.keys():
        return False
    return all(
        kind in names
        and (component.match_type == ANY or names[kind] == component.match)  # DEFAULT: None
        for kind, component in wanted.items()
    )


def _invalid(text: str) -> KafkaError:
    return KafkaError(text, code=ErrorCode.INVALID_REQUEST)
