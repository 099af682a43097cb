"""Our codecs against two that other people wrote, and that know nothing of ours.

kio holds one class for each message and version, generated from Kafka's schemas of the 4.x line
and read and written by an engine in Rust. kafka-python keeps, beside the codec that it uses, the
layouts that its authors once wrote by hand: they reach back to version 0. What a peer does not
know is listed here, so that nothing is left out unseen.
"""

from __future__ import annotations

import dataclasses
import importlib
import io
import pkgutil
import warnings
from datetime import datetime, timedelta
from random import Random
from typing import TYPE_CHECKING, Any
from uuid import UUID

import pytest
from kio.index import load_request_schema, load_response_schema
from kio.schema.index import api_key_map, schema_name_map
from kio.serial import entity_reader, entity_writer
from kio.static.constants import EntityType

from protocol.registry import APIS, Api
from protocol.schema import Struct
from tests.protocol.additions import kafkas_fields
from tests.protocol.reference_schema import schema_for
from tests.protocol.reference_values import Chance, Empty, Source, Zero, tree_of

with warnings.catch_warnings():
    # kafka-python reads its own schemas by a function that Python 3.11 deprecates.
    warnings.simplefilter("ignore", DeprecationWarning)
    import kafka.protocol.old as by_hand
    from kafka.protocol.old.types import Array, CompactArray, Schema, TaggedFields

if TYPE_CHECKING:
    from collections.abc import Iterator

KINDS = ("Request", "Response")

# What is declared here and unknown there. kio follows Kafka 4.x, which dropped the oldest
# versions; its schemas are older than 4.4.
UNKNOWN_TO_KIO = {
    "Produce": [0, 1, 2],
    "Fetch": [0, 1, 2, 3],
    "ListOffsets": [0],
    "OffsetCommit": [0, 1],
    "OffsetFetch": [0],
    "ApiVersions": [5],
    "CreateTopics": [0, 1],
    "DeleteTopics": [0],
    "OffsetForLeaderEpoch": [0, 1],
    "WriteTxnMarkers": [0],
    "TxnOffsetCommit": [6],
    "DescribeAcls": [0],
    "CreateAcls": [0],
    "DeleteAcls": [0],
    "DescribeConfigs": [0],
    "AlterReplicaLogDirs": [0],
    "DescribeLogDirs": [0],
    "CreateDelegationToken": [0],
    "RenewDelegationToken": [0],
    "ExpireDelegationToken": [0],
    "DescribeDelegationToken": [0],
    "DeleteGroups": [3],
    "StreamsGroupHeartbeat": [1],
    "StreamsGroupDescribe": [1],
    "StreamsGroupTopologyDescriptionUpdate": [0],
}


# Fields that Kafka has renamed since kio's schemas were made.
FORMER_NAMES = {
    "generation_id_or_member_epoch": "generation_id",
    "acceptable_recovery_lag_legacy": "acceptable_recovery_lag",
}

# Layouts of kafka-python that Kafka never had: its own client does not use them any more.
WRONG_BY_HAND = {
    ("DescribeAcls", "Request", 2): "compact from version 2 on, which it does not know",
    ("DescribeAcls", "Response", 2): "compact from version 2 on, which it does not know",
    ("DescribeLogDirs", "Request", 0): "one partition where there is a list of them",
}

# What neither peer knows, so that only Kafka's schemas vouch for it.
UNKNOWN_TO_BOTH = {
    "ApiVersions": [5],
    "WriteTxnMarkers": [0],
    "TxnOffsetCommit": [6],
    "AlterReplicaLogDirs": [0],
    "CreateDelegationToken": [0],
    "RenewDelegationToken": [0],
    "ExpireDelegationToken": [0],
    "DescribeDelegationToken": [0],
    "DeleteGroups": [3],
    "StreamsGroupHeartbeat": [1],
    "StreamsGroupDescribe": [1],
    "StreamsGroupTopologyDescriptionUpdate": [0],
}


class Plausible(Chance):
    """Small numbers and plain names: kio turns them into error codes, times and the like."""

    def integer(self, low: int, high: int) -> int:
        return self.random.choice((0, 1, 2, 29, 100))

    def text(self) -> str:
        return "".join(
            self.random.choices("abcdefghijklmnopqrstuvwxyz", k=self.random.choice((1, 9)))
        )


def declared(api: Api) -> range:
    return range(api.request.min_version, api.request.max_version + 1)


def by_name(name: str) -> Api:
    return next(api for api in APIS.values() if api.name == name)


def samples(api: Api, kind: str, version: int) -> Iterator[tuple[Struct, bytes]]:
    """Messages of ours with their bytes."""
    schema = schema_for(api.name, kind, version)
    cls = api.request if kind == "Request" else api.response
    chance = Random(f"{api.name} {kind} {version}")
    sources: list[Source] = [Empty(), Zero(), *(Plausible(chance) for _ in range(6))]
    for source in sources:
        message = cls.decode(version, schema.encode(version, tree_of(schema, version, source)))
        yield message, message.encode(version)


# kio


def kio_class(api: Api, kind: str, version: int) -> type[Any]:
    load = load_request_schema if kind == "Request" else load_response_schema
    found: type[Any] = load(api.key, version)
    return found


def known_to_kio(api: Api) -> list[int]:
    versions = schema_name_map.get(api_key_map.get(api.key, ""), {})
    return [version for version, types in versions.items() if EntityType.request in types]


KIO = [
    pytest.param(api, kind, version, id=f"{api.name}{kind}-v{version}")
    for api in APIS.values()
    for kind in KINDS
    for version in known_to_kio(api)
]


