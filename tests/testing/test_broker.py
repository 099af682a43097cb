"""`triglot.testing.Broker`: its life, and that nothing of it outlives the test run."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from client.errors import Refused
from testing import Broker, BrokerFailed
from tests.support.broker_process import CHECKOUT, BrokerProcess
from tests.support.caller import Caller, batch
from tests.support.old_sets import message
from tests.support.small_disk import free_bytes, small_disk

if TYPE_CHECKING:
    from collections.abc import Iterator

KAFKA_STORAGE_ERROR = 56
HAS_MEMORY = Path("/dev/shm").is_dir()
GONE_WITHIN_MS = 60_000


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker() as broker:
        yield broker


def store(broker: Broker, topic: str, count: int = 1) -> None:
    with Caller(broker.host, broker.port) as caller:
        for _ in range(count):
            caller.produce(topic, batch(b"one"))


def test_a_broker_is_empty_and_every_one_has_a_port_and_data_of_its_own(broker: Broker) -> None:
    broker.topic("orders").create()
    with Broker() as other:
        assert other.port != broker.port
        assert other.data != broker.data
        assert other.topics() == []
    assert broker.topics() == ["orders"]


def test_stopped_killed_and_restarted_it_keeps_its_port_and_what_was_acknowledged(
    broker: Broker,
) -> None:
    port, first = broker.port, broker.pid
    broker.topic("orders").create(2)
    store(broker, "orders")
    broker.restart()
    second = broker.pid
    broker.kill()
    broker.start()
    assert len({first, second, broker.pid}) == 3
    assert broker.port == port
    assert len(broker.topic("orders").records()) == 1


def test_a_broker_that_was_discarded_leaves_no_process_and_no_files() -> None:
    with Broker() as broker:
        folder, process = broker.data, os.pidfd_open(broker.pid)
    assert select.select([process], [], [], GONE_WITHIN_MS / 1000)[0]
    os.close(process)
    with Broker():  # what was asked for before has been done by now
        assert not folder.exists()


def test_settings_have_the_names_of_kafka() -> None:
    with Broker({"auto.create.topics.enable": False, "num.partitions": 3}) as broker:
        assert broker.settings["auto.create.topics.enable"] == "false"
        orders = broker.topic("orders").create(-1)
        assert sorted(orders.ends()) == [0, 1, 2]


def test_a_setting_that_does_not_exist_is_refused_with_the_nearest_one() -> None:
    with (
        pytest.raises(
            BrokerFailed,
            match=r"settings: log\.retention\.hourz: .*did you mean log\.retention\.hours",
        ),
        Broker({"log.retention.hourz": 1}),
    ):
        pass


def test_it_answers_as_the_release_that_is_named() -> None:
    """But for the client by which a test asks it what is there."""
    with Broker(as_version="0.9", memory=HAS_MEMORY) as broker:
        broker.topic("orders").create()
        with Caller(broker.host, broker.port) as caller:
            sent = caller.produce("orders", message(b"from then", magic=0), version=1, acks=1)
            assert sent.error_code == 0
        (record,) = broker.topic("orders").wait_for(1)
        assert record.value == b"from then"


def test_a_release_that_does_not_exist_is_refused_with_the_nearest_one() -> None:
    with pytest.raises(BrokerFailed, match=r"as\.version = '2\.9'.*the nearest is 2\.8"):
        Broker(as_version="2.9").start()


def test_a_port_that_is_taken_is_named(broker: Broker) -> None:
    taken = {"listeners": f"PLAINTEXT://{broker.bootstrap}"}
    with pytest.raises(BrokerFailed, match=f"can't listen on.*{broker.port}"), Broker(taken):
        pass


def test_a_directory_is_copied_and_not_touched(tmp_path: Path) -> None:
    original = tmp_path / "data"
    settings = {"node.id": "7"}
    with (
        BrokerProcess(original, settings=settings) as source,
        Caller(source.host, source.port) as caller,
    ):
        caller.create_topic("orders", 1)
        caller.produce("orders", batch(b"one"))
    before = contents_of(original)
    with Broker(directory=original) as broker:
        assert len(broker.topic("orders").records()) == 1
        store(broker, "orders")
        assert len(broker.topic("orders").records()) == 2
    assert contents_of(original) == before


def contents_of(folder: Path) -> dict[str, bytes]:
    files = (path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


def test_a_directory_that_is_not_there_is_named(tmp_path: Path) -> None:
    with (
        pytest.raises(BrokerFailed, match="missing can't be copied"),
        Broker(directory=tmp_path / "missing"),
    ):
        pass


def test_a_folder_for_temporary_files_that_takes_none_is_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("tempfile.tempdir", "/proc")
    with pytest.raises(BrokerFailed, match=r"/proc takes no folder.*TMPDIR"):
        Broker().start()


def test_a_folder_for_temporary_files_that_is_full_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with small_disk(tmp_path / "disk", size_bytes=1 << 16) as folder:
        (folder / "filled").write_bytes(bytes(free_bytes(folder)))
        monkeypatch.setattr("tempfile.tempdir", str(folder))
        with pytest.raises(BrokerFailed, match="No space left on device") as raised, Broker():
            pass
    assert str(raised.value).count("\n") == 0


def test_a_folder_for_temporary_files_that_may_only_be_read_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with small_disk(tmp_path / "disk", size_bytes=1 << 20) as folder:
        subprocess.run(["mount", "-o", "remount,ro", str(folder)], check=True)
        monkeypatch.setattr("tempfile.tempdir", str(folder))
        with pytest.raises(BrokerFailed, match=r"Read-only file system .*TMPDIR"), Broker():
            pass


@pytest.mark.linux
@pytest.mark.skipif(not Path("/dev/shm").is_dir(), reason="no file system in memory")
def test_in_memory_its_data_is_in_no_folder_of_a_disk() -> None:
    with Broker(memory=True) as broker:
        store_in_new_topic(broker)
        assert broker.data.is_relative_to("/dev/shm")


@pytest.mark.skipif(not Path("/dev/shm").is_dir(), reason="no file system in memory")
def test_in_memory_it_has_a_bound_and_is_then_a_broker_with_a_full_disk() -> None:
    with (
        Broker(memory=4 << 20) as broker,
        Caller(broker.host, broker.port) as caller,
    ):
        caller.create_topic("orders")
        codes = [caller.produce("orders", batch(bytes(900_000))).error_code for _ in range(6)]
        assert codes == sorted(codes)
        assert codes[0] == 0
        assert codes[-1] == KAFKA_STORAGE_ERROR
        assert len(broker.topic("orders").records()) == codes.count(0)
        assert "disk is full" in broker.log


def store_in_new_topic(broker: Broker) -> None:
    broker.topic("orders").create()
    store(broker, "orders")
    assert len(broker.topic("orders").records()) == 1


def test_a_killed_test_run_leaves_neither_its_brokers_nor_their_data() -> None:
    program = (
        "from testing import Broker\n"
        "one, two = Broker(), Broker()\n"
        "one.start(); two.start()\n"
        "print(one.pid, two.pid, one.data, two.data, flush=True)\n"
        "input()\n"
    )
    run = subprocess.Popen(
        [sys.executable, "-c", program],
        cwd=CHECKOUT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert run.stdout is not None
    first, second, *folders = run.stdout.readline().split()
    processes = [os.pidfd_open(int(pid)) for pid in (first, second)]
    # The fork server is the parent of both; its own end comes last.
    processes.append(os.pidfd_open(parent_of(int(first))))
    run.send_signal(signal.SIGKILL)
    run.communicate()
    for process in processes:
        assert select.select([process], [], [], GONE_WITHIN_MS / 1000)[0]
        os.close(process)
    assert not any(Path(folder).exists() for folder in folders)


def parent_of(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def run_python(program: str, **environ: str) -> str:
    run = subprocess.run(
        [sys.executable, "-c", program],
        cwd=CHECKOUT,
        env={**os.environ, **environ},
        capture_output=True,
        text=True,
        check=False,
    )
    return run.stdout + run.stderr


def test_importing_the_package_and_the_plugin_imports_nothing_else_of_ours() -> None:
    told = run_python(
        "import sys, pytest; before = set(sys.modules); import testing.plugin\n"
        "print(*sorted(set(sys.modules) - before))"
    )
    assert told.split() == ["testing", "testing.plugin"]


def test_the_log_of_all_runs_is_there_to_be_read(broker: Broker) -> None:
    broker.topic("orders").create()
    broker.restart()
    assert "topic created" in broker.log
    assert "stopped" in broker.log


def test_a_broker_that_died_is_told_with_its_last_lines(broker: Broker) -> None:
    broker.topic("orders").create()
    os.kill(broker.pid, signal.SIGKILL)
    with pytest.raises(BrokerFailed, match=r"exit code -9.*; its last lines:\n.*topic created"):
        broker.stop()


def test_a_topic_is_made_with_its_settings(broker: Broker) -> None:
    topic = broker.topic("orders").create(1, {"retention.ms": 5, "preallocate": False})
    assert broker.cluster.topic_configs(topic.name, own=True) == {
        "retention.ms": "5",
        "preallocate": "false",
    }
    with pytest.raises(Refused, match="TOPIC_ALREADY_EXISTS"):
        topic.create()
