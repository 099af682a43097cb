"""Apache Kafka from before KRaft, with its ZooKeeper: brokers as old as the oldest clients.

    with OldKafka(tmp_path / "kafka", version="0.8.2.2") as kafka:
        kafka.create_topic("orders")
        Cluster(kafka.bootstrap).topics()

Both run on loopback, on the Java of this machine, from jars that Maven fetches at first use.
"""

from __future__ import annotations

import os
import re
import time
from pathlib import Path
from typing import TYPE_CHECKING

from protocol.messages.metadata import MetadataRequest
from tests.support import fetched
from tests.support.server_process import RunningProcess, ServerFailed, ServerProcess, free_port
from tests.support.wire_client import WireClient

if TYPE_CHECKING:
    from collections.abc import Mapping

POM = Path(__file__).parent / "kafka_old" / "pom.xml"

VERSIONS = ("0.8.2.2", "0.9.0.1", "0.10.2.2", "1.1.1")
"""One of each age: what they differ in here is said in `protocol.client` and `client.fetching`.
Format 0, format 0, format 1, format 2."""

WITHOUT_SCALA_2_11 = ("2.8.2",)
"""Of those that tests run; 2.4 is the last that was built for it."""

TOPIC_TIMEOUT_S = 10.0

LOG4J = """\
log4j.rootLogger=INFO, out
log4j.appender.out=org.apache.log4j.ConsoleAppender
log4j.appender.out.layout=org.apache.log4j.PatternLayout
log4j.appender.out.layout.ConversionPattern=[%d] %p %m (%c)%n
"""


class OldKafka(ServerProcess):
    """`kafka.Kafka` and `ZooKeeperServerMain`, both with their data below `data`."""

    START_TIMEOUT_S = 60.0
    READY_LINE = re.compile(r"\[Kafka ?Server (?:id=)?1\],? started")
    ZOOKEEPER_READY_LINE = re.compile(r"binding to port")

    def __init__(
        self, data: Path, *, version: str, settings: Mapping[str, str] | None = None
    ) -> None:
        """`settings` are of the broker. Raises `NotAvailable`."""
        super().__init__(data, settings=settings)
        self.version = version
        data.mkdir(parents=True, exist_ok=True)
        properties = {"kafka.version": version}
        if version in WITHOUT_SCALA_2_11:
            properties["scala.version"] = "2.13"
        jars = fetched.jars(POM, properties=properties)
        logging = data.resolve() / "log4j.properties"
        logging.write_text(LOG4J)
        java = [fetched.runtime("java"), "-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
        self._java = [*java, f"-Dlog4j.configuration=file:{logging}", "-cp", f"{jars}/*"]
        self._zookeeper: RunningProcess | None = None
        self._zookeeper_port = 0

    def create_topic(self, name: str) -> None:
        """With as many partitions as `num.partitions` says: asked for by name, which in those days
        made it. Returns when it has leaders."""
        deadline = time.monotonic() + TOPIC_TIMEOUT_S
        request = MetadataRequest(topics=[MetadataRequest.Topic(name=name)])
        with WireClient(self.host, self.port) as client:
            while time.monotonic() < deadline:
                (topic,) = client.call(request, 0).topics
                if topic.partitions and all(one.leader_id >= 0 for one in topic.partitions):
                    return
                time.sleep(0.1)
        raise ServerFailed(f"topic {name} got no leaders; the last lines:\n{self.output()}")

    def start(self) -> None:
        """Start both, and wait until the broker is ready. Raises `ServerFailed`."""
        try:
            super().start()
        except BaseException:
            self._end_zookeeper()
            raise

    def stop(self) -> int:
        """Ask the broker to end by SIGTERM; its exit code. ZooKeeper is killed after it."""
        try:
            return super().stop()
        finally:
            self._end_zookeeper()

    def kill(self) -> None:
        """End both by SIGKILL."""
        super().kill()
        self._end_zookeeper()

    def _launch(self) -> RunningProcess:
        if self.port == 0:
            self.port, self._zookeeper_port = free_port(), free_port()
        self._zookeeper = self._run(
            "org.apache.zookeeper.server.ZooKeeperServerMain",
            {
                "dataDir": str(self.data / "zookeeper"),
                "clientPort": str(self._zookeeper_port),
                "clientPortAddress": self.host,
            },
            self.ZOOKEEPER_READY_LINE,
        )
        self._zookeeper.wait_until_ready(timeout_s=self.START_TIMEOUT_S)
        return self._run("kafka.Kafka", self._properties(), self.READY_LINE)

    def _properties(self) -> dict[str, str]:
        return {
            "broker.id": "1",
            # Before 0.9 it listens there, afterwards on `listeners`.
            "host.name": self.host,
            "port": str(self.port),
            "listeners": f"PLAINTEXT://{self.bootstrap}",
            "log.dirs": str(self.data / "logs"),
            "zookeeper.connect": f"{self.host}:{self._zookeeper_port}",
            "offsets.topic.replication.factor": "1",
            "offsets.topic.num.partitions": "1",
            "controlled.shutdown.enable": "false",
            **self.settings,
        }

    def _run(
        self, main: str, properties: Mapping[str, str], ready_line: re.Pattern[str]
    ) -> RunningProcess:
        file = self.data / f"{main.rpartition('.')[2]}.properties"
        file.write_text("".join(f"{key}={value}\n" for key, value in properties.items()))
        command = [*self._java, main, str(file)]
        return RunningProcess(command, cwd=self.data, environ=os.environ, ready_line=ready_line)

    def _end_zookeeper(self) -> None:
        if self._zookeeper is not None:
            self._zookeeper.kill()
            self._zookeeper = None