def plain(value: Any) -> Any:
    """A value of kio's as we would carry it."""
    if isinstance(value, UUID):
        return value.bytes
    if isinstance(value, timedelta):
        return value // timedelta(milliseconds=1)
    if isinstance(value, datetime):
        return round(value.timestamp() * 1000)
    return value


def compare_with_kio(ours: Any, theirs: Any, version: int) -> None:
    """Field by field and by name; kio leaves out units that its types carry."""
    if isinstance(ours, list):
        assert len(ours) == len(theirs)
        for one, other in zip(ours, theirs, strict=True):
            compare_with_kio(one, other, version)
    elif isinstance(ours, Struct):
        named = {field.name: getattr(theirs, field.name) for field in dataclasses.fields(theirs)}
        expected = kafkas_fields(type(ours), version)
        assert len(named) == len(expected)
        for field in expected:
            name = field.name if field.name in named else field.name.removesuffix("_ms")
            name = name if name in named else FORMER_NAMES[name]
            compare_with_kio(getattr(ours, field.name), named[name], version)
    elif theirs is None and ours is not None:
        assert ours == bytes(16)  # for kio no id is None
    else:
        assert plain(theirs) == ours


@pytest.mark.parametrize(("api", "kind", "version"), KIO)
def test_kio_reads_what_we_write_and_we_read_what_kio_writes(
    api: Api, kind: str, version: int
) -> None:
    cls = kio_class(api, kind, version)
    read, write = entity_reader(cls), entity_writer(cls)
    for message, data in samples(api, kind, version):
        entity, size = read(data, 0)
        assert size == len(data)
        compare_with_kio(message, entity, version)

        out = io.BytesIO()
        write(out, entity)
        assert out.getvalue() == data
        assert type(message).decode(version, out.getvalue()) == message


# kafka-python


def classes_by_hand() -> dict[tuple[str, str, int], type[Any]]:
    """By API, kind and version, as the classes are named."""
    found: dict[tuple[str, str, int], type[Any]] = {}
    for module in pkgutil.iter_modules(by_hand.__path__):
        names = vars(importlib.import_module(f"{by_hand.__name__}.{module.name}"))
        for api in APIS.values():
            for kind in KINDS:
                for version in declared(api):
                    cls = names.get(f"{api.name}{kind}_v{version}")
                    if cls is not None:
                        found[api.name, kind, version] = cls
    return found


BY_HAND = classes_by_hand()
HAND = [
    pytest.param(by_name(name), kind, version, id=f"{name}{kind}-v{version}")
    for name, kind, version in BY_HAND
]


def in_order(value: Any, version: int) -> list[Any]:
    """The values of a message of ours as they go over the wire, tagged ones left out.

    An array is its count and its elements; structs are only their fields.
    """
    if isinstance(value, list):
        return [len(value), *(leaf for element in value for leaf in in_order(element, version))]
    if not isinstance(value, Struct):
        return [value]
    return [
        leaf
        for field in value._fields
        if field.versions.holds(version) and field.tag is None
        for leaf in in_order(getattr(value, field.name), version)
    ]


def by_hand_in_order(schema: Any, value: Any) -> list[Any]:
    """The same of theirs."""
    if isinstance(schema, Array | CompactArray) and value is not None:
        inner = schema.array_of
        return [len(value), *(leaf for one in value for leaf in by_hand_in_order(inner, one))]
    if isinstance(schema, Schema):
        # Empty tag sections are dropped from what their decoder gives.
        return [
            leaf
            for inner, one in zip(schema.fields, value, strict=False)
            if inner is not TaggedFields
            for leaf in by_hand_in_order(inner, one)
        ]
    if isinstance(value, set):  # of bits
        return [sum(1 << bit for bit in value)]
    return [value]


def agrees_by_hand(api: Api, kind: str, version: int, message: Struct, data: bytes) -> bool:
    """Whether their layout reads our bytes to the end as our values, and writes them again."""
    schema = BY_HAND[api.name, kind, version].SCHEMA
    stream = io.BytesIO(data)
    try:
        values = schema.decode(stream)
    except ValueError:
        return False
    same = by_hand_in_order(schema, values) == in_order(message, version)
    return same and not stream.read() and schema.encode(values) == data


@pytest.mark.parametrize(("api", "kind", "version"), HAND)
def test_layouts_written_by_hand_agree(api: Api, kind: str, version: int) -> None:
    agreed = [agrees_by_hand(api, kind, version, *sample) for sample in samples(api, kind, version)]
    assert all(agreed) == ((api.name, kind, version) not in WRONG_BY_HAND)


def test_what_kio_does_not_know_is_listed() -> None:
    unknown = {
        api.name: missing
        for api in APIS.values()
        if (missing := sorted(set(declared(api)) - set(known_to_kio(api))))
    }
    assert unknown == UNKNOWN_TO_KIO


def test_what_neither_knows_is_listed() -> None:
    known = {
        (api.name, version)
        for api in APIS.values()
        for version in declared(api)
        if version in known_to_kio(api)
        or all((api.name, kind, version) in BY_HAND for kind in KINDS)
    }
    unknown: dict[str, list[int]] = {}
    for api in APIS.values():
        for version in declared(api):
            if (api.name, version) not in known:
                unknown.setdefault(api.name, []).append(version)
    assert unknown == UNKNOWN_TO_BOTH


def test_both_peers_know_most_apis() -> None:
    """Guards the parameters above: an empty list of them would pass."""
    assert len({api.name for api in APIS.values() if known_to_kio(api)}) >= 70
    assert len({name for name, _, _ in BY_HAND}) >= 30
    assert len(BY_HAND) >= 230
