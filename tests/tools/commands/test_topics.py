"""`triglot topics`, `configs` and `offsets` as a user types them, at brokers of every age."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from tests.support.server_process import free_port
from tests.support.typed_bytes import typed

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.tools.commands.conftest import Doors

WITH_ADMINISTRATION = ["V010", "V011", "V41"]
BEFORE_IT = ["V08", "V09"]


def at(bootstrap: str, *words: str) -> tuple[str, ...]:
    return (*words, "--bootstrap", bootstrap)


def made(bootstrap: str, name: str, *words: str) -> str:
    ran = typed(*at(bootstrap, "topics", "create", name, *words))
    assert (ran.code, ran.err) == (0, "")
    return name


@pytest.mark.parametrize("door", WITH_ADMINISTRATION)
def test_topics_are_made_changed_and_deleted(
    door: str, broker: Doors, new_name: Callable[[], str]
) -> None:
    there = broker.at(door)
    name = made(there, new_name(), "--partitions", "2", "--set", "retention.ms=3600000")
    listed = typed(*at(there, "topics", "list", name, "--json")).answer
    assert listed == [{"name": name, "partitions": 2, "replicas": 1, "is_internal": False}]

    (topic,) = typed(*at(there, "topics", "describe", name, "--json")).answer
    assert [one["partition"] for one in topic["partitions"]] == [0, 1]
    assert {(one["start"], one["end"]) for one in topic["partitions"]} == {(0, 0)}
    settings = {one["name"]: one["value"] for one in topic["settings"]}
    assert settings == ({} if door == "V010" else {"retention.ms": "3600000"})

    only_said = typed(*at(there, "topics", "delete", name))
    assert b"nothing was changed: --execute does it" in only_said.out
    deleted = typed(*at(there, "topics", "delete", name, "--execute", "--json")).answer
    assert deleted == {"topics": [name], "executed": True}
    assert "there is no topic" in typed(*at(there, "topics", "describe", name)).refusal


@pytest.mark.parametrize("door", BEFORE_IT)
def test_topics_of_brokers_without_administration_are_listed_and_described(
    door: str, broker: Doors, bootstrap: str, new_name: Callable[[], str]
) -> None:
    name = made(bootstrap, new_name(), "--partitions", "3")
    there = broker.at(door)
    (listed,) = typed(*at(there, "topics", "list", name, "--json")).answer
    assert listed["partitions"] == 3
    (topic,) = typed(*at(there, "topics", "describe", name, "--json")).answer
    assert [one["end"] for one in topic["partitions"]] == [0, 0, 0]
    for words in (("create", new_name()), ("delete", name, "--execute")):
        assert "Kafka before 0.10.1" in typed(*at(there, "topics", *words)).refusal
    said = typed(*at(there, "configs", "describe", "topic", name)).refusal
    assert "tells no settings (Kafka 0.11 is the first that does)" in said
    said = typed(*at(there, "topics", "alter", name, "--set", "retention.ms=1")).refusal
    assert "topics can be changed from Kafka 0.11 on" in said


@pytest.mark.parametrize("door", ["V011", "V41"])
def test_one_setting_is_changed_and_the_others_stay(
    door: str, broker: Doors, new_name: Callable[[], str]
) -> None:
    there = broker.at(door)
    name = made(there, new_name(), "--set", "retention.ms=3600000", "--set", "segment.ms=60000")
    words = ("--set", "retention.bytes=1000000", "--unset", "segment.ms")
    assert typed(*at(there, "configs", "alter", "topic", name, *words)).code == 0
    found = typed(*at(there, "configs", "describe", "topic", name, "--json")).answer
    assert {one["name"]: one["value"] for one in found["settings"]} == {
        "retention.ms": "3600000",
        "retention.bytes": "1000000",
    }


def test_partitions_are_added_and_not_removed(broker: Doors, new_name: Callable[[], str]) -> None:
    there = broker.at("V41")
    name = made(there, new_name(), "--partitions", "2")
    ran = typed(*at(there, "topics", "alter", name, "--partitions", "5", "--json"))
    assert ran.answer == {"topic": name, "partitions": 5, "set": {}, "unset": []}
    refused = typed(*at(there, "topics", "alter", name, "--partitions", "3")).refusal
    assert "INVALID_PARTITIONS" in refused


def test_what_a_broker_is_too_old_for_is_told_with_the_first_that_is_not(
    broker: Doors, new_name: Callable[[], str]
) -> None:
    there = broker.at("V011")
    name = made(there, new_name())
    said = typed(*at(there, "topics", "alter", name, "--partitions", "3")).refusal
    assert "adds no partitions (Kafka 1.0 is the first)" in said
    words = ("configs", "alter", "broker", "1", "--set", "log.cleaner.threads=2")
    said = typed(*at(broker.at("V21"), *words)).refusal
    assert "is too old to change the settings of broker '1'" in said
    assert "others from 2.3" in said


def test_a_topic_that_exists_is_refused_or_left_as_it_is(
    bootstrap: str, new_name: Callable[[], str]
) -> None:
    name, other = made(bootstrap, new_name()), new_name()
    refused = typed(*at(bootstrap, "topics", "create", other, name)).refusal
    assert f"cannot make topic '{name}'" in refused
    assert f"({other} made before)" in refused
    ran = typed(*at(bootstrap, "topics", "create", name, "--if-not-exists", "--json"))
    assert ran.answer == {"made": [], "existing": [name], "validated_only": False}


def test_a_topic_that_is_only_validated_is_not_made(
    bootstrap: str, new_name: Callable[[], str]
) -> None:
    name = made(bootstrap, new_name(), "--validate-only")
    assert typed(*at(bootstrap, "topics", "list", name)).out == b"no topics\n"
    refused = typed(*at(bootstrap, "topics", "create", "no/name", "--validate-only")).refusal
    assert "INVALID_TOPIC_EXCEPTION" in refused


def test_topics_are_listed_by_patterns(bootstrap: str, new_name: Callable[[], str]) -> None:
    first, second = made(bootstrap, f"a-{new_name()}"), made(bootstrap, f"b-{new_name()}")
    listed = typed(*at(bootstrap, "topics", "list", "a-topic-?*", "b-*")).out.decode()
    assert first in listed
    assert second in listed
    assert typed(*at(bootstrap, "topics", "list", "A-*")).out == b"no topics\n"


@pytest.mark.parametrize(
    "words",
    [
        ("topics", "describe"),
        ("topics", "delete"),
        ("topics", "alter", "--set", "retention.ms=1"),
        ("offsets",),
        ("configs", "describe", "topic"),
        ("consume",),
        ("produce",),
    ],
)
def test_an_unknown_topic_is_told_with_the_nearest(
    words: tuple[str, ...], bootstrap: str, new_name: Callable[[], str]
) -> None:
    name = made(bootstrap, f"orders-{new_name()}")
    wrong = name.replace("orders", "oders")
    said = typed(*at(bootstrap, *words, wrong)).refusal
    assert f"there is no topic '{wrong}' on {bootstrap}: did you mean 'orders-" in said


def test_an_unknown_setting_or_broker_is_told(bootstrap: str, new_name: Callable[[], str]) -> None:
    name = made(bootstrap, new_name())
    said = typed(*at(bootstrap, "configs", "describe", "topic", name, "retention.m")).refusal
    assert "has no setting 'retention.m': did you mean 'retention.ms'?" in said
    said = typed(*at(bootstrap, "configs", "describe", "broker", "17", "--all")).refusal
    assert f"there is no broker '17' on {bootstrap}: it has 1" in said
    said = typed(*at(bootstrap, "topics", "alter", name, "--set", "retention.mss=1")).refusal
    assert "did you mean retention.ms?" in said


def test_settings_of_a_broker_are_changed_for_it_and_for_all(bootstrap: str) -> None:
    key = "log.cleaner.threads"
    for broker, source in (("1", "broker"), ("", "all brokers")):
        words = ("configs", "alter", "broker", broker, "--set", f"{key}=2")
        assert typed(*at(bootstrap, *words)).code == 0
        found = typed(*at(bootstrap, "configs", "describe", "broker", broker, "--json")).answer
        assert {"name": key, "value": "2", "source": source, "is_own": True} in found["settings"]
        words = ("configs", "alter", "broker", broker, "--unset", key)
        assert typed(*at(bootstrap, *words)).code == 0


def test_offsets_are_told_by_partition_and_by_time(
    bootstrap: str, new_name: Callable[[], str], tmp_path: Path
) -> None:
    name = made(bootstrap, new_name(), "--partitions", "2")
    lines = [{"value": str(n), "timestamp_ms": 1000 * n, "partition": 1} for n in range(5)]
    file = tmp_path / "lines"
    file.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    assert typed(*at(bootstrap, "produce", name, str(file), "--input", "json")).code == 0
    found = typed(*at(bootstrap, "offsets", name, "--time", "2500", "--json")).answer
    assert [(one["start"], one["end"], one["records"], one["at"]) for one in found] == [
        (0, 0, 0, None),
        (0, 5, 5, 3),
    ]
    (alone,) = typed(*at(bootstrap, "offsets", f"{name}:1", "--json")).answer
    assert alone == {
        **{"topic": name, "partition": 1, "start": 0, "end": 5, "records": 5, "note": ""}
    }
    said = typed(*at(bootstrap, "offsets", f"{name}:0,7")).refusal
    assert f"topic '{name}' has no partition 7, but 2 counted from 0" in said


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("topics", "alter", "t"), "name what to change: --partitions N"),
        (("topics", "create", "t", "--set", "retention.ms"), "wanted NAME=VALUE"),
        (("topics", "alter", "t", "--set", "a=1", "--unset", "a"), "a is named twice"),
        (("configs", "alter", "topic", "t"), "name what to change: --set KEY=VALUE"),
        (("configs", "describe", "tpic", "t"), "invalid choice"),
        (("offsets", "t:x"), "wanted TOPIC or TOPIC:0,3, found 't:x'"),
        (("offsets", "t", "--time", "soon"), "wanted a time such as"),
        (("topics",), "ACTION"),
    ],
)
def test_a_wrong_command_line_is_exit_code_2(words: tuple[str, ...], sentence: str) -> None:
    ran = typed(*words)
    assert ran.code == 2
    assert sentence in ran.err


def test_a_broker_that_is_down_is_one_line() -> None:
    nobody = f"127.0.0.1:{free_port()}"
    for words in (("topics", "list"), ("offsets", "t"), ("consume", "t"), ("produce", "t")):
        said = typed(*at(nobody, *words)).refusal
        assert f"cannot connect to {nobody}: connection refused" in said
