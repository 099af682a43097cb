"""Apache Kafka in a process of its own: the reference that our tests are proved with.

Most tests run it on demand: `TEST_SERVER=kafka` makes the client tests run against it. One
node in combined mode (broker and controller) on loopback, fetched from Maven at first use.

    python -m tests.support.kafka_process DATA_DIR      # until interrupted; prints its address

A log directory that somebody else wrote is taken as it is:

    with KafkaProcess(tmp_path / "kafka", logs=data, release=KAFKA_4) as kafka: ...
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import threading
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

from tests.support.kafka_release import KAFKA_3_9, Release
from tests.support.server_process import (
    RunningProcess,
    ServerFailed,
    ServerProcess,
    free_port,
    wait_until_listening,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

POM = KAFKA_3_9.pom

#: Any 16 bytes as URL-safe base64 without padding; fixed, so that a data directory can be reused.
CLUSTER_ID = "dHJpZ2xvdC10ZXN0cy0wMQ"

COMPLAINTS = "complaints"
META_PROPERTIES = "meta.properties"
NODE_ID = re.compile(r"^(?:node|broker)\.id=(\d+)$", re.MULTILINE)

#: Where a line of the log begins; what follows up to the next is a trace of the stack.
LINE = re.compile(r"^\[[^]]+\] [A-Z]+ ", re.MULTILINE)

#: What Kafka says as WARN or ERROR of its own directories as well, and why it is no complaint
#: about a directory. Tests of the directories that Kafka formats show that it is said there.
ALWAYS = {
    "Performing controller activation": "tells of every start of a controller",
    "Attempting to close NetworkClient that has already been closed": "at every stop of 3.9",
}

#: What Kafka says of its own pace where other tests leave it little of the machine: its two halves
#: tell each other of a heartbeat that came too late. No directory makes them say it.
OF_THE_PACE = (
    "processExpiredBrokerHeartbeat: controller event queue overloaded",
    "sent a heartbeat request but received error REQUEST_TIMED_OUT",
    "Exceptionally slow controller event",
)


class KafkaProcess(ServerProcess):
    """`kafka.Kafka` with one node that is broker and controller.

    `data` gets its settings and, unless `logs` names another place, the log directory. A log
    directory without `meta.properties` is formatted at the first start, with the words `format`
    (`("--release-version", "3.6")`); of any other, node id and cluster id are taken as they are.
    `dynamic` is a quorum whose voters are records of the metadata log (KIP-853).
    """

    START_TIMEOUT_S = 60.0
    READY_LINE = re.compile(r"Kafka Server started")

    def __init__(
        self,
        data: Path,
        *,
        settings: Mapping[str, str] | None = None,
        logs: Path | None = None,
        release: Release = KAFKA_3_9,
        dynamic: bool = False,
        format: Sequence[str] = (),
    ) -> None:
        super().__init__(data, settings=settings)
        self.logs = logs or data / "logs"
        self._dynamic = dynamic
        self._format_words = tuple(format)
        self._controller_port = 0
        data.mkdir(parents=True, exist_ok=True)
        self.become(release)

    def become(self, release: Release) -> None:
        """Be of this release from the next start on. Raises `NotAvailable`."""
        self.release = release
        self._command = release.java(self.data, COMPLAINTS)

    def take_ports_of(self, other: KafkaProcess) -> None:
        """Listen where the other one, which has ended, did: the voters of a dynamic quorum are
        known by their addresses."""
        self.port, self._controller_port = other.port, other._controller_port

    def complaints(self) -> list[str]:
        """What it logged as WARN or worse since its last start, less what it says `ALWAYS` and what
        it says `OF_THE_PACE`."""
        known = (*ALWAYS, *OF_THE_PACE)
        return [said for said in self.all_complaints() if not any(text in said for text in known)]

    def all_complaints(self) -> list[str]:
        """What it logged as WARN or worse since its last start, each with its trace."""
        if not self._complaints_file.exists():
            return []
        whole = self._complaints_file.read_text(encoding="utf-8")
        starts = [found.start() for found in LINE.finditer(whole)]
        return [whole[start:end] for start, end in pairwise([*starts, len(whole)])]

    @property
    def _complaints_file(self) -> Path:
        return self.data / f"{COMPLAINTS}.log"

    def _launch(self) -> RunningProcess:
        if self.port == 0:
            self.port, self._controller_port = free_port(), free_port()
        properties = self.data / "server.properties"
        properties.write_text(
            "".join(f"{key}={value}\n" for key, value in self.properties().items())
        )
        if not (self.logs / META_PROPERTIES).exists():
            self._format(properties)
        # Formatting logs too. The file is deleted here: log4j2 would empty it once more at its end.
        self._complaints_file.unlink(missing_ok=True)
        return RunningProcess(
            [*self._command, "kafka.Kafka", str(properties)],
            cwd=self.data,
            environ=os.environ,
            ready_line=self.READY_LINE,
        )

    def _format(self, properties: Path) -> None:
        command = [*self._command, "kafka.tools.StorageTool", "format", "-t", CLUSTER_ID]
        command += ["-c", str(properties), *self._format_words]
        command += ["--standalone"] * self._dynamic
        formatted = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        if formatted.returncode != 0:
            said = formatted.stdout + formatted.stderr
            raise ServerFailed(f"kafka could not format {self.logs}: {said}")

    def _ready(self, line: re.Match[str]) -> None:
        if not wait_until_listening(self.host, self.port, timeout_s=5):
            raise ServerFailed(f"kafka says it has started and does not listen on {self.port}")

    def properties(self) -> dict[str, str]:
        """Its `server.properties`."""
        controller = f"{self.host}:{self._controller_port}"
        node_id = self._node_id()
        quorum = (
            {"controller.quorum.bootstrap.servers": controller}
            if self._dynamic
            else {"controller.quorum.voters": f"{node_id}@{controller}"}
        )
        return {
            "process.roles": "broker,controller",
            "node.id": node_id,
            **quorum,
            "controller.listener.names": "CONTROLLER",
            "listeners": f"PLAINTEXT://{self.bootstrap},CONTROLLER://{controller}",
            "advertised.listeners": f"PLAINTEXT://{self.bootstrap}",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
            "log.dirs": str(self.logs),
            "offsets.topic.replication.factor": "1",
            "offsets.topic.num.partitions": "5",
            "transaction.state.log.replication.factor": "1",
            "transaction.state.log.min.isr": "1",
            "transaction.state.log.num.partitions": "5",
            "share.coordinator.state.topic.replication.factor": "1",
            "share.coordinator.state.topic.min.isr": "1",
            "group.initial.rebalance.delay.ms": "0",
            "controlled.shutdown.enable": "true",
            **self.settings,
        }

    def _node_id(self) -> str:
        written = self.logs / META_PROPERTIES
        found = NODE_ID.search(written.read_text()) if written.exists() else None
        return found[1] if found else "1"


def main() -> None:
    with KafkaProcess(Path(sys.argv[1]).resolve()) as kafka:
        print(f"Apache Kafka listening on {kafka.bootstrap}", flush=True)
        try:
            threading.Event().wait()
        except KeyboardInterrupt:
            print("stopping")


if __name__ == "__main__":
    main()
