"""A record of a hundred megabytes, and a thousand open pages: bounded, and told."""

from __future__ import annotations

import http.client
import re
import socket
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from client.cluster import Cluster, TopicPartition
from protocol.records.builder import build_batch
from tests.support.broker_process import BrokerProcess
from tests.support.console import ConsoleClient
from tools.console.app import THREADS
from tools.console.downloads import DOWNLOADS_MAX
from tools.console.process import CONNECTIONS_MAX

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.long

LARGE_BYTES = 100_000_000
WHOLE = "/topics/huge/partitions/0/offsets/0/value"
PEAK_MIB = 700
"""Five times the record and the console itself: an answer with a record, its copy and the value
cut out of it, and two values on their way to browsers."""


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path, arguments=("--console", "127.0.0.1:0")) as running:
        yield running
        assert "Traceback" not in running.output()


@pytest.mark.linux
def test_records_of_a_hundred_megabytes_take_the_room_of_one_whoever_asks(
    broker: BrokerProcess,
) -> None:
    console = ConsoleClient(broker)
    place = TopicPartition("huge", 0)
    with Cluster(broker.bootstrap) as client:
        client.create_topic("huge", 1, {"max.message.bytes": str(LARGE_BYTES + 1_000)})
        batch = build_batch([(1_700_000_000_000, b"k", b"<" * LARGE_BYTES, ())])
        client.produce(place, [batch])
        del batch
        client.produce(place, [build_batch([(0, b"k", b"and-behind-it", ())])])
    page = console.get("/topics/huge/records?offset=0&partition=0")
    assert "it has 95.4 MiB in all" in page.text
    assert len(page.body) < 500_000
    assert "Go on from offset 1" in page.text
    newest = console.get("/topics/huge/records?partition=0")
    assert [row[1] for row in newest.rows[1:]] == ["1"]
    assert "and-behind-it" in newest.text
    paths = [WHOLE] * DOWNLOADS_MAX + ["/topics/huge/records?offset=0"] * THREADS
    with ThreadPoolExecutor(len(paths)) as others:
        found = list(others.map(lambda path: ConsoleClient(broker).get(path), paths))
    assert [len(one.body) for one in found[:DOWNLOADS_MAX]] == [LARGE_BYTES] * DOWNLOADS_MAX
    assert all("it has 95.4 MiB in all" in one.text for one in found[DOWNLOADS_MAX:])
    assert memory_mib(broker, "VmHWM") < PEAK_MIB
    # What it took is given back.
    console.wait_until(lambda: memory_mib(broker, "VmRSS") < 100)
    (log,) = (broker.data / "huge-0").glob("*.log")
    with log.open("r+b") as file:
        file.seek(LARGE_BYTES // 2)
        file.write(b">")
    page = console.get("/topics/huge/records?offset=0&partition=0")
    assert "damaged: its checksum is" in page.text
    assert console.get(WHOLE).status == 404
    assert memory_mib(broker, "VmHWM") < PEAK_MIB


def memory_mib(broker: BrokerProcess, what: str) -> float:
    """Of the console: VmRSS is what it has, VmHWM the most that it has had."""
    (console,) = Path(f"/proc/{broker.pid}/task/{broker.pid}/children").read_text().split()
    found = re.search(rf"^{what}:\s+(\d+)", Path(f"/proc/{console}/status").read_text(), re.M)
    assert found is not None
    return int(found[1]) / 1024


@pytest.mark.linux
def test_who_does_not_take_a_value_keeps_nobody_from_the_pages(broker: BrokerProcess) -> None:
    with Cluster(broker.bootstrap) as client:
        client.create_topic("values", 1, {"max.message.bytes": str(LARGE_BYTES)})
        batch = build_batch([(0, None, bytes(LARGE_BYTES // 4), ())])
        client.produce(TopicPartition("values", 0), [batch])
    console = ConsoleClient(broker)
    with ExitStack() as opened:
        for _ in range(DOWNLOADS_MAX):
            slow = http.client.HTTPConnection("127.0.0.1", console.port, timeout=60)
            opened.enter_context(closing(slow))
            slow.request("GET", "/topics/values/partitions/0/offsets/0/value")
            slow.getresponse()  # and none of its body
        refused = console.get("/topics/values/partitions/0/offsets/0/value")
        assert (refused.status, "try again" in refused.html) == (503, True)
        assert console.get("/topics/values/records").status == 200
    console.wait_until(
        lambda: console.get("/topics/values/partitions/0/offsets/0/value").status == 200
    )


def test_a_thousand_open_pages_are_served_or_told_and_then_there_is_room_again(
    broker: BrokerProcess,
) -> None:
    console = ConsoleClient(broker)
    assert console.get("/topics").status == 200
    told: Counter[int] = Counter()
    with ExitStack() as pages:
        for _ in range(2 * CONNECTIONS_MAX):
            page = http.client.HTTPConnection("127.0.0.1", console.port, timeout=60)
            pages.enter_context(closing(page))
            page.request("GET", "/static/icon.svg")
            answer = page.getresponse()
            answer.read()
            told[answer.status] += 1
        # Fast enough, and the last find no room; slower, and the first were closed for them.
        assert told.keys() <= {200, 503}
        assert told[200] >= CONNECTIONS_MAX - 1
        client = Cluster(broker.bootstrap)
        with client:
            client.create_topic("meanwhile", 1)
            client.produce(TopicPartition("meanwhile", 0), [build_batch([(0, None, b"x", ())])])
    console.wait_until(lambda: console.get("/topics").status == 200)


def test_connections_that_ask_nothing_keep_nobody_out(broker: BrokerProcess) -> None:
    console = ConsoleClient(broker)
    with ExitStack() as idle:
        connections = [
            idle.enter_context(socket.create_connection(("127.0.0.1", console.port), timeout=60))
            for _ in range(CONNECTIONS_MAX)
        ]
        connections[0].sendall(b"GET /topics HTTP/1.1\r\nHost:")  # and no more of it
        console.wait_until(lambda: console.get("/topics").status == 200)
        assert not connections[0].recv(1)
