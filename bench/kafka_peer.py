"""Apache Kafka 3.9 as a peer, on demand: fetched from Maven, one node, default settings, warm.

Unlike the Kafka of the tests it runs as in production: both compilers, a heap of 1 GiB. The Java
machine compiles while it runs, so it is given a minute of load before anything counts.
"""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING, ClassVar

from bench.servers import Started
from tests.support import fetched
from tests.support.kafka_process import CLUSTER_ID, POM
from tests.support.server_process import free_port, wait_until_listening

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

LOG4J = """\
log4j.rootLogger=WARN, out
log4j.appender.out=org.apache.log4j.ConsoleAppender
log4j.appender.out.layout=org.apache.log4j.PatternLayout
log4j.appender.out.layout.ConversionPattern=[%d] %p %m (%c)%n
"""


class Kafka(Started):
    """`kafka.Kafka` as broker and controller in one process."""

    name = "kafka"
    starts_quickly = False
    #: Settings that are not defaults.
    MORE: ClassVar[Mapping[str, str]] = {}

    def __init__(self, data: Path, *, port: int = 0) -> None:
        self._controller_port = free_port()
        super().__init__(data, port=port or free_port())

    def _prepare(self) -> None:
        controller = f"127.0.0.1:{self._controller_port}"
        settings = {
            "process.roles": "broker,controller",
            "node.id": "1",
            "controller.quorum.voters": f"1@{controller}",
            "controller.listener.names": "CONTROLLER",
            "listeners": f"PLAINTEXT://{self.bootstrap},CONTROLLER://{controller}",
            "advertised.listeners": f"PLAINTEXT://{self.bootstrap}",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
            "log.dirs": str(self.data / "logs"),
            "offsets.topic.replication.factor": "1",
            "transaction.state.log.replication.factor": "1",
            "transaction.state.log.min.isr": "1",
            # Deleted topics keep their pages for a minute otherwise.
            "log.segment.delete.delay.ms": "500",
            **self._more(),
        }
        self._properties = self.data / "server.properties"
        self._properties.write_text("".join(f"{k}={v}\n" for k, v in settings.items()))
        (self.data / "log4j.properties").write_text(LOG4J)
        form = ["kafka.tools.StorageTool", "format", "--ignore-formatted"]
        form += ["-t", CLUSTER_ID, "-c", str(self._properties)]
        subprocess.run([*self._java(), *form], check=True, capture_output=True, timeout=60)

    def _more(self) -> Mapping[str, str]:
        return self.MORE

    def _java(self) -> list[str]:
        log4j = f"-Dlog4j.configuration=file:{self.data / 'log4j.properties'}"
        return [
            *(fetched.runtime("java"), "-Xms1g", "-Xmx1g", "-XX:+UseG1GC"),
            *(log4j, "-cp", f"{fetched.jars(POM)}/*"),
        ]

    def _command(self) -> Sequence[str]:
        return [*self._java(), "kafka.Kafka", str(self._properties)]

    def wait_until_ready(self) -> None:
        if not wait_until_listening("127.0.0.1", self.port, timeout_s=self.START_TIMEOUT_S):
            raise RuntimeError(f"kafka does not listen on {self.port}:\n{self.output()}")


class ConsumerKafka(Kafka):
    """With the newer group protocol (KIP-848), which 3.9 has behind a setting as a preview.

    The setting brings another coordinator for classic groups too, the one that 4.0 has by default.
    """

    name = "kafka-848"
    MORE: ClassVar[Mapping[str, str]] = {
        "group.coordinator.rebalance.protocols": "classic,consumer"
    }
