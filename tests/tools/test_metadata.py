"""`triglot metadata` as a user types it."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from tests.support.interruptible import take_interrupts
from tests.support.running_controller import RunningController
from tests.support.scripted_broker import RawServer
from tests.support.server_process import free_port
from tests.tools.observer.following import checkpoints
from tests.tools.observer.scripted_controller import topic
from tools.cli import main
from tools.metadata.actions import Printer

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from storage.metadata.image import MetadataImage


def run(*arguments: str) -> int:
    return main(["metadata", *arguments])


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return tmp_path / "data"


@pytest.fixture
def controller(data: Path) -> Iterator[RunningController]:
    with RunningController(data) as running:
        with running.connect_as_client() as client:
            client.create_topic("orders", partitions=2, cleanup_policy="compact")
        yield running


@pytest.fixture
def address(controller: RunningController) -> str:
    return f"127.0.0.1:{controller.port}"


@pytest.mark.parametrize(
    "words",
    [["follow", "nowhere"], ["follow", "h:0"], ["follow", "--timeout", "0", "h:1"], [], ["x"]],
)
def test_a_command_line_that_is_wrong_is_told_so(words: list[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        run(*words)
    assert ended.value.code == 2


def test_the_help_says_how_a_controllers_listener_is_opened(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(SystemExit):
        run("follow", "--help")
    said = capsys.readouterr().out
    assert "controller.listener.names=CONTROLLER" in said
    assert "triglot metadata follow 127.0.0.1:9093" in said


def test_follow_prints_the_whole_state(address: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("follow", "--once", address) == 0
    said = capsys.readouterr().out.splitlines()
    assert said[0].startswith("state below offset ")
    assert [line.split("  ")[1] for line in said if line.startswith("topic orders")] == [
        "2 partitions"
    ]
    assert "config topic orders  cleanup.policy = compact" in said


def test_follow_and_show_say_the_same_as_json(
    address: str, data: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("follow", "--once", "--json", address) == 0
    followed = json.loads(capsys.readouterr().out)
    assert run("show", "--json", str(data)) == 0
    shown = json.loads(capsys.readouterr().out)
    assert followed["state"].items() <= shown.items()
    assert [one["name"] for one in shown["topics"]] == ["orders"]
    assert followed["offset"] == shown["log_end_offset"]


def test_what_follow_keeps_can_be_shown(
    controller: RunningController,
    address: str,
    tmp_path: Path,
    data: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    snapshot = controller.take_snapshot()
    with controller.connect_as_client() as client:
        client.create_topic("late")
    copy = tmp_path / "copy"
    assert run("follow", "--once", "--dir", str(copy), address) == 0
    followed = capsys.readouterr().out.splitlines()[1:]
    assert checkpoints(copy).items() <= checkpoints(data).items()
    for path in (copy, data, copy / "__cluster_metadata-0"):
        assert run("show", str(path)) == 0
        shown = capsys.readouterr().out.splitlines()
        assert shown[-len(followed) :] == followed
        assert f"snapshot {snapshot.file_name}" in shown
        assert f"cluster {controller.broker.directory.identity.cluster_id}" in shown


@pytest.fixture
def following(address: str) -> Iterator[subprocess.Popen[str]]:
    words = [sys.executable, "-m", "tools", "metadata", "follow", address]
    process = subprocess.Popen(
        words,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=take_interrupts,
    )
    yield process
    process.kill()
    process.communicate()


def test_changes_are_printed_as_they_happen_until_it_is_interrupted(
    controller: RunningController, following: subprocess.Popen[str]
) -> None:
    assert following.stdout is not None
    lines = iter(following.stdout)
    for line in lines:
        if line.startswith("config topic orders"):
            break
    with controller.connect_as_client() as client:
        client.create_topic("new")
    told = []
    for line in lines:
        told.append(line.rstrip())
        if "partition new-0 created" in line:
            break
    assert any(line.startswith("@") and "topic new created  id " in line for line in told)
    following.send_signal(signal.SIGINT)
    assert following.wait(30) == 0
    assert following.stderr is not None
    assert following.stderr.read() == ""


def one_line(capsys: pytest.CaptureFixture[str]) -> str:
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.count("\n") == 1
    return said.err


def test_the_clients_port_is_told_from_the_controllers(
    controller: RunningController, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("follow", f"127.0.0.1:{controller.broker.listening.ports['PLAINTEXT']}") == 1
    said = one_line(capsys)
    assert "is not a controller's listener" in said
    assert "listeners=PLAINTEXT://:9092,CONTROLLER://:9093" in said


def test_a_port_where_nobody_listens_ends_it(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("follow", f"127.0.0.1:{free_port()}") == 1
    assert "connection refused" in one_line(capsys)


def test_a_server_of_another_kind_ends_it(capsys: pytest.CaptureFixture[str]) -> None:
    def answer(connection: socket.socket) -> None:
        connection.recv(100)
        connection.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")

    with RawServer(answer) as server:
        assert run("follow", f"127.0.0.1:{server.port}") == 1
    assert "is not a Kafka broker that can be asked" in one_line(capsys)


def test_a_brokers_directory_is_not_followed_into(
    address: str, data: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("follow", "--dir", str(data), address) == 1
    assert "a folder of its own" in one_line(capsys)


def test_a_folder_without_metadata_cannot_be_shown(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("show", str(tmp_path)) == 1
    assert "holds no __cluster_metadata-0" in one_line(capsys)
    (tmp_path / "__cluster_metadata-0").mkdir()
    assert run("show", str(tmp_path)) == 1
    assert "neither log nor snapshot" in one_line(capsys)


def test_a_damaged_directory_is_not_shown_as_a_smaller_one(
    data: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with RunningController(data) as running, running.connect_as_client() as client:
        client.create_topic("orders")
    (snapshot,) = (data / "__cluster_metadata-0").glob("*.checkpoint")
    content = bytearray(snapshot.read_bytes())
    content[100] ^= 1
    snapshot.chmod(0o600)
    snapshot.write_bytes(content)
    assert run("show", str(data)) == 1
    assert "position" in one_line(capsys)


def test_after_a_snapshot_in_between_only_what_is_different_is_printed(
    capsys: pytest.CaptureFixture[str],
) -> None:
    printer = Printer(as_json=False, once=False)
    printer.state(image_of("a", "b"), 5)
    capsys.readouterr()
    printer.state(image_of("b", "c"), 9)
    said = capsys.readouterr().out.splitlines()
    assert said[0] == "state below offset 9, from a snapshot"
    assert [line.split("  ")[0] for line in said[1:]] == ["- topic a", "+ topic c"]


def image_of(*names: str) -> MetadataImage:
    from storage.metadata.image import MetadataImage

    made = MetadataImage()
    for name in names:
        for record in topic(name):
            made.replay(record)
    return made


def test_a_reader_that_goes_away_ends_it_quietly(address: str) -> None:
    words = [sys.executable, "-m", "tools", "metadata", "follow", "--once", address]
    process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout is not None
    process.stdout.close()
    assert process.stderr is not None
    assert process.stderr.read() == ""
    process.stderr.close()
    assert process.wait(10) == 1
