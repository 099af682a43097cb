"""Calls about client quotas, and the entities that they are for."""

from __future__ import annotations

from typing import TYPE_CHECKING

from protocol.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
)
from protocol.messages.describe_client_quotas import (
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
)

if TYPE_CHECKING:
    from tests.support.caller import Caller

#: (entity type, name or None for the default)
Part = tuple[str, str | None]
Quotas = dict[frozenset[Part], dict[str, float]]

EXACT, DEFAULT, ANY = 0, 1, 2


def user(name: str | None) -> Part:
    return "user", name


def client(name: str | None) -> Part:
    return "client-id", name


def ip(name: str | None) -> Part:
    return "ip", name


def entry(*parts: Part, **quotas: float | None) -> AlterClientQuotasRequest.Entry:
    """Quotas of an entity; None takes one away."""
    asked = AlterClientQuotasRequest.Entry
    return asked(
        entity=[asked.Entity(entity_type=kind, entity_name=name) for kind, name in parts],
        ops=[
            asked.Op(key=key, value=value or 0.0, remove=value is None)
            for key, value in quotas.items()
        ],
    )


def alter(
    caller: Caller,
    *entries: AlterClientQuotasRequest.Entry,
    version: int = 1,
    validate_only: bool = False,
) -> list[AlterClientQuotasResponse.Entry]:
    request = AlterClientQuotasRequest(entries=list(entries), validate_only=validate_only)
    answered: list[AlterClientQuotasResponse.Entry] = caller.call(request, version).entries
    for one in answered:
        assert bool(one.error_message) == bool(one.error_code)
    return answered


def component(
    kind: str, match_type: int, name: str | None = None
) -> DescribeClientQuotasRequest.Component:
    return DescribeClientQuotasRequest.Component(
        entity_type=kind, match_type=match_type, match=name
    )


def describe(
    caller: Caller,
    *components: DescribeClientQuotasRequest.Component,
    strict: bool = False,
    version: int = 1,
) -> DescribeClientQuotasResponse:
    request = DescribeClientQuotasRequest(components=list(components), strict=strict)
    answer: DescribeClientQuotasResponse = caller.call(request, version)
    return answer


def quotas_in(answer: DescribeClientQuotasResponse) -> Quotas:
    assert answer.error_code == 0, answer.error_message
    assert answer.entries is not None
    return {
        frozenset((part.entity_type, part.entity_name) for part in one.entity): {
            quota.key: quota.value for quota in one.values
        }
        for one in answer.entries
    }
