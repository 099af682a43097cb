"""The stages of codecrafters' kafka-tester, which writes data directories and asks what is in them.

`TEST_KAFKA_TESTER` names the program (https://github.com/codecrafters-io/kafka-tester, in Go, which
is not part of this project). It writes `/tmp/server.properties` and `/tmp/kraft-combined-logs` and
wants port 9092; as root each stage gets a network of its own for that.
"""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.broker_process import CHECKOUT

TESTER = os.environ.get("TEST_KAFKA_TESTER", "")
REQUIRED = bool(os.environ.get("TEST_REQUIRE_KAFKA_TESTER"))

STAGES = {
    "starting": ("vi6", "nv3", "wa6", "nc5", "pv1"),
    "several clients": ("nh4", "sk0"),
    "DescribeTopicPartitions": ("yk1", "vt6", "ea7", "ku4", "wq2"),
    "Fetch": ("gs0", "dh6", "hn6", "cm4", "eg2", "fd8"),
    "Produce": ("xz1", "zf2", "gg1", "ls8", "yd8", "ct4", "ov0"),
}
STAGE_S = 60
WRITTEN = (Path("/tmp/server.properties"), Path("/tmp/kraft-combined-logs"))


@pytest.fixture
def program(tmp_path: Path) -> Path:
    """What the tester starts with the path of its properties."""
    script = tmp_path / "your_program.sh"
    command = f'cd "{CHECKOUT}" && exec "{sys.executable}" -m tools serve --config "$1"'
    script.write_text(f"#!/bin/sh\n{command}\n")
    script.chmod(0o755)
    (tmp_path / "codecrafters.yml").write_text("debug: false\n")
    return tmp_path


def command_of(tester: str) -> list[str]:
    """The tester in a network of its own, or here where that takes rights we do not have."""
    if os.geteuid() == 0 and shutil.which("unshare") and shutil.which("ip"):
        return ["unshare", "-n", "sh", "-c", 'ip link set lo up && exec "$0"', tester]
    with socket.socket() as probe:
        if not probe.connect_ex(("127.0.0.1", 9092)):
            pytest.skip("somebody listens on port 9092")
    return [tester]


@pytest.mark.parametrize(
    "stage",
    [
        pytest.param(slug, id=f"{subject}-{slug}")
        for subject, slugs in STAGES.items()
        for slug in slugs
    ],
)
def test_a_stage_of_kafka_tester_is_passed(stage: str, program: Path) -> None:
    if not TESTER:
        assert not REQUIRED, "TEST_KAFKA_TESTER=/path/to/kafka-tester make kafka-tester"
        pytest.skip("TEST_KAFKA_TESTER does not name the program")
    if any(path.exists() for path in WRITTEN):
        pytest.skip(f"the tester would write over {WRITTEN[0]} or {WRITTEN[1]}")
    cases = [{"slug": stage, "tester_log_prefix": stage, "title": stage}]
    environ = {
        **os.environ,
        "CODECRAFTERS_REPOSITORY_DIR": str(program),
        "CODECRAFTERS_TEST_CASES_JSON": json.dumps(cases),
    }

    try:
        done = subprocess.run(
            command_of(str(Path(TESTER).resolve())),
            env=environ,
            capture_output=True,
            text=True,
            timeout=STAGE_S,
            check=False,
        )
    finally:
        WRITTEN[0].unlink(missing_ok=True)
        shutil.rmtree(WRITTEN[1], ignore_errors=True)

    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]
