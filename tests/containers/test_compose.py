"""The images are built and the demo of `compose.yaml` is run, as `docker compose up --build` does.

Podman takes Docker's part. Podman 4.3 has no condition `service_healthy`, so here the demo's
clients start with the broker instead of after it.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow.parquet
import pytest

from tests.clients.available import end_of_test
from tests.style.sources import CHECKOUT
from tests.support.fetched import NotAvailable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.containers.engine import Engine

pytestmark = [pytest.mark.long, pytest.mark.slow, pytest.mark.timeout(2400)]

WAIT_S = 120.0
"""Spark's first micro-batch comes last, some 30 s after its start on two busy cores."""


@pytest.fixture(scope="module")
def demo(engine: Engine) -> Iterator[Engine]:
    """The engine, with all services of the demo running."""
    try:
        engine.import_base()
    except NotAvailable as reason:
        end_of_test("containers", str(reason))
    targets = {"broker": "", "producer": "demo", "consumer": "demo", "pipeline": "pipeline"}
    for service, target in targets.items():
        engine.build(f"demo_{service}", target=target)
    compose(engine, "up", "--detach", "--no-build")
    yield engine
    compose(engine, "down", "--volumes", "--timeout", "10")


def compose(engine: Engine, *command: str) -> None:
    engine.run("podman-compose", "--project-name", "demo", *command)


def awaited(seen: Callable[[], bool], what: Callable[[], str]) -> None:
    deadline = time.monotonic() + WAIT_S
    while not seen():
        assert time.monotonic() < deadline, what()
        time.sleep(0.5)


def volume(engine: Engine, name: str) -> Path:
    mounted = engine.run("podman", "volume", "inspect", name, "--format", "{{.Mountpoint}}")
    return Path(mounted.stdout.strip())


def test_the_consumer_prints_what_the_producer_writes(demo: Engine) -> None:
    def printed() -> str:
        return demo.logs("demo_consumer_1")

    awaited(lambda: "-> record 3 (number=3 from=producer.py)" in printed(), printed)
    # The consumer begins with the record that comes after its start.
    numbers = [int(number) for number in re.findall(r"-> record (\d+)", printed())]
    assert numbers == list(range(numbers[0], numbers[-1] + 1))


def test_the_pipeline_archives_the_topic_into_its_volume(demo: Engine) -> None:
    archive = volume(demo, "demo_lake") / "demo"

    def archived() -> list[Path]:
        return sorted(archive.glob("demo-0-*.parquet"))

    awaited(lambda: len(archived()) > 1, lambda: demo.logs("demo_pipeline_1"))

    offsets = [
        offset
        for file in archived()
        for offset in pyarrow.parquet.read_table(file, columns=["offset"])["offset"].to_pylist()
    ]
    assert sorted(offsets) == list(range(len(offsets)))


def test_the_broker_is_healthy_by_the_check_of_its_image(demo: Engine) -> None:
    demo.run("podman", "healthcheck", "run", "demo_broker_1")
    shown = demo.run("podman", "inspect", "demo_broker_1", "--format", "{{.State.Health.Status}}")
    assert shown.stdout.strip() == "healthy"


def test_the_broker_runs_as_its_user_and_writes_to_its_volume_alone(demo: Engine) -> None:
    assert demo.run("podman", "exec", "demo_broker_1", "id", "-u").stdout.strip() == "10001"
    data = volume(demo, "demo_data")
    assert (data / "demo-0").is_dir()
    assert (data / "demo-0").stat().st_uid == 10001
    changed = demo.run("podman", "diff", "demo_broker_1").stdout.split("\n")
    assert [line for line in changed if line.startswith(("A /data/", "C /opt"))] == []


def test_the_published_port_is_for_clients_of_the_host(demo: Engine) -> None:
    ended = subprocess.run(
        [sys.executable, str(CHECKOUT / "examples/consumer.py")],
        env={**os.environ, "BOOTSTRAP": "127.0.0.1:9092", "COUNT": "1"},
        capture_output=True,
        text=True,
        timeout=WAIT_S,
        check=False,
    )
    assert ended.stdout.startswith("0: red -> record 0 "), ended.stderr


def test_a_demo_that_is_stopped_and_started_again_has_its_records(demo: Engine) -> None:
    def newest() -> int:
        written = re.findall(r"to offset (\d+)", demo.logs("demo_producer_1"))
        return int(written[-1]) if written else -1

    awaited(lambda: newest() > 0, lambda: demo.logs("demo_producer_1"))
    demo.run("podman", "stop", "--time", "20", "demo_broker_1")
    state = demo.run("podman", "inspect", "demo_broker_1", "--format", "{{.State.ExitCode}}")
    assert state.stdout.strip() == "0", demo.logs("demo_broker_1")
    before = newest()

    demo.run("podman", "start", "demo_broker_1")

    awaited(lambda: newest() > before, lambda: demo.logs("demo_producer_1"))
    assert "scanned" not in demo.logs("demo_broker_1")
