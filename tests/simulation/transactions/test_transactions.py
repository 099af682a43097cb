"""A broker that dies anywhere shows transactions whole or not at all, in simulated worlds.

`make simulate` runs the whole figure; this is a share of it, other worlds than those begin with.
And the simulation can fail: where one of the rules is broken it soon says so.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import pytest

from broker.coordinator.transactions import runtime
from broker.coordinator.transactions.ends import Ends
from broker.coordinator.transactions.loading import Loaded
from broker.producing.group_commit import GroupCommit
from tests.simulation.run import failure_of, replay
from tests.simulation.transactions.run import SIMULATION, simulate

if TYPE_CHECKING:
    from collections.abc import Callable

FIRST = 1_000_000
WORLDS = int(os.environ.get("TEST_SIM_WORLDS", "3"))
STEPS = range(800)
UNTIL_FOUND = 10
"""Worlds in which a mutant has to be found."""


@pytest.mark.parametrize("seed", range(FIRST, FIRST + WORLDS))
def test_what_was_committed_is_seen_whole_and_nothing_else(seed: int) -> None:
    failure = failure_of(seed, STEPS, SIMULATION)

    assert failure is None, f"{failure[0]}\nreplay: {replay(seed, None, SIMULATION)}"


def test_a_world_is_a_function_of_its_seed() -> None:
    one, other = simulate(FIRST, range(300)), simulate(FIRST, range(300))

    assert str(one) == str(other)
    assert one.crashes > 0


def no_sync_of_prepare(monkeypatch: pytest.MonkeyPatch) -> None:
    """The decision is carried out before it is on the disk."""

    def wait(self: GroupCommit, wanted: Any, done: Callable[[Any], None]) -> None:
        done({})

    original = Ends.decide

    def decide(self: Ends, *arguments: Any) -> None:
        with monkeypatch.context() as within:
            within.setattr(GroupCommit, "wait", wait)
            original(self, *arguments)

    monkeypatch.setattr(Ends, "decide", decide)


def markers_before_prepare(monkeypatch: pytest.MonkeyPatch) -> None:
    original = Ends.decide

    def decide(self: Ends, shard: Any, transactional_id: str, decided: Any, done: Any) -> None:
        self._write_markers(shard, decided, list(decided.partitions))
        original(self, shard, transactional_id, decided, done)

    monkeypatch.setattr(Ends, "decide", decide)


def no_settling(monkeypatch: pytest.MonkeyPatch) -> None:
    def settle(self: Any, ends: Any, *_: Any) -> None:
        for shard in self.shards:
            shard.ending.clear()

    monkeypatch.setattr(runtime, "settle", settle)


def only_the_last_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """Markers of ends before the last one are not made up for."""
    original = Loaded.__init__

    def init(self: Loaded, start_offset: int, unended: Any = ()) -> None:
        original(self, start_offset, ())

    monkeypatch.setattr(Loaded, "__init__", init)


@pytest.mark.parametrize(
    "mutate", [no_sync_of_prepare, markers_before_prepare, no_settling, only_the_last_end]
)
def test_a_broken_rule_is_found(
    monkeypatch: pytest.MonkeyPatch, mutate: Callable[[pytest.MonkeyPatch], None]
) -> None:
    mutate(monkeypatch)

    for seed in range(FIRST, FIRST + UNTIL_FOUND):
        failure = failure_of(seed, STEPS, SIMULATION)
        if failure is not None:
            assert failure[0].startswith(f"seed {seed}, step "), failure[0]  # and no fault of ours
            return
    raise AssertionError("nobody noticed")
