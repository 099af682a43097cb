"""Declarations: what a message class offers, and which declarations fail at import."""

from __future__ import annotations

import copy
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from protocol.fields import VersionRange
from protocol.schema import (
    Message,
    Struct,
    array,
    binary,
    boolean,
    constructor,
    float64,
    int8,
    int16,
    int32,
    int64,
    records,
    string,
    struct,
    uint16,
    uint32,
    uuid,
)
from tests.protocol.declarations import LogValue, Point


class Commit(Message, key=8, versions="0-9", flexible="8+"):
    class Topic(Struct):
        class Partition(Struct):
            partition: int = int32()
            offset: int = int64()
            leader_epoch: int = int32("6+", default=-1)
            metadata: str | None = string(nullable="", default=None)

        name: str = string()
        partitions: list[Partition] = array(Partition)

    group_id: str = string()
    member_id: str = string("1+", default="")
    group_instance_id: str | None = string("7+", nullable="7+", default=None)
    retention_ms: int = int64("2-4", default=-1)
    topics: list[Topic] = array(Topic)
    hints: list[int] = array(int32, "8+", tag=0, default=())
    point: Point = struct(Point, "8+", tag=1, default=())


def commit(**others: Any) -> Commit:
    return Commit(group_id="g", topics=[], **others)


# What a message offers.


def test_a_message_knows_its_key_and_versions() -> None:
    assert (Commit.key, Commit.min_version, Commit.max_version) == (8, 0, 9)
    assert Commit.first_flexible == 8
    assert (LogValue.min_version, LogValue.max_version, LogValue.first_flexible) == (0, 2, 2)


def test_a_message_that_is_never_flexible_says_32767() -> None:
    class Handshake(Message, key=17, versions="0-1"):
        mechanism: str = string()

    assert Handshake.first_flexible == 32767


def test_a_field_may_be_called_key() -> None:
    class FindCoordinator(Message, key=10, versions="0-6", flexible="3+"):
        key: str = string("0-3", default="")
        min_version: int = int32("4+", default=7)

    message = FindCoordinator(key="group")
    assert (FindCoordinator.key, FindCoordinator.min_version) == (10, 0)
    assert (message.key, message.min_version) == ("group", 7)
    assert FindCoordinator.decode(3, message.encode(3)) == message


def test_a_part_of_a_message_has_neither_key_nor_versions() -> None:
    with pytest.raises(AttributeError, match=r"Commit\.Topic is a part of a message"):
        Commit.Topic.decoder(0)
    with pytest.raises(AttributeError, match="no API key"):
        _ = LogValue.key


def test_fields_without_a_default_must_be_given_by_name() -> None:
    with pytest.raises(TypeError, match="group_id"):
        Commit(topics=[])  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="positional"):
        Commit("g", [])  # type: ignore[call-arg, arg-type]
    with pytest.raises(TypeError, match="grup_id"):
        Commit(grup_id="g", topics=[])  # type: ignore[call-arg]


def test_the_other_fields_take_their_defaults() -> None:
    message = commit()
    assert (message.member_id, message.group_instance_id, message.retention_ms) == ("", None, -1)
    assert (message.hints, message.point) == ([], Point())


def test_a_default_list_belongs_to_one_message() -> None:
    message = commit()
    message.hints.append(1)
    assert commit().hints == []
    decoded = Commit.decode(0, commit().encode(0))
    decoded.hints.append(1)
    assert Commit.decode(0, commit().encode(0)).hints == []


def test_a_default_struct_is_shared_and_refuses_to_be_changed() -> None:
    message = commit()
    assert isinstance(message.point, Point)
    with pytest.raises(AttributeError, match=r"Point\.x: this is the shared default"):
        message.point.x = 5
    with pytest.raises(AttributeError, match="shared default"):
        del message.point.x
    message.point = Point(x=5)
    assert (message.point.x, commit().point.x) == (5, -1)


def test_the_fast_constructor_makes_the_same() -> None:
    make = constructor(Commit)
    made = make(group_id="g", topics=[], retention_ms=5)
    assert made == commit(retention_ms=5)
    assert type(made) is Commit
    assert make(group_id="g", topics=[]).hints is not make(group_id="g", topics=[]).hints
    with pytest.raises(TypeError, match=r"Commit\.make\(\) missing .* 'group_id'"):
        make(topics=[])  # type: ignore[call-arg]


def test_a_message_has_no_place_for_other_attributes() -> None:
    message = commit()
    with pytest.raises(AttributeError):
        message.throttle_ms = 1  # type: ignore[attr-defined]


