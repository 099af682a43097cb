"""Values are read from text as Kafka's ConfigDef.parseType of 3.9 reads them."""

from __future__ import annotations

from typing import Any

import pytest

from config.kinds import Kind, boolean, class_name, double, int16, int32, int64, names, string

# Printed by Kafka for the same texts. Surrounding blanks are dropped before a kind sees them.
KAFKA_READS: list[tuple[Kind[Any], str, Any]] = [
    (int32, "5", 5),
    (int32, "+5", 5),
    (int32, "-5", -5),
    (int32, "2147483647", 2147483647),
    (int16, "32767", 32767),
    (int64, "9223372036854775807", 9223372036854775807),
    (int64, "-9223372036854775808", -9223372036854775808),
    (boolean, "true", True),
    (boolean, "TRUE", True),
    (boolean, "False", False),
    (names, "a,b", ("a", "b")),
    (names, "a , b", ("a", "b")),
    (names, "", ()),
    (names, ",", ("", "")),
    (names, "a,,b", ("a", "", "b")),
    (names, "a b", ("a b",)),
    (double, "1", 1.0),
    (double, ".5", 0.5),
    (double, "1e3", 1000.0),
    (double, "-1.5E-3", -0.0015),
    (string, "a b", "a b"),
    (string, "", ""),
]

KAFKA_REFUSES: list[tuple[Kind[Any], str]] = [
    (int32, "1_0"),
    (int32, "0x10"),
    (int32, ""),
    (int32, "-"),
    (int32, "2147483648"),
    (int32, "5.0"),
    (int32, "1e3"),
    (int16, "32768"),
    (int64, "9223372036854775808"),
    (int64, "5L"),
    (boolean, "yes"),
    (boolean, "1"),
    (boolean, ""),
    (double, "x"),
    (double, ""),
    (double, "1_0"),
    (double, "1,5"),
]


@pytest.mark.parametrize(("kind", "text", "value"), KAFKA_READS)
def test_a_text_has_the_value_kafka_gives_it(kind: Kind[Any], text: str, value: Any) -> None:
    assert kind.parse(text) == value


@pytest.mark.parametrize(("kind", "text"), KAFKA_REFUSES)
def test_a_text_kafka_refuses_is_refused(kind: Kind[Any], text: str) -> None:
    with pytest.raises(ValueError, match=r"\w"):
        kind.parse(text)


def test_a_number_that_is_none_is_refused_unlike_in_kafka() -> None:
    with pytest.raises(ValueError, match="a number"):
        double.parse("NaN")


def test_a_number_of_a_million_digits_is_refused_at_once() -> None:
    with pytest.raises(ValueError, match="whole number"):
        int64.parse("9" * 1_000_000)


def test_a_class_is_a_dotted_name() -> None:
    assert class_name.parse("org.example.Outer$Inner") == "org.example.Outer$Inner"
    for text in ("", "a b", "a..b", "1a"):
        with pytest.raises(ValueError, match="class"):
            class_name.parse(text)


def test_a_value_is_written_as_kafka_writes_it() -> None:
    assert boolean.format(True) == "true"
    assert names.format(("a", "b")) == "a,b"
    assert [double.format(one) for one in (0.5, 1.0, 1.7976931348623157e308)] == [
        "0.5",
        "1.0",
        "1.7976931348623157E308",
    ]
