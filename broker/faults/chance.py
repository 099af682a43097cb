"""Faults at random, all of one seed: what a client that tries again has to bear. Pure.

    {"random": true, "probability": 0.05, "seed": 7, "client": "billing-*"}

stands for a list of faults, each with that chance and a seed of its own, made of the one.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

from broker.faults.engine import FaultError, hint

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

RANDOM = "random"
PROBABILITY = 0.05
"""Of each fault, for each request that it may act on."""
DELAY_MAX_MS = 200
KEYS = (RANDOM, "probability", "seed", "client", "topic", "group")

OF_GROUPS = ["Heartbeat", "OffsetCommit", "ConsumerGroupHeartbeat"]
OF_TRANSACTIONS = ["AddPartitionsToTxn", "AddOffsetsToTxn", "EndTxn", "TxnOffsetCommit"]
FAULTS: tuple[dict[str, Any], ...] = (
    {"api": ["Produce", "Fetch", "ListOffsets"], "error": "NOT_LEADER_OR_FOLLOWER"},
    {"api": "Produce", "error": "NOT_ENOUGH_REPLICAS"},
    {"api": ["Produce", "Fetch", *OF_GROUPS, *OF_TRANSACTIONS], "close": "before"},
    {"api": ["Produce", *OF_GROUPS, *OF_TRANSACTIONS], "close": "after"},
    {"api": ["Produce", "Fetch", "Metadata", *OF_GROUPS, *OF_TRANSACTIONS], "delay_ms": None},
    {"api": ["Produce", "Fetch"], "throttle_ms": None},
    {"api": "Metadata", "error": "LEADER_NOT_AVAILABLE"},
    {"api": "FindCoordinator", "error": "COORDINATOR_NOT_AVAILABLE"},
    {"api": [*OF_GROUPS, *OF_TRANSACTIONS], "error": "COORDINATOR_LOAD_IN_PROGRESS"},
)
"""None in place of milliseconds is a number that the seed picks. All errors are retriable."""


def is_random(description: Mapping[str, Any]) -> bool:
    """Whether a description stands for a list of faults at random."""
    return RANDOM in description


def seeded(description: Mapping[str, Any], seed: int) -> dict[str, Any]:
    """The description with its seed, or this one. Raises FaultError for keys that it has not."""
    for key in description:
        if key not in KEYS:
            raise FaultError(f"faults at random have no '{key}'{hint(str(key), KEYS)}")
    if description[RANDOM] is not True:
        raise FaultError(f"random is true, not {description[RANDOM]!r}")
    given = {"probability": PROBABILITY, "seed": seed, **description}
    if type(given["seed"]) is not int or given["seed"] < 0:
        raise FaultError(f"seed is a whole number, at least 0, not {given['seed']!r}")
    return given


def faults_at_random(description: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """The descriptions of the faults that one with a seed stands for."""
    chance = random.Random(description["seed"])
    wanted = {key: description[key] for key in ("client", "topic", "group") if key in description}
    for fault in FAULTS:
        picked = {key: chance.randint(1, DELAY_MAX_MS) for key, value in fault.items() if not value}
        yield {
            **fault,
            **picked,
            **wanted,
            "probability": description["probability"],
            "seed": chance.getrandbits(32),
        }
