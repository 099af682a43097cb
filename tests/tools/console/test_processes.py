"""The one console of several processes: what each of them knows, joined, also while one is away."""

from __future__ import annotations

import os
import re
import select
import signal
import time
from html import unescape
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import Consumer

from client.cluster import Cluster, TopicPartition
from protocol.messages.find_coordinator import FindCoordinatorRequest
from protocol.messages.metadata import MetadataRequest
from protocol.records.builder import build_batch
from tests.support.broker_process import BrokerProcess
from tests.support.caller import Caller
from tests.support.console import ConsoleClient
from tests.support.server_process import free_port

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.support.console import Answer

pytestmark = pytest.mark.linux

PROCESSES = 2
FIRST_ID = 1
RECORDS = (1, 2, 3, 4)
"""Of each partition of a topic that is `filled`; either process leads every other one."""
PATIENCE_S = 30.0


@pytest.fixture(scope="module")
def several(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    arguments = ("--console", "127.0.0.1:0", "--console-writable")
    settings = {"broker.processes": str(PROCESSES)}
    folder = tmp_path_factory.mktemp("several")
    with BrokerProcess(folder, settings=settings, arguments=arguments) as running:
        yield running
        assert "Traceback" not in running.output()


@pytest.fixture(scope="module")
def cluster(several: BrokerProcess) -> Iterator[Cluster]:
    with Cluster(several.bootstrap) as client:
        yield client


@pytest.fixture
def console(several: BrokerProcess) -> ConsoleClient:
    return ConsoleClient(several)


def filled(cluster: Cluster, topic: str) -> list[TopicPartition]:
    """The partitions of a topic, with so many RECORDS."""
    cluster.create_topic(topic, len(RECORDS))
    places = [TopicPartition(topic, index) for index in range(len(RECORDS))]
    for place, count in zip(places, RECORDS, strict=True):
        values = [b"%s-%d-%d" % (topic.encode(), place.partition, at) for at in range(count)]
        records = [(1_700_000_000_000, None, value, ()) for value in values]
        cluster.produce(place, [build_batch(records)])
    return places


def groups_of_each(several: BrokerProcess, word: str) -> list[str]:
    """The id of a group that the first process coordinates, and of one of the second's."""
    found: dict[int, str] = {}
    with Caller(several.host, several.port) as caller:
        for number in range(100):
            group = f"{word}-{number}"
            answer = caller.call(FindCoordinatorRequest(key=group, key_type=0), 1)
            if not answer.error_code:
                found.setdefault(answer.node_id, group)
            if len(found) == PROCESSES:
                break
            time.sleep(0.02)
    return [found[FIRST_ID + number] for number in range(PROCESSES)]


def children_of(several: BrokerProcess) -> list[int]:
    children = Path(f"/proc/{several.pid}/task/{several.pid}/children").read_text()
    return list(map(int, children.split()))


def serving(several: BrokerProcess, number: int) -> int:
    """The process of this number, by the port on which it listens."""
    address = f"0100007F:{several.port + number:04X}"
    listens = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()]
    (inode,) = [line[9] for line in listens if (line[1], line[3]) == (address, "0A")]
    (found,) = [
        pid
        for pid in children_of(several)
        if any(
            one.is_symlink() and str(one.readlink()) == f"socket:[{inode}]"
            for one in Path(f"/proc/{pid}/fd").iterdir()
        )
    ]
    return found


def console_of(several: BrokerProcess) -> int:
    """The process that serves the pages; it may have been forked just now."""
    deadline_s = time.monotonic() + PATIENCE_S
    while True:
        for pid in children_of(several):
            if b"tools.console" in Path(f"/proc/{pid}/cmdline").read_bytes():
                return pid
        assert time.monotonic() < deadline_s, "there is no console"
        time.sleep(0.02)


def last_row(page: Answer) -> list[str]:
    """Of the tables; no cells where there is no table yet."""
    return page.rows[-1] if page.rows else []


def row_of(rows: list[list[str]], name: str) -> list[str]:
    (found,) = [row for row in rows if row and row[0] == name]
    return found


def test_a_topic_has_the_records_of_all_its_partitions(
    console: ConsoleClient, cluster: Cluster
) -> None:
    filled(cluster, "spread")
    total = str(sum(RECORDS))
    page = console.page_when("/topics?q=spread", lambda page: total in last_row(page))
    assert row_of(page.rows, "spread")[1:3] == ["4", total]
    records = console.get("/topics/spread/records")
    for partition, count in enumerate(RECORDS):
        assert f"spread-{partition}-{count - 1}" in records.text, records.text
    assert "spread-3-0" in console.get("/topics/spread/records?partition=3&offset=0").text
    segments = [row[0] for row in console.get("/topics/spread/storage").rows[1:]]
    assert segments == [f"spread-{index} from 0" for index in range(4)]


