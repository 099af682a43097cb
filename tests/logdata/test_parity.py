"""Records of the group coordinator against Kafka's own schemas of them."""

from __future__ import annotations

import json
from functools import cache
from random import Random
from typing import TYPE_CHECKING

import pytest

from protocol import reference
from protocol.errors import Malformed
from protocol.logdata import membership, offsets
from tests.protocol.reference_schema import SCHEMAS, Schema, Tree, without_comments
from tests.protocol.reference_values import Chance, Empty, Largest, Smallest, Source, Zero, tree_of
from tests.protocol.test_message_parity import compare_fields, instance_of, snake

if TYPE_CHECKING:
    from protocol.fields import StructType
    from protocol.schema import Struct

CHANCES = 20
NOT_FOR_US = "Share"


@cache
def schema(release: str, name: str) -> Schema:
    path = SCHEMAS / release / "group-coordinator" / f"{name}.json"
    # Kafka's generator takes a null that is no text for no default at all. Then a member without
    # the tag would be one of the classic protocol, and Kafka writes the tag always; to us it is
    # one without. What Kafka writes is among the golden records of test_offsets.
    text = without_comments(path.read_text())
    if name == "ConsumerGroupMemberMetadataValue":
        text = text.replace('"default": null', '"default": "null"')
    return Schema(release, {"apiKey": -1, **json.loads(text)})


def names(release: str) -> list[str]:
    return sorted(path.stem for path in (SCHEMAS / release / "group-coordinator").glob("*.json"))


def struct_of(name: str) -> type[Struct]:
    found: type[Struct] = getattr(offsets, name, None) or getattr(membership, name)
    return found


SINCE_4 = (
    "ConsumerGroupCurrentMemberAssignmentValue",
    "ConsumerGroupRegularExpressionKey",
    "ConsumerGroupRegularExpressionValue",
)
"""Records that Kafka 4 added, or gave a field that we know."""
OF_3_9 = [
    (schema("3.9.0", name), version)
    for name in names("3.9.0")
    if name not in SINCE_4
    for version in schema("3.9.0", name).versions
]
OF_4_3 = [(schema("4.3.1", name), 0) for name in SINCE_4]
VERSIONS = [pytest.param(s, v, id=f"{s.name}-v{v}") for s, v in OF_3_9 + OF_4_3]


def our_version(struct: type[Struct], version: int) -> int:
    """Since 4.0 a key's schema has version 0, and its number stands beside."""
    return version if struct.valid_versions.holds(version) else struct.min_version


def of_3_9(tree: Tree, struct: StructType) -> Tree:
    """The tree without what our struct has no field for."""
    fields = {field.name: field for field in struct._fields}
    kept: Tree = {}
    for name, value in tree.items():
        field = fields.get(snake(name))
        if field is None:
            continue
        inner = None if field.item is None else field.item.struct
        kept[name] = value if inner is None else [of_3_9(item, inner) for item in value]
    return kept


def samples(of: Schema, version: int) -> list[Source]:
    chance = Random(f"{of.name} {version}")
    return [Empty(), Zero(), Smallest(), Largest(), *(Chance(chance) for _ in range(CHANCES))]


@pytest.mark.parametrize(("of", "version"), VERSIONS)
def test_what_kafka_writes_is_read_and_written_back(of: Schema, version: int) -> None:
    struct = struct_of(of.name)
    ours = our_version(struct, version)
    for source in samples(of, version):
        tree = tree_of(of, version, source)
        theirs = of.encode(version, tree)
        value = struct.decode(ours, theirs)
        assert value == instance_of(struct, of.fields, tree)
        assert value.encode(ours) == theirs
        assert reference.decode(struct, ours, theirs) == value
        assert reference.encode(value, ours) == theirs


@pytest.mark.parametrize(("of", "version"), VERSIONS)
def test_fields_are_kafkas_in_name_kind_order_and_default(of: Schema, version: int) -> None:
    struct = struct_of(of.name)
    ours = our_version(struct, version)
    assert (struct.first_flexible <= ours) == (version in of.flexible)
    if ours == version:
        compare_fields(struct, of.fields, version, version in of.flexible, of.name)


@pytest.mark.parametrize("name", [n for n in names("4.3.1") if n.endswith("Value")])
def test_tags_of_later_kafka_are_stepped_over(name: str) -> None:
    later, struct = schema("4.3.1", name), struct_of(name)
    chance = Random(name)
    for version in (v for v in later.versions if v in later.flexible):
        for _ in range(CHANCES):
            tree = tree_of(later, version, Chance(chance))
            value = struct.decode(version, later.encode(version, tree, strange_tags=True))
            earlier = of_3_9(tree, struct)
            assert value == instance_of(struct, later.fields, earlier)


def test_all_of_3_9_but_share_groups_is_known_by_its_key() -> None:
    keys = {v: s.name for s, v in OF_3_9 if s.name.endswith("Key")}
    assert sorted(keys) == [0, 1, 2, 3, 4, 5, 6, 7, 8]
    assert not [name for name in keys.values() if name.startswith(NOT_FOR_US)]
    for version, name in keys.items():
        of = schema("3.9.0", name)
        raw = version.to_bytes(2, "big") + of.encode(version, tree_of(of, version, Zero()))
        assert type(offsets.decode_key(raw)) is struct_of(name)


@pytest.mark.parametrize(("of", "version"), VERSIONS)
def test_a_value_cut_anywhere_is_malformed(of: Schema, version: int) -> None:
    struct = struct_of(of.name)
    decode = struct.decoder(our_version(struct, version))
    data = of.encode(version, tree_of(of, version, Largest()))[:300]
    whole = of.encode(version, tree_of(of, version, Zero()))
    for raw in (data[:-1], whole[:-1]):
        for size in range(len(raw)):
            with pytest.raises(Malformed):
                decode(raw[:size] + b"\x7f" * 9, 0, size)
