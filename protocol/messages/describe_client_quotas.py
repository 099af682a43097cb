"""DescribeClientQuotas (48): the rates that users and clients are held to.

0  the first
1  flexible
"""

from __future__ import annotations

from protocol.schema import Message, Struct, array, boolean, float64, int8, int16, int32, string


class DescribeClientQuotasRequest(Message, key=48, versions="0-1", flexible="1+"):
    class Component(Struct):
        entity_type: str = string()
        # 0 the name in `match`, 1 the default, 2 any name.
        match_type: int = int8()
        match: str | None = string(nullable="")

    components: list[Component] = array(Component)
    strict: bool = boolean()


class DescribeClientQuotasResponse(Message, key=48, versions="0-1", flexible="1+"):
    class Entry(Struct):
        class Entity(Struct):
            entity_type: str = string()
            # Null is the default.
            entity_name: str | None = string(nullable="")

        class Value(Struct):
            key: str = string()
            value: float = float64()

        entity: list[Entity] = array(Entity)
        values: list[Value] = array(Value)

    throttle_time_ms: int = int32(default=0)
    error_code: int = int16()
    error_message: str | None = string(nullable="", default=None)
    entries: list[Entry] | None = array(Entry, nullable="")


def refused(request: DescribeClientQuotasRequest, code: int) -> DescribeClientQuotasResponse:
    """An answer of an error and nothing else."""
    return DescribeClientQuotasResponse(error_code=code, entries=None)
