"""Subscriptions and assignments of classic groups: real bytes, and anybody's."""

from __future__ import annotations

import random
import tracemalloc

import pytest

from protocol.logdata.membership import (
    Assignment,
    Subscription,
    assignment_of,
    encode_assignment,
    subscription_of,
)
from tests.support.subscriptions import encode_subscription

FULL = Subscription(["a", "b"], b"data", [("a", [0, 2]), ("b", [])], 7, "rack")

# As kafka-python 2.0.2, kafkajs 2.2 (null user data is empty there) and Java 3.9 lay them out.
VERSION_0 = bytes.fromhex("00000000000100036f6e6500000000")
VERSION_1 = bytes.fromhex("0001" "00000001" "0003" "6f6e65" "ffffffff" "00000001"
                          "0003" "6f6e65" "00000002" "00000000" "00000005")  # fmt: skip
VERSION_3 = bytes.fromhex("0003" "00000001" "0003" "6f6e65" "ffffffff" "00000000"
                          "ffffffff" "ffff")  # fmt: skip


@pytest.mark.parametrize("version", range(4))
def test_a_subscription_is_read_as_far_as_its_version_goes(version: int) -> None:
    found = subscription_of(encode_subscription(FULL, version))
    expected = Subscription(
        FULL.topics,
        FULL.user_data,
        FULL.owned if version >= 1 else [],
        FULL.generation_id if version >= 2 else -1,
        FULL.rack_id if version >= 3 else None,
    )
    assert found == expected


@pytest.mark.parametrize("version", range(4))
def test_an_assignment_is_the_same_in_all_versions(version: int) -> None:
    assignment = Assignment([("a", [0, 2])], b"data")
    data = encode_assignment(assignment, version)
    assert assignment_of(data) == assignment
    assert data[:2] == bytes((0, version))
    assert data[2:] == encode_assignment(assignment, 0)[2:]


def test_subscriptions_as_clients_lay_them_out_are_read() -> None:
    assert subscription_of(VERSION_0) == Subscription(["one"], b"")
    assert subscription_of(VERSION_1) == Subscription(["one"], None, [("one", [0, 5])])
    assert subscription_of(VERSION_3) == Subscription(["one"], None)


def test_a_later_version_is_read_as_the_newest_and_its_new_fields_are_left() -> None:
    data = encode_subscription(FULL)
    assert subscription_of(b"\x00\x09" + data[2:] + b"new fields") == FULL


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\x00",
        b"\x00\x00",
        b"\xff\xff" + VERSION_0[2:],  # a version below 0
        VERSION_0[:-1],
        b"\x00\x00\x7f\xff\xff\xff",  # two billion topics in no bytes
        b"\x00\x00\xff\xff\xff\xff\x00\x00\x00\x00",  # no topics is not null topics
        b"connect: not ours at all",
        b"\x00\x01\x00\x00\x00\x01\x00\x01t\x00\x00\x00\x00\x7f\xff\xff\xff",
    ],
)
def test_what_is_no_subscription_is_none(data: bytes) -> None:
    assert subscription_of(data) is None


def test_no_bytes_are_no_assignment() -> None:
    assert assignment_of(b"") is None
    assert assignment_of(b"\x00\x01garbage") is None


def test_whatever_the_bytes_nothing_is_raised_and_nothing_large_is_made() -> None:
    chance = random.Random(11)
    seeds = [encode_subscription(FULL, v) for v in range(4)] + [VERSION_0, VERSION_1, VERSION_3]
    seeds.append(encode_assignment(Assignment([("a", [0, 2])], None)))
    tracemalloc.start()
    for _ in range(5000):
        data = bytearray(chance.choice(seeds))
        for _ in range(chance.randrange(1, 4)):
            data[chance.randrange(len(data))] = chance.choice((0, 1, 0x7F, 0x80, 0xFF))
        cut = bytes(data[: chance.randrange(len(data) + 1)])
        for raw in (bytes(data), cut, chance.randbytes(chance.randrange(40))):
            subscription_of(raw)
            assignment_of(raw)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 1_000_000
