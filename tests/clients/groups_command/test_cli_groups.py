"""`triglot groups` against a running server, with groups that real clients made.

It is for ours and for Apache Kafka's alike, so both must pass: `TEST_SERVER=kafka`.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest

from tests.clients.groups_command.commands import (
    HOUR_MS,
    asked,
    commit,
    commit_one,
    committed,
    delete_records,
    kafka_python_member,
    moves_of,
    refused,
    run,
)

if TYPE_CHECKING:
    from tests.support.caller import Caller

pytestmark = pytest.mark.clients


def test_lag_is_told_in_records_and_in_seconds(
    caller: Caller, bootstrap: str, group: str, hourly: tuple[str, int]
) -> None:
    topic, made_ms = hourly
    commit(caller, group, topic, {0: 2, 1: 5}, note="up to here")

    answer = asked(bootstrap, "describe", group)

    behind, done = answer["partitions"]
    assert (behind["committed"], behind["log_end"], behind["lag"]) == (2, 5, 3)
    assert behind["lag_seconds"] == (answer["now_ms"] - made_ms + 3 * HOUR_MS) / 1000
    assert (done["lag"], done["lag_seconds"]) == (0, 0)
    assert behind["metadata"] == "up to here"
    assert behind["notes"] == []
    assert (answer["state"], answer["type"], answer["members"]) == ("Empty", "classic", [])


def test_what_lies_outside_the_log_is_said(
    caller: Caller, bootstrap: str, group: str, hourly: tuple[str, int]
) -> None:
    topic, made_ms = hourly
    commit(caller, group, topic, {0: 1, 1: 7})
    delete_records(caller, topic, 3)

    answer = asked(bootstrap, "describe", group)

    below, above = answer["partitions"]
    assert below["notes"] == ["2 below the log's start 3"]
    assert below["lag"] == 2
    assert below["lag_seconds"] == (answer["now_ms"] - made_ms + 2 * HOUR_MS) / 1000
    assert above["notes"] == ["2 above the log's end"]
    assert (above["lag"], above["lag_seconds"]) == (None, None)


def test_a_description_is_a_page_for_people(
    caller: Caller, bootstrap: str, group: str, hourly: tuple[str, int]
) -> None:
    commit(caller, group, hourly[0], {0: 2, 1: 5}, note="escape \x1b[31m")

    code, out, err = run(bootstrap, "describe", group)

    assert (code, err) == (0, "")
    lines = out.splitlines()
    assert lines[0].split() == ["group", group]
    row = next(line.split() for line in lines if line.startswith(hourly[0]))
    assert row[1:5] == ["0", "2", "5", "3"]
    assert 10_800 <= float(row[5]) < 10_900
    assert "escape \\x1b[31m" in out
    assert lines[-1].startswith("2 partitions, lag 3 records, at most 10")


def test_a_reset_is_a_plan_until_it_is_executed(
    caller: Caller, bootstrap: str, group: str, hourly: tuple[str, int]
) -> None:
    commit(caller, group, hourly[0], {0: 2, 1: 5})

    planned = moves_of(bootstrap, group, "--all-topics", "--to-earliest")
    assert planned == {0: (2, 0), 1: (5, 0)}
    assert committed(bootstrap, group) == {0: 2, 1: 5}

    done = moves_of(bootstrap, group, "--all-topics", "--to-earliest", "--execute")
    assert done == planned
    assert committed(bootstrap, group) == {0: 0, 1: 0}


def test_a_reset_goes_by_offset_end_time_age_and_distance(
    caller: Caller, bootstrap: str, group: str, hourly: tuple[str, int]
) -> None:
    topic, made_ms = hourly
    commit(caller, group, topic, {0: 2})
    both = (group, "--topic", topic)
    three_hours_before = time.strftime(
        "%Y-%m-%dT%H:%M:%SZ", time.gmtime((made_ms - 3 * HOUR_MS) // 1000)
    )

    def news(*arguments: str) -> list[int | None]:
        return [new for _, new in moves_of(bootstrap, *arguments).values()]

    assert news(*both, "--to-offset", "4") == [4, 4]
    assert news(*both, "--to-offset", "9") == [5, 5]
    assert news(*both, "--to-latest") == [5, 5]
    assert news(*both, "--to-time", three_hours_before) == [2, 2]
    assert news(*both, "--to-time", str(made_ms - 2 * HOUR_MS + 1)) == [4, 4]
    assert news(*both, "--to-time", str(made_ms)) == [5, 5]
    assert news(*both, "--by-duration", "2h30m") == [3, 3]
    assert news(*both, "--by-duration", "PT150M") == [3, 3]
    assert news(*both, "--shift", "2") == [4, None]
    assert news(*both, "--shift", "-7") == [0, None]
    assert news(group, "--topic", f"{topic}:1", "--to-earliest") == [0]
    assert news(group, "--all-topics", "--to-latest") == [5]


def test_a_reset_says_where_it_had_to_stop(
    caller: Caller, bootstrap: str, group: str, hourly: tuple[str, int]
) -> None:
    delete_records(caller, hourly[0], 3)

    code, out, _ = run(bootstrap, "reset", group, "--topic", f"{hourly[0]}:0", "--to-offset", "1")

    assert code == 0
    assert "1 is below the log's start 3" in out
    assert f"there was no group '{group}'" in out
    assert "nothing was changed: --execute does it" in out


def test_what_is_not_there_is_one_sentence(bootstrap: str, group: str, topic: str) -> None:
    assert f"there is no group '{group}'" in refused(bootstrap, "describe", group)
    assert f"there is no group '{group}'" in refused(bootstrap, "delete", group)
    assert f"there is no topic '{topic}'" in refused(
        bootstrap, "reset", group, "--topic", topic, "--to-latest"
    )
    assert "has committed nothing" in refused(
        bootstrap, "reset", group, "--all-topics", "--to-latest"
    )


def test_a_partition_that_is_not_there_is_one_sentence(
    bootstrap: str, group: str, hourly: tuple[str, int]
) -> None:
    said = refused(bootstrap, "reset", group, "--topic", f"{hourly[0]}:2", "--to-latest")
    assert "has no partition 2" in said


def test_offsets_and_groups_are_deleted_when_it_is_executed(
    caller: Caller, bootstrap: str, group: str, hourly: tuple[str, int]
) -> None:
    commit(caller, group, hourly[0], {0: 2, 1: 5})

    asked(bootstrap, "delete", group, "--topic", f"{hourly[0]}:1")
    assert committed(bootstrap, group) == {0: 2, 1: 5}
    asked(bootstrap, "delete", group, "--topic", f"{hourly[0]}:1", "--execute")
    assert committed(bootstrap, group) == {0: 2}

    asked(bootstrap, "delete", group)
    assert committed(bootstrap, group) == {0: 2}
    asked(bootstrap, "delete", group, "--execute")
    assert "there is no group" in refused(bootstrap, "describe", group)


def test_members_are_told_with_what_they_read(
    bootstrap: str, group: str, hourly: tuple[str, int]
) -> None:
    with kafka_python_member(bootstrap, group, hourly[0]) as consumer:
        commit_one(consumer, hourly[0])
        answer = asked(bootstrap, "describe", group)
        (listed,) = [
            entry
            for entry in asked(bootstrap, "list", "--state", "stable", "--type", "classic")[
                "groups"
            ]
            if entry["group"] == group
        ]

    assert (answer["state"], answer["type"], answer["protocol_type"]) == (
        "Stable",
        "classic",
        "consumer",
    )
    (member,) = answer["members"]
    assert member["client_id"] == "reader"
    assert member["host"] == "/127.0.0.1"
    both = [{"topic": hourly[0], "partition": index} for index in (0, 1)]
    assert member["partitions"] == both
    read, unread = answer["partitions"]
    assert read["owner"] == unread["owner"] == member["member_id"]
    assert (read["committed"], read["lag"]) == (1, 4)
    assert (unread["committed"], unread["lag"]) == (None, None)
    assert unread["notes"] == ["nothing committed"]
    assert listed["state"] == "Stable"


def test_nothing_is_reset_or_deleted_while_a_group_has_members(
    bootstrap: str, group: str, hourly: tuple[str, int]
) -> None:
    with kafka_python_member(bootstrap, group, hourly[0]) as consumer:
        commit_one(consumer, hourly[0])
        member_id = asked(bootstrap, "describe", group)["members"][0]["member_id"]
        said = refused(bootstrap, "reset", group, "--all-topics", "--to-latest", "--execute")
        assert f"group '{group}' has 1 member, stop them first: {member_id} (reader at" in said
        assert "stop them first" in refused(bootstrap, "delete", group, "--execute")
        assert "GROUP_SUBSCRIBED_TO_TOPIC" in refused(
            bootstrap, "delete", group, "--topic", hourly[0], "--execute"
        )
    assert committed(bootstrap, group)[0] == 1
