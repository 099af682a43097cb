"""Faults at random: the same seed is the same faults, and all can be tried again."""

from __future__ import annotations

from typing import Any

import pytest

from broker.faults.chance import FAULTS, faults_at_random, seeded
from broker.faults.conversations import Conversations
from broker.faults.engine import Call, Engine
from broker.faults.interface import Interface

SEED = 7


@pytest.fixture
def engine() -> Engine:
    return Engine(lambda: SEED)


@pytest.fixture
def interface(engine: Engine) -> Interface:
    return Interface(engine, Conversations())


def add(interface: Interface, body: str) -> Any:
    return interface.call("POST", "/faults", body.encode())[1]


def met(engine: Engine, calls: int) -> list[tuple[int, str]]:
    """Which of so many produce requests met what."""
    found = []
    for number in range(calls):
        hit = engine.meet(Call("Produce", "shop", [("orders", 0)]))
        if hit is not None:
            found.append((number, str(hit.fault)))
    return found


def test_one_seed_is_the_same_faults_for_the_same_calls(engine: Engine) -> None:
    told = []
    for seed in (SEED, SEED, 8):
        engine.clear()
        interface = Interface(engine, Conversations())
        add(interface, f'{{"random": true, "seed": {seed}, "probability": 0.2}}')
        told.append([(number, text.split("=", 1)[1]) for number, text in met(engine, 200)])
    assert told[0] == told[1] != told[2]
    assert 20 < len(told[0]) < 190


def test_who_names_no_seed_is_told_it(interface: Interface) -> None:
    told = add(interface, '{"random": true}')
    assert told["seed"] == SEED
    assert len(told["faults"]) == len(FAULTS)
    assert {one["probability"] for one in told["faults"]} == {0.05}


def test_the_filter_is_that_of_all_of_them(engine: Engine, interface: Interface) -> None:
    add(interface, '{"random": true, "client": "billing-*", "probability": 1}')
    assert met(engine, 50) == []
    assert engine.meet(Call("Metadata", "billing-1", [])) is not None


def test_nobody_is_told_that_one_of_them_never_acted(engine: Engine, interface: Interface) -> None:
    add(interface, '{"random": true}')
    for fault in engine.standing():
        engine.remove(fault.number)
    add(interface, '[{"random": true}, {"api": "Fetch", "close": "before"}]')
    assert [fault.action for fault in engine.unfired()] == ["close"]


@pytest.mark.parametrize(
    ("body", "why"),
    [
        ('{"random": true, "probabilty": 1}', "did you mean probability?"),
        ('{"random": true, "api": "Produce"}', "faults at random have no 'api'"),
        ('{"random": 7}', "random is true, not 7"),
        ('{"random": true, "seed": "x"}', "seed is a whole number"),
        ('{"random": true, "probability": 2}', "probability is a number above 0"),
    ],
)
def test_a_wrong_description_adds_none(
    engine: Engine, interface: Interface, body: str, why: str
) -> None:
    assert why in add(interface, body)["error"]
    assert engine.standing() == []


def test_every_api_of_them_can_meet_its_error() -> None:
    engine = Engine(lambda: SEED)
    for description in faults_at_random(seeded({"random": True}, SEED)):
        engine.add(description)
    delays = [fault.value for fault in engine.standing() if fault.action == "delay_ms"]
    assert all(1 <= delay <= 200 for delay in delays)
