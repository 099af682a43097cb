"""Clients that are not Python's: a program that takes commands as lines and answers in JSON.

The program stays up for the whole test run, so its start is paid once. The commands are described
in `java/common/triglot/CommandLoop.java` and `node/kafkajs_program.js`.
"""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.clients.drivers.driver import (
    CALL_TIMEOUT_S,
    At,
    ClusterFacts,
    Delivery,
    Refused,
    TopicFacts,
)
from tests.clients.records import Abilities, Record, Stored
from tests.support import fetched

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

CLIENTS = Path(__file__).resolve().parents[1]

#: The newest of the two lines of the Java client that are in use.
JAVA_VERSIONS = {"java-3.9": "3.9.2", "java-4": "4.4.0"}


class Program:
    """A running program and the conversation with it, one command at a time."""

    def __init__(
        self, command: Sequence[str], folder: Path, environ: Mapping[str, str] | None = None
    ) -> None:
        self.folder = folder
        self._numbers = itertools.count()
        self._errors = folder / "stderr"
        with self._errors.open("w") as errors:
            self._process = subprocess.Popen(
                list(command),
                env={**os.environ, **(environ or {})},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                encoding="utf-8",
            )

    def call(self, name: str, **words: object) -> Any:
        """What the command answers. Raises `Refused` with the client's error."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        line = " ".join([name, *(f"{key}={value}" for key, value in words.items())])
        # A client that hangs is ended, so that the read below does.
        watch = threading.Timer(CALL_TIMEOUT_S, self._process.kill)
        watch.start()
        try:
            self._process.stdin.write(line + "\n")
            self._process.stdin.flush()
            answer = self._process.stdout.readline()
        finally:
            watch.cancel()
        assert answer, f"no answer to {line!r}; its errors: {self._errors.read_text()[-4000:]}"
        found = json.loads(answer)
        if "error" in found:
            raise Refused(found["code"], found["error"])
        return found["ok"]

    def new_file(self) -> Path:
        return self.folder / f"records-{next(self._numbers)}"

    def close(self) -> None:
        self._process.communicate(timeout=CALL_TIMEOUT_S)

    def kill(self) -> None:
        """End it at once, as a crash does."""
        self._process.kill()
        self.close()


class ProgramDriver:
    """A client behind a `Program`."""

    def __init__(
        self,
        name: str,
        program: Program,
        abilities: Abilities,
        *,
        changes_single_configs: bool,
    ) -> None:
        self.name = name
        self.program = program
        self.abilities = abilities
        self.changes_single_configs = changes_single_configs

    def create_topic(
        self, bootstrap: str, topic: str, *, partitions: int, configs: Mapping[str, str]
    ) -> None:
        words = {f"config.{key}": value for key, value in configs.items()}
        self.program.call(
            "create-topic", bootstrap=bootstrap, topic=topic, partitions=partitions, **words
        )

    def produce(
        self, bootstrap: str, topic: str, records: list[Record], *, codec: str, idempotent: bool
    ) -> None:
        file = self.program.new_file()
        file.write_text("".join(record.to_line() + "\n" for record in records))
        acks = self.program.call(
            "produce",
            bootstrap=bootstrap,
            topic=topic,
            file=file,
            codec=codec,
            idempotent=str(idempotent).lower(),
        )
        file.unlink()
        assert acks == len(records)

    def deliver(self, bootstrap: str, topic: str, value: bytes, *, give_up_ms: int) -> Delivery:
        """As the Java client does."""
        words = {"topic": topic, "value": value.decode(), "give-up-ms": give_up_ms}
        try:
            throttle_ms = self.program.call("deliver", bootstrap=bootstrap, **words)
        except Refused as refused:
            return Delivery(str(refused).split(": ")[1], None)
        return Delivery("", throttle_ms)

    def begin_transactions(self, bootstrap: str, transactional_id: str) -> None:
        self.program.call("begin-transactions", bootstrap=bootstrap, id=transactional_id)

    def consume(
        self,
        bootstrap: str,
        topic: str,
        partitions: Sequence[int] | None = None,
        *,
        isolation: str = "read_uncommitted",
    ) -> Stored:
        file = self.program.new_file()
        words = {} if partitions is None else {"partitions": ",".join(map(str, partitions))}
        words["isolation"] = isolation
        count = self.program.call("consume", bootstrap=bootstrap, topic=topic, file=file, **words)
        stored: Stored = {}
        lines = file.read_text().splitlines()
        file.unlink()
        assert len(lines) == count
        for line in lines:
            offset, _, text = line.partition("\t")
            record = Record.from_line(text)
            stored.setdefault(record.partition, []).append((int(offset), record))
        return stored

    def list_topics(self, bootstrap: str) -> set[str]:
        return set(self.program.call("list-topics", bootstrap=bootstrap))

    def describe_topic(self, bootstrap: str, topic: str) -> TopicFacts:
        found = self.program.call("describe-topic", bootstrap=bootstrap, topic=topic)
        return TopicFacts(
            found["id"],
            sorted(partition["partition"] for partition in found["partitions"]),
            {partition["leader"] for partition in found["partitions"]},
        )

    def describe_configs(self, bootstrap: str, topic: str) -> dict[str, str]:
        found = self.program.call("describe-configs", bootstrap=bootstrap, topic=topic)
        return {key: entry["value"] for key, entry in found.items()}

    def alter_config(self, bootstrap: str, topic: str, key: str, value: str | None) -> None:
        word = {f"unset.{key}": ""} if value is None else {f"set.{key}": value}
        self.program.call("alter-configs", bootstrap=bootstrap, topic=topic, **word)

    def create_partitions(self, bootstrap: str, topic: str, count: int) -> None:
        self.program.call("create-partitions", bootstrap=bootstrap, topic=topic, partitions=count)

    def offset_at(self, bootstrap: str, topic: str, at: At) -> int | None:
        found = self.program.call(
            "list-offsets", bootstrap=bootstrap, topic=topic, partition=0, at=at
        )
        return None if found["offset"] == -1 else int(found["offset"])

    def delete_records(self, bootstrap: str, topic: str, before: int) -> None:
        self.program.call(
            "delete-records", bootstrap=bootstrap, topic=topic, partition=0, before=before
        )

    def delete_topic(self, bootstrap: str, topic: str) -> None:
        self.program.call("delete-topic", bootstrap=bootstrap, topic=topic)

    def describe_cluster(self, bootstrap: str) -> ClusterFacts:
        found = self.program.call("describe-cluster", bootstrap=bootstrap)
        return ClusterFacts(found["id"], found["nodes"])


def java_driver(key: str, folder: Path) -> ProgramDriver:
    """The Java client of one line. Raises `fetched.NotAvailable`."""
    version = JAVA_VERSIONS[key]
    java = fetched.runtime("java")
    jars = fetched.jars(CLIENTS / "java" / "pom.xml", properties={"kafka.version": version})
    java_sources = CLIENTS / "java"
    classes = fetched.classes(java_sources / "common", java_sources / "src", classpath=jars)
    command = [java, "-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
    command += ["-Dorg.slf4j.simpleLogger.defaultLogLevel=warn"]
    command += ["-cp", f"{classes}:{jars}/*", "triglot.ClientProgram"]
    return ProgramDriver(
        f"kafka-clients {version} (Java)",
        Program(command, folder),
        Abilities(),
        changes_single_configs=True,
    )


def kafkajs_driver(folder: Path) -> ProgramDriver:
    """kafkajs. Raises `fetched.NotAvailable`."""
    node = fetched.runtime("node")
    package = CLIENTS / "node"
    modules = fetched.node_modules(package)
    version = json.loads((package / "package.json").read_text())["dependencies"]["kafkajs"]
    environ = {"NODE_PATH": str(modules), "KAFKAJS_NO_PARTITIONER_WARNING": "1"}
    program = Program([node, str(package / "kafkajs_program.js")], folder, environ)
    abilities = Abilities(null_header_value=False, header_order=False)
    return ProgramDriver(
        f"kafkajs {version}",
        program,
        abilities,
        changes_single_configs=False,
    )
