"""A source of Kafka Connect with exactly-once support writes each line of a file once.

The worker is killed while it runs, and so is the broker. A task writes what it read and how far it
came in one transaction (KIP-618); a worker that comes back fences the producers of the one before.
"""

from __future__ import annotations

import contextlib
import json
import re
import urllib.error
import urllib.request
from functools import partial
from http import HTTPStatus
from typing import TYPE_CHECKING

import pytest

from tests.clients.available import end_of_test
from tests.clients.drivers.driver import CALL_TIMEOUT_S
from tests.clients.drivers.program_driver import CLIENTS
from tests.clients.transactions.conversation import until
from tests.clients.transactions.exactly_once import (
    JAVA_OPTIONS,
    Committed,
    Program,
    make_topics,
    read_through,
    restart,
)
from tests.support import fetched
from tests.support.fetched import NotAvailable
from tests.support.server_process import free_port

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.server_process import ServerProcess

pytestmark = [
    pytest.mark.long,
    pytest.mark.clients,
    pytest.mark.java,
    pytest.mark.timeout(600),
]

RELEASE = "3.9.1"
TOPIC = "lines"
PARTITIONS = 3
LINES = 10_000
LINES_IN_TRANSACTION = 10
#: The source forgets whole lines in its buffer of 1,024 bytes until the file grows, so there must
#: never be more than one.
LINE_SIZE = 600

READY = re.compile("Finished starting connectors and tasks")
CONVERTER = "org.apache.kafka.connect.storage.StringConverter"
WORKER = {
    "group.id": "connect",
    "exactly.once.source.support": "enabled",
    "key.converter": CONVERTER,
    "value.converter": CONVERTER,
    "config.storage.topic": "connect-configs",
    "config.storage.replication.factor": "1",
    "offset.storage.topic": "connect-offsets",
    "offset.storage.replication.factor": "1",
    "offset.storage.partitions": "2",
    "status.storage.topic": "connect-status",
    "status.storage.replication.factor": "1",
    "status.storage.partitions": "1",
    # What was killed is missed soon.
    "session.timeout.ms": "6000",
    "heartbeat.interval.ms": "1000",
    "scheduled.rebalance.max.delay.ms": "0",
}
CONNECTOR = {
    "connector.class": "org.apache.kafka.connect.file.FileStreamSourceConnector",
    "tasks.max": "1",
    "topic": TOPIC,
    "batch.size": str(LINES_IN_TRANSACTION),
    "exactly.once.support": "required",
    "transaction.boundary": "poll",
}


def worker(bootstrap: str, rest_port: int, folder: Path) -> Program:
    """A worker of a cluster of its own. Raises `NotAvailable`."""
    java = fetched.runtime("java")
    pom = CLIENTS / "java" / "connect" / "pom.xml"
    jars = fetched.jars(pom, properties={"kafka.version": RELEASE})
    folder.mkdir()
    settings = {
        **WORKER,
        "bootstrap.servers": bootstrap,
        "listeners": f"http://127.0.0.1:{rest_port}",
        "plugin.path": str(jars),
        "plugin.discovery": "service_load",
    }
    properties = folder / "worker.properties"
    properties.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
    logging = "-Dorg.slf4j.simpleLogger."
    command = [java, *JAVA_OPTIONS, f"{logging}logFile=System.out"]
    command += [f"{logging}log.org.apache.kafka.connect.runtime.distributed=info"]
    command += ["-cp", f"{jars}/*", "org.apache.kafka.connect.cli.ConnectDistributed"]
    return Program([*command, str(properties)], folder, READY)


def add_connector(rest_port: int, name: str, config: dict[str, str]) -> None:
    """Ask for it until the worker, which must not be ready yet, has it."""
    request = urllib.request.Request(
        f"http://127.0.0.1:{rest_port}/connectors/{name}/config",
        json.dumps(config).encode(),
        {"Content-Type": "application/json"},
        method="PUT",
    )

    def added() -> bool:
        # Nobody listens yet, or it does not know its resources yet, or its group has no leader.
        with (
            contextlib.suppress(urllib.error.URLError),
            urllib.request.urlopen(request, timeout=CALL_TIMEOUT_S) as answer,
        ):
            return bool(answer.status in (HTTPStatus.CREATED, HTTPStatus.OK))
        return False

    assert until(added), "the worker does not take the connector"


def test_each_line_of_a_file_comes_once_though_worker_and_broker_are_killed(
    killed_server: ServerProcess, tmp_path: Path
) -> None:
    make_topics(killed_server, PARTITIONS, TOPIC)
    file = tmp_path / "lines"
    lines = [f"{number:0{LINE_SIZE}}" for number in range(LINES)]
    file.write_text("".join(line + "\n" for line in lines))
    rest_port = free_port()
    try:
        program = worker(killed_server.bootstrap, rest_port, tmp_path / "worker")
    except NotAvailable as reason:
        end_of_test("java", str(reason))
    committed = Committed(killed_server.bootstrap, TOPIC, PARTITIONS, [program])
    try:
        program.start()
        add_connector(rest_port, "lines", {**CONNECTOR, "file": str(file)})
        read_through(
            committed, LINES, program.restart, partial(restart, killed_server), program.restart
        )
    finally:
        program.kill()
        committed.close()
    assert sorted(line for values in committed.values for line in values) == lines
    assert committed.values == [sorted(values) for values in committed.values]
