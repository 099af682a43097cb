"""`triglot metadata` beside Apache Kafka's controller, and an observer of it on a bad line."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pytest

from storage.disk import DiskFilesystem
from storage.metadata.loading import load
from tests.clients.available import end_of_test
from tests.support.administrator import Administrator
from tests.support.fetched import NotAvailable
from tests.support.kafka_process import KafkaProcess
from tests.support.kafka_release import KAFKA_3_9, KAFKA_4
from tests.tools.observer.following import Ended, checkpoints, cut_off
from tools.observer.follower import Follower, Watcher
from tools.observer.memory import InMemory

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.support.kafka_release import Release

pytestmark = [pytest.mark.long, pytest.mark.clients, pytest.mark.java]

SMALL_SNAPSHOTS = {"metadata.log.max.record.bytes.between.snapshots": "200000"}


@pytest.fixture(scope="module", params=[KAFKA_3_9, KAFKA_4], ids=["3.9", "4"])
def kafka(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[KafkaProcess]:
    release: Release = request.param
    folder = tmp_path_factory.mktemp("kafka")
    try:
        server = KafkaProcess(folder / "data", settings=SMALL_SNAPSHOTS, release=release)
    except NotAvailable as reason:
        end_of_test("java", str(reason))
    with server:
        with Administrator(server.host, server.port) as admin:
            for number in range(60):
                admin.create(f"topic{number}", partitions=60)
            admin.set_quota({"user": "alice"}, "producer_byte_rate", 1000.0)
        _wait_for_a_snapshot(server)
        yield server


def _wait_for_a_snapshot(server: KafkaProcess) -> None:
    deadline = time.monotonic() + 240  # 3,600 partitions, on a busy machine
    while not checkpoints_of_controller(server):
        assert time.monotonic() < deadline, server.output()
        time.sleep(0.1)


def checkpoints_of_controller(server: KafkaProcess) -> dict[str, bytes]:
    """Without the one that a dynamic quorum begins with."""
    found = checkpoints(server.logs)
    return {name: data for name, data in found.items() if not name.startswith("0" * 20)}


def triglot(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "tools", "metadata", *words],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def controller_of(server: KafkaProcess) -> str:
    return f"{server.host}:{server._controller_port}"


async def test_a_hundred_cuts_leave_the_snapshot_of_apache_kafka(
    kafka: KafkaProcess, tmp_path: Path
) -> None:
    there = checkpoints_of_controller(kafka)
    size = len(there[max(there)])
    await cut_off(kafka._controller_port, size, tmp_path, seed=11)
    found = checkpoints(tmp_path)
    assert len(found) == 1
    assert found.items() <= checkpoints_of_controller(kafka).items()
    assert len(load(DiskFilesystem(), str(tmp_path)).image.topics) == 60


def test_the_state_of_a_kafka_cluster_is_that_of_its_files(kafka: KafkaProcess) -> None:
    followed = triglot("follow", "--once", "--json", controller_of(kafka))
    assert followed.returncode == 0, followed.stderr
    shown = triglot("show", "--json", str(kafka.logs))
    assert shown.returncode == 0, shown.stderr
    state: dict[str, Any] = json.loads(followed.stdout)["state"]
    files: dict[str, Any] = json.loads(shown.stdout)
    for name, value in state.items():
        assert files[name] == value, name
    assert len(state["topics"]) == 60
    assert state["quotas"] == [
        {"entity": {"user": "alice"}, "quotas": {"producer_byte_rate": 1000.0}}
    ]


def test_the_clients_port_of_kafka_is_told_from_its_controllers(kafka: KafkaProcess) -> None:
    run = triglot("follow", "--once", kafka.bootstrap)
    assert run.returncode == 1
    assert "is not a controller's listener" in run.stderr
    assert run.stderr.count("\n") == 1


class Seen(Watcher):
    def __init__(self) -> None:
        self.there = threading.Event()
        self.kinds: list[str] = []

    def state(self, image: Any, end_offset: int) -> None:
        self.there.set()

    def changed(self, offset: int, record: Any, image: Any) -> None:
        self.kinds.append(type(record).__name__)
        if self.kinds[-1] == "RemoveTopicRecord":
            raise Ended


def test_changes_of_a_kafka_cluster_are_seen_as_they_happen(kafka: KafkaProcess) -> None:
    def change() -> None:
        assert seen.there.wait(30)
        with Administrator(kafka.host, kafka.port) as admin:
            admin.create("seen", configs={"cleanup.policy": "compact"})
            admin.delete_topic("seen")

    seen = Seen()
    made = Follower([(kafka.host, kafka._controller_port)], InMemory(), watcher=seen)
    with ThreadPoolExecutor() as other:
        changing = other.submit(change)
        with pytest.raises(Ended):
            made.run()
        changing.result()

    kinds = [kind for kind in seen.kinds if kind != "NoOpRecord"]
    assert kinds == ["TopicRecord", "ConfigRecord", "PartitionRecord", "RemoveTopicRecord"]
