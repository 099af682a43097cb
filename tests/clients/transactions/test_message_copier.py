"""Kafka's own TransactionalMessageCopier copies exactly once while it and the broker are killed.

Apache Kafka tests itself with this tool. First each partition has a copier of its own, whose
commits of offsets tell of no member; then the copies are copied by members of a group, who are
fenced by their generation (KIP-447). Some transactions are aborted by chance. A copier ends when it
has come to where the end was at its start; where it fails, it is started again, as its users do.
"""

from __future__ import annotations

import itertools
import re
from functools import partial
from typing import TYPE_CHECKING

import pytest

from tests.clients.available import end_of_test
from tests.clients.drivers.program_driver import CLIENTS
from tests.clients.transactions.exactly_once import (
    JAVA_OPTIONS,
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
    pytest.mark.java,
    pytest.mark.timeout(600),
]

RELEASES = ("2.8.2", "4.3.1")
TOPICS = ("first", "second", "third")
PARTITIONS = 2
RECORDS = 6_000
TRANSACTION_SIZE = 20
#: A copier looks for its offset before it ends what its predecessor has left open, so it waits
#: until that has timed out.
TRANSACTION_TIMEOUT_MS = 2_000
#: Of one copier, where it fails because the server is away.
STARTS_MAX = 10


def copier(
    release: str, bootstrap: str, folder: Path, source: str, target: str, *words: str
) -> Program:
    """A copier; the words are those of its mode. Raises `NotAvailable`."""
    java = fetched.runtime("java")
    pom = CLIENTS / "java" / "tools" / "pom.xml"
    jars = fetched.jars(pom, properties={"kafka.version": release})
    command = [java, *JAVA_OPTIONS, "-cp", f"{jars}/*"]
    command += ["org.apache.kafka.tools.TransactionalMessageCopier", "--broker-list", bootstrap]
    command += ["--input-topic", source, "--output-topic", target, "--enable-random-aborts"]
    command += ["--consumer-group", f"copiers-{source}", "--transactional-id", folder.name]
    command += ["--transaction-size", str(TRANSACTION_SIZE)]
    command += ["--transaction-timeout", str(TRANSACTION_TIMEOUT_MS), *words]
    return Program(command, folder, re.compile("ProcessLoop"), starts_max=STARTS_MAX)


@pytest.mark.parametrize("release", RELEASES)
def test_what_is_copied_twice_over_comes_once_though_copiers_and_the_broker_are_killed(
    release: str, killed_server: ServerProcess, tmp_path: Path
) -> None:
    make_topics(killed_server, PARTITIONS, *TOPICS)
    bootstrap = killed_server.bootstrap
    feed = Feed(bootstrap, TOPICS[0], numbered(RECORDS, PARTITIONS))
    feed.start()
    feed.finish()
    for mode, (source, target) in enumerate(itertools.pairwise(TOPICS)):
        try:
            copiers = [
                copier(
                    release,
                    bootstrap,
                    tmp_path / f"{source}-{number}",
                    source,
                    target,
                    *("--input-partition", str(number)),
                    *(("--group-mode", "--use-group-metadata") if mode else ()),
                )
                for number in range(PARTITIONS)
            ]
        except NotAvailable as reason:
            end_of_test("java", str(reason))
        copied = Committed(bootstrap, target, PARTITIONS, copiers)
        try:
            for one in copiers:
                one.start()
            read_through(
                copied,
                RECORDS,
                copiers[0].restart,
                partial(restart, killed_server),
                copiers[1].restart,
            )
        finally:
            for one in copiers:
                one.kill()
            copied.close()
        assert copied.values == dealt(RECORDS, PARTITIONS)
