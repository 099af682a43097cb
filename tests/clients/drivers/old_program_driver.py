"""Releases of clients, each a program of its own that writes and reads, and no more.

They find no group here: partitions are assigned, reading begins at offset 0, nothing is committed.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from tests.clients.drivers.program_driver import CLIENTS, Program
from tests.clients.python.patches import PATCHES, pykafka
from tests.clients.records import Record, Stored
from tests.support import fetched

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

CHECKOUT = CLIENTS.parents[1]

#: Of each release of the Java client: the folder with the program in the words of its age.
JAVA_PROGRAMS = {
    "0.8.2.2": "v0_8_2",
    "0.9.0.1": "v0_9",
    "0.10.0.1": "v0_10",
    "0.10.2.2": "v0_10",
    "0.11.0.3": "v0_11",
    "1.1.1": "v0_11",
    "2.8.2": "v0_11",
    "3.4.1": "v2_0",
    "3.7.2": "v2_0",
    "3.9.2": "v2_0",
    "4.0.2": "v2_0",
    "4.1.2": "v2_0",
    "4.4.0": "v2_0",
}

#: The same for releases of kafka-python: the module.
PYTHON_PROGRAMS = {"0.9.5": "kafka_python_0_9", "1.4.7": "kafka_python", "2.0.2": "kafka_python"}


class OldProgramDriver:
    """A client behind a `Program`; what it is given and gives are files of records."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.settings: Mapping[str, str] = {}
        """What the client is given beside the address, in its own words and without spaces."""

    def produce(
        self,
        bootstrap: str,
        topic: str,
        records: list[Record],
        *,
        codec: str,
        command: str = "produce",
    ) -> None:
        """Write them and wait for every ack. Raises `Refused`."""
        file = self.program.new_file()
        file.write_text("".join(record.to_line() + "\n" for record in records))
        acks = self.program.call(
            command,
            bootstrap=bootstrap,
            topic=topic,
            file=file,
            codec=codec,
            **self._client_words(),
        )
        file.unlink()
        assert acks == len(records)

    def consume(
        self, bootstrap: str, topic: str, ends: Mapping[int, int], *, start: int = 0
    ) -> Stored:
        """Read these partitions from an offset up to their ends. Raises `Refused`."""
        file = self.program.new_file()
        count = self.program.call(
            "consume",
            bootstrap=bootstrap,
            topic=topic,
            file=file,
            partitions=",".join(map(str, ends)),
            ends=",".join(map(str, ends.values())),
            start=start,
            **self._client_words(),
        )
        lines = file.read_text().splitlines()
        file.unlink()
        assert len(lines) == count
        stored: Stored = {partition: [] for partition in ends}
        for line in lines:
            offset, _, text = line.partition("\t")
            record = Record.from_line(text)
            stored[record.partition].append((int(offset), record))
        return stored

    def _client_words(self) -> dict[str, str]:
        return {f"client.{key}": value for key, value in self.settings.items()}


def old_java_driver(version: str, folder: Path, *more: str) -> OldProgramDriver:
    """A release of the Java client, with the classes of more folders. Raises
    `fetched.NotAvailable`."""
    java = fetched.runtime("java")
    # The consumer of 0.8 is a part of the broker.
    artifact = "kafka_2.11" if version.startswith("0.8") else "kafka-clients"
    jars = fetched.jars(
        CLIENTS / "java" / "old" / "pom.xml",
        properties={"kafka.artifact": artifact, "kafka.version": version},
    )
    classes = fetched.classes(
        CLIENTS / "java" / "common",
        *(CLIENTS / "java" / "old" / one for one in (JAVA_PROGRAMS[version], *more)),
        classpath=jars,
    )
    command = [java, "-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
    command += ["-Dorg.slf4j.simpleLogger.defaultLogLevel=warn"]
    command += ["-cp", f"{classes}:{jars}/*", "triglot.OldClient"]
    return OldProgramDriver(Program(command, folder))


def librdkafka_driver(version: str, folder: Path) -> OldProgramDriver:
    """A release of librdkafka. Raises `fetched.NotAvailable`."""
    library = fetched.librdkafka(version)
    command = [sys.executable, "-m", "tests.clients.python.librdkafka", str(library)]
    return OldProgramDriver(Program(command, folder, {"PYTHONPATH": str(CHECKOUT)}))


def go_driver(package: str) -> Callable[[str, Path], OldProgramDriver]:
    """Of a client in Go, whose release `go.mod` names. The driver raises `NotAvailable`."""

    def make(version: str, folder: Path) -> OldProgramDriver:
        module = CLIENTS / "go"
        assert f" v{version}\n" in (module / "go.mod").read_text(encoding="utf-8")
        return OldProgramDriver(Program([str(fetched.go_program(module, package))], folder))

    return make


def old_kafka_python_driver(version: str, folder: Path) -> OldProgramDriver:
    """A release of kafka-python. Raises `fetched.NotAvailable`."""
    requirements = CLIENTS / "python" / f"kafka-python-{version}.txt"
    packages = fetched.python_packages(requirements, PATCHES[version])
    command = [sys.executable, "-m", f"tests.clients.python.{PYTHON_PROGRAMS[version]}"]
    environ = {"PYTHONPATH": f"{packages}:{CHECKOUT}"}
    return OldProgramDriver(Program(command, folder, environ))


def pykafka_driver(version: str, folder: Path) -> OldProgramDriver:
    """pykafka. Raises `fetched.NotAvailable`."""
    requirements = CLIENTS / "python" / "pykafka.txt"
    assert f"pykafka=={version}\n" in requirements.read_text(encoding="utf-8")
    packages = fetched.python_packages(requirements, pykafka)
    command = [sys.executable, "-m", "tests.clients.python.pykafka_program"]
    return OldProgramDriver(Program(command, folder, {"PYTHONPATH": f"{packages}:{CHECKOUT}"}))


def rust_driver(program: str) -> Callable[[str, Path], OldProgramDriver]:
    """Of a client in Rust, whose release `Cargo.toml` names. The driver raises `NotAvailable`."""

    def make(version: str, folder: Path) -> OldProgramDriver:
        crate = CLIENTS / "rust"
        assert f'"={version}"' in (crate / "Cargo.toml").read_text(encoding="utf-8")
        return OldProgramDriver(Program([str(fetched.rust_program(crate, program))], folder))

    return make


def node_driver(program: str) -> Callable[[str, Path], OldProgramDriver]:
    """Of a client in Node, whose release `package.json` names. The driver raises `NotAvailable`."""

    def make(version: str, folder: Path) -> OldProgramDriver:
        node, package = fetched.runtime("node"), CLIENTS / "node" / "old"
        assert f'": "{version}"' in (package / "package.json").read_text(encoding="utf-8")
        environ = {"NODE_PATH": str(fetched.node_modules(package))}
        return OldProgramDriver(Program([node, str(package / program)], folder, environ))

    return make


#: Library -> the driver of one of its releases.
DRIVERS: dict[str, Callable[[str, Path], OldProgramDriver]] = {
    "franz-go": go_driver("franz_go"),
    "java": old_java_driver,
    "kafka-go": go_driver("kafka_go"),
    "kafka-node": node_driver("kafka_node.js"),
    "kafka-python": old_kafka_python_driver,
    "librdkafka": librdkafka_driver,
    "no-kafka": node_driver("no_kafka.js"),
    "pykafka": pykafka_driver,
    "rskafka": rust_driver("rskafka"),
    "rust-kafka": rust_driver("kafka_rust"),
    "sarama": go_driver("sarama"),
}
