"""What several processes tell of themselves is one page, and no figure jumps when one is away."""

from __future__ import annotations

from typing import Any

import pytest

from tools.console.broker_port import BrokerPort, NoAnswer
from tools.console.figures import Figures, Rates
from tools.console.joined_ports import JoinedPorts

FIELDS = ("bytes_in", "bytes_out", "byte_size", "records", "end")


class Port(BrokerPort):
    """A process that tells what a test has it tell."""

    def __init__(self) -> None:
        super().__init__(0, "")
        self.topics: dict[str, list[int]] = {}
        self.groups: dict[str, list[float]] = {}
        self.is_there = True

    def require_there(self) -> None:
        if not self.is_there:
            raise NoAnswer("it is away")

    def ask(self, path: str) -> Any:
        if path == "/groups":
            return {"now_ms": 1, "groups": self.groups}
        columns = list(zip(*self.topics.values(), strict=True)) or [()] * len(FIELDS)
        told = dict(zip(FIELDS, map(list, columns), strict=True))
        return {"now_ms": 1, "topics": {"names": list(self.topics), **told}}


@pytest.fixture
def ports() -> list[Port]:
    return [Port(), Port()]


@pytest.fixture
def joined(ports: list[Port]) -> JoinedPorts:
    return JoinedPorts({1: ports[0], 2: ports[1]})


def row(joined: JoinedPorts, name: str) -> list[int]:
    columns = joined.ask("/topics")["topics"]
    at = columns["names"].index(name)
    return [columns[field][at] for field in FIELDS]


def test_each_process_adds_its_share_of_a_topic(ports: list[Port], joined: JoinedPorts) -> None:
    ports[0].topics = {"orders": [10, 1, 100, 5, 7], "other": [0, 0, 0, 0, 0]}
    ports[1].topics = {"other": [1, 1, 1, 1, 1], "orders": [20, 2, 200, 6, 8]}
    assert row(joined, "orders") == [30, 3, 300, 11, 15]
    assert row(joined, "other") == [1, 1, 1, 1, 1]


def test_a_rate_does_not_jump_when_a_process_is_away_and_begins_again(
    ports: list[Port], joined: JoinedPorts
) -> None:
    now_s = 0.0
    seen = Figures(lambda: joined.ask("/topics"), lambda: now_s)
    counted = [1_000_000, 0, 0, 0, 0]
    for port in ports:
        port.topics = {"orders": list(counted)}
    seen.look()
    for step in range(1, 25):
        now_s += 5
        ports[0].topics["orders"][0] += 500
        ports[1].is_there = not 5 <= step < 8
        assert joined.away == (frozenset() if step <= 5 or step > 8 else {2})
        if step == 8:  # it has begun again
            ports[1].topics = {"orders": [0, 0, 0, 0, 0]}
        seen.look()
        assert seen.rates("orders") == Rates(100.0, 0.0, 0.0), step


def test_a_topic_that_was_deleted_while_a_process_is_away_has_gone(
    ports: list[Port], joined: JoinedPorts
) -> None:
    for port in ports:
        port.topics = {"orders": [1, 1, 1, 1, 1]}
    joined.ask("/topics")
    ports[0].topics, ports[1].is_there = {}, False
    assert joined.ask("/topics")["topics"]["names"] == []


def test_a_group_is_behind_by_the_sum_and_in_time_by_the_longest(
    ports: list[Port], joined: JoinedPorts
) -> None:
    ports[0].groups = {"billing": [2, 10, 3.5, 1]}
    ports[1].groups = {"billing": [1, 5, 9.0, 0], "mail": [1, 0, 0.0, 2]}
    assert joined.ask("/groups")["groups"] == {"billing": [3, 15, 9.0, 1], "mail": [1, 0, 0.0, 2]}
    ports[1].is_there = False
    assert joined.ask("/groups")["groups"]["billing"] == [3, 15, 9.0, 1], "as it told last"


def test_where_no_process_answers_there_is_no_page(ports: list[Port], joined: JoinedPorts) -> None:
    for port in ports:
        port.is_there = False
    with pytest.raises(NoAnswer, match="it is away"):
        joined.ask("/topics")
    assert joined.away == {1, 2}
