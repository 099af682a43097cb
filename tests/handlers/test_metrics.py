"""The page of counters: off by default, one small HTTP/1.0 request at a time, never in the way."""

from __future__ import annotations

import asyncio
import contextlib
import re
import socket
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from prometheus_client import parser as prometheus
from prometheus_client.openmetrics import parser as open_metrics

from broker import http_exchange
from broker.metrics.families import Sources
from broker.metrics.listener import Credentials, MetricsListener
from tests.support.broker_process import BrokerProcess
from tests.support.caller import Caller, batch
from tests.support.old_sets import GZIP, messages, wrapper
from tests.support.scraped import CodecCalls, counters, scrape
from tests.support.server_process import ServerFailed, free_port

if TYPE_CHECKING:
    from collections.abc import Mapping


@pytest.fixture(scope="module")
def settings() -> Mapping[str, str]:
    return {"metrics.port": str(free_port())}


def nothing_to_count(loop: asyncio.AbstractEventLoop) -> Sources:
    """For a scrape that never comes to its request."""
    no_parts: dict[str, Any] = dict.fromkeys(Sources._fields)
    return Sources(**{**no_parts, "loop": loop})


@pytest.fixture
def port(broker: BrokerProcess) -> int:
    return int(broker.settings["metrics.port"])


def raw(port: int, request: bytes) -> bytes:
    """Send these bytes; all that comes until the broker closes the connection, b"" if it resets."""
    with socket.create_connection(("127.0.0.1", port), timeout=5) as client:
        client.sendall(request)
        answer = b""
        try:
            while piece := client.recv(65_536):
                answer += piece
        except ConnectionResetError:
            return b""
        return answer


def test_the_page_is_text_in_the_format_of_prometheus(port: int) -> None:
    page = scrape(port)

    assert page.status == 200
    assert page.headers["Content-Type"].startswith("text/plain; version=0.0.4")
    assert page.headers["Content-Length"] == str(len(page.body))
    found = list(prometheus.text_string_to_metric_families(page.body))
    names = [family.name for family in found]
    assert len(set(names)) == len(names) > 50
    assert "triglot_codec_calls" in names
    for family in found:
        assert family.name.startswith("triglot_")
        assert family.documentation.endswith(".")
        assert family.type in ("counter", "gauge", "histogram")


def test_who_asks_for_open_metrics_gets_the_same_families_in_it(port: int) -> None:
    page = scrape(port, accept="application/openmetrics-text;version=1.0.0,text/plain;q=0.5")

    assert page.headers["Content-Type"].startswith("application/openmetrics-text; version=1.0.0")
    found = {one.name for one in open_metrics.text_string_to_metric_families(page.body)}
    plain = scrape(port).body
    assert found == {one.name for one in prometheus.text_string_to_metric_families(plain)}


def test_requests_are_counted_by_api_and_version(port: int, caller: Caller, topic: str) -> None:
    caller.create_topic(topic)
    name = 'requests_total{{api="Produce",version="{}"}}'
    before = counters(port)

    caller.produce(topic, batch(b"a"), version=7)
    caller.produce(topic, batch(b"b"), version=7)
    caller.produce(topic, messages(b"c", magic=0), version=1)

    after = counters(port)
    assert after[name.format(7)] == before.get(name.format(7), 0) + 2
    assert after[name.format(1)] == before.get(name.format(1), 0) + 1


def test_what_there_is_is_counted(port: int, caller: Caller, topic: str) -> None:
    before = counters(port)
    caller.create_topic(topic, partitions=3)

    after = counters(port)

    assert after["topics"] == before["topics"] + 1
    assert after["partitions"] == before["partitions"] + 3
    assert after["connections"] == 1, "clients are counted, scrapers are not"


def test_codec_calls_and_rebuilt_sets_are_counted(port: int, caller: Caller, topic: str) -> None:
    caller.create_topic(topic, message_format_version="0.10.2")
    before, calls = counters(port), CodecCalls(port)

    in_place = wrapper(messages(b"a", b"b", magic=1), magic=1)
    caller.produce(topic, in_place, version=2)
    assert calls.made() == {"decompress gzip": 1}
    assert counters(port)["sets_rebuilt_total"] == before["sets_rebuilt_total"]

    caller.produce(topic, batch(b"a", b"b", codec=GZIP), version=9)
    caller.produce(topic, batch(b"a", b"b"), version=9)
    assert calls.made() == {"decompress gzip": 2, "compress gzip": 1}
    assert counters(port)["sets_rebuilt_total"] == before["sets_rebuilt_total"] + 2


def test_what_is_converted_for_older_readers_is_counted(
    port: int, caller: Caller, topic: str
) -> None:
    caller.create_topic(topic)
    caller.produce(topic, batch(b"a", b"b", codec=GZIP), version=9)
    before = counters(port)

    for version in (4, 3, 3, 1):
        caller.fetch(topic, version=version)

    after = counters(port)
    grown = {
        name: after[name] - before[name]
        for name in after
        if name.startswith("conver") and not name.endswith("bytes_total")
    }
    cached = grown.pop("conversion_cache_bytes")
    assert grown == {
        "converted_entries_total": 2,
        "converted_records_total": 4,
        "conversion_failures_total": 0,
        "conversion_cache_hits_total": 1,
        "conversion_cache_misses_total": 2,
        "conversion_joins_total": 0,
    }
    assert cached > after["converted_bytes_total"] - before["converted_bytes_total"] > 0


