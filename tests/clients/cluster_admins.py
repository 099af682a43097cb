"""Programs in which an administrator uses a client: what he asks of a whole cluster."""

from __future__ import annotations

import subprocess
import sys

from tests.clients.drivers.program_driver import CLIENTS, JAVA_VERSIONS
from tests.support import fetched
from tests.support.broker_process import CHECKOUT

PATIENCE_S = 60

#: By the keys of tests.clients.available.
PYTHON = {
    "kafka-python": "tests.clients.python.cluster_admin_kafka_python",
    "confluent-kafka": "tests.clients.python.cluster_admin_confluent",
}
CLUSTER_ADMINS = (*PYTHON, *JAVA_VERSIONS)


def said_by(key: str, bootstrap: str, topic: str, *, node: int = 1, user: str) -> dict[str, str]:
    """What the program of this client prints, by name. Raises `NotAvailable`."""
    words = [bootstrap, topic, str(node), user]
    done = subprocess.run(
        [*_command(key), *words],
        cwd=CHECKOUT,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    lines = [line.partition("=") for line in done.stdout.splitlines()]
    return {name: value for name, _, value in lines}


def _command(key: str) -> list[str]:
    if key in PYTHON:
        return [sys.executable, "-W", "ignore", "-m", PYTHON[key]]
    java = CLIENTS / "java"
    jars = fetched.jars(java / "pom.xml", properties={"kafka.version": JAVA_VERSIONS[key]})
    classes = fetched.classes(java / "cluster_admin", classpath=jars)
    command = [fetched.runtime("java"), "-XX:TieredStopAtLevel=1"]
    command += ["-Dorg.slf4j.simpleLogger.defaultLogLevel=warn"]
    return [*command, "-cp", f"{classes}:{jars}/*", "triglot.ClusterAdmin"]
