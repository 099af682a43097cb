"""A record of a hundred megabytes, and a thousand open pages: bounded, and told."""

from __future__ import annotations

import http.client
import re
import socket
from collections import Counter
from contextlib import ExitStack, closing
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from client.cluster import Cluster, TopicPartition
from protocol.records.builder import build_batch
from tests.support.broker_process import BrokerProcess
from tests.support.console import ConsoleClient
from tools.console.process import CONNECTIONS_MAX

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.long

LARGE_BYTES = 100_000_000


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path, arguments=("--console", "127.0.0.1:0")) as running:
        yield running
        assert "Traceback" not in running.output()


@pytest.mark.linux
def test_a_record_of_a_hundred_megabytes_is_shown_in_part_and_had_whole(
    broker: BrokerProcess,
) -> None:
    console = ConsoleClient(broker)
    with Cluster(broker.bootstrap) as client:
        client.create_topic("huge", 1, {"max.message.bytes": str(LARGE_BYTES + 1_000)})
        batch = build_batch([(1_700_000_000_000, b"k", b"<" * LARGE_BYTES, ())])
        client.produce(TopicPartition("huge", 0), [batch])
        del batch
        client.produce(TopicPartition("huge", 0), [build_batch([(0, b"k", b"after", ())])])
    page = console.get("/topics/huge/records?offset=0")
    assert "it has 95.4 MiB in all" in page.text
    assert len(page.body) < 500_000
    assert "after" in page.text
    assert "after" in console.get("/topics/huge/records?contains=after").text
    whole = console.get("/topics/huge/partitions/0/offsets/0/value").body
    assert len(whole) == LARGE_BYTES
    # What it took is given back.
    console.wait_until(lambda: resident_mib(broker) < 100)


def resident_mib(broker: BrokerProcess) -> float:
    """Of the console."""
    (console,) = Path(f"/proc/{broker.pid}/task/{broker.pid}/children").read_text().split()
    found = re.search(r"^VmRSS:\s+(\d+)", Path(f"/proc/{console}/status").read_text(), re.M)
    assert found is not None
    return int(found[1]) / 1024


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
