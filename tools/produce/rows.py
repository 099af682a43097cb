"""Records out of lines, JSON and whole files."""

from __future__ import annotations

import base64
import binascii
import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from broker.clock import now_ms
from protocol.records.record import INT64_MAX
from tools.errors import NotDone
from tools.produce.lines import LINE_BYTES_MAX, lines_of, unreadable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from protocol.records.builder import HeaderPair, RecordFields

    Row = tuple[int | None, RecordFields]
    """The partition, None for one that is to be chosen, and the record."""

FIELDS = ("key", "value", "headers", "partition", "timestamp_ms")
WHEREVER = ("topic", "offset")
"""What `triglot consume --json` says besides; it has no meaning for a record that is written."""
PARTITION_MAX = (1 << 31) - 1


@dataclass(frozen=True)
class Given:
    """What the command line says of all records; None is nothing."""

    key: bytes | None
    key_separator: bytes | None
    headers: tuple[HeaderPair, ...]
    partition: int | None
    timestamp_ms: int | None
    empty_is_null: bool


def rows_of_lines(names: Sequence[str], given: Given) -> Iterator[list[Row]]:
    """A record for each line; no records where nothing more is waiting to be read.

    Raises NotDone, when the lines before have been given."""
    separator, partition, headers = given.key_separator, given.partition, given.headers
    for name, first, lines in lines_of(names):
        now = now_ms() if given.timestamp_ms is None else given.timestamp_ms
        if separator is None and not given.empty_is_null:
            yield [(partition, (now, given.key, line, headers)) for line in lines]
            continue
        rows: list[Row] = []
        fault = ""
        for number, line in enumerate(lines, first):
            key, value = given.key, line
            if separator is not None:
                key, found, value = line.partition(separator)
                if not found:
                    shown = separator.decode("utf-8", "backslashreplace")
                    fault = f"line {number} of {name} has no '{shown}' (--key-separator)"
                    break
            nulls = given.empty_is_null
            fields = (now, key or (None if nulls else key), value or (None if nulls else value))
            rows.append((partition, (*fields, headers)))
        yield rows
        if fault:
            raise NotDone(fault)


def rows_of_json(names: Sequence[str], given: Given) -> Iterator[list[Row]]:
    """A record for each line, which is a JSON object as `triglot consume --json` writes them.

    Raises NotDone, when the lines before have been given."""
    for name, first, lines in lines_of(names):
        now = now_ms() if given.timestamp_ms is None else given.timestamp_ms
        rows: list[Row] = []
        fault = ""
        for number, line in enumerate(lines, first):
            if not line.strip():
                continue
            try:
                rows.append(_row(json.loads(line), given, now))
            except json.JSONDecodeError as error:
                fault = f" is not JSON: {error.msg} at character {error.colno}"
            except UnicodeDecodeError:
                fault = " is not UTF-8"
            except RecursionError:
                fault = " is nested too deeply"
            except ValueError as error:
                fault = f": {error}"
            if fault:
                fault = f"line {number} of {name}{fault}"
                break
        yield rows
        if fault:
            raise NotDone(fault)


def rows_of_files(names: Sequence[str], given: Given) -> Iterator[list[Row]]:
    """A record for each file, with all that is in it. Raises NotDone."""
    for name in names:
        now = now_ms() if given.timestamp_ms is None else given.timestamp_ms
        try:
            with Path(name).open("rb") as file:
                value = file.read(LINE_BYTES_MAX + 1)
        except OSError as error:
            raise unreadable(name, error) from None
        if len(value) > LINE_BYTES_MAX:
            raise NotDone(
                f"{name} has more than {LINE_BYTES_MAX:,} bytes, the most that is taken of one "
                "record"
            )
        yield [(given.partition, (now, given.key, value, given.headers))]


READERS: dict[str, Callable[[Sequence[str], Given], Iterator[list[Row]]]] = {
    "lines": rows_of_lines,
    "json": rows_of_json,
    "files": rows_of_files,
}


def _row(found: Any, given: Given, now: int) -> Row:
    """Raises ValueError."""
    if not isinstance(found, dict):
        raise ValueError(f"wanted an object with {', '.join(FIELDS)}, found {_kind(found)}")
    named = {name.removesuffix("_base64") for name in found}
    unknown = sorted(named.difference(FIELDS, WHEREVER))
    if unknown:
        raise ValueError(f"'{unknown[0]}' is not known, wanted {', '.join(FIELDS)}")
    key = _content(found, "key") if "key" in named else given.key
    partition = found.get("partition", given.partition)
    if partition is not None and not _is_number(partition, PARTITION_MAX):
        raise ValueError(f"'partition' is {json.dumps(partition)}, wanted a number from 0 on")
    timestamp = found.get("timestamp_ms", now)
    if not _is_number(timestamp, INT64_MAX) and timestamp != -1:
        raise ValueError(f"'timestamp_ms' is {json.dumps(timestamp)}, wanted ms since 1970")
    headers = given.headers
    if "headers" in found:
        headers = (*headers, *_headers(found["headers"]))
    return partition, (timestamp, key, _content(found, "value"), headers)


def _headers(found: Any) -> list[HeaderPair]:
    if not isinstance(found, list):
        raise ValueError(f"'headers' is {_kind(found)}, wanted a list of objects")
    headers: list[HeaderPair] = []
    for one in found:
        if not isinstance(one, dict) or not isinstance(one.get("name"), str):
            raise ValueError("a header is an object with 'name', and 'value' or 'value_base64'")
        headers.append((one["name"], _content(one, "value")))
    return headers


def _content(found: dict[str, Any], name: str) -> bytes | None:
    """Text is UTF-8, null is none, and any other JSON is written as it is."""
    encoded = found.get(f"{name}_base64")
    if encoded is not None:
        try:
            return base64.b64decode(encoded, validate=True)
        except (TypeError, binascii.Error, ValueError):
            raise ValueError(f"'{name}_base64' is not base64") from None
    content = found.get(name)
    if content is None:
        return None
    text = content if isinstance(content, str) else json.dumps(content, ensure_ascii=False)
    return text.encode("utf-8", "surrogatepass")


def _is_number(found: Any, largest: int) -> bool:
    return isinstance(found, int) and not isinstance(found, bool) and 0 <= found <= largest


def _kind(found: Any) -> str:
    kinds = {list: "a list", str: "text", bool: "true or false", type(None): "null"}
    return kinds.get(type(found), "a number")
