"""Flink writes to its sink for Kafka exactly once though job, program and broker fail.

The sink ends a transaction when a checkpoint is complete, with a producer that takes over id and
epoch of the one that wrote; after a restart it commits what belongs to the checkpoint that it goes
on from, and aborts all else by looking for open transactional ids.
"""

from __future__ import annotations

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

#: Of the connector, by the release of Flink that it is for.
CONNECTORS = {"1.20.1": "3.4.0-1.20", "2.2.0": "5.0.0-2.2"}
SOURCE, TARGET = "source", "target"
PARTITIONS = 2
RECORDS = 5_000
PER_SECOND = 300
#: The job fails in the first run when it comes to this number.
FAILS_AT = RECORDS // 6

#: Flink looks into classes of the JDK.
OPENED = [f"--add-opens=java.base/java.{name}=ALL-UNNAMED" for name in ("util", "lang", "net")]


def flink(release: str, bootstrap: str, folder: Path) -> Program:
    """The program, with its checkpoints in a folder that outlives it. Raises `NotAvailable`."""
    java = fetched.runtime("java")
    sources = CLIENTS / "java" / "flink"
    properties = {"flink.version": release, "connector.version": CONNECTORS[release]}
    jars = fetched.jars(sources / "pom.xml", properties=properties)
    classes = fetched.classes(sources, classpath=jars)
    command = [java, *JAVA_OPTIONS, *OPENED, "-cp", f"{classes}:{jars}/*", "triglot.FlinkCopy"]
    command += [bootstrap, SOURCE, TARGET, str(PARTITIONS), str(folder), str(FAILS_AT)]
    return Program(command, folder, re.compile("started from"))


@pytest.mark.parametrize("release", CONNECTORS)
def test_what_flink_copies_comes_once_though_its_job_fails_and_program_and_broker_are_killed(
    release: str, killed_server: ServerProcess, tmp_path: Path
) -> None:
    make_topics(killed_server, PARTITIONS, SOURCE, TARGET)
    try:
        program = flink(release, killed_server.bootstrap, tmp_path / "checkpoints")
    except NotAvailable as reason:
        end_of_test("java", str(reason))
    values = numbered(RECORDS, PARTITIONS)
    feed = Feed(killed_server.bootstrap, SOURCE, values, per_second=PER_SECOND)
    copied = Committed(killed_server.bootstrap, TARGET, PARTITIONS, [program])
    program.start()
    feed.start()
    try:
        read_through(copied, RECORDS, partial(restart, killed_server), program.restart)
        feed.finish()
    finally:
        program.kill()
        copied.close()
    assert copied.values == dealt(RECORDS, PARTITIONS)
