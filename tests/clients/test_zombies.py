"""Two instances of one transactional id: one is paused, and goes on when the other has begun.

The one that was paused is refused, and nothing of what it was at is seen, unless its commit had
come before. `TEST_ZOMBIE_ROUNDS` sets how often they take turns (4), `TEST_KILL_SEED` the moments.
"""

from __future__ import annotations

import collections
import os
import random
import signal
import subprocess
import sys
import time
from typing import TYPE_CHECKING

import pytest

from tests.clients import kill_zombie
from tests.clients.drivers.confluent_driver import ConfluentDriver
from tests.clients.kill_zombie import PATIENCE_S, RECORDS, REST_S
from tests.support.broker_process import CHECKOUT

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Self

    from tests.support.server_process import ServerProcess

pytestmark = [pytest.mark.clients, pytest.mark.long]

ROUNDS = int(os.environ.get("TEST_ZOMBIE_ROUNDS", "4"))
PARTITIONS = 2


class Instance:
    """A producer in a process of its own."""

    def __init__(self, *arguments: str) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", kill_zombie.__name__, *arguments],
            cwd=CHECKOUT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def tell(self, line: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(line + "\n")
        self._process.stdin.flush()

    def heard(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline().strip()

    def ask(self, line: str) -> str:
        self.tell(line)
        return self.heard()

    def pause(self) -> None:
        self._process.send_signal(signal.SIGSTOP)

    def go_on(self) -> None:
        self._process.send_signal(signal.SIGCONT)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.go_on()
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait(PATIENCE_S)
        self._process.stdout.close()


@pytest.mark.timeout(120 + ROUNDS * 20)
def test_of_two_instances_the_one_that_was_paused_is_fenced(
    new_server: Callable[..., ServerProcess], topic: str, capsys: pytest.CaptureFixture[str]
) -> None:
    seed = int(os.environ.get("TEST_KILL_SEED", random.randrange(1_000_000)))
    chance = random.Random(seed)
    server = new_server()
    ConfluentDriver().create_topic(server.bootstrap, topic, partitions=PARTITIONS, configs={})
    arguments = (server.bootstrap, topic, "zombie")
    outcomes: dict[str, str] = {}
    with Instance(*arguments) as one, Instance(*arguments) as other:
        old, new = one, other
        assert old.ask("open") == "opened"
        for number in range(ROUNDS):
            old.tell(f"{number}-paused")
            time.sleep(chance.uniform(0, 1.5 * RECORDS * REST_S))
            old.pause()
            assert new.ask("open") == "opened"
            outcomes[f"{number}-new"] = new.ask(f"{number}-new")
            old.go_on()
            outcomes[f"{number}-paused"] = old.heard()
            if outcomes[f"{number}-paused"] == "committed":  # before it was paused
                outcomes[f"{number}-late"] = old.ask(f"{number}-late")
            old, new = new, old

    seen = committed_names(server.bootstrap, topic)
    paused = collections.Counter(
        outcome for name, outcome in outcomes.items() if name.endswith("-paused")
    )
    with capsys.disabled():
        print(f"\nzombies: {ROUNDS} rounds; what was paused: {dict(paused)}")
    assert {outcomes[f"{number}-new"] for number in range(ROUNDS)} == {"committed"}
    assert [name for name in outcomes if name.endswith("-late") and committed(outcomes[name])] == []
    wanted = {name: RECORDS for name, outcome in outcomes.items() if committed(outcome)}
    assert dict(seen) == wanted, f"seed {seed}"


def committed(outcome: str) -> bool:
    return outcome == "committed"


def committed_names(bootstrap: str, topic: str) -> collections.Counter[str]:
    """How many records of each transaction a reader of committed records finds."""
    found = ConfluentDriver().consume(bootstrap, topic)  # librdkafka's default isolation
    return collections.Counter(
        (record.value or b"").decode().partition(" ")[0]
        for records in found.values()
        for _, record in records
    )
