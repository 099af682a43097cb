"""What each API asks of the authorizer.

A check that decides about a whole request is made here, before its handler is called. One that is
made for each topic, group or transactional id of a request is in the handler, which answers the
others all the same; it stands here so that nobody has to look for it (docs/access.md is made of
this table).

An API that is not in the table is answered to nobody while there is an authorizer. What is asked on
the listeners of the controller alone is checked by its handlers (`ON_CONTROLLERS`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from protocol.acls import CLUSTER_NAME, Operation, ResourceType
from protocol.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from broker.handlers.context import Context
    from protocol.connection import Request

    Handler = Callable[[Request, Context], Any]


class Check(NamedTuple):
    """An operation on a resource. `name` finds its name in a request that is refused as a whole;
    None where the handler checks each of those that are named. `note` is for the page."""

    operation: int
    resource_type: int
    name: Callable[[Any], str | None] | None = None
    note: str = ""


def _cluster(operation: int) -> Check:
    return Check(operation, ResourceType.CLUSTER, lambda message: CLUSTER_NAME)


def _group(operation: int) -> Check:
    return Check(operation, ResourceType.GROUP, lambda message: message.group_id)


def _transactional_id(operation: int) -> Check:
    return Check(operation, ResourceType.TRANSACTIONAL_ID, lambda message: message.transactional_id)


def _each(operation: int, resource_type: int, note: str = "") -> Check:
    return Check(operation, resource_type, None, note)


_USER = ResourceType.USER
_TOPIC, _GROUP, _ID = ResourceType.TOPIC, ResourceType.GROUP, ResourceType.TRANSACTIONAL_ID

CHECKS: dict[int, tuple[Check, ...]] = {
    0: (
        Check(Operation.WRITE, _ID, None, "if the request names one: nothing of it is stored else"),
        _each(Operation.WRITE, _TOPIC),
    ),
    1: (_each(Operation.READ, _TOPIC),),
    2: (_each(Operation.DESCRIBE, _TOPIC),),
    3: (
        _each(Operation.DESCRIBE, _TOPIC, "without it a topic is not there"),
        _each(Operation.CREATE, _TOPIC, "to create what is missing; or the next"),
        Check(Operation.CREATE, ResourceType.CLUSTER),
    ),
    8: (_group(Operation.READ), _each(Operation.READ, _TOPIC)),
    9: (_each(Operation.DESCRIBE, _GROUP), _each(Operation.DESCRIBE, _TOPIC)),
    10: (
        _each(Operation.DESCRIBE, _GROUP, "looking for the coordinator of a group"),
        _each(Operation.DESCRIBE, _ID, "looking for that of a transactional id"),
    ),
    11: (_group(Operation.READ),),
    12: (_group(Operation.READ),),
    13: (_group(Operation.READ),),
    14: (_group(Operation.READ),),
    15: (_each(Operation.DESCRIBE, _GROUP),),
    16: (
        _each(Operation.DESCRIBE, _GROUP, "without it a group is not there"),
        Check(Operation.DESCRIBE, ResourceType.CLUSTER, None, "instead, for every group"),
    ),
    17: (),
    18: (),
    19: (
        _each(Operation.CREATE, _TOPIC, "or the next"),
        Check(Operation.CREATE, ResourceType.CLUSTER),
        _each(Operation.DESCRIBE_CONFIGS, _TOPIC, "to be told the settings of the new topic"),
    ),
    20: (
        _each(Operation.DESCRIBE, _TOPIC, "else it is not there"),
        _each(Operation.DELETE, _TOPIC),
        Check(Operation.DELETE, ResourceType.CLUSTER, None, "instead of both, for every topic"),
    ),
    21: (_each(Operation.DELETE, _TOPIC),),
    22: (
        Check(Operation.WRITE, _ID, None, "if the request names one"),
        Check(Operation.TWO_PHASE_COMMIT, _ID, None, "if it wants two-phase commits"),
        Check(
            Operation.IDEMPOTENT_WRITE,
            ResourceType.CLUSTER,
            None,
            "if it names none; the right to write to any topic will do",
        ),
    ),
    23: (
        _each(Operation.DESCRIBE, _TOPIC),
        Check(Operation.CLUSTER_ACTION, ResourceType.CLUSTER, None, "instead, for every topic"),
    ),
    24: (
        _each(Operation.WRITE, _ID, "up to version 3"),
        _each(Operation.WRITE, _TOPIC, "up to version 3"),
        Check(Operation.CLUSTER_ACTION, ResourceType.CLUSTER, None, "from version 4 on, alone"),
    ),
    25: (_transactional_id(Operation.WRITE), _group(Operation.READ)),
    26: (_transactional_id(Operation.WRITE),),
    27: (
        Check(Operation.CLUSTER_ACTION, ResourceType.CLUSTER, None, "or the next"),
        Check(Operation.ALTER, ResourceType.CLUSTER),
    ),
    28: (
        _transactional_id(Operation.WRITE),
        _group(Operation.READ),
        _each(Operation.READ, _TOPIC),
    ),
    29: (_cluster(Operation.DESCRIBE),),
    30: (_cluster(Operation.ALTER),),
    31: (_cluster(Operation.ALTER),),
    32: (
        _each(Operation.DESCRIBE_CONFIGS, _TOPIC, "settings of topics"),
        _each(Operation.DESCRIBE_CONFIGS, _GROUP, "settings of groups"),
        Check(Operation.DESCRIBE_CONFIGS, ResourceType.CLUSTER, None, "all other settings"),
    ),
    33: (
        _each(Operation.ALTER_CONFIGS, _TOPIC, "settings of topics"),
        _each(Operation.ALTER_CONFIGS, _GROUP, "settings of groups"),
        Check(Operation.ALTER_CONFIGS, ResourceType.CLUSTER, None, "all other settings"),
    ),
    34: (_cluster(Operation.ALTER),),
    35: (_cluster(Operation.DESCRIBE),),
    36: (),
    37: (_each(Operation.ALTER, _TOPIC),),
    38: (_each(Operation.CREATE_TOKENS, _USER, "for a token of another owner"),),
    39: (),
    40: (),
    41: (
        _each(Operation.DESCRIBE, ResourceType.DELEGATION_TOKEN, "tokens of others; or the next"),
        _each(Operation.DESCRIBE_TOKENS, _USER, "the owner of a token"),
    ),
    42: (_each(Operation.DELETE, _GROUP),),
    43: (_cluster(Operation.ALTER),),
    44: (
        _each(Operation.ALTER_CONFIGS, _TOPIC, "settings of topics"),
        _each(Operation.ALTER_CONFIGS, _GROUP, "settings of groups"),
        Check(Operation.ALTER_CONFIGS, ResourceType.CLUSTER, None, "all other settings"),
    ),
    45: (_cluster(Operation.ALTER),),
    46: (_cluster(Operation.DESCRIBE),),
    47: (_group(Operation.DELETE), _each(Operation.READ, _TOPIC)),
    48: (_cluster(Operation.DESCRIBE_CONFIGS),),
    49: (_cluster(Operation.ALTER_CONFIGS),),
    50: (_cluster(Operation.DESCRIBE),),
    51: (_cluster(Operation.ALTER),),
    55: (_cluster(Operation.DESCRIBE),),
    57: (_cluster(Operation.ALTER),),
    60: (
        Check(Operation.DESCRIBE, ResourceType.CLUSTER, None, "to be told what one may do to it"),
    ),
    61: (_each(Operation.READ, _TOPIC),),
    64: (_cluster(Operation.ALTER),),
    65: (_each(Operation.DESCRIBE, _ID),),
    66: (_each(Operation.DESCRIBE, _ID, "without it an id is not there"),),
    68: (
        _group(Operation.READ),
        _each(
            Operation.DESCRIBE, _TOPIC, "those of a subscription; an expression matches no other"
        ),
    ),
    69: (
        _each(Operation.DESCRIBE, _GROUP),
        _each(Operation.DESCRIBE, _TOPIC, "all that the members read"),
    ),
    71: (),
    72: (),
    74: (_cluster(Operation.DESCRIBE_CONFIGS),),
    75: (_each(Operation.DESCRIBE, _TOPIC, "without it a topic is not there"),),
}
"""By the key of the API; none where everybody may ask."""


ON_CONTROLLERS: dict[int, tuple[Check, ...]] = {
    1: (Check(Operation.CLUSTER_ACTION, ResourceType.CLUSTER),),
    59: (Check(Operation.CLUSTER_ACTION, ResourceType.CLUSTER),),
    60: (Check(Operation.ALTER, ResourceType.CLUSTER),),
}
"""What is asked otherwise, or only, on the listeners of the controller; by the handlers."""

WHOLE = {
    key: tuple((check, check.name) for check in checks if check.name is not None)
    for key, checks in (ON_CONTROLLERS | CHECKS).items()
}
"""The checks that are made here."""


def guarded(handlers: Mapping[int, Handler]) -> dict[int, Handler]:
    """A table of handlers with these checks before each, for a broker that has an authorizer. What
    has none of them is called as before."""
    return {key: _guarded(key, handler) for key, handler in handlers.items()}


def _guarded(key: int, handler: Handler) -> Handler:
    checks = WHOLE.get(key)
    if checks is None:
        return _refuse
    if not checks:
        return handler

    def checked(request: Request, ctx: Context) -> Any:
        for check, name_in in checks:
            name = name_in(request.general_message())
            if name is not None:
                ctx.require(check.operation, check.resource_type, name)
        return handler(request, ctx)

    return checked


def _refuse(request: Request, ctx: Context) -> Any:
    raise KafkaError(
        f"{request.route.api.name} is not in the table of access",
        code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    )
