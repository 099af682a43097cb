"""Client quotas: who they are for, and which there are. What they do is in `client_quotas`.

An entity is a user, a client id, both, or an IP address; the name None is the default of its type.
What is refused is what Kafka 3.9 refuses, and a few things besides that it should (said below).
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from broker.metadata.client_quotas import CLIENT_ID, IP, USER
from protocol.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from storage.metadata.image import QuotaEntity

ENTITY_TYPES = (USER, CLIENT_ID, IP)

_LONG, _INT = 2**63, 2**31 - 1
_ANY = math.inf
_ROUNDING = 1e-6
"""A whole number may be off by so much, upwards."""

_OF_CLIENTS = {
    "producer_byte_rate": _LONG,
    "consumer_byte_rate": _LONG,
    "request_percentage": _ANY,
    "controller_mutation_rate": _ANY,
}
_OF_ADDRESSES = {"connection_creation_rate": _INT}
"""The keys, with the largest value; the rates of bytes and connections are whole numbers."""


def entity_of(parts: Iterable[tuple[str, str | None]], known: Iterable[QuotaEntity]) -> QuotaEntity:
    """The entity that these (type, name) make. Raises KafkaError (INVALID_REQUEST).

    Unlike Kafka, one type twice is refused, and so is the name of a host in place of an address,
    which would have to be asked for elsewhere; but not where `known` has it, as Kafka wrote it.
    """
    parts = list(parts)
    entity = tuple(sorted(parts, key=lambda part: part[0]))
    kinds = [kind for kind, _ in parts]
    if not parts:
        raise _invalid("a quota is for a user, a client id or an address; none is named")
    for kind, name in parts:
        if kind not in ENTITY_TYPES:
            raise _invalid(f"entity type '{kind}', wanted one of {', '.join(ENTITY_TYPES)}")
        if name == "":
            raise _invalid(f"the name of a {kind} is empty; the default has the name null")
    if len(set(kinds)) < len(kinds):
        raise _invalid("a quota is for one user, one client id; a type is named twice")
    if IP in kinds and len(kinds) > 1:
        raise _invalid("the quota of an address is for nothing else")
    for kind, name in parts:
        if kind == IP and name is not None and entity not in known and not _is_address(name):
            raise _invalid(f"'{name}' is not an IP address")
    return entity


def check_quota(entity: QuotaEntity, key: str, value: float) -> None:
    """Raise KafkaError (INVALID_REQUEST) if such an entity can't have this.

    Unlike Kafka, no quota is NaN.
    """
    limits = _OF_ADDRESSES if entity[0][0] == IP else _OF_CLIENTS
    limit = limits.get(key)
    if limit is None:
        raise _invalid(f"quota '{key}', wanted one of {', '.join(limits)}")
    if not value > 0:
        raise _invalid(f"{key} is {value}, wanted more than 0")
    if value > limit:
        raise _invalid(f"{key} is {value}, at most {limit} is allowed")
    if limit != _ANY and value % 1 > _ROUNDING:
        raise _invalid(f"{key} is {value}, wanted a whole number")


def _is_address(name: str) -> bool:
    from ipaddress import ip_address  # every import delays the start

    try:
        ip_address(name)
    except ValueError:
        return False
    return True


def _invalid(text: str) -> KafkaError:
    return KafkaError(text, code=ErrorCode.INVALID_REQUEST)