def test_messages_are_equal_field_by_field() -> None:
    topic = Commit.Topic(name="t", partitions=[Commit.Topic.Partition(partition=1, offset=2)])
    one, other = (
        Commit(group_id="g", topics=[topic]),
        Commit(group_id="g", topics=[copy.copy(topic)]),
    )
    assert one == other
    other.topics[0].name = "u"
    assert one != other
    assert one != "g"
    with pytest.raises(TypeError, match="unhashable"):
        hash(one)


def test_structs_of_two_classes_are_never_equal() -> None:
    class Pair(Struct):
        x: int = int32(default=-1)
        y: int = int64(default=-1)

    assert Pair() != Point()


def test_a_message_shows_its_fields() -> None:
    class Blob(Message, key=1, versions="0"):
        name: str = string()
        data: bytes = binary()
        records: memoryview = records()

    blob = Blob(name="n", data=b"d" * 100, records=memoryview(b"r" * 7))
    expected = "Blob(name='n', data=<100 bytes>, records=<7 bytes>)"
    assert repr(blob).endswith(expected)
    assert repr(Point(x=1, y=2)) == "Point(x=1, y=2)"
    assert repr(commit().point) == "Point(x=-1, y=-1)"


def test_a_field_that_a_version_lacks_is_not_written_and_reads_as_its_default() -> None:
    message = commit(retention_ms=77, member_id="m")
    assert Commit.decode(0, message.encode(0)) == commit()
    assert Commit.decode(1, message.encode(1)) == commit(member_id="m")
    assert Commit.decode(2, message.encode(2)) == message


def test_decode_takes_a_memoryview_too() -> None:
    assert Commit.decode(9, memoryview(commit().encode(9))) == commit()


# Ranges.


@pytest.mark.parametrize(
    ("text", "first", "last"),
    [("", 0, 32767), ("0+", 0, 32767), ("3+", 3, 32767), ("2-4", 2, 4), ("1", 1, 1)],
)
def test_a_range_is_written_as_kafka_writes_it(text: str, first: int, last: int) -> None:
    assert VersionRange.parse(text) == (first, last)
    assert str(VersionRange.parse(text)) == (text or "0+")


@pytest.mark.parametrize(
    "text", ["+", "-", "3-", "-3", "2-1", "x", "1-2+", "1,2", " 1", "1.0", "²"]
)
def test_what_is_no_range_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="range"):
        VersionRange.parse(text)


# Impossible declarations. Each is what the body of a message with these arguments would hold.

IMPOSSIBLE: list[tuple[str, Any, dict[str, Any], str]] = [
    ("tag before flexible", lambda: int32("1+", tag=0, default=0), {}, "tag in version 1"),
    ("tag, never flexible", lambda: int32("1+", tag=0, default=0), {"flexible": None}, "tag in"),
    ("tag without default", lambda: int32("2+", tag=0), {}, "needs a default"),
    ("negative tag", lambda: int32("2+", tag=-1, default=0), {}, "tag -1"),
    ("records with tag", lambda: array(Holder, "2+", tag=0, default=()), {}, "records cannot"),
    ("nullable outside", lambda: string("2+", nullable="1+", default=""), {}, "nullable in 1"),
    ("no null on the wire", lambda: array(int32, tag=None, nullable="x"), {}, "range"),
    ("missing default", lambda: int32("1+"), {}, "needs a default"),
    ("missing default at the end", lambda: int32("0-2"), {}, "needs a default"),
    ("no such version", lambda: int32("4+", default=0), {}, "is in 4"),
    ("null default", lambda: string(default=None), {}, "not nullable"),
    ("null default of int", lambda: int32(default=None), {}, "not nullable"),
    ("wrong type", lambda: int32(default="0"), {}, "not an int32"),
    ("bool for int", lambda: int8(default=True), {}, "not an int8"),
    ("too large", lambda: int8(default=128), {}, "not an int8"),
    ("too small", lambda: uint16(default=-1), {}, "not an uint16"),
    ("too large unsigned", lambda: uint32(default=1 << 32), {}, "not an uint32"),
    ("too large 16", lambda: int16(default=1 << 15), {}, "not an int16"),
    ("int for bool", lambda: boolean(default=0), {}, "not a boolean"),
    ("int for float", lambda: float64(default=1), {}, "not a float64"),
    ("bytes for string", lambda: string(default=b""), {}, "not a string"),
    ("str for bytes", lambda: binary(default=""), {}, "not a binary"),
    ("other uuid", lambda: uuid(default=bytes(15)), {}, "ZERO_UUID"),
    ("shared list", lambda: array(int32, default=[]), {}, r"is \(\) or None"),
    ("elements with a tag", lambda: array(int32("2+", tag=0, default=0)), {}, "neither a tag"),
    ("elements of nothing", lambda: array(dict), {}, "cannot hold"),
    ("struct without defaults", lambda: struct(Holder, default=()), {}, "to share for data"),
    ("default with a list", lambda: struct(Lister, default=()), {}, "to share for items"),
    ("bad range", lambda: int32("3-1"), {}, "ends before it begins"),
    ("flexible too late", int32, {"flexible": "4+"}, "flexible in 4"),
    ("flexible for a while", int32, {"flexible": "1-2"}, "flexible in 1-2"),
    ("no key", int32, {"key": None}, "needs key="),
    ("no versions", int32, {"versions": None, "flexible": None}, "no versions"),
]


