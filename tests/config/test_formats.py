"""Kafka's version names and the record formats they stand for."""

from __future__ import annotations

import pytest

from config.formats import record_format, release_of

# What MetadataVersion.fromVersionString of Kafka 3.9 makes of these names.
SAME = [
    ("0.8.0.1", "0.8.0"),
    ("0.8.2.2", "0.8.2"),
    ("0.9.0.1", "0.9.0"),
    ("0.10.0", "0.10.0-IV1"),
    ("0.10.1.0", "0.10.1-IV2"),
    ("0.10.2", "0.10.2-IV0"),
    ("0.11.0.3", "0.11.0-IV2"),
    ("1.0.0", "1.0-IV0"),
    ("2.8.1", "2.8-IV1"),
    ("3.0", "3.0-IV1"),
    ("3.9", "3.9-IV0"),
]

RECORD_FORMATS = [
    ("0.8.0", 0),
    ("0.8.2.2", 0),
    ("0.9.0", 0),
    ("0.10.0-IV0", 1),
    ("0.10.0-IV1", 1),
    ("0.10.2", 1),
    ("0.11.0-IV0", 2),
    ("0.11.0", 2),
    ("1.0", 2),
    ("3.0-IV1", 2),
    ("4.0-IV3", 2),
    ("4.4", 2),
]


@pytest.mark.parametrize(("name", "full"), SAME)
def test_a_release_stands_for_its_last_internal_version(name: str, full: str) -> None:
    assert release_of(name) == release_of(full)


@pytest.mark.parametrize(("name", "magic"), RECORD_FORMATS)
def test_a_version_names_the_record_format_of_its_time(name: str, magic: int) -> None:
    assert record_format(name) == magic


@pytest.mark.parametrize(
    "name",
    [
        "",
        "x",
        "3",
        "0.8",
        "0.11",
        "0.7.0",
        "1.2",
        "4.5",
        "5.0",
        "0.9.0-IV0",
        "0.10.0-IV2",
        "1.0-IV1",
        "1.0-IV",
        "1.0-iv0",
        "1.0-IV-1",
        "1..0",
        "1.0-IV0-IV0",
    ],
)
def test_a_name_that_is_no_version_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match="a Kafka version"):
        release_of(name)


def test_versions_are_in_the_order_of_their_releases() -> None:
    names = ["0.8.0", "0.9.0", "0.10.0-IV0", "0.10.0", "0.10.2", "0.11.0", "1.0", "2.8", "3.0"]
    assert sorted(names, key=release_of) == names
