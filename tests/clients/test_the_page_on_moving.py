"""Every command of docs/moving-to-kafka.md does what the page says, in the order of the page.

Kafka's scripts are stood in for by ones that start the same classes, of the same release from
Maven. Ports are free ones. Downloads are not made.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.clients.available import end_of_test
from tests.clients.groups.group_clients import CLASSIC, CONSUMER
from tests.clients.moving.members import Members
from tests.support.administrator import TOPIC, Administrator
from tests.support.broker_process import CHECKOUT
from tests.support.caller import batch
from tests.support.fetched import NotAvailable
from tests.support.kafka_process import OF_THE_PACE
from tests.support.kafka_release import KAFKA_3_9, KAFKA_4_4, RELEASES, Release
from tests.support.server_process import RunningProcess, free_port

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

pytestmark = [pytest.mark.long, pytest.mark.clients, pytest.mark.java, pytest.mark.slow]

PAGE = (CHECKOUT / "docs/moving-to-kafka.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```(\w*)\n(.*?)```", PAGE, flags=re.DOTALL)
COMMANDS = [line for kind, text in BLOCKS if not kind for line in text.splitlines()]
(PROPERTIES,) = [text for kind, text in BLOCKS if kind == "properties"]
(DOWNLOAD,) = [text for kind, text in BLOCKS if kind == "sh"]

SCRIPTS = {
    "kafka-storage.sh": "kafka.tools.StorageTool",
    "kafka-server-start.sh": "kafka.Kafka",
    "kafka-topics.sh": "org.apache.kafka.tools.TopicCommand",
    "kafka-consumer-groups.sh": "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand",
    "kafka-configs.sh": "kafka.admin.ConfigCommand",
    "kafka-features.sh": "org.apache.kafka.tools.FeatureCommand",
}
READY = re.compile(r"Kafka Server started|triglot \S+ ready")
WARNED = re.compile(r"^\[[^]]+\] (?:WARN|ERROR|FATAL) .*|^\S+ \[(?:warning|error) .*", re.MULTILINE)


class Reader:
    """Somebody who follows the page, in a folder of his own."""

    def __init__(self, folder: Path, release: Release) -> None:
        self.folder = folder
        self.server: RunningProcess | None = None
        self.version = release.version
        self.serves_consumer_groups = release != KAFKA_3_9
        self.ports = {"9092": str(free_port()), "9093": str(free_port())}
        bin_folder = folder / f"kafka_2.13-{self.version}" / "bin"
        bin_folder.mkdir(parents=True)
        java = release.java(folder, "kafka")
        for name, main in {**SCRIPTS, "kafka-dump-log.sh": release.dump_tool}.items():
            quiet = [] if "server" in name else release.tools.java(folder, "tools", quiet=True)
            words = " ".join(f"'{word}'" for word in [*(quiet or java), main])
            self._script(bin_folder / name, f'exec {words} "$@"')
        self._script(folder / "path" / "triglot", f'exec {sys.executable} -m tools "$@"')
        self._script(folder / "path" / "python", f'exec {sys.executable} "$@"')
        (folder / "server.properties").write_text(self.mine(PROPERTIES))

    def _script(self, path: Path, line: str) -> None:
        path.parent.mkdir(exist_ok=True)
        path.write_text(f"#!/bin/sh\n{line}\n")
        path.chmod(0o755)

    def mine(self, text: str) -> str:
        """The text of the page with the release and the ports of this reader."""
        for port, free in self.ports.items():
            text = text.replace(port, free)
        return text.replace("4.3.1", self.version)

    def environ(self) -> dict[str, str]:
        path = f"{self.folder / 'path'}:{os.environ['PATH']}"
        return {**os.environ, "PATH": path, "PYTHONPATH": str(CHECKOUT)}

    def start(self, line: str) -> None:
        command = ["/bin/sh", "-c", f"exec {self.mine(line)}"]
        self.server = RunningProcess(
            command, cwd=self.folder, environ=self.environ(), ready_line=READY
        )
        self.server.wait_until_ready(timeout_s=60)

    def stop(self) -> str:
        """Stop what runs; all that it printed."""
        server, self.server = self.server, None
        assert server is not None
        assert server.terminate() in (0, 143)  # Java ends with 143 after a clean stop
        return server.output()

    def run(self, line: str) -> str:
        ended = subprocess.run(
            ["/bin/sh", "-c", self.mine(line)],
            cwd=self.folder,
            env=self.environ(),
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert ended.returncode == 0, (line, ended.stdout, ended.stderr)
        return ended.stdout

    def members(self, protocols: Iterable[str]) -> Members:
        """Of groups that go on while the broker is exchanged."""
        return Members(f"127.0.0.1:{self.ports['9092']}", self.folder, protocols=protocols)

    def admin(self) -> Administrator:
        return Administrator("127.0.0.1", int(self.ports["9092"]), timeout_s=30)


@pytest.fixture(params=(*RELEASES, KAFKA_4_4), ids=lambda release: f"kafka-{release.name}")
def reader(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Reader]:
    try:
        made = Reader(tmp_path, request.param)
    except NotAvailable as reason:
        end_of_test("java", str(reason))
    yield made
    if made.server is not None:
        made.server.kill()


def test_the_page_is_read_here() -> None:
    assert len(COMMANDS) == 12
    assert "4.3.1" in DOWNLOAD
    assert set(re.findall(r"bin/(\S+\.sh)", "\n".join(COMMANDS))) == {
        *SCRIPTS,
        "kafka-dump-log.sh",
    }


def test_its_commands_move_a_directory_there_and_back(reader: Reader) -> None:
    first, forget, raise_level, check, show, info, there, topics, groups, configs, dump, back = (
        COMMANDS
    )
    protocols = (CLASSIC, CONSUMER) if reader.serves_consumer_groups else (CLASSIC,)

    reader.start(f"{first} --listen 127.0.0.1:9092")
    with reader.members(protocols) as members:
        with reader.admin() as admin:
            configs_given = {"message.format.version": "0.10.2", "retention.ms": "77"}
            admin.create("orders", 2, configs=configs_given)
            admin.alter(TOPIC, "orders", retention_ms="-1")
            assert "OK" in reader.run(forget)
            if reader.serves_consumer_groups:
                reader.run(raise_level)
            admin.produce("orders", batch(b"a", b"b", b"c"), version=9)
            offset = 3
            admin.commit_when_ready("readers", {("orders", 0): offset})
            cluster = admin.facts().cluster_id
        members.go_on("they joined")
        reader.stop()

        reader.run(check)
        assert "orders" in reader.run(show)
        assert f"cluster.id={cluster}" in reader.run(info)

        reader.start(there)
        assert "Topic: orders" in reader.run(topics)
        assert re.search(rf"readers\s+orders\s+0\s+{offset}\s+{offset}\s+0", reader.run(groups))
        described = reader.run(configs)
        assert "retention.ms=-1" in described
        assert "message.format.version" not in described
        assert "REGISTER_BROKER_RECORD" in reader.run(dump)
        with reader.admin() as admin:
            admin.create("theirs")
            admin.produce("orders", batch(b"d"), version=9)
            admin.commit_when_ready("readers", {("orders", 0): offset + 1})
        members.go_on("the directory was moved to Kafka")
        printed = reader.stop()
        warned = [
            found[0]
            for found in WARNED.finditer(printed)
            if not any(text in found[0] for text in OF_THE_PACE)
        ]
        assert [line for line in warned if "that has already been closed" not in line] == [
            line for line in warned if "Performing controller activation" in line
        ]

        assert "0 errors, 0 warnings" in reader.run(check)
        reader.start(back)
        with reader.admin() as admin:
            assert admin.values("orders")[-1] == b"d"
            committed = admin.committed_when_ready("readers")
            assert committed["orders", 0].offset == offset + 1
            facts = admin.facts()
        members.go_on("the directory was moved back")
        assert members.faults() == []
    assert {"orders", "theirs"} <= set(facts.topics)
    assert facts.cluster_id == cluster
    assert WARNED.findall(reader.stop()) == []
