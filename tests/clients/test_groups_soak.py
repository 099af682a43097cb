"""Groups of every client to which something happens all the time: `make test-groups`.

Up to 20 members in programs that are killed and paused, and a server that is killed and stopped
under them. `TEST_GROUPS_SECONDS` is how long each batch of clients lives (60),
`TEST_GROUPS_CLIENTS` names some of them between commas, `TEST_GROUPS_SEED` repeats the choices.
"""

from __future__ import annotations

import os
import random
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING

import pytest

from tests.clients.groups.group_clients import BY_KEY, GROUP_CLIENTS
from tests.clients.groups.play import group_server
from tests.clients.groups.soak import Soak
from tests.clients.groups.source import Source
from tests.support.kafka_process import KafkaProcess

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.server_process import ServerProcess

SECONDS = float(os.environ.get("TEST_GROUPS_SECONDS", "60"))

pytestmark = [
    pytest.mark.clients,
    pytest.mark.slow,
    pytest.mark.timeout(600 + SECONDS * 4),
    pytest.mark.skipif("TEST_GROUPS_SOAK" not in os.environ, reason="long: make test-groups"),
]

KEYS = os.environ.get("TEST_GROUPS_CLIENTS", ",".join(client.key for client in GROUP_CLIENTS))

#: So many at the same time, unlike ones beside each other.
CLIENTS_IN_BATCH = 4
BATCHES = -(-len(KEYS.split(",")) // CLIENTS_IN_BATCH)

#: Between ends of the server.
UP_S = (8.0, 25.0)


@pytest.mark.parametrize("batch", range(BATCHES))
def test_whatever_becomes_of_members_and_server_nothing_is_lost(
    batch: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    seed = int(os.environ.get("TEST_GROUPS_SEED", random.randrange(1_000_000)))
    clients = [BY_KEY[key] for key in KEYS.split(",")[batch::BATCHES]]
    with group_server(tmp_path / "data") as server:
        if isinstance(server, KafkaProcess):
            clients = [client for client in clients if not client.needs_4]
        source = Source(server.bootstrap, "groups", seed)
        soaks = [
            Soak(client, server.bootstrap, source, tmp_path, random.Random(f"{seed} {client.key}"))
            for client in clients
        ]
        try:
            _live(soaks, server, random.Random(seed))
        finally:
            source.close()
            for soak in soaks:
                soak.group.close()

    with capsys.disabled():
        for soak in soaks:
            print(f"\n{soak.client.key}: {len(soak.steps)} steps, {soak.steps}")
    errors = {soak.client.key: soak.error for soak in soaks if soak.error}
    faults = {soak.client.key: found for soak in soaks if (found := soak.findings["faults"])}
    assert errors == {}, f"seed {seed}: {[soak.steps for soak in soaks if soak.error]}"
    assert faults == {}, f"seed {seed}"


def _live(soaks: list[Soak], server: ServerProcess, chance: random.Random) -> None:
    """Until all are done; the server comes and goes while they live."""
    until = time.monotonic() + SECONDS
    with ThreadPoolExecutor(len(soaks)) as pool:
        done = [pool.submit(soak.play, partial(soak.live, until)) for soak in soaks]
        while time.monotonic() < until and not all(one.done() for one in done):
            time.sleep(chance.uniform(*UP_S))
            if chance.random() < 0.5:
                server.kill()
            else:
                server.stop()
            server.start()
        for one in done:
            one.result()
