"""franz-go copies from topic to topic exactly once while it and the broker are killed.

Its chain of transactions is told by a program of ours; its own test of one is run as it comes from
the module proxy.
"""

from __future__ import annotations

import os
import re
import subprocess
from functools import partial
from typing import TYPE_CHECKING

import pytest

from tests.clients.available import end_of_test
from tests.clients.drivers.program_driver import CLIENTS
from tests.clients.transactions.exactly_once import (
    Committed,
    Feed,
    Program,
    dealt,
    make_topics,
    numbered,
    read_through,
    restart,
)
from tests.support import fetched
from tests.support.fetched import NotAvailable

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.server_process import ServerProcess

pytestmark = [
    pytest.mark.long,
    pytest.mark.clients,
    pytest.mark.go,
    pytest.mark.timeout(600),
]

MODULE = CLIENTS / "go"
TOPICS = ("first", "second", "third")
PARTITIONS = 5
RECORDS = 6_000
PER_SECOND = 400

OWN_TEST = "TestTxnEtl"
#: It takes half a million by itself.
OWN_TEST_RECORDS = 50_000
OWN_TEST_TIMEOUT_S = 240


def link(bootstrap: str, number: int, instance: str, folder: Path) -> Program:
    """An instance of the link that reads the topic of this number. Raises `NotAvailable`."""
    command = [str(fetched.go_program(MODULE, "franz_go_chain")), bootstrap]
    command += [f"group-{number}", f"link-{number}-{instance}", *TOPICS[number : number + 2]]
    return Program(command, folder / f"{number}-{instance}", re.compile("started"))


def test_a_chain_of_transactions_copies_once_though_its_links_and_the_broker_are_killed(
    killed_server: ServerProcess, tmp_path: Path
) -> None:
    make_topics(killed_server, PARTITIONS, *TOPICS)
    try:
        links = [
            link(killed_server.bootstrap, number, instance, tmp_path)
            for number in range(len(TOPICS) - 1)
            for instance in ("a", "b")
        ]
    except NotAvailable as reason:
        end_of_test("go", str(reason))
    values = numbered(RECORDS, PARTITIONS)
    feed = Feed(killed_server.bootstrap, TOPICS[0], values, per_second=PER_SECOND)
    copied = Committed(killed_server.bootstrap, TOPICS[-1], PARTITIONS, links)
    try:
        for one in links:
            one.start()
        feed.start()
        read_through(
            copied,
            RECORDS,
            links[0].restart,
            links[2].restart,
            partial(restart, killed_server),
            links[3].restart,
            links[1].restart,
        )
        feed.finish()
    finally:
        for one in links:
            one.kill()
        copied.close()
    assert copied.values == dealt(RECORDS, PARTITIONS)


def test_the_test_of_transactions_that_franz_go_brings_passes(killed_server: ServerProcess) -> None:
    try:
        program = fetched.go_tests(MODULE, "github.com/twmb/franz-go/pkg/kgo")
    except NotAvailable as reason:
        end_of_test("go", str(reason))
    environ = {
        "KGO_SEEDS": killed_server.bootstrap,
        "KGO_TEST_RF": "1",
        "KGO_TEST_RECORDS": str(OWN_TEST_RECORDS),
        # Kafka's own permission to begin a transaction before the end of the last is answered.
        "KGO_TEST_UNSAFE": "1",
        "KGO_LOG_LEVEL": "none",
    }
    ended = subprocess.run(
        [str(program), "-test.run", f"^{OWN_TEST}$", "-test.v"],
        env={**os.environ, **environ},
        capture_output=True,
        text=True,
        check=False,
        timeout=OWN_TEST_TIMEOUT_S,
    )
    assert ended.returncode == 0, (ended.stdout + ended.stderr)[-6_000:]
    assert f"--- PASS: {OWN_TEST} " in ended.stdout
    # It leaves out what a broker does not offer.
    assert "--- SKIP" not in ended.stdout