def test_what_comes_in_is_rated_in_whichever_process(
    console: ConsoleClient, cluster: Cluster
) -> None:
    places = filled(cluster, "rated")
    console.get("/topics")
    for place in places[:2]:
        cluster.produce(place, [build_batch([(1, None, bytes(200_000), ())])])
    page = console.page_when("/topics?q=rated", lambda page: "KiB/s" in page.text)
    assert any("KiB/s" in cell for cell in row_of(page.rows, "rated"))


def read_by(several: BrokerProcess, group: str, topic: str) -> Consumer:
    """A member of the group that has read the whole topic, and committed it."""
    consumer = Consumer({
        "bootstrap.servers": several.bootstrap,
        "group.id": group,
        "client.id": f"by-{group}",
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
    })  # fmt: skip
    consumer.subscribe([topic])
    deadline, left = time.monotonic() + 60, sum(RECORDS)
    while left:
        assert time.monotonic() < deadline
        message = consumer.poll(0.5)
        left -= message is not None and message.error() is None
    consumer.commit(asynchronous=False)
    return consumer


def test_a_group_of_either_process_is_behind_in_the_partitions_of_both(
    console: ConsoleClient, cluster: Cluster, several: BrokerProcess
) -> None:
    places = filled(cluster, "behind")
    groups = groups_of_each(several, "reads")
    consumers = [read_by(several, group, "behind") for group in groups]
    try:
        for place, more in zip(places, RECORDS, strict=True):
            cluster.produce(place, [build_batch([(1, None, b"more", ())] * more)])
        left = str(sum(RECORDS))
        page = console.page_when(
            "/groups?q=reads", lambda page: [row[2] for row in page.rows[1:]] == [left] * PROCESSES
        )
        for group in groups:
            assert row_of(page.rows, group)[4:6] == ["Stable", "1"], page.rows
            told = console.get(f"/group?id={group}")
            for index, count in enumerate(RECORDS):
                row = row_of(told.rows, f"behind-{index}")
                assert row[1].endswith(" s"), row
                assert row[2:6] == [str(count), str(count), str(2 * count), f"by-{group}"]
    finally:
        for consumer in consumers:
            consumer.close()


def test_a_client_of_either_process_is_shown_once(
    console: ConsoleClient, several: BrokerProcess
) -> None:
    for client_id, numbers in (("of-first", [0]), ("of-second", [1]), ("of-both", [0, 1])):
        for number in numbers:
            with Caller(several.host, several.port + number, client_id=client_id) as caller:
                caller.call(MetadataRequest(topics=[]), version=12)
    names = [row[0] for row in console.get("/clients?q=of-").rows[1:] if len(row) > 7]
    assert sorted(names) == ["of-both", "of-first", "of-second"]


def test_a_record_is_written_and_offsets_are_moved_in_either_process(
    console: ConsoleClient, cluster: Cluster, several: BrokerProcess
) -> None:
    places = filled(cluster, "changed")
    for group in groups_of_each(several, "moved"):
        cluster.commit_offsets(group, dict.fromkeys(places, 1))
        preview = f"/group/reset?id={group}&to=earliest"
        moves = re.search(r'name="moves" value="([^"]*)"', console.get(preview).html)
        assert moves is not None
        answer = console.send(preview, preview, id=group, moves=unescape(moves[1]))
        assert answer.status == 303, answer.text
        assert cluster.committed_offsets(group, places) == dict.fromkeys(places, 0)
    for place in places[:2]:
        page = "/topics/changed/produce"
        answer = console.send(
            page, page, partition=str(place.partition), key="", key_kind="text", value="by-hand",
            value_kind="text", headers="",
        )  # fmt: skip
        assert answer.status == 303, answer.text
        assert "by-hand" in console.get(answer.fields["location"]).text


def test_each_process_has_settings_of_its_own(console: ConsoleClient) -> None:
    assert row_of(console.get("/settings").rows, "node.id")[1] == "1"
    assert row_of(console.get("/settings?broker=2").rows, "node.id")[1] == "2"
    assert console.get("/settings?broker=3").status == 404