def test_the_page_says_which_version_and_which_loops_run(port: int) -> None:
    (row,) = [name for name in counters(port) if name.startswith("info")]

    assert re.fullmatch(r'info\{version="[^"]+",record_loops="(compiled|interpreted)"\}', row)


def test_a_head_request_gets_the_head_alone(port: int) -> None:
    page = scrape(port, method="HEAD")

    assert (page.status, page.body) == (200, "")
    assert int(page.headers["Content-Length"]) > 100


def test_a_question_behind_the_path_changes_nothing(port: int) -> None:
    assert scrape(port, "/metrics?name[]=triglot_topics").status == 200


@pytest.mark.parametrize("path", ["/", "/metrics/", "/Metrics", "/../metrics", "/metrics%20", "*"])
def test_there_is_no_other_page(port: int, path: str) -> None:
    page = scrape(port, path)

    assert page.status == 404
    assert "/metrics" in page.body


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "OPTIONS", "get"])
def test_nothing_but_reading_is_served(port: int, method: str) -> None:
    assert scrape(port, method=method).status == 405


@pytest.mark.parametrize(
    "request_bytes",
    [
        b"\r\n\r\n",
        b"\0\0\0\0\r\n\r\n",
        b"\xff\xfe GET /metrics\r\n\r\n",
        b"GET\r\n\r\n",
        b" GET /metrics HTTP/1.1\r\n\r\n",
        b"GET  /metrics HTTP/1.1\r\n\r\n",
    ],
)
def test_what_is_no_request_for_the_page_is_refused(port: int, request_bytes: bytes) -> None:
    answer = raw(port, request_bytes)

    assert re.match(rb"HTTP/1\.0 40[45] ", answer)
    assert scrape(port).status == 200


def test_the_shortest_request_is_enough(port: int) -> None:
    assert raw(port, b"GET /metrics\r\n\r\n").startswith(b"HTTP/1.0 200 OK\r\n")


def test_a_request_in_pieces_is_put_together(port: int) -> None:
    with socket.create_connection(("127.0.0.1", port), timeout=5) as client:
        for byte in b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r":
            client.sendall(bytes([byte]))
        time.sleep(0.05)
        client.sendall(b"\n")
        assert client.recv(15) == b"HTTP/1.0 200 OK"


def test_a_request_that_is_too_long_is_cut_off(port: int) -> None:
    head = b"GET /metrics HTTP/1.1\r\nX-Filler: "

    assert raw(port, head + b"x" * (2 * http_exchange.HEAD_BYTES_MAX)) == b""
    assert raw(port, head + b"x" * 4_000 + b"\r\n\r\n").startswith(b"HTTP/1.0 200 OK")


def test_the_connection_is_closed_behind_the_answer(port: int) -> None:
    answer = raw(port, b"GET /metrics HTTP/1.1\r\n\r\nGET /metrics HTTP/1.1\r\n\r\n")

    assert answer.count(b"HTTP/1.0 200 OK") == 1


async def test_a_request_that_does_not_come_to_an_end_is_cut_off(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """In this process, where the time it may take can be made short."""
    monkeypatch.setattr(http_exchange, "REQUEST_WITHIN_S", 0.1)

    async def scrape_slowly() -> tuple[bytes, float]:
        loop = asyncio.get_running_loop()
        port = free_port()
        listener = MetricsListener(nothing_to_count(loop), Credentials(None, None))
        await listener.open("127.0.0.1", port)
        with contextlib.closing(listener):
            began = time.monotonic()
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            answer = b""
            reading = asyncio.create_task(reader.read())
            while not reading.done():
                writer.write(b"x")
                await asyncio.sleep(0.01)
            with contextlib.suppress(OSError):  # where what was written is cut off unread
                answer = await reading
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()
            return answer, time.monotonic() - began

    answer, took_s = await asyncio.wait_for(scrape_slowly(), 60)

    assert answer == b""
    assert took_s > 0.09


def test_kafka_s_port_does_not_serve_the_page(broker: BrokerProcess) -> None:
    assert raw(broker.port, b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n") == b""


def test_without_the_setting_nothing_listens(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "data") as plain:
        assert len(listening(plain.pid)) == 1


def test_with_it_two_ports_listen(broker: BrokerProcess, port: int) -> None:
    assert listening(broker.pid) == {broker.port, port}


def listening(pid: int) -> set[int]:
    """The TCP ports that a process listens on."""
    inodes = set()
    for link in Path(f"/proc/{pid}/fd").iterdir():
        try:
            target = str(link.readlink())
        except FileNotFoundError:
            continue
        if target.startswith("socket:["):
            inodes.add(target[8:-1])
    ports = set()
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/{pid}/net/{table}").read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == "0A" and fields[9] in inodes:
                ports.add(int(fields[1].rpartition(":")[2], 16))
    return ports


def test_a_port_that_is_taken_stops_the_start_and_is_named(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        broker = BrokerProcess(tmp_path / "data", settings={"metrics.port": str(port)})
        with pytest.raises(
            ServerFailed, match=rf"(?s)can't listen on 127.0.0.1:{port}.*metrics.port"
        ):
            broker.start()
