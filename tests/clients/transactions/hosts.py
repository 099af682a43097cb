"""Transactional producers of real clients, by name, and readers.

Commands, which the program in Java takes as lines and the others as calls:

    open    a producer of a transactional id, ready for its first transaction
    begin, commit, abort
    send    a value to partition 0 of a topic, and wait for its acknowledgement
    copy    read so many records of a topic as a member of a group, write their values to another
            topic, and add the offsets to the transaction
    read    the values in partition 0 of a topic, by isolation level
    release close all producers, in whatever state they are
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from tests.clients.drivers.program_driver import CLIENTS, JAVA_VERSIONS, Program
from tests.support import fetched
from tests.support.fetched import NotAvailable

if TYPE_CHECKING:
    from pathlib import Path

TIMEOUT_MS = 60_000
"""Of transactions, where a test has no other."""


class Host(Protocol):
    """A client. What it is refused it raises as `Refused`."""

    def open(self, name: str, transactional_id: str, timeout_ms: int = TIMEOUT_MS) -> None: ...
    def begin(self, name: str) -> None: ...
    def send(self, name: str, topic: str, value: str) -> None: ...
    def copy(self, name: str, group: str, source: str, target: str, count: int) -> None: ...
    def commit(self, name: str) -> None: ...
    def abort(self, name: str) -> None: ...
    def read(self, topic: str, isolation: str) -> list[str]: ...
    def release(self) -> None: ...
    def end(self) -> None:
        """There is no producer any more, and no other command follows."""


class JavaHost:
    """A release of the Java client in a process of its own. Raises `NotAvailable`."""

    def __init__(self, version: str, bootstrap: str, folder: Path) -> None:
        self._bootstrap = bootstrap
        self._program = Program(_java_command(version), folder)

    def open(self, name: str, transactional_id: str, timeout_ms: int = TIMEOUT_MS) -> None:
        words = {"id": transactional_id, "timeout-ms": timeout_ms}
        self._program.call("open", producer=name, bootstrap=self._bootstrap, **words)

    def begin(self, name: str) -> None:
        self._program.call("begin", producer=name)

    def send(self, name: str, topic: str, value: str) -> None:
        self._program.call("send", producer=name, topic=topic, value=value)

    def copy(self, name: str, group: str, source: str, target: str, count: int) -> None:
        words = {"group": group, "source": source, "target": target, "count": count}
        copied = self._program.call("copy", producer=name, bootstrap=self._bootstrap, **words)
        assert copied == count

    def copy_some(self, name: str, group: str, source: str, target: str) -> None:
        """The same with one record at least: all that a poll finds."""
        words = {"group": group, "source": source, "target": target, "count": 1}
        self._program.call("copy", producer=name, bootstrap=self._bootstrap, **words)

    def commit(self, name: str) -> None:
        self._program.call("commit", producer=name)

    def abort(self, name: str) -> None:
        self._program.call("abort", producer=name)

    def read(self, topic: str, isolation: str) -> list[str]:
        found: list[str] = self._program.call(
            "read", bootstrap=self._bootstrap, topic=topic, isolation=isolation
        )
        return found

    def release(self) -> None:
        self._program.call("release")

    def end(self) -> None:
        self._program.close()

    # Two-phase commits, which it alone has.

    def open_two_phase(self, name: str, transactional_id: str) -> None:
        """A producer that takes part in two-phase commits."""
        self._two_phase("open", name, transactional_id)

    def prepare(self, name: str) -> str:
        """Producer id and epoch, as 7:0, of the transaction, which can only be ended now."""
        found: str = self._program.call("prepare", producer=name)
        return found

    def recover(self, name: str, transactional_id: str) -> str:
        """A producer that keeps the transaction that is open, whose id and epoch this returns."""
        found: str = self._two_phase("recover", name, transactional_id)
        return found

    def _two_phase(self, command: str, name: str, transactional_id: str) -> Any:
        words = {"id": transactional_id, "timeout-ms": TIMEOUT_MS, "two-phase": 1}
        return self._program.call(command, producer=name, bootstrap=self._bootstrap, **words)

    def kill(self) -> None:
        """The process is gone, with all its producers."""
        self._program.kill()


def _java_command(version: str) -> list[str]:
    java, sources = fetched.runtime("java"), CLIENTS / "java"
    pom = sources / "pom.xml" if version in JAVA_VERSIONS.values() else sources / "old" / "pom.xml"
    properties = {"kafka.version": version}
    if pom.parent != sources:
        properties["kafka.artifact"] = "kafka-clients"
    jars = fetched.jars(pom, properties=properties)
    release = tuple(map(int, version.split(".")[:2]))
    calls = "since_2_5" if release >= (2, 5) else "before_2_5"
    folders = [sources / "common", *(sources / "transactions" / name for name in ("common", calls))]
    classes = fetched.classes(*folders, classpath=jars)
    command = [java, "-Xmx128m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
    command += ["-Dorg.slf4j.simpleLogger.defaultLogLevel=warn"]
    return [*command, "-cp", f"{classes}:{jars}/*", "triglot.TransactionHost"]


class Client(NamedTuple):
    runtime: str
    #: Of the client in Java the release, of others the class in `python_hosts`.
    what: str

    def host(self, bootstrap: str, folder: Path) -> Host:
        """Raises `NotAvailable`."""
        if self.runtime == "java":
            return JavaHost(self.what, bootstrap, folder)
        try:
            from tests.clients.transactions import python_hosts
        except ImportError as error:
            raise NotAvailable(str(error)) from None
        host: Host = getattr(python_hosts, self.what)(bootstrap)
        return host


HOSTS = {
    "kafka-python": Client("python", "KafkaPythonHost"),
    "confluent-kafka": Client("python", "ConfluentHost"),
    "aiokafka": Client("python", "AiokafkaHost"),
    "java-0.11.0": Client("java", "0.11.0.3"),
    "java-1.1": Client("java", "1.1.1"),
    "java-2.8": Client("java", "2.8.2"),
    "java-3.9": Client("java", JAVA_VERSIONS["java-3.9"]),
    "java-4": Client("java", JAVA_VERSIONS["java-4"]),
}
