"""Real clients of a broker on the portable path, and of one that finds no more than Windows has."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import textwrap
import warnings
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import Consumer, Producer

from config.platforms import PORTABLE_VARIABLE
from tests.support.broker_process import CHECKOUT, BrokerProcess, without_settings
from tests.support.caller import Caller
from tests.support.compacted import AT_ONCE, Table, folder_of, left_overs, log_bytes, wait_until
from tests.support.server_process import RunningProcess

if TYPE_CHECKING:
    from pathlib import Path

with warnings.catch_warnings():
    # kafka-python 3.0 reads its own files by a function that Python calls outdated.
    warnings.simplefilter("ignore", DeprecationWarning)
    from kafka import KafkaConsumer, KafkaProducer

pytestmark = [pytest.mark.clients, pytest.mark.long]

RECORDS = [os.urandom(100_000) for _ in range(40)]
"""Enough that what is fetched is sent in pieces."""

LIKE_WINDOWS = """
    # What of Python is not there on Windows, by its documentation ("Availability: Unix"); what the
    # interpreter's own modules need of it was imported before.
    import asyncio, fcntl, multiprocessing, os, select, shutil, signal, socket, subprocess, sys
    import ctypes, random, ssl, tempfile, threading, types

    lockf = fcntl.lockf, fcntl.LOCK_EX | fcntl.LOCK_NB
    pair, unix = socket.socketpair, socket.AF_UNIX
    socket.socketpair = lambda: pair(unix)
    for name in ("fcntl", "resource", "termios", "pwd", "grp", "pty", "tty", "uvloop", "readline"):
        sys.modules[name] = None
    for name in (
        *("pread", "preadv", "pwrite", "pwritev", "sendfile", "fdatasync", "posix_fadvise"),
        *("posix_fallocate", "statvfs", "fstatvfs", "memfd_create", "fork", "nice", "geteuid"),
        *("getuid", "sysconf", "set_blocking", "mkfifo", "chown", "setsid", "O_CLOEXEC"),
        *("O_DIRECTORY", "WNOHANG", "killpg", "sched_getaffinity", "posix_spawn"),
    ):
        delattr(os, name) if hasattr(os, name) else None
    for module, names in (
        (select, ("poll",)),
        (socket, ("AF_UNIX", "send_fds", "recv_fds", "MSG_MORE")),
        (signal, ("SIGKILL", "SIGSTOP", "SIGCONT", "SIGHUP")),
    ):
        for name in names:
            delattr(module, name) if hasattr(module, name) else None

    def no_signal_handler(*_):
        raise NotImplementedError

    asyncio.SelectorEventLoop.add_signal_handler = no_signal_handler

    # And what is there alone.
    def create_file(path, access, share, security, disposition, attributes, template):
        assert share == 7, "removed while it is open"
        create = os.O_CREAT if disposition == 4 else 0
        return os.open(path, (os.O_RDWR if access & 2 else os.O_RDONLY) | create)

    winapi = types.ModuleType("_winapi")
    winapi.GENERIC_READ, winapi.GENERIC_WRITE, winapi.NULL, winapi.OPEN_EXISTING = 1, 2, 0, 3
    winapi.CreateFile, winapi.CloseHandle = create_file, os.close
    msvcrt = types.ModuleType("msvcrt")
    msvcrt.LK_NBLCK = 2
    msvcrt.open_osfhandle = lambda handle, flags: handle
    msvcrt.locking = lambda descriptor, mode, size: lockf[0](descriptor, lockf[1])
    sys.modules |= {"_winapi": winapi, "msvcrt": msvcrt}
    os.O_BINARY, os.O_NOINHERIT = 0, 0

    import structlog  # which asks for the colours of a terminal there

    sys.platform = "win32"
    from tools.cli import main

    raise SystemExit(main())
