"""The records that every client writes and every client must read back, and their text form.

A record is one line of five fields between tabs: partition, timestamp, key, value, headers. Bytes
are base64, null is `~`, headers are `name:value` between commas. What is read has the offset as
a sixth field in front. Clients that run outside Python take and give these lines.
"""

from __future__ import annotations

import random
from base64 import b64decode, b64encode
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence

#: November 2023. In the past, so that no broker takes it for a broken clock.
FIRST_TIMESTAMP_MS = 1_700_000_000_000

PARTITIONS = 3

NULL = "~"


class Abilities(NamedTuple):
    """The abilities of a client's interface; the protocol allows all of it."""

    null_header_value: bool = True
    #: A record whose key and value are both null.
    nothing_at_all: bool = True
    #: Headers as a list. Without: a map of names to values, so equal names stand together.
    header_order: bool = True
    #: Empty keys, values and headers when reading. Without: they are shown as null.
    empty_bytes: bool = True


class Record(NamedTuple):
    partition: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = ()

    def to_line(self) -> str:
        headers = ",".join(
            f"{b64encode(name.encode()).decode()}:{_to_text(value)}" for name, value in self.headers
        )
        fields = (self.partition, self.timestamp_ms, _to_text(self.key), _to_text(self.value))
        return "\t".join(map(str, (*fields, headers)))

    @classmethod
    def from_line(cls, line: str) -> Record:
        partition, timestamp_ms, key, value, headers = line.split("\t")
        pairs = (header.split(":") for header in headers.split(",") if header)
        return cls(
            int(partition),
            int(timestamp_ms),
            _from_text(key),
            _from_text(value),
            tuple((b64decode(name).decode(), _from_text(data)) for name, data in pairs),
        )


#: What a client read: per partition, offsets and records in the order in which they came.
Stored = dict[int, list[tuple[int, Record]]]


def some_records(
    count: int, abilities: Abilities, *, seed: int = 1, partitions: int = PARTITIONS
) -> list[Record]:
    """The same records for the same arguments: every kind of key, value and header there is."""
    chance = random.Random(seed)
    return [_some_record(number, chance, abilities, partitions) for number in range(count)]


def _some_record(
    number: int, chance: random.Random, abilities: Abilities, partitions: int
) -> Record:
    key: bytes | None = f"key-{number % 500}".encode()
    value: bytes | None = f'{{"number":{number},"text":"{"tri" * chance.randrange(60)}"}}'.encode()
    what = chance.randrange(100)
    if what < 15:
        key = None
    elif what < 20:
        key = b""
    elif what < 25:
        value = b""
    elif what < 30:
        value = None
    elif what < 32:
        key = value = None
    elif what < 34:
        value = chance.randbytes(chance.randrange(8_000))
    if key is None and value is None and not abilities.nothing_at_all:
        value = b"something"
    return Record(
        partition=chance.randrange(partitions),
        # Mostly growing with the offset and sometimes not, as with several writers.
        timestamp_ms=FIRST_TIMESTAMP_MS + number * 5 + chance.randrange(-500, 500),
        key=key,
        value=value,
        headers=_some_headers(chance, abilities),
    )


def _some_headers(
    chance: random.Random, abilities: Abilities
) -> tuple[tuple[str, bytes | None], ...]:
    values = [b"", b"\x00\xff", b"text/plain", None if abilities.null_header_value else b"null"]
    count = chance.choice((0, 0, 0, 1, 2, 3))
    headers = [
        (chance.choice(("trace", "type", "größe")), chance.choice(values)) for _ in range(count)
    ]
    return tuple(headers) if abilities.header_order else _grouped(headers)


def _grouped(
    headers: Sequence[tuple[str, bytes | None]],
) -> tuple[tuple[str, bytes | None], ...]:
    names = [name for name, _ in headers]
    return tuple(sorted(headers, key=lambda header: names.index(header[0])))


def as_read_by(record: Record, abilities: Abilities) -> Record:
    """The record as a client with these abilities can show it to its user."""
    if not abilities.header_order:
        record = record._replace(headers=_grouped(record.headers))
    if not abilities.empty_bytes:
        headers = tuple((name, data or None) for name, data in record.headers)
        record = record._replace(
            key=record.key or None, value=record.value or None, headers=headers
        )
    return record


def assert_stored(written: list[Record], stored: Stored) -> None:
    """Every written record is there once, in the order of its partition, with all it holds."""
    for partition in sorted({record.partition for record in written} | set(stored)):
        wanted = [record for record in written if record.partition == partition]
        found = stored.get(partition, [])
        for number, (wanted_record, (offset, record)) in enumerate(
            zip(wanted, found, strict=False)
        ):
            assert (offset, record) == (number, wanted_record), f"record {number} of {partition}"
        assert len(found) == len(wanted), f"count of records in partition {partition}"


def _to_text(data: bytes | None) -> str:
    return NULL if data is None else b64encode(data).decode()


def _from_text(text: str) -> bytes | None:
    return None if text == NULL else b64decode(text)
