"""Every message in every version, against Kafka's own schemas.

Three codecs must agree to the byte: the interpreter of the schemas in `reference_schema`, which
knows nothing of ours; the compiled codecs; and the slow walker of the same declarations.
"""

from __future__ import annotations

import re
from random import Random
from typing import TYPE_CHECKING, Any

import pytest

from protocol import reference
from protocol.errors import Malformed
from protocol.fields import REQUIRED
from protocol.messages.offset_commit import ANY_OFFSET, OffsetCommitRequest
from protocol.registry import APIS, Api
from tests.protocol.additions import ADDITIONS, FIRST_TAG, kafkas_fields
from tests.protocol.reference_schema import (
    Schema,
    SchemaField,
    Tree,
    parse_versions,
    schema_for,
    schemas_of,
)
from tests.protocol.reference_values import Chance, Empty, Largest, Smallest, Source, Zero, tree_of

if TYPE_CHECKING:
    from protocol.fields import StructType
    from protocol.schema import Message, Struct

CHANCES = 4

KINDS = {"bool": "boolean", "bytes": "binary"}

# Where an error message may be null, null is what "no error" means. Kafka's schemas say so in
# some places and leave the default at "" in others; here it is null everywhere.
NULL_BY_DEFAULT = "error_message"


def snake(name: str) -> str:
    """Kafka's name as we write it: KRaftVersion is k_raft_version, TopicId is topic_id."""
    parted = re.sub(r"([A-Z]+)([A-Z][a-z])", r"\1_\2", name)
    return re.sub(r"([a-z0-9])([A-Z])", r"\1_\2", parted).lower()


def message_class(api: Api, kind: str) -> type[Message]:
    return api.request if kind == "Request" else api.response


def versions_of(api: Api) -> range:
    """All that is declared; for InitProducerId that is one more than is offered."""
    return range(api.request.min_version, api.request.max_version + 1)


MESSAGES = [
    pytest.param(api, kind, id=f"{api.name}{kind}")
    for api in APIS.values()
    for kind in ("Request", "Response")
]
VERSIONS = [
    pytest.param(api, kind, version, id=f"{api.name}{kind}-v{version}")
    for api in APIS.values()
    for kind in ("Request", "Response")
    for version in versions_of(api)
]


def instance_of(cls: StructType, fields: list[SchemaField], tree: Tree) -> Struct:
    """The same values, given to our constructor."""
    ours = {field.name: field for field in cls._fields}
    theirs = {field.name: field for field in fields}
    values: dict[str, Any] = {}
    for name, value in tree.items():
        inner = theirs[name].fields
        if inner is not None and value is not None:
            field = ours[snake(name)]
            struct = field.struct if field.item is None else field.item.struct
            assert struct is not None
            if theirs[name].is_array:
                value = [instance_of(struct, inner, element) for element in value]
            else:
                value = instance_of(struct, inner, value)
        values[snake(name)] = value
    instance: Struct = cls(**values)
    return instance


def samples(schema: Schema, version: int) -> list[Tree]:
    chance = Random(f"{schema.name} {version}")
    sources: list[Source] = [Empty(), Zero(), Smallest(), Largest()]
    sources += [Chance(chance) for _ in range(CHANCES)]
    return [tree_of(schema, version, source) for source in sources]


@pytest.mark.parametrize(("api", "kind", "version"), VERSIONS)
def test_what_kafka_writes_is_read_and_written_back(api: Api, kind: str, version: int) -> None:
    cls = message_class(api, kind)
    newest = schema_for(api.name, kind, version)
    for tree in samples(newest, version):
        theirs = newest.encode(version, tree)
        assert newest.decode(version, theirs) == tree, "the oracle contradicts itself"
        message = cls.decode(version, theirs)

        assert message == instance_of(cls, newest.fields, tree)
        assert message.encode(version) == theirs
        assert reference.decode(cls, version, theirs) == message
        assert reference.encode(message, version) == theirs


@pytest.mark.parametrize(("api", "kind", "version"), VERSIONS)
def test_older_releases_write_the_same_bytes(api: Api, kind: str, version: int) -> None:
    cls = message_class(api, kind)
    describing = [s for s in schemas_of(api.name, kind) if version in s.versions]
    for schema in describing[:-1]:
        for tree in samples(schema, version)[-2:]:
            theirs = schema.encode(version, tree)
            assert cls.decode(version, theirs).encode(version) == theirs, schema


@pytest.mark.parametrize(("api", "kind", "version"), VERSIONS)
def test_tags_that_nobody_knows_are_stepped_over(api: Api, kind: str, version: int) -> None:
    schema = schema_for(api.name, kind, version)
    cls = message_class(api, kind)
    assert (version in schema.flexible) == (version >= cls.first_flexible)
    for tree in samples(schema, version)[-2:]:
        plain = schema.encode(version, tree)
        strange = schema.encode(version, tree, strange_tags=True)

        # A version without tags has no place for them: the bytes are those of the plain tree.
        assert (strange == plain) == (version not in schema.flexible)
        assert cls.decode(version, strange) == cls.decode(version, plain)
        assert reference.decode(cls, version, strange) == cls.decode(version, plain)


