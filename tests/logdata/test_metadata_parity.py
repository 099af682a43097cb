"""Records of the metadata log, and control records, against Kafka's own schemas of them."""

from __future__ import annotations

import json
import re
from functools import cache
from random import Random
from typing import TYPE_CHECKING

import pytest

from protocol import reference
from protocol.errors import Malformed
from protocol.logdata import metadata
from tests.protocol.reference_schema import RELEASES, SCHEMAS, Schema, without_comments
from tests.protocol.reference_values import Chance, Empty, Largest, Smallest, Source, Zero, tree_of
from tests.protocol.test_message_parity import compare_fields, instance_of

if TYPE_CHECKING:
    from protocol.schema import Struct

CHANCES = 12
FOLDERS = ("metadata", "control")


@cache
def schemas(folder: str) -> tuple[Schema, ...]:
    """All of a folder, oldest release first. Some files give a tag as text, which Kafka takes."""
    found = []
    for release in RELEASES:
        for path in sorted((SCHEMAS / release / folder).glob("*.json")):
            text = re.sub(r'("tag": *)"(\d+)"', r"\1\2", without_comments(path.read_text()))
            found.append(Schema(release, {"apiKey": -1, **json.loads(text)}))
    return tuple(found)


def struct_of(schema: Schema) -> type[Struct]:
    found: type[Struct] = getattr(metadata, schema.name)
    return found


VERSIONS = [
    pytest.param(schema, version, id=f"{schema.name}-{schema.release}-v{version}")
    for folder in FOLDERS
    for schema in schemas(folder)
    for version in schema.versions
]


def samples(schema: Schema, version: int) -> list[Source]:
    chance = Random(f"{schema.name} {version}")
    return [Empty(), Zero(), Smallest(), Largest(), *(Chance(chance) for _ in range(CHANCES))]


@pytest.mark.parametrize(("schema", "version"), VERSIONS)
def test_what_kafka_writes_is_read_and_written_back(schema: Schema, version: int) -> None:
    struct = struct_of(schema)
    for source in samples(schema, version):
        tree = tree_of(schema, version, source)
        theirs = schema.encode(version, tree)
        record = struct.decode(version, theirs)
        assert record == instance_of(struct, schema.fields, tree)
        assert record.encode(version) == theirs
        assert reference.decode(struct, version, theirs) == record
        assert reference.encode(record, version) == theirs


@pytest.mark.parametrize(("schema", "version"), VERSIONS)
def test_fields_are_kafkas_in_name_kind_order_and_default(schema: Schema, version: int) -> None:
    struct = struct_of(schema)
    assert struct.first_flexible == 0
    assert version in schema.flexible
    compare_fields(struct, schema.fields, version, True, schema.name)


def test_all_records_of_all_releases_are_known_by_kafkas_keys_and_versions() -> None:
    newest = {schema.name: schema for schema in schemas("metadata")}
    assert {schema.key: name for name, schema in newest.items()} == {
        key: kind.__name__ for key, kind in metadata.RECORD_KEYS.items()
    }
    newest |= {schema.name: schema for schema in schemas("control")}
    for name, schema in newest.items():
        versions = struct_of(schema).valid_versions
        assert range(versions.first, versions.last + 1) == schema.versions, name
    assert {kind.__name__ for kind in metadata.CONTROL_TYPES.values()} == {
        schema.name for schema in schemas("control")
    }


@pytest.mark.parametrize(
    "schema", schemas("metadata"), ids=lambda schema: f"{schema.name}-{schema.release}"
)
def test_a_record_is_found_by_its_frame_in_every_version(schema: Schema) -> None:
    for version in schema.versions:
        for source in samples(schema, version):
            tree = tree_of(schema, version, source)
            value = bytes((1, schema.key, version)) + schema.encode(version, tree)
            record = metadata.decode_record(value)
            assert record == instance_of(struct_of(schema), schema.fields, tree)
            assert metadata.decode_record(memoryview(value)) == record


@pytest.mark.parametrize(("schema", "version"), VERSIONS)
def test_tags_of_later_kafka_are_stepped_over(schema: Schema, version: int) -> None:
    struct = struct_of(schema)
    for source in samples(schema, version):
        tree = tree_of(schema, version, source)
        record = struct.decode(version, schema.encode(version, tree, strange_tags=True))
        assert record == instance_of(struct, schema.fields, tree)


@pytest.mark.parametrize(("schema", "version"), VERSIONS)
def test_a_record_cut_anywhere_is_malformed(schema: Schema, version: int) -> None:
    decode = struct_of(schema).decoder(version)
    whole = schema.encode(version, tree_of(schema, version, Zero()))
    for size in range(len(whole)):
        with pytest.raises(Malformed):
            decode(whole[:size] + b"\x7f" * 9, 0, size)
