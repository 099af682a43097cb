"""Apache Kafka 3.9 in a process of its own: the reference that our tests are proved with.

Not part of the suite: `TEST_SERVER=kafka` makes the client tests run against it. One
node in combined mode (broker and controller) on loopback, fetched from Maven at first use.

    python -m tests.support.kafka_process DATA_DIR      # until interrupted; prints its address
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING

from tests.support import fetched
from tests.support.server_process import (
    RunningProcess,
    ServerFailed,
    ServerProcess,
    free_port,
    wait_until_listening,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

POM = Path(__file__).with_name("kafka") / "pom.xml"

#: Any 16 bytes as URL-safe base64 without padding; fixed, so that a data directory can be reused.
CLUSTER_ID = "dHJpZ2xvdC10ZXN0cy0wMQ"

LOG4J = """\
log4j.rootLogger=INFO, out
log4j.appender.out=org.apache.log4j.ConsoleAppender
log4j.appender.out.layout=org.apache.log4j.PatternLayout
log4j.appender.out.layout.ConversionPattern=[%d] %p %m (%c)%n
"""


class KafkaProcess(ServerProcess):
    """`kafka.Kafka` with one node that is broker and controller."""

    START_TIMEOUT_S = 60.0
    READY_LINE = re.compile(r"Kafka Server started")

    def __init__(self, data: Path, *, settings: Mapping[str, str] | None = None) -> None:
        super().__init__(data, settings=settings)
        self._controller_port = 0
        self._jars = fetched.jars(POM)

    def _launch(self) -> RunningProcess:
        first_start = self.port == 0
        if first_start:
            self.port, self._controller_port = free_port(), free_port()
        self.data.mkdir(parents=True, exist_ok=True)
        properties = self.data / "server.properties"
        properties.write_text(
            "".join(f"{key}={value}\n" for key, value in self._properties().items())
        )
        log4j = self.data / "log4j.properties"
        log4j.write_text(LOG4J)
        java = [fetched.runtime("java"), "-Xmx768m", "-XX:+UseG1GC", "-XX:TieredStopAtLevel=1"]
        java += [f"-Dlog4j.configuration=file:{log4j}", "-cp", f"{self._jars}/*"]
        if first_start:
            format_command = ["kafka.tools.StorageTool", "format", "--ignore-formatted"]
            format_command += ["-t", CLUSTER_ID, "-c", str(properties)]
            formatted = subprocess.run(
                [*java, *format_command], capture_output=True, text=True, timeout=60, check=False
            )
            if formatted.returncode != 0:
                raise ServerFailed(f"kafka could not format {self.data}: {formatted.stderr}")
        return RunningProcess(
            [*java, "kafka.Kafka", str(properties)],
            cwd=self.data,
            environ=os.environ,
            ready_line=self.READY_LINE,
        )

    def _ready(self, line: re.Match[str]) -> None:
        if not wait_until_listening(self.host, self.port, timeout_s=5):
            raise ServerFailed(f"kafka says it has started and does not listen on {self.port}")

    def _properties(self) -> dict[str, str]:
        controller = f"{self.host}:{self._controller_port}"
        return {
            "process.roles": "broker,controller",
            "node.id": "1",
            "controller.quorum.voters": f"1@{controller}",
            "controller.listener.names": "CONTROLLER",
            "listeners": f"PLAINTEXT://{self.bootstrap},CONTROLLER://{controller}",
            "advertised.listeners": f"PLAINTEXT://{self.bootstrap}",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
            "log.dirs": str(self.data / "logs"),
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


def main() -> None:
    with KafkaProcess(Path(sys.argv[1]).resolve()) as kafka:
        print(f"Apache Kafka listening on {kafka.bootstrap}", flush=True)
        try:
            threading.Event().wait()
        except KeyboardInterrupt:
            print("stopping")


if __name__ == "__main__":
    main()
