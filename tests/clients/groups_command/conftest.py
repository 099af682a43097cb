"""A group, and a topic for it to read."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest

from tests.clients.groups_command.commands import HOUR_MS, produce
from tests.support.caller import Caller, batch

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def group(topic: str) -> str:
    return f"group-of-{topic}"


@pytest.fixture
def caller(bootstrap: str) -> Iterator[Caller]:
    host, _, port = bootstrap.rpartition(":")
    with Caller(host, int(port)) as made:
        yield made


@pytest.fixture
def hourly(caller: Caller, topic: str) -> tuple[str, int]:
    """A topic of two partitions, and a time. In each five records, of five hours before that time
    up to one hour before it, a batch each."""
    now_ms = time.time_ns() // 1_000_000
    caller.create_topic(topic, partitions=2)
    for partition in (0, 1):
        for hours in (5, 4, 3, 2, 1):
            produce(
                caller, topic, partition, batch(b"value", timestamp_ms=now_ms - hours * HOUR_MS)
            )
    return topic, now_ms
