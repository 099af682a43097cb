"""The records of `__consumer_offsets` as Apache Kafka's `DumpLogSegments` decodes them, and as our
own declarations do, both in the form of the tool.

The tool prints a line for a record. Keys and values are JSON by the field names of Kafka's schemas;
bytes are base64, but those that consumers put into a group are decoded too.
"""

from __future__ import annotations

import json
import re
from base64 import b64encode
from struct import Struct as Format
from typing import TYPE_CHECKING, Any, NamedTuple

from protocol.logdata.membership import assignment_of, subscription_of
from protocol.logdata.offsets import GroupMetadataValue, decode_key, decode_value
from protocol.records.batch import Batch
from protocol.records.walk import walk
from protocol.schema import Struct
from storage.identity import uuid_text
from tests.support.dump_log_segments import run_tool
from tests.support.group_caller import OFFSETS_TOPIC

if TYPE_CHECKING:
    from pathlib import Path

VERSION = Format(">h")
FILE = re.compile(r"Dumping (\S+)$")
RECORD = re.compile(r"\| offset: (\d+) .* headerKeys: \[\] key: (\{.*\}) payload: (.*)$")
TOMBSTONE = "<DELETE>"

#: The fields that only some versions of a value have; the tool prints those of its version.
ONLY_IN = {"leaderEpoch": (3, 4), "expireTimestamp": (1,)}
#: Tagged fields of a later Kafka: that of the tool steps over them.
LATER = ("assignment_epochs",)


class Decoded(NamedTuple):
    """One record. `value` None is a tombstone."""

    file: str
    offset: int
    key: Any
    value: Any


def decoded_by_kafka(data: Path) -> list[Decoded]:
    """Every record of every segment of the topic. Raises `NotAvailable`, and AssertionError for
    any line that the tool does not print of a record, a batch or a file."""
    names = [str(path.relative_to(data)) for path in _segments(data)]
    ended = run_tool([["--offsets-decoder", "--deep-iteration", "--files", ",".join(names)]], data)
    assert ended.returncode == 0, ended.stderr
    found: list[Decoded] = []
    file = ""
    for line in ended.stdout.split("\n"):
        if begun := FILE.match(line):
            file = begun[1]
        elif record := RECORD.match(line):
            value = None if record[3] == TOMBSTONE else json.loads(record[3])
            found.append(Decoded(file, int(record[1]), json.loads(record[2]), value))
        else:
            ordinary = not line or line.startswith("Log starting offset: ")
            assert ordinary or line.endswith("isvalid: true"), line
    return found


def decoded_by_us(data: Path) -> list[Decoded]:
    """The same from our own declarations."""
    found = []
    for path in _segments(data):
        whole = memoryview(path.read_bytes())
        for position, size, _ in walk(whole):
            for record in Batch(whole[position : position + size]).records():
                key = decode_key(record.key)
                value = None
                if record.value is not None:
                    value = _value_shown(decode_value(key, record.value), record.value)
                where = str(path.relative_to(data)), record.offset
                found.append(Decoded(*where, _key_shown(key, record.key), value))
    return found


def _segments(data: Path) -> list[Path]:
    return sorted(data.glob(f"{OFFSETS_TOPIC}-*/*.log"))


def _key_shown(key: Struct, data: bytes | None) -> Any:
    assert data is not None
    (version,) = VERSION.unpack_from(data)
    return {"type": str(version), "data": _shown(key)}


def _value_shown(value: Struct, data: bytes) -> Any:
    (version,) = VERSION.unpack_from(data)
    fields = {
        name: field
        for name, field in _shown(value).items()
        if version in ONLY_IN.get(name, (version,))
    }
    if isinstance(value, GroupMetadataValue) and value.protocol_type == "consumer":
        for member, shown in zip(value.members, fields["members"], strict=True):
            if member.subscription:
                subscription = subscription_of(member.subscription)
                assert subscription is not None
                shown["subscription"] = {"topics": list(subscription.topics), "userData": None}
            if member.assignment:
                assignment = assignment_of(member.assignment)
                assert assignment is not None
                partitions = [{"topic": t, "partitions": list(p)} for t, p in assignment.partitions]
                shown["assignment"] = {"assignedPartitions": partitions, "userData": None}
    return {"version": str(version), "data": fields}


def _shown(value: Any, name: str = "") -> Any:
    if isinstance(value, Struct):
        names = [field.name for field in value._fields if field.name not in LATER]
        return {_in_java(name): _shown(getattr(value, name), name) for name in names}
    if isinstance(value, list):
        return [_shown(inner) for inner in value]
    if isinstance(value, bytes | memoryview):
        return uuid_text(bytes(value)) if name == "topic_id" else b64encode(value).decode()
    return value


def _in_java(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(word.title() for word in rest)
