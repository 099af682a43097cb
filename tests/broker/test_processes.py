"""Several processes that serve one data directory, as clients and the next start see them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Any

import pytest

from protocol.errors import ErrorCode
from protocol.messages.create_topics import CreateTopicsRequest
from protocol.messages.delete_topics import DeleteTopicsRequest
from protocol.messages.describe_configs import DescribeConfigsRequest
from protocol.messages.find_coordinator import FindCoordinatorRequest
from protocol.messages.heartbeat import HeartbeatRequest
from protocol.messages.incremental_alter_configs import IncrementalAlterConfigsRequest
from protocol.messages.init_producer_id import InitProducerIdRequest
from protocol.messages.metadata import MetadataRequest, MetadataResponse
from protocol.registry import APIS
from storage.metadata.image import BROKER_RESOURCE
from tests.support.caller import Caller, batch, records_in

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

pytestmark = pytest.mark.linux

HOST, TOPIC, PARTITIONS = "127.0.0.1", "t", 4
WITHIN_S = 60.0


class Directory:
    """A data directory, and the command that serves it."""

    def __init__(self, folder: Path) -> None:
        self.data = folder / "data"
        self._log = folder / "log"
        self.process: subprocess.Popen[bytes]
        self.ports: list[int]

    def words(self, *more: str) -> list[str]:
        words = ["serve", "--json", "--data", str(self.data), "--listen", f"{HOST}:0"]
        return [sys.executable, "-m", "tools", *words, *more]

    def start(self, processes: int, *more: str) -> None:
        with self._log.open("ab") as log:
            self.process = subprocess.Popen(
                self.words("--processes", str(processes), *more),
                stdout=subprocess.PIPE,
                stderr=log,
            )
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, self.log()
        ready: dict[str, Any] = json.loads(line)
        self.ports = ready.get("ports", [ready["port"]])

    def stop(self) -> None:
        self.process.send_signal(signal.SIGTERM)
        self.process.communicate(timeout=WITHIN_S)
        assert self.process.returncode == 0, self.log()

    def log(self) -> str:
        return self._log.read_text()

    def said(self, event: str, count: int = 1) -> list[dict[str, Any]]:
        """Lines of the log about this, when there are so many."""

        def found() -> list[dict[str, Any]]:
            lines = [json.loads(line) for line in self.log().splitlines() if line[:1] == "{"]
            return [one for one in lines if one["event"] == event]

        until(lambda: len(found()) >= count)
        return found()

    def children(self) -> list[int]:
        """The processes, in their order at the first start."""
        folder = f"/proc/{self.process.pid}/task/{self.process.pid}/children"
        with open(folder) as children:  # noqa: PTH123 - not a file of ours
            return sorted(map(int, children.read().split()))

    def connect(self, process: int) -> Caller:
        return Caller(HOST, self.ports[process])


def until(question: Callable[[], Any]) -> Any:
    end_s = time.monotonic() + WITHIN_S
    while not (found := question()):
        assert time.monotonic() < end_s, "it does not come"
        time.sleep(0.02)
    return found


@pytest.fixture
def directory(tmp_path: Path) -> Iterator[Directory]:
    one = Directory(tmp_path)
    yield one
    if one.process.poll() is None:
        one.process.kill()
    one.process.communicate(timeout=WITHIN_S)


def metadata(caller: Caller) -> MetadataResponse:
    topics = [MetadataRequest.Topic(name=TOPIC)]
    request = MetadataRequest(topics=topics, allow_auto_topic_creation=False)
    found: MetadataResponse = caller.call(request, 9)
    return found


def leaders(caller: Caller) -> list[int]:
    (found,) = metadata(caller).topics
    return [one.leader_id for one in sorted(found.partitions, key=lambda one: one.partition_index)]


def leader_epochs(caller: Caller) -> list[int]:
    (found,) = metadata(caller).topics
    partitions = sorted(found.partitions, key=lambda one: one.partition_index)
    return [one.leader_epoch for one in partitions]


def make_topic(directory: Directory) -> None:
    with directory.connect(0) as controller:
        controller.create_topic(TOPIC, PARTITIONS)
    for number in range(len(directory.ports)):
        with directory.connect(number) as caller:
            assert len(leaders(caller)) == PARTITIONS, "it is answered when all know of it"


def produce_everywhere(directory: Directory, value: bytes) -> None:
    """A record to each partition, at its leader."""
    for number in range(len(directory.ports)):
        with directory.connect(number) as caller:
            for partition, leader in enumerate(leaders(caller)):
                if leader == 1 + number:
                    appended = caller.produce(TOPIC, batch(value), partition=partition)
                    assert appended.error_code == ErrorCode.NONE


def values(directory: Directory) -> list[list[bytes | None]]:
    """What each partition has, from its leader."""
    found: dict[int, list[bytes | None]] = {}
    for number in range(len(directory.ports)):
        with directory.connect(number) as caller:
            for partition, leader in enumerate(leaders(caller)):
                if leader == 1 + number:
                    fetched = caller.fetch(TOPIC, partition=partition)
                    found[partition] = [value for _, value in records_in(fetched.records)]
    return [found[partition] for partition in range(PARTITIONS)]


def test_each_process_is_a_broker_that_leads_its_share(directory: Directory) -> None:
    directory.start(2)
    make_topic(directory)

    for number in (0, 1):
        with directory.connect(number) as caller:
            answer = metadata(caller)
            assert [(one.node_id, one.port) for one in answer.brokers] == [
                (1, directory.ports[0]),
                (2, directory.ports[1]),
            ]
            assert answer.controller_id == 1
            assert leaders(caller) == [1, 2, 1, 2]
            codes = [
                caller.produce(TOPIC, batch(b"v"), partition=partition).error_code
                for partition in range(PARTITIONS)
            ]
            wrong = ErrorCode.NOT_LEADER_OR_FOLLOWER
            assert codes == [0 if leader == 1 + number else wrong for leader in (1, 2, 1, 2)]


def test_what_some_processes_wrote_is_there_for_any_number_of_them(directory: Directory) -> None:
    written: list[bytes] = []
    for processes in (2, 4, 1, 3):
        directory.start(processes)
        if not written:
            make_topic(directory)
        written.append(b"%d" % processes)
        produce_everywhere(directory, written[-1])
        directory.stop()
        assert (directory.data / ".kafka_cleanshutdown").exists()
    directory.start(2)

    assert values(directory) == [written] * PARTITIONS
    assert "found in the data directory" not in directory.log()


@pytest.mark.parametrize("victim", [0, 1])
def test_a_process_that_is_killed_comes_back_with_all_that_was_acknowledged(
    directory: Directory, victim: int
) -> None:
    directory.start(2, "--set", "log.flush.offset.checkpoint.interval.ms=3600000")
    make_topic(directory)
    produce_everywhere(directory, b"before")

    os.kill(directory.children()[victim], signal.SIGKILL)

    # The next start need not look through it again.
    points = directory.data / "recovery-point-offset-checkpoint"
    looked_through = {f"{TOPIC} {number} 1" for number in range(PARTITIONS) if number % 2 == victim}
    until(lambda: points.exists() and looked_through <= set(points.read_text().splitlines()))
    raised = [1 if number % 2 == victim else 0 for number in range(PARTITIONS)]
    with directory.connect(1 - victim) as other:
        assert leaders(other) == [1, 2, 1, 2], "the other goes on"
        until(lambda: leader_epochs(other) == raised)
    with directory.connect(victim) as caller:  # whoever connects waits for it
        assert leaders(caller) == [1, 2, 1, 2]
    (told,) = directory.said("a process died")
    assert (told["process"], told["how"]) == (victim, "SIGKILL")
    (told,) = directory.said("a process serves again")
    assert told["computing_s"] > 0
    produce_everywhere(directory, b"after")
    assert values(directory) == [[b"before", b"after"]] * PARTITIONS
    directory.stop()


@pytest.mark.slow
def test_a_process_that_hangs_is_named_ended_and_begun_anew(directory: Directory) -> None:
    directory.start(2)
    make_topic(directory)
    produce_everywhere(directory, b"before")
    os.kill(directory.children()[1], signal.SIGSTOP)

    (named,) = directory.said("a process has said nothing for a while")
    assert named["process"] == 1
    with directory.connect(0) as other:
        assert other.produce(TOPIC, batch(b"meanwhile")).error_code == ErrorCode.NONE
    (died,) = directory.said("a process died")
    assert "it hung" in died["how"]
    with directory.connect(1) as caller:
        assert leaders(caller) == [1, 2, 1, 2]
    directory.stop()


def test_the_death_of_the_supervisor_is_a_stop_of_all(directory: Directory) -> None:
    directory.start(2)
    make_topic(directory)
    produce_everywhere(directory, b"v")
    directory.process.kill()

    stops = directory.said("stopped", 2)
    assert sorted((one["process"], one["clean"]) for one in stops) == [(0, True), (1, True)]
    directory.process.communicate(timeout=WITHIN_S)
    directory.start(1)
    assert values(directory) == [[b"v"]] * PARTITIONS


@pytest.mark.parametrize("version", [0, 7])
def test_a_change_may_be_asked_of_any_process(directory: Directory, version: int) -> None:
    directory.start(2)
    asked = CreateTopicsRequest.Topic(
        name=TOPIC, num_partitions=PARTITIONS, replication_factor=1, assignments=[], configs=[]
    )
    request = CreateTopicsRequest(topics=[asked], timeout_ms=1000)
    with directory.connect(1) as caller:
        answers = [caller.call(request, version).topics[0].error_code for _ in range(2)]
        assert answers == [ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS]
        assert leaders(caller) == [1, 2, 1, 2]
        deletion = DeleteTopicsRequest(topic_names=[TOPIC], timeout_ms=1000)
        assert caller.call(deletion, 1).responses[0].error_code == ErrorCode.NONE
    with directory.connect(0) as controller:
        (found,) = metadata(controller).topics
        assert found.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    directory.stop()
    assert not list(directory.data.glob(f"{TOPIC}-?"))


def test_a_topic_that_is_made_by_its_first_use_is_made_wherever_it_is_used(
    directory: Directory,
) -> None:
    directory.start(2)
    request = MetadataRequest(
        topics=[MetadataRequest.Topic(name="auto")], allow_auto_topic_creation=True
    )
    with directory.connect(1) as caller:
        (made,) = caller.call(request, 9).topics
        assert made.error_code == ErrorCode.NONE
    with directory.connect(0) as controller:
        (found,) = controller.call(request, 9).topics
        assert found.partitions == made.partitions


def test_a_topic_that_a_process_could_not_make_room_for_comes_later(directory: Directory) -> None:
    directory.start(2)
    in_the_way = directory.data / f"{TOPIC}-1"
    in_the_way.write_bytes(b"")
    with directory.connect(0) as controller, directory.connect(1) as other:
        controller.create_topic(TOPIC, 2)
        (said,) = directory.said("a topic is not served, for its folders are not made")
        assert said["process"] == 1
        in_the_way.unlink()
        until(lambda: metadata(other).topics[0].error_code == ErrorCode.NONE)
        assert leaders(other) == [1, 2]
        assert other.produce(TOPIC, batch(b"v"), partition=1).error_code == ErrorCode.NONE


def test_a_group_is_found_by_any_process_and_served_by_one(directory: Directory) -> None:
    directory.start(2)
    found = []
    for number in (1, 0):
        with directory.connect(number) as caller:
            answers = [
                caller.call(FindCoordinatorRequest(key=f"g{at}", key_type=0), 1) for at in range(8)
            ]
            found.append([(one.node_id, one.port) for one in answers])
    assert found[0] == found[1]
    assert {node_id for node_id, _ in found[0]} == {1, 2}
    for at, (node_id, _) in enumerate(found[0]):
        codes = []
        for number in (node_id - 1, 2 - node_id):
            with directory.connect(number) as caller:
                beat = HeartbeatRequest(group_id=f"g{at}", generation_id=1, member_id="m")
                codes.append(caller.call(beat, 2).error_code)
        assert codes == [ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.NOT_COORDINATOR]


def test_no_producer_id_is_given_twice(directory: Directory) -> None:
    directory.start(2)
    request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=0)
    given = []
    for number in (0, 1, 1, 0):
        with directory.connect(number) as caller:
            answer = caller.call(request, 1)
            assert answer.error_code == ErrorCode.NONE
            given.append(answer.producer_id)

    assert len(set(given)) == len(given)


def test_who_waits_for_a_process_that_hangs_is_told_in_time_and_holds_up_nobody(
    directory: Directory,
) -> None:
    directory.start(3)
    hanging = directory.children()[2]
    asked = CreateTopicsRequest.Topic(
        name=TOPIC, num_partitions=2, replication_factor=1, assignments=[], configs=[]
    )
    ids = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=0)
    with directory.connect(1) as caller, directory.connect(1) as other:
        assert other.call(ids, 1).error_code == ErrorCode.NONE
        os.kill(hanging, signal.SIGSTOP)
        waiting = caller.send(CreateTopicsRequest(topics=[asked], timeout_ms=700), 4)
        assert other.call(ids, 1).error_code == ErrorCode.NONE
        (made,) = caller.receive(APIS[CreateTopicsRequest.key], 4, waiting).topics
        os.kill(hanging, signal.SIGCONT)

        assert made.error_code == ErrorCode.REQUEST_TIMED_OUT
        assert len(leaders(caller)) == 2, "it has been made all the same"
    with directory.connect(2) as late:
        until(lambda: len(metadata(late).topics[0].partitions) == 2)
    assert "a process died" not in directory.log()


def altered(caller: Caller, resource_type: int, name: str, key: str, value: str) -> int:
    config = IncrementalAlterConfigsRequest.Resource.Config(
        name=key, config_operation=0, value=value
    )
    resource = IncrementalAlterConfigsRequest.Resource(
        resource_type=resource_type, resource_name=name, configs=[config]
    )
    request = IncrementalAlterConfigsRequest(resources=[resource], validate_only=False)
    code: int = caller.call(request, 1).responses[0].error_code
    return code


def described(caller: Caller, broker: str, key: str) -> str | None:
    resource = DescribeConfigsRequest.Resource(
        resource_type=BROKER_RESOURCE, resource_name=broker, configuration_keys=[key]
    )
    (found,) = caller.call(DescribeConfigsRequest(resources=[resource]), 4).results
    value: str | None = found.configs[0].value
    return value


def test_settings_of_any_process_are_changed_through_any(directory: Directory) -> None:
    directory.start(2)
    key = "message.max.bytes"
    with directory.connect(0) as controller, directory.connect(1) as other:
        for asked, name, value in (
            (other, "2", "2000000"),
            (controller, "2", "3000000"),
            (other, "", "4000000"),
            (other, "1", "5000000"),
        ):
            assert altered(asked, BROKER_RESOURCE, name, key, value) == ErrorCode.NONE
        assert altered(other, BROKER_RESOURCE, "3", key, "1") == ErrorCode.INVALID_REQUEST
        assert (described(controller, "1", key), described(other, "2", key)) == (
            "5000000",
            "3000000",
        )


def test_the_files_of_several_processes_are_known_to_the_tools(directory: Directory) -> None:
    directory.start(2)
    make_topic(directory)
    produce_everywhere(directory, b"v")
    directory.stop()
    names = {one.name for one in directory.data.iterdir()}
    assert {"clients.json", "clients.json.1"} <= names

    for command, *more in (("check",), ("clients", "--json", "--data")):
        run = subprocess.run(
            [sys.executable, "-m", "tools", command, *more, str(directory.data)],
            capture_output=True,
            text=True,
            check=False,
            timeout=WITHIN_S,
        )
        assert run.returncode == 0, run.stdout + run.stderr
        if command == "check":
            assert "foreign" not in run.stdout
        else:
            (client,) = json.loads(run.stdout)["clients"]
            assert client["connections"] == 5, "all of one client, none of the processes'"


TWO = ("--processes", "2")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((*TWO, "--testing", "127.0.0.1:0"), "--testing"),
        (
            (*TWO, "--set", "transaction.partition.verification.enable=false"),
            "transaction.partition.verification.enable",
        ),
        ((*TWO, "--as-version", "2.8"), "as.version"),
        (("--processes", "0"), "a number from 1 to 64, or auto"),
        (("--processes", "65"), "a number from 1 to 64, or auto"),
        (
            (
                *(
                    "--processes",
                    "4",
                    "--set",
                    "listener.security.protocol.map=A:PLAINTEXT,B:PLAINTEXT",
                ),
                *("--set", "advertised.listeners=A://h:9092,B://h:9094"),
            ),
            "A takes the ports 9092 to 9095, and B begins at 9094",
        ),
    ],
)
def test_what_is_for_one_process_is_refused_in_a_line(
    tmp_path: Path, words: tuple[str, ...], said: str
) -> None:
    run = subprocess.run(
        Directory(tmp_path).words(*words), capture_output=True, text=True, check=False
    )

    assert run.returncode == 2
    assert said in run.stderr
    assert "Traceback" not in run.stderr
    assert not (tmp_path / "data").exists()


def test_a_directory_that_is_served_is_refused_to_others(directory: Directory) -> None:
    directory.start(2)
    for more in (TWO, ()):
        run = subprocess.run(
            directory.words(*more), capture_output=True, text=True, check=False, timeout=WITHIN_S
        )
        assert run.returncode == 1
        assert "is locked" in run.stderr
    with directory.connect(1) as caller:
        assert caller.call(MetadataRequest(topics=[]), 9).controller_id == 1