@pytest.mark.parametrize("number", range(PROCESSES))
def test_a_process_that_hangs_is_named_and_the_others_are_shown(
    console: ConsoleClient, cluster: Cluster, several: BrokerProcess, number: int
) -> None:
    topic, other = f"without-{number}", 1 - number
    filled(cluster, topic)
    groups = groups_of_each(several, f"waits-{number}")
    for group in groups:
        cluster.commit_offsets(group, {TopicPartition(topic, 0): 0})
    total = str(sum(RECORDS))
    console.page_when(f"/topics?q={topic}", lambda page: total in last_row(page))
    console.page_when(f"/groups?q=waits-{number}", lambda page: len(page.rows) == 1 + PROCESSES)
    said = f"Process {number} ({several.host}:{several.port + number}) does not answer"
    kept, hanging = console_of(several), serving(several, number)
    os.kill(several.pid, signal.SIGSTOP)  # or it would end the other before all was looked at
    os.kill(hanging, signal.SIGSTOP)
    try:
        page = console.page_when(f"/topics?q={topic}", lambda page: said in page.text)
        assert total in row_of(page.rows, topic), "as it told last"
        told = console.get(f"/groups?q=waits-{number}")
        assert [row[0] for row in told.rows[1:]] == [groups[other]]
        read = console.get(f"/topics/{topic}/records?partition={other}")
        assert f"{topic}-{other}-0" in read.text
        for path in ("/clients", "/overview", f"/topics/{topic}/storage"):
            page = console.get(path)
            assert (page.status, said in page.text) == (200, True), path
    finally:
        os.kill(hanging, signal.SIGKILL)
        os.kill(several.pid, signal.SIGCONT)
    console.page_when(f"/topics?q={topic}", lambda page: said not in page.text)
    read = console.get(f"/topics/{topic}/records?partition={number}")
    assert f"{topic}-{number}-0" in read.text
    console.page_when(f"/groups?q=waits-{number}", lambda page: len(page.rows) == 1 + PROCESSES)
    assert console_of(several) == kept


def test_the_console_outlives_the_controller(
    console: ConsoleClient, cluster: Cluster, several: BrokerProcess
) -> None:
    filled(cluster, "outlived")
    total = str(sum(RECORDS))
    console.page_when("/topics?q=outlived", lambda page: total in last_row(page))
    kept, first = console_of(several), serving(several, 0)
    os.kill(first, signal.SIGKILL)
    page = console.get("/topics?q=outlived")
    assert page.status == 200
    assert total in row_of(page.rows, "outlived")
    for partition in (0, 1):
        page = console.get(f"/topics/outlived/records?partition={partition}")
        assert f"outlived-{partition}-0" in page.text, page.text
    console.page_when("/topics", lambda page: "does not answer" not in page.text)
    assert console_of(several) == kept


def test_a_console_that_ends_is_started_again(
    console: ConsoleClient, several: BrokerProcess
) -> None:
    first = console_of(several)
    os.kill(first, signal.SIGKILL)
    assert console.get("/topics").status == 200
    assert console_of(several) != first
    assert "the console has ended with -9" in several.output()


def test_processes_that_advertise_other_addresses_are_asked_where_they_are(tmp_path: Path) -> None:
    """As in a container, whose broker tells clients the addresses that are open outside."""
    settings = {
        "broker.processes": str(PROCESSES),
        "advertised.listeners": f"PLAINTEXT://127.0.0.1:{free_port(PROCESSES)}",
    }
    arguments = ("--console", "127.0.0.1:0", "--console-writable")
    with BrokerProcess(tmp_path, settings=settings, arguments=arguments) as broker:
        reached_at = {
            FIRST_ID + number: f"{broker.host}:{broker.port + number}"
            for number in range(PROCESSES)
        }
        groups = groups_of_each(broker, "inside")
        with Cluster(broker.bootstrap, reached_at=reached_at) as client:
            places = filled(client, "inside")
            for group in groups:
                client.commit_offsets(group, dict.fromkeys(places, 0))
        console = ConsoleClient(broker)
        page = "/topics/inside/produce"
        for partition in ("0", "1"):
            written = console.send(page, page, partition=partition, value="here")
            assert "here" in console.get(written.fields["location"]).text
        for group in groups:
            assert console.get(f"/group?id={group}").status == 200


def test_a_stop_and_the_death_of_the_supervisor_end_the_console(tmp_path: Path) -> None:
    for end in (BrokerProcess.stop, BrokerProcess.kill):
        broker = BrokerProcess(
            tmp_path / end.__name__,
            settings={"broker.processes": "2"},
            arguments=("--console", "127.0.0.1:0"),
        )
        broker.start()
        ConsoleClient(broker).get("/topics")
        ended = os.pidfd_open(console_of(broker))
        end(broker)
        assert select.select([ended], [], [], 60)[0], "the console outlives its broker"
        os.close(ended)
