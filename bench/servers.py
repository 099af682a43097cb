"""The servers that are measured: ours, the C floor, and any that already runs."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource
from confluent_kafka.cimpl import NewTopic

from bench import frames, machine, raw
from bench.programs import program

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

CHECKOUT = Path(__file__).resolve().parent.parent
LISTENING = re.compile(r"listening on \S+:(\d+)")
STOP_TIMEOUT_S = 30.0


class Server:
    """A server on 127.0.0.1 and its process, whose CPU time is what we are after."""

    name: str
    pid: int
    port: int

    @property
    def bootstrap(self) -> str:
        return f"127.0.0.1:{self.port}"

    def create_topic(
        self, name: str, *, partitions: int = 1, configs: Mapping[str, str] | None = None
    ) -> None:
        wanted = NewTopic(
            name, num_partitions=partitions, replication_factor=1, config=dict(configs or {})
        )
        admin = self._admin()
        _done(admin.create_topics([wanted]))
        # Apache Kafka says that a topic is made before it can be used, and the raw load takes no
        # error for an answer.
        request = frames.fetch_frame(name, 0, wait_ms=0)
        at = frames.fetch_error_position(name)
        for _ in range(500):
            if raw.ask(self.port, request)[at : at + 2] == b"\0\0":
                return
            time.sleep(0.01)
        raise RuntimeError(f"topic {name} of {self.name} could not be used after five seconds")

    def create_topics(self, wanted: Sequence[NewTopic]) -> None:
        """Many at once; returns when the server says that they are made."""
        admin = self._admin()
        _done(admin.create_topics(list(wanted), operation_timeout=60, request_timeout=120))

    def delete_topic(self, name: str) -> None:
        """Its pages are dropped with it, so that the disk stays out of what follows."""
        admin = self._admin()
        _done(admin.delete_topics([name]))

    def set_config(self, key: str, value: str) -> None:
        """Change a setting of the broker while it runs."""
        admin = self._admin()
        (broker,) = admin.list_topics(timeout=120).brokers
        entry = ConfigEntry(key, value, incremental_operation=AlterConfigOpType.SET)
        wanted = ConfigResource(
            ConfigResource.Type.BROKER, str(broker), incremental_configs=[entry]
        )
        for future in admin.incremental_alter_configs([wanted]).values():
            future.result(timeout=120)

    def output(self) -> str:
        """The last lines it printed, for failures."""
        return ""

    def stop(self) -> None:
        """Ends the process, if it is ours."""

    def _admin(self) -> AdminClient:
        return AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 3})


def _done(futures: Mapping[str, Any]) -> None:
    for name, future in futures.items():
        try:
            future.result(timeout=120)
        except KafkaException as error:
            raise RuntimeError(f"topic {name}: {error}") from error


class Running(Server):
    """A server that somebody else started: `NAME=127.0.0.1:PORT@PID`."""

    def __init__(self, text: str) -> None:
        found = re.fullmatch(r"([\w.-]+)=127\.0\.0\.1:(\d+)@(\d+)", text)
        if found is None:
            raise ValueError(f"'{text}' is not of the form NAME=127.0.0.1:PORT@PID")
        self.name, self.port, self.pid = found[1], int(found[2]), int(found[3])


class Started(Server):
    """A server whose process we start on the broker's core and stop again."""

    #: Apache Kafka needs some seconds, the others a fraction of one.
    START_TIMEOUT_S = 90.0
    #: Whether it may be started many times over, to see how long that takes.
    starts_quickly = True

    def __init__(self, data: Path, *, port: int = 0) -> None:
        self.data = data
        self.port = port
        data.mkdir(parents=True, exist_ok=True)
        self._prepare()
        self._log = data.parent / f"{data.name}.out"
        with machine.on_broker_core(), self._log.open("wb") as log:
            self.started_at_s = time.perf_counter()
            self._process = subprocess.Popen(
                self._command(),
                cwd=CHECKOUT,
                # The broker would take these for settings, and we measure its defaults.
                env={k: v for k, v in os.environ.items() if not k.startswith("TRIGLOT_")},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
            )
        self.pid = self._process.pid

    def _prepare(self) -> None:
        """Called once, before the process starts."""

    def _command(self) -> Sequence[str]:
        raise NotImplementedError

    def wait_until_ready(self) -> None:
        """Returns when it has said which port it listens on."""
        deadline = time.monotonic() + self.START_TIMEOUT_S
        while time.monotonic() < deadline:
            found = LISTENING.search(self._log.read_text(errors="replace"))
            if found is not None:
                self.port = int(found[1])
                return
            if self._process.poll() is not None:
                break
            time.sleep(0.002)
        raise RuntimeError(f"{self.name} did not start:\n{self.output()}")

    def answer_after_s(self) -> float:
        """Seconds from exec to the first ApiVersions answer, asked for without a pause."""
        request = frames.api_versions_frame()
        deadline = time.monotonic() + self.START_TIMEOUT_S
        while time.monotonic() < deadline and self._process.poll() is None:
            try:
                raw.ask(self.port, request)
            except OSError:
                continue
            return time.perf_counter() - self.started_at_s
        raise RuntimeError(f"{self.name} did not answer:\n{self.output()}")

    def output(self) -> str:
        return "\n".join(self._log.read_text(errors="replace").splitlines()[-30:])

    def kill(self) -> None:
        """Ends it by SIGKILL, as a crash would."""
        self._process.kill()
        self._process.wait()

    def stop(self) -> None:
        self._process.terminate()
        try:
            self._process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


class Triglot(Started):
    """Our broker with its default settings, started as a user starts it."""

    name = "triglot"

    def _command(self) -> Sequence[str]:
        serve = [sys.executable, "-m", "tools", "serve", "--data", str(self.data)]
        return [*serve, "--listen", f"127.0.0.1:{self.port}"]


class Floor(Started):
    """The C program of bench/floor. It makes topics when they are asked for."""

    name = "floor"
    PARTITIONS = 4

    def _command(self) -> Sequence[str]:
        return [str(program("floor")), str(self.data), str(self.PARTITIONS), str(self.port)]

    def create_topic(
        self, name: str, *, partitions: int = 1, configs: Mapping[str, str] | None = None
    ) -> None:
        if partitions > self.PARTITIONS:
            raise ValueError(f"the floor has {self.PARTITIONS} partitions, not {partitions}")
        raw.ask(self.port, frames.metadata_frame(name))
