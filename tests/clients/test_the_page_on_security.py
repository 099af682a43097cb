"""The commands of docs/security.md do what the page says, in its order, with its files."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from typing import TYPE_CHECKING

import confluent_kafka
import pytest

from tests.support.broker_process import CHECKOUT
from tests.support.server_process import RunningProcess, free_port

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.clients

PAGE = (CHECKOUT / "docs/security.md").read_text(encoding="utf-8")
#: Sections by their titles, from each title to the next. What comes before the first has "".
SECTIONS = dict(
    zip(("", *re.findall(r"^## (.*)$", PAGE, flags=re.M)), PAGE.split("\n## "), strict=True)
)
#: What needs a KDC or an issuer of tokens has a test of its own: test_the_page_on_kerberos,
#: test_the_page_on_tokens.
KERBEROS, TOKENS = SECTIONS.pop("Kerberos"), SECTIONS.pop("Tokens of an issuer: OAUTHBEARER")
BLOCKS = [
    block
    for text in SECTIONS.values()
    for block in re.findall(r"```(\w*)\n(.*?)```", text, flags=re.DOTALL)
]
READY = re.compile(r"listening on")


class Reader:
    """Somebody who does what the page says."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.ports = {"9092": str(free_port()), "9093": str(free_port())}
        (folder / "bin").mkdir()
        triglot = folder / "bin/triglot"
        triglot.write_text(f'#!/bin/sh\nexec {sys.executable} -m tools "$@"\n')
        triglot.chmod(0o755)
        self.environ = {
            **os.environ,
            "PATH": f"{folder}/bin:{os.environ['PATH']}",
            "PYTHONPATH": str(CHECKOUT),
        }
        self.broker: RunningProcess | None = None

    def here(self, text: str) -> str:
        for port, free in self.ports.items():
            text = text.replace(port, free)
        return text

    def save(self, text: str) -> None:
        name = text.splitlines()[0].removeprefix("# ")
        (self.folder / name).write_text(self.here(text))

    def type(self, line: str) -> list[str]:
        """What a command prints; the broker's is left running."""
        if line.startswith("triglot serve"):
            self.stop()
            self.broker = RunningProcess(
                self.here(line).split(), cwd=self.folder, environ=self.environ, ready_line=READY
            )
            self.broker.wait_until_ready(timeout_s=30)
            return []
        # The page's own broker is at the address that commands have by default.
        asked = re.match(r"triglot (users|acls)", line) and "--bootstrap" not in line
        line += " --bootstrap 127.0.0.1:9092" if asked else ""
        user = re.match(r"triglot users add (\w+)", line)
        ended = subprocess.run(
            ["/bin/sh", "-c", f"{self.here(line)} 2>&1"],
            input=f"{user[1]}-secret\n" if user else "",
            cwd=self.folder,
            env=self.environ,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        return ended.stdout.splitlines()

    def stop(self) -> None:
        if self.broker is not None:
            assert self.broker.terminate() == 0, self.broker.output()
            assert "secret" not in self.broker.output()
        self.broker = None


def client(reader: Reader, user: str) -> dict[str, str]:
    return {
        "bootstrap.servers": reader.here("127.0.0.1:9093"),
        "security.protocol": "SASL_SSL",
        "ssl.ca.location": str(reader.folder / "certs/ca.pem"),
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.username": user,
        "sasl.password": f"{user}-secret",
    }


def delivered(producer: confluent_kafka.Producer) -> str | None:
    """What became of a record; None is well."""
    ends: list[confluent_kafka.KafkaError | None] = []
    producer.produce("orders", b"one", on_delivery=lambda error, _: ends.append(error))
    assert producer.flush(30) == 0
    return None if ends[0] is None else ends[0].name()


def test_the_page_closes_a_broker_whose_clients_go_on(tmp_path: Path) -> None:
    reader = Reader(tmp_path)
    tried = 0
    try:
        old = None
        for kind, text in BLOCKS:
            if kind == "properties":
                reader.save(text)
                continue
            told: dict[str, list[str]] = {}
            for line in text.splitlines():
                if line.startswith("$ "):
                    command = line[2:]
                    told[command] = []
                else:
                    told[command].append(line)
            for command, lines in told.items():
                printed = reader.type(command)
                tried += 1
                assert not lines or printed == lines, command
            if "triglot serve" in text and tried == 1:
                old = confluent_kafka.Producer({"bootstrap.servers": reader.here("127.0.0.1:9092")})
            if old is not None and reader.here(":9092") in reader.here(
                (tmp_path / "server.properties").read_text()
            ):
                assert delivered(old) is None, text
            if "explain" in text:
                assert delivered(confluent_kafka.Producer(client(reader, "alice"))) is None
                assert delivered(confluent_kafka.Producer(client(reader, "bob"))) == (
                    "TOPIC_AUTHORIZATION_FAILED"
                )
    finally:
        reader.stop()
    assert tried == 16
