"""The kinds of value a key can have: how each is read from text and written back.

The kinds, their names and their codes are those of Kafka's DescribeConfigs; a text is
read the way Kafka reads it (surrounding blanks are dropped, booleans in any case, an
empty list is a list without entries), so that a file means the same to both.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")

LONG_MAX = 2**63 - 1
INT_MAX = 2**31 - 1


class Kind(Generic[T]):
    """A kind of value.

    `name` and `code` are Kafka's (protocol: DescribeConfigs `config_type`). `parse` takes
    the stripped text and raises ValueError with the wish, to be read after "wanted".
    """

    __slots__ = ("code", "format", "name", "parse")

    def __init__(
        self, name: str, code: int, parse: Callable[[str], T], format_: Callable[[T], str] = str
    ) -> None:
        self.name = name
        self.code = code
        self.parse = parse
        self.format = format_

    def __repr__(self) -> str:
        return f"<kind {self.name}>"


def _boolean(text: str) -> bool:
    lowered = text.lower()
    if lowered in ("true", "false"):
        return lowered == "true"
    raise ValueError("true or false")


def _whole_number(name: str, bits: int) -> Callable[[str], int]:
    limit = 1 << (bits - 1)

    def parse(text: str) -> int:
        digits = text[1:] if text[:1] in ("-", "+") else text
        if not (digits.isascii() and digits.isdigit()) or len(digits) > 40:
            raise ValueError(f"a whole number ({name})")
        number = int(text)
        if not -limit <= number < limit:
            raise ValueError(f"a number from {-limit} to {limit - 1} ({name})")
        return number

    return parse


def _fraction(text: str) -> float:
    try:
        if "_" in text:
            raise ValueError
        number = float(text)
        if number != number:
            raise ValueError
    except ValueError:
        raise ValueError("a number (double)") from None
    return number


def _names(text: str) -> tuple[str, ...]:
    if not text:
        return ()
    return tuple(entry.strip() for entry in text.split(","))


def _class_name(text: str) -> str:
    if not text or not all(part.isidentifier() for part in text.replace("$", "_").split(".")):
        raise ValueError("the full name of a class")
    return text


def _format_boolean(value: bool) -> str:
    return "true" if value else "false"


def _format_fraction(value: float) -> str:
    # The largest double is how Kafka writes "no limit"; this is its spelling in Java.
    if value == 1.7976931348623157e308:
        return "1.7976931348623157E308"
    return repr(value)


boolean: Kind[bool] = Kind("boolean", 1, _boolean, _format_boolean)
string: Kind[str] = Kind("string", 2, str)
int32: Kind[int] = Kind("int", 3, _whole_number("int", 32))
int16: Kind[int] = Kind("short", 4, _whole_number("short", 16))
int64: Kind[int] = Kind("long", 5, _whole_number("long", 64))
double: Kind[float] = Kind("double", 6, _fraction, _format_fraction)
names: Kind[tuple[str, ...]] = Kind("list", 7, _names, ",".join)
class_name: Kind[str] = Kind("class", 8, _class_name)
password: Kind[str] = Kind("password", 9, str)