@pytest.mark.parametrize(("api", "kind", "version"), VERSIONS)
def test_a_message_cut_anywhere_is_malformed(api: Api, kind: str, version: int) -> None:
    schema = schema_for(api.name, kind, version)
    decode = message_class(api, kind).decoder(version)
    short = schema.encode(version, tree_of(schema, version, Zero()))
    long = schema.encode(version, tree_of(schema, version, Chance(Random(7))))[:400]
    for data in (short, long):
        for size in range(len(data)):
            # Once as the end of all there is, once with the next frame right behind it.
            for buffer in (data[:size], data[:size] + b"\x00\x00\x00\x7f" * 8):
                with pytest.raises(Malformed):
                    decode(buffer, 0, size)


@pytest.mark.parametrize(("api", "kind"), MESSAGES)
def test_fields_are_kafkas_in_name_kind_order_and_default(api: Api, kind: str) -> None:
    cls = message_class(api, kind)
    for version in versions_of(api):
        schema = schema_for(api.name, kind, version)
        compare_fields(cls, schema.fields, version, version in schema.flexible, schema.name)


def compare_fields(
    cls: StructType, fields: list[SchemaField], version: int, flexible: bool, path: str
) -> None:
    theirs = [field for field in fields if version in field.versions]
    ours = kafkas_fields(cls, version)

    def name_of_untagged(field: Any) -> str:
        return snake(field.name)

    assert {f.name for f in ours} == {snake(f.name) for f in theirs}, path
    assert [f.name for f in ours if f.tag is None] == [
        snake(f.name) for f in theirs if version not in f.tagged
    ], path
    by_name = {f.name: f for f in ours}
    for their in theirs:
        our, where = by_name[snake(their.name)], f"{path}.{their.name} v{version}"
        assert our.tag == (their.tag if version in their.tagged else None), where
        assert our.nullable_in(version) == (version in their.nullable), where
        item = our
        if their.is_array:
            assert our.kind == "array", where
            assert our.item is not None
            item = our.item
        if their.fields is None:
            assert item.kind == KINDS.get(their.type, their.type), where
        else:
            assert item.kind == "struct", where
            assert item.struct is not None
            compare_fields(item.struct, their.fields, version, flexible, where)
        compare_default(our, their, version, where)


def compare_default(our: Any, their: SchemaField, version: int, where: str) -> None:
    """A default of ours is Kafka's; what Kafka's schema names a default for has one here."""
    if our.default is REQUIRED:
        assert their.written_default in (None, ""), f"{where} has a default in Kafka"
        return
    value = our.default_value()
    if our.name == NULL_BY_DEFAULT and version in their.nullable:
        assert value is None, where
    elif their.fields is not None and not their.is_array and value is not None:
        assert value == instance_of(our.struct, their.fields, their.default(version)), where
    else:
        assert value == their.default(version), where


def test_a_field_of_our_own_is_tagged_and_absent_by_default() -> None:
    for struct, fields in ADDITIONS.items():
        by_name = {field.name: field for field in struct._fields}
        for name, tag in fields.items():
            field = by_name[name]
            assert field.tag == tag >= FIRST_TAG
            assert field.default is not REQUIRED


def test_kafka_steps_over_the_offset_that_a_commit_expects() -> None:
    partition = OffsetCommitRequest.Topic.Partition
    for version in range(8, 11):
        schema = schema_for("OffsetCommit", "Request", version)

        def written(expected: int, version: int = version) -> bytes:
            entry = partition(
                partition_index=0,
                committed_offset=5,
                committed_metadata="m",
                expected_offset=expected,
            )
            topic = OffsetCommitRequest.Topic(partitions=[entry])
            return OffsetCommitRequest(group_id="g", topics=[topic]).encode(version)

        plain, conditional = written(ANY_OFFSET), written(4)
        assert plain != conditional
        assert schema.decode(version, plain) == schema.decode(version, conditional)
        decoded = OffsetCommitRequest.decode(version, conditional)
        assert decoded.topics[0].partitions[0].expected_offset == 4
        assert reference.decode(OffsetCommitRequest, version, conditional) == decoded


@pytest.mark.parametrize(("api", "kind"), MESSAGES)
def test_a_field_that_a_version_lacks_carries_its_default(api: Api, kind: str) -> None:
    cls = message_class(api, kind)
    for version in versions_of(api):
        schema = schema_for(api.name, kind, version)
        message = cls.decode(version, schema.encode(version, tree_of(schema, version, Zero())))
        for field in cls._fields:
            if not field.versions.holds(version):
                assert getattr(message, field.name) == field.default_value(), field.name


def test_every_default_of_kafka_is_met_somewhere() -> None:
    """Guards the comparison above: a schema reader that saw no defaults would pass it."""
    written = [
        field.written_default
        for api in APIS.values()
        for kind in ("Request", "Response")
        for schema in schemas_of(api.name, kind)
        for field in walk(schema.fields)
        if field.written_default not in (None, "")
    ]
    assert len(written) > 200
    assert {"null", "-1", "false", "true", "-2147483648", "0x7fffffff"} <= set(map(str, written))


def walk(fields: list[SchemaField]) -> list[SchemaField]:
    return [inner for field in fields for inner in (field, *walk(field.fields or []))]


def test_a_range_of_versions_is_read_as_kafka_means_it() -> None:
    assert parse_versions("3") == range(3, 4)
    assert parse_versions("2-4") == range(2, 5)
    assert parse_versions("4+", 6) == range(4, 7)
    assert not parse_versions("none")
