"""The content of a record as values that people and JSON can read."""

from __future__ import annotations

from base64 import urlsafe_b64encode
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from protocol.fields import Field
    from protocol.schema import Struct

Plain = str | int | float | bool | None | list["Plain"] | dict[str, "Plain"]


def plain(record: Struct) -> dict[str, Plain]:
    """Each field by its name, in the order of the declaration.

    Ids are as Kafka prints them (base64 of 22 letters), other bytes hexadecimal after `0x`. Letters
    that were not UTF-8 are shown as escapes.
    """
    return {
        field.name: _value(field, getattr(record, field.name)) for field in type(record)._fields
    }


def _value(field: Field, value: Any) -> Plain:
    if value is None:
        return None
    if field.kind == "array":
        assert field.item is not None
        return [_value(field.item, item) for item in value]
    if field.kind == "struct":
        return plain(value)
    if field.kind == "uuid":
        return urlsafe_b64encode(value).decode()[:22]
    if field.kind == "string":
        return str(value).encode("utf-8", "backslashreplace").decode()
    if field.kind in ("binary", "records"):
        return f"0x{bytes(value).hex()}"
    number: int | float | bool = value
    return number