class Holder(Struct):
    data: memoryview = records()


class Lister(Struct):
    items: list[int] = array(int32, default=())


@pytest.mark.parametrize(
    ("field", "arguments", "problem"),
    [case[1:] for case in IMPOSSIBLE],
    ids=[case[0] for case in IMPOSSIBLE],
)
def test_an_impossible_declaration_fails_at_import(
    field: Any, arguments: dict[str, Any], problem: str
) -> None:
    options = {"key": 1, "versions": "0-3", "flexible": "2+"} | arguments
    with pytest.raises((TypeError, ValueError), match=problem):

        class Impossible(Message, **options):
            value: Any = field()


def test_the_field_at_fault_is_named_even_deep_inside() -> None:
    class Row(Struct):
        late: int = int32("3+")

    with pytest.raises(TypeError, match=r"Table\.rows\.late is missing from some of 1-5"):

        class Table(Message, key=1, versions="0-5"):
            rows: list[Row] = array(Row, "1+", default=())

    # In the versions of a field around it, the same struct is complete.
    class Later(Message, key=1, versions="0-5"):
        rows: list[Row] = array(Row, "3+", default=())

    assert Later.decode(5, Later(rows=[Row(late=1)]).encode(5)).rows[0].late == 1


def test_a_tag_is_used_once_in_a_struct() -> None:
    with pytest.raises(TypeError, match=r"second repeats tag 3 of first"):

        class Twice(Struct):
            first: int = int32("1+", tag=3, default=0)
            second: int = int32("2+", tag=3, default=0)


def test_an_annotation_and_a_field_function_belong_together() -> None:
    with pytest.raises(TypeError, match=r"forgotten is annotated but has no field function"):

        class Half(Struct):
            forgotten: int

    with pytest.raises(TypeError, match=r"unseen has no annotation"):

        class OtherHalf(Struct):
            unseen = int32()


def test_a_field_has_one_name_and_a_public_one() -> None:
    shared = int32()
    with pytest.raises(TypeError, match="other is no name, or its field has one already"):

        class Shared(Struct):
            one: int = shared
            other: int = shared

    with pytest.raises(TypeError, match="_hidden is no name"):

        class Hidden(Struct):
            _hidden: int = int32()


def test_fields_are_not_inherited() -> None:
    with pytest.raises(TypeError, match="inherits fields"):

        class More(Point):
            z: int = int32(default=0)


# What a type checker sees.

WRONG = """
from protocol.schema import Message, Struct, array, int32, string

class Topics(Message, key=1, versions="0"):
    class Topic(Struct):
        name: str = string()

    count: int = int32()
    text: str = string("1+", default="")
    topics: list[Topic] = array(Topic)

Topics(count=1, topics=[])
Topics(count="1", topics=[])
Topics(count=1)
Topics(cuont=1, topics=[])
Topics(count=1, topics=[]).txet
Topics.decode(0, b"").topics[0].name + 1
"""


@pytest.mark.slow
def test_a_type_checker_sees_wrong_names_wrong_types_and_missing_fields(tmp_path: Path) -> None:
    root = Path(__file__).resolve().parents[2]
    script = tmp_path / "wrong.py"
    script.write_text(WRONG)
    command = [sys.executable, "-m", "mypy", "--strict", "--no-error-summary", str(script)]
    checked = subprocess.run(
        command, cwd=root, capture_output=True, text=True, timeout=100, check=False
    )
    errors = [line.partition("error: ")[2] for line in checked.stdout.splitlines()]
    for line in (13, 14, 15, 16, 17):
        assert f"wrong.py:{line}: error" in checked.stdout, checked.stdout + checked.stderr
    assert "wrong.py:12: error" not in checked.stdout
    assert any('"count" to "Topics" has incompatible type "str"' in error for error in errors)
    assert any('Missing named argument "topics"' in error for error in errors)
    assert any('did you mean "count"' in error for error in errors)
