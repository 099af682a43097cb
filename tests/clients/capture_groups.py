"""Captures for tests/protocol/corpus what the clients' groups and administrators send.

    python -m tests.clients.capture_groups [--into tests/protocol/corpus]

Our broker stands behind the proxy of `tests/support/capture.py`. Of each client two members join a
group, read, commit and leave; then an administrator lists, describes and deletes it.
"""

from __future__ import annotations

import argparse
import asyncio
import importlib.metadata
import os
import queue
import subprocess
import sys
import tempfile
import threading
from pathlib import Path
from typing import TYPE_CHECKING

from protocol.registry import APIS
from tests.clients.drivers.program_driver import CLIENTS
from tests.clients.groups.group_clients import (
    CONSUMER,
    GROUP_CLIENTS,
    OFFSET_CLIENTS,
    GroupClient,
)
from tests.clients.groups.host import Host
from tests.clients.python.patches import PATCHES
from tests.support import fetched
from tests.support.broker_process import CHECKOUT, BrokerProcess
from tests.support.caller import Caller, batch
from tests.support.capture import Corpus, capture
from tests.support.server_process import free_port, wait_until_listening

if TYPE_CHECKING:
    from tests.clients.groups.host import Event

CORPUS = Path(__file__).resolve().parents[1] / "protocol" / "corpus"
KEPT = {
    "offset_commit", "offset_fetch", "find_coordinator", "join_group", "heartbeat", "leave_group",
    "sync_group", "describe_groups", "list_groups", "delete_groups", "offset_delete",
    "consumer_group_heartbeat", "consumer_group_describe",
}  # fmt: skip
PATIENCE_S = 60
PARTITIONS = 4


class GroupsCorpus(Corpus):
    """Keeps what `name` sends to groups; nothing while it is empty."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, "")
        self.name = ""

    def keep(self, frame: bytes) -> None:
        key = int.from_bytes(frame[4:6], "big")
        if self.name and key in APIS and APIS[key].module in KEPT:
            self._client = self.name
            super().keep(frame)


def corpus_name(client: GroupClient) -> str:
    """Library and release, and the protocol where it is the newer one."""
    if client.runtime == "java":
        name = f"java {client.java}"
    elif client.runtime == "node":
        name = "kafkajs 2.2.4"
    else:
        library = client.key.removesuffix("-consumer").removesuffix(f"-{client.release}")
        name = f"{library} {client.release or importlib.metadata.version(library)}"
    return name + (", consumer protocol" if client.protocol == CONSUMER else "")


class Session:
    """One client's group, from the first join until an administrator has deleted it."""

    def __init__(self, client: GroupClient, address: str, folder: Path) -> None:
        self.client = client
        self.topic = f"captured-{client.key}"
        self.group = f"group-{client.key}"
        self._address = address
        self._events: queue.SimpleQueue[Event] = queue.SimpleQueue()
        self._host = Host(client, folder)

    def run(self) -> None:
        words = {"bootstrap": self._address, "group": self.group, "topic": self.topic}
        more = dict(self.client.words)
        if self.client.joins:
            for member in ("a", "b"):
                join = {**words, "session_ms": 10_000, "heartbeat_ms": 300}
                self._host.join(member, self._events.put, **join, **more)
                # There is nothing left to commit for the second.
                self._until(member, "committed" if member == "a" else "gained")
            # Longer than the time between heartbeats of the newer protocol.
            self._pause(6 if self.client.protocol == CONSUMER else 1)
            for member in ("a", "b"):
                self._host.call("leave", member=member)
                self._until(member, "left")
        put = (
            {"metadata": "m", "offsets": "0:1"}
            if self.client.gives_metadata
            else {"offsets": "0:1"}
        )
        self._host.call("put", **words, **{"metadata": "", **put}, **more)
        self._host.call("get", **words, partitions="0,1", **more)

    def close(self) -> None:
        self._host.kill()

    def _until(self, member: str, name: str) -> None:
        while True:
            event = self._events.get(timeout=PATIENCE_S)
            assert event["event"] != "failed", event
            if event["member"] == member and event["event"] == name:
                return

    def _pause(self, seconds: float) -> None:
        threading.Event().wait(seconds)


def administrate(client: GroupClient, *words: str) -> None:
    """Run the program in which an administrator uses this client, if there is one."""
    environ = dict(os.environ)
    python = [sys.executable, "-W", "ignore", "-m"]
    if client.runtime == "java" and client.java >= "3":
        jars = fetched.jars(CLIENTS / "java" / "pom.xml", properties={"kafka.version": client.java})
        classes = fetched.classes(CLIENTS / "java" / "group_admin", classpath=jars)
        java = [fetched.runtime("java"), "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn"]
        command = [*java, "-cp", f"{classes}:{jars}/*", "triglot.GroupAdmin"]
    elif client.runtime == "node":
        command = [fetched.runtime("node"), str(CLIENTS / "node" / "kafkajs_group_admin.js")]
        environ["NODE_PATH"] = str(fetched.node_modules(CLIENTS / "node"))
    elif client.module == "group_kafka_python":
        command = [*python, "tests.clients.python.group_admin_kafka_python"]
        if client.release:
            requirements = CLIENTS / "python" / f"kafka-python-{client.release}.txt"
            packages = fetched.python_packages(requirements, PATCHES[client.release])
            environ["PYTHONPATH"] = f"{packages}:{CHECKOUT}"
    elif client.module in ("group_confluent", "group_aiokafka"):
        command = [*python, "tests.clients.python.group_admin_others", client.key]
    else:
        return
    subprocess.run([*command, *words], env=environ, cwd=CHECKOUT, check=True, timeout=PATIENCE_S)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--into", type=Path, default=CORPUS)
    parser.add_argument("--only", nargs="*", help="keys of clients")
    arguments = parser.parse_args()
    corpus = GroupsCorpus(arguments.into)
    host, port = "127.0.0.1", free_port()
    listeners = {"advertised.listeners": f"PLAINTEXT://{host}:{port}"}
    with (
        tempfile.TemporaryDirectory() as name,
        BrokerProcess(Path(name) / "data", settings=listeners) as broker,
    ):
        proxy = capture((host, port), (broker.host, broker.port), corpus)
        threading.Thread(target=asyncio.run, args=[proxy], daemon=True).start()
        assert wait_until_listening(host, port, timeout_s=5)
        for client in (*GROUP_CLIENTS, *OFFSET_CLIENTS):
            if arguments.only and client.key not in arguments.only:
                continue
            session = Session(client, f"{host}:{port}", Path(name))
            with Caller(broker.host, broker.port) as caller:
                caller.create_topic(session.topic, partitions=PARTITIONS)
                for partition in range(PARTITIONS):
                    caller.produce(session.topic, batch(b"a", b"b"), partition=partition)
            corpus.name = corpus_name(client)
            try:
                session.run()
                administrate(client, f"{host}:{port}", session.topic, session.group)
            finally:
                corpus.name = ""
                session.close()
            print(corpus_name(client), flush=True)


if __name__ == "__main__":
    main()
