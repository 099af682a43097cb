"""AlterClientQuotas (49): the rates that users and clients are held to are set or taken away.

0  the first
1  flexible
"""

from __future__ import annotations

from protocol.schema import Message, Struct, array, boolean, float64, int16, int32, string


class AlterClientQuotasRequest(Message, key=49, versions="0-1", flexible="1+"):
    class Entry(Struct):
        class Entity(Struct):
            entity_type: str = string()
            # Null is the default.
            entity_name: str | None = string(nullable="")

        class Op(Struct):
            key: str = string()
            value: float = float64()
            remove: bool = boolean()

        entity: list[Entity] = array(Entity)
        ops: list[Op] = array(Op)

    entries: list[Entry] = array(Entry)
    validate_only: bool = boolean()


class AlterClientQuotasResponse(Message, key=49, versions="0-1", flexible="1+"):
    class Entry(Struct):
        class Entity(Struct):
            entity_type: str = string()
            entity_name: str | None = string(nullable="")

        error_code: int = int16()
        error_message: str | None = string(nullable="", default=None)
        entity: list[Entity] = array(Entity)

    throttle_time_ms: int = int32(default=0)
    entries: list[Entry] = array(Entry)


def refused(request: AlterClientQuotasRequest, code: int) -> AlterClientQuotasResponse:
    """The answer in which every entry meets the same error."""
    entry = AlterClientQuotasResponse.Entry
    return AlterClientQuotasResponse(
        entries=[
            entry(
                error_code=code,
                entity=[
                    entry.Entity(entity_type=e.entity_type, entity_name=e.entity_name)
                    for e in asked.entity
                ],
            )
            for asked in request.entries
        ]
    )