"""


class PortableBroker(BrokerProcess):
    """On Linux, told to do without what Linux alone has."""

    def _launch(self) -> RunningProcess:
        return self._run("-m", "tools")

    def _run(self, *program: str) -> RunningProcess:
        settings = [f"--set={key}={value}" for key, value in self.settings.items()]
        arguments = ["serve", "--data", str(self.data), "--listen", self.bootstrap, *settings]
        return RunningProcess(
            [sys.executable, *program, *arguments],
            cwd=CHECKOUT,
            environ=without_settings() | {PORTABLE_VARIABLE: "1"},
            ready_line=re.compile(r"listening on 127\.0\.0\.1:(?P<port>\d+)"),
        )


class BrokerWithoutUnix(PortableBroker):
    """As far as it can see, on Windows."""

    def _launch(self) -> RunningProcess:
        return self._run("-c", textwrap.dedent(LIKE_WINDOWS))


@pytest.mark.parametrize("kind", [PortableBroker, BrokerWithoutUnix])
def test_a_broker_starts_where_unix_only_modules_are_missing_and_clients_get_what_they_sent(
    kind: type[PortableBroker], tmp_path: Path
) -> None:
    with kind(tmp_path / "data") as broker:
        by_kafka_python(broker.bootstrap, "first")
        by_librdkafka(broker.bootstrap, "second")
        broker.kill()
        broker.start()
        assert all_of(broker.bootstrap, "first") == RECORDS


SUITE = (
    *("systems", "testing/test_broker.py", "testing/test_inline.py", "testing/test_snapshots.py"),
    *("storage/test_filesystem.py", "storage/test_log.py", "storage/test_disk_full.py"),
    *("broker/network/test_sender.py", "config/test_keystores.py"),
)
"""Where the two paths differ. `make test-portable` runs all tests of a broker."""


@pytest.mark.timeout(600)
def test_the_tests_of_what_differs_hold_on_the_portable_path() -> None:
    run = subprocess.run(
        [
            *(sys.executable, "-m", "pytest", "-q", "-m", "not long", "-p", "no:cacheprovider"),
            *(f"tests/{path}" for path in SUITE),
        ],
        cwd=CHECKOUT,
        env=without_settings() | {PORTABLE_VARIABLE: "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stdout + run.stderr
    assert "passed" in run.stdout


def by_kafka_python(bootstrap: str, topic: str) -> None:
    producer = KafkaProducer(bootstrap_servers=bootstrap, acks="all", enable_idempotence=True)
    for value in RECORDS:
        producer.send(topic, value)
    producer.flush(timeout=60)
    producer.close()
    assert all_of(bootstrap, topic) == RECORDS


def all_of(bootstrap: str, topic: str) -> list[bytes]:
    consumer = KafkaConsumer(
        topic,
        bootstrap_servers=bootstrap,
        group_id="readers",
        auto_offset_reset="earliest",
        enable_auto_commit=False,
    )
    found = [next(consumer).value for _ in RECORDS]
    consumer.close()
    return found


def by_librdkafka(bootstrap: str, topic: str) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "acks": "all"})
    for value in RECORDS:
        producer.produce(topic, value)
    assert producer.flush(60) == 0
    consumer = Consumer(
        {"bootstrap.servers": bootstrap, "group.id": "others", "auto.offset.reset": "earliest"}
    )
    consumer.subscribe([topic])
    found: list[bytes] = []
    while len(found) < len(RECORDS):
        message = consumer.poll(60)
        assert message is not None
        assert message.error() is None
        found.append(message.value() or b"")
    consumer.close()
    assert found == RECORDS


def test_on_the_portable_path_topics_are_compacted(
    tmp_path: Path,
) -> None:
    with PortableBroker(tmp_path / "data", settings=AT_ONCE) as broker:
        caller = Caller(broker.host, broker.port)
        caller.create_topic(
            "t", 1, cleanup_policy="compact", segment_bytes="100000", min_cleanable_dirty_ratio="0"
        )
        table = Table(caller, "t")
        table.fill(1000)
        wait_until(lambda: log_bytes(folder_of(broker, "t")) <= 140_000, "compaction")
        wait_until(lambda: not left_overs(folder_of(broker, "t")), "its end")
        assert table.faults() == []
        caller.socket.close()
