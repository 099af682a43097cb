"""Places to run Spark: here, a standalone cluster of two executors, and Spark Connect on it.

The cluster is made of Spark's own Master and Workers, the server of Spark Connect is Spark's own
too; all of them listen on the loopback device alone. `Processes` finds what a kill is to hit.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import socket
import subprocess
import time
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from pipeline.spark.worker_python import worker_python

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

READY_S = 120.0
EXECUTORS = 2
MEMORY = "512m"
SHORT_LIFE = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"

ON_LOOPBACK = {
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.extraJavaOptions": SHORT_LIFE,
    "spark.driver.memory": MEMORY,
    "spark.executor.cores": "1",
    "spark.executor.extraJavaOptions": SHORT_LIFE,
    "spark.executor.memory": MEMORY,
    "spark.ui.enabled": "false",
}

WORKER, EXECUTOR, DRIVER = "worker", "executor", "driver"


class Place(NamedTuple):
    """Where jobs run: `flags` of our command, `victims` that can be killed there, and the processes
    that Spark's own are children of (that of the command is another)."""

    name: str
    flags: tuple[str, ...]
    victims: tuple[str, ...]
    roots: tuple[int, ...] = ()


LOCAL = Place("local", (), (WORKER, DRIVER))


@contextlib.contextmanager
def standalone(folder: Path, executors: int = EXECUTORS) -> Iterator[Place]:
    """A Master, and Workers of one core, each with room for one executor."""
    with contextlib.ExitStack() as started:
        master = started.enter_context(
            _spark_class(
                folder / "master.log",
                "org.apache.spark.deploy.master.Master",
                *("--host", "127.0.0.1", "--port", "0", "--webui-port", "0"),
            )
        )
        url = _logged(folder / "master.log", master, r"(spark://127\.0\.0\.1:\d+)")
        roots = []
        for number in range(executors):
            log = folder / f"worker-{number}.log"
            worker = started.enter_context(
                _spark_class(
                    log,
                    "org.apache.spark.deploy.worker.Worker",
                    *("--host", "127.0.0.1", "--webui-port", "0", "--cores", "1"),
                    *("--memory", MEMORY, "--work-dir", str(folder / f"work-{number}"), url),
                )
            )
            _logged(log, worker, r"(Successfully registered with master)")
            roots.append(worker.pid)
        flags = ["--master", url]
        for key, value in ON_LOOPBACK.items():
            flags += ["--conf", f"{key}={value}"]
        yield Place("standalone", tuple(flags), (EXECUTOR, WORKER, DRIVER), tuple(roots))


@contextlib.contextmanager
def connect(folder: Path) -> Iterator[Place]:
    """A server of Spark Connect, whose executors are those of a standalone cluster."""
    with standalone(folder) as cluster:
        with socket.create_server(("127.0.0.1", 0)) as probe:
            port = probe.getsockname()[1]
        settings = {
            "spark.connect.grpc.binding.address": "127.0.0.1",
            "spark.connect.grpc.binding.port": str(port),
        }
        more = [word for key, value in settings.items() for word in ("--conf", f"{key}={value}")]
        log = folder / "connect.log"
        with _spark_class(
            log,
            "org.apache.spark.deploy.SparkSubmit",
            *("--class", "org.apache.spark.sql.connect.service.SparkConnectServer"),
            *cluster.flags,
            *more,
            "spark-internal",
        ) as server:
            _wait(lambda: _accepts(port), server, log)
            remote = ("--remote", f"sc://127.0.0.1:{port}")
            yield Place("connect", remote, (WORKER, EXECUTOR, DRIVER), cluster.roots)


@contextlib.contextmanager
def _spark_class(log: Path, *words: str) -> Iterator[subprocess.Popen[bytes]]:
    """A program of Spark's, in a process group that ends with it."""
    import pyspark

    home = Path(pyspark.__file__).parent
    log.parent.mkdir(parents=True, exist_ok=True)
    environment = {
        **os.environ,
        "PYSPARK_PYTHON": worker_python(log.parent),
        "SPARK_DAEMON_JAVA_OPTS": SHORT_LIFE,
        "SPARK_DAEMON_MEMORY": MEMORY,
        "SPARK_LOCAL_DIRS": str(log.parent / "local"),
        "SPARK_LOCAL_IP": "127.0.0.1",
    }
    with log.open("ab") as out:
        process = subprocess.Popen(
            [str(home / "bin" / "spark-class"), *words],
            env=environment,
            stdout=out,
            stderr=out,
            start_new_session=True,
        )
    try:
        yield process
    finally:
        end(process)


def end(process: subprocess.Popen[bytes]) -> None:
    """Kill it with all that it has started, and is of its process group."""
    for pid in descendants((process.pid,)):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait(30)


def _logged(log: Path, process: subprocess.Popen[bytes], wanted: str) -> str:
    found: list[str] = []

    def look() -> bool:
        found[:] = re.findall(wanted, log.read_text(errors="replace"))
        return bool(found)

    _wait(look, process, log)
    return found[0]


def _accepts(port: int) -> bool:
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
        return True
    return False


def _wait(ready: Callable[[], bool], process: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + READY_S
    while not ready():
        assert process.poll() is None, log.read_text(errors="replace")[-3000:]
        assert time.monotonic() < deadline, log.read_text(errors="replace")[-3000:]
        time.sleep(0.05)


def victims(kind: str, roots: Sequence[int]) -> list[int]:
    """The Python workers that tasks run in, or the executors, below these processes."""
    below = descendants(roots)
    if kind == EXECUTOR:
        return [pid for pid in below if "CoarseGrainedExecutorBackend" in _command(pid)]
    parents = _parents()
    return [pid for pid in below if _is_worker(pid) and _is_worker(parents.get(pid, 0))]


def descendants(roots: Sequence[int]) -> list[int]:
    """The children of these processes, their children, and so on."""
    parents = _parents()
    found: list[int] = []
    level = set(roots)
    while level:
        level = {pid for pid, parent in parents.items() if parent in level}
        found += level
    return found


def _is_worker(pid: int) -> bool:
    """Whether it is the daemon of the workers of tasks, or one of them, which it forks."""
    return "pyspark.daemon pyspark.worker" in _command(pid)


def _parents() -> dict[int, int]:
    found = {}
    for status in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            found[int(status.parent.name)] = int(status.read_text().rpartition(")")[2].split()[1])
    return found


def _command(pid: int) -> str:
    with contextlib.suppress(OSError):
        words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
        return b" ".join(words).decode(errors="replace")
    return ""
