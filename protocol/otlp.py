"""Metrics in the format of OpenTelemetry (OTLP), as clients push them (KIP-714).

As much of its protobuf as clients use: names, and numbers with their attributes. Histograms are
passed over; no client sends them. The messages are those of opentelemetry-proto's metrics.proto:

    MetricsData      1 resource_metrics
    ResourceMetrics  1 resource (1 attributes), 2 scope_metrics
    ScopeMetrics     2 metrics
    Metric           1 name, 5 gauge, 7 sum
    Gauge            1 data_points
    Sum              1 data_points, 3 is_monotonic
    NumberDataPoint  4 as_double, 6 as_int (sfixed64), 7 attributes
    KeyValue         1 key, 2 value (1 string, 2 bool, 3 int, 4 double)
"""

from __future__ import annotations

from struct import Struct
from typing import TYPE_CHECKING, Any, NamedTuple

from protocol.errors import Malformed

if TYPE_CHECKING:
    from collections.abc import Iterator

VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5
VARINT_BYTES_MAX = 10

_DOUBLE = Struct("<d")
_SFIXED64 = Struct("<q")


class Sample(NamedTuple):
    """One number. `monotonic` is of a counter, which only grows."""

    name: str
    attributes: tuple[tuple[str, str], ...]
    value: float
    monotonic: bool


def samples(payload: bytes) -> Iterator[Sample]:
    """The numbers in a MetricsData, each with its resource's attributes too. Raises Malformed."""
    for number, part in _fields(memoryview(payload)):
        if number == 1:
            yield from _of_resource(_message(part))


def _of_resource(data: memoryview) -> Iterator[Sample]:
    attributes: list[tuple[str, str]] = []
    scopes = []
    for number, part in _fields(data):
        if number == 1:
            attributes += [
                _attribute(_message(inner)) for one, inner in _fields(_message(part)) if one == 1
            ]
        elif number == 2:
            scopes.append(_message(part))
    for scope in scopes:
        for number, part in _fields(scope):
            if number == 2:
                yield from _of_metric(_message(part), attributes)


def _of_metric(data: memoryview, shared: list[tuple[str, str]]) -> Iterator[Sample]:
    name, monotonic = "", False
    points: list[memoryview] = []
    for number, part in _fields(data):
        if number == 1:
            name = _text(part)
        elif number in (5, 7):
            for inner, point in _fields(_message(part)):
                if inner == 1:
                    points.append(_message(point))
                elif inner == 3 and number == 7:
                    monotonic = bool(point)
    for one in points:
        value: float | None = None
        attributes = list(shared)
        for number, part in _fields(one):
            if number == 4:
                value = _DOUBLE.unpack(_eight(part))[0]
            elif number == 6:
                value = _SFIXED64.unpack(_eight(part))[0]
            elif number == 7:
                attributes.append(_attribute(_message(part)))
        if value is not None:
            yield Sample(name, tuple(attributes), value, monotonic)


def _attribute(data: memoryview) -> tuple[str, str]:
    key = value = ""
    for number, part in _fields(data):
        if number == 1:
            key = _text(part)
        elif number == 2:
            for kind, inner in _fields(_message(part)):
                if kind == 1:
                    value = _text(inner)
                elif kind == 2:
                    value = "true" if inner else "false"
                elif kind == 3:
                    value = str(inner)
                elif kind == 4:
                    value = str(_DOUBLE.unpack(_eight(inner))[0])
    return key, value


def _fields(data: memoryview) -> Iterator[tuple[int, Any]]:
    """Number and value of each field: an int, or a view of its bytes."""
    position, end = 0, len(data)
    while position < end:
        tag, position = _varint(data, position)
        number, kind = tag >> 3, tag & 7
        if number == 0:
            raise Malformed("a field of the number 0")
        if kind == VARINT:
            value: Any
            value, position = _varint(data, position)
        elif kind in (FIXED64, FIXED32):
            size = 8 if kind == FIXED64 else 4
            value, position = data[position : position + size], position + size
        elif kind == BYTES:
            size, position = _varint(data, position)
            value, position = data[position : position + size], position + size
        else:
            raise Malformed(f"a field of the wire type {kind}")
        if position > end:
            raise Malformed(f"a field ends {position - end} bytes behind its message")
        yield number, value


def _varint(data: memoryview, position: int) -> tuple[int, int]:
    value = 0
    for shift in range(VARINT_BYTES_MAX):
        if position >= len(data):
            raise Malformed("the message ends within a number")
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << (7 * shift)
        if byte < 0x80:
            return value, position
    raise Malformed(f"a number of more than {VARINT_BYTES_MAX} bytes")


def _message(part: Any) -> memoryview:
    if not isinstance(part, memoryview):
        raise Malformed("a number where a message is wanted")
    return part


def _eight(part: Any) -> memoryview:
    if not isinstance(part, memoryview) or len(part) != 8:
        raise Malformed("something else where a number of 8 bytes is wanted")
    return part


def _text(part: Any) -> str:
    try:
        return str(_message(part), "utf-8")
    except UnicodeDecodeError as error:
        raise Malformed(f"a text that is not UTF-8: {error}") from None
