"""The memory of clients: who they are, what they have used, within a bound and over restarts."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

import pytest

from broker import census
from broker.census import Census
from protocol.client_usage import ClientUsage
from protocol.connection import Routes, UnservedRequest
from protocol.messages.api_versions import ApiVersionsRequest
from protocol.messages.metadata import MetadataRequest
from protocol.records.compression import GZIP
from tests.support.caller import Target, batch, fetch_request, produce_request
from tests.support.fake_connection import InProcessBroker
from tests.support.in_process_client import Asker
from tests.support.manual_worker import ManualWorker
from tests.support.memory_filesystem import MemoryFilesystem
from tests.support.old_sets import messages, wrapper
from tests.support.secured import SecuredBroker, authenticate, shake

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

TOPIC = "t"
CREATE = MetadataRequest(topics=[MetadataRequest.Topic(name=TOPIC)])


def asker(broker: InProcessBroker, client_id: str) -> Asker:
    client = Asker(broker)
    client._frames.client_id = client_id
    return client


def stored(data: Path) -> dict[str, dict[str, Any]]:
    """The clients in the file of a broker that has stopped, by client id."""
    found = json.loads((data / "clients.json").read_text())
    return {one["client_id"]: one for one in found["clients"]}


def produced(client: Asker, records: bytes, version: int) -> None:
    (topic,) = client.call(produce_request((TOPIC, 0, records), acks=1), version).responses
    assert topic.partition_responses[0].error_code == 0


def test_requests_formats_and_conversions_of_each_client_are_noted(tmp_path: Path) -> None:
    with InProcessBroker(tmp_path / "data") as broker:
        old = asker(broker, "old")
        old.call(CREATE, 1)
        broker.turn_until(lambda: old.call(CREATE, 1).topics[0].error_code == 0)
        produced(old, wrapper(messages(b"a", magic=0), magic=0), 0)
        new = asker(broker, "new")
        told = ApiVersionsRequest(client_software_name="librdkafka", client_software_version="2.3")
        new.call(told, 3)
        produced(new, batch(b"b", codec=GZIP), 9)
        produced(new, batch(b"c"), 9)
        assert new.call(fetch_request(Target(TOPIC)), 11).responses
        assert old.call(fetch_request(Target(TOPIC)), 1).responses

    clients = stored(tmp_path / "data")
    assert clients["old"]["requests"] == {"Metadata": [1], "Produce": [0], "Fetch": [1]}
    assert clients["old"]["written"] == [{"format": 0, "codec": "gzip"}]
    assert {one["format"] for one in clients["old"]["read"]} == {0}
    assert clients["old"]["rebuilt_sets"] == 1
    assert clients["old"]["conversions"] >= 1
    assert clients["old"]["converted_bytes"] > 0
    assert clients["new"]["requests"] == {"ApiVersions": [3], "Produce": [9], "Fetch": [11]}
    assert clients["new"]["written"] == [
        {"format": 2, "codec": "none"},
        {"format": 2, "codec": "gzip"},
    ]
    assert clients["new"]["read"] == [{"format": 2, "codec": "gzip"}]
    assert (clients["new"]["software_name"], clients["new"]["software_version"]) == (
        "librdkafka",
        "2.3",
    )
    assert (clients["new"]["rebuilt_sets"], clients["new"]["conversions"]) == (0, 0)


def test_a_set_that_is_prepared_on_a_thread_is_noted_too(tmp_path: Path) -> None:
    with InProcessBroker(tmp_path / "data") as broker:
        old = asker(broker, "old")
        old.call(CREATE, 1)
        broker.turn_until(lambda: old.call(CREATE, 1).topics[0].error_code == 0)
        produced(old, messages(*[b"x" * 1000] * 100, magic=1), 2)

    client = stored(tmp_path / "data")["old"]
    assert client["written"] == [{"format": 1, "codec": "none"}]
    assert client["rebuilt_sets"] == 1


def test_clients_are_remembered_over_a_restart(tmp_path: Path) -> None:
    for version in (1, 9):
        with InProcessBroker(tmp_path / "data") as broker:
            asker(broker, "here").call(MetadataRequest(topics=[]), version)
            asker(broker, f"only-{version}").call(MetadataRequest(topics=[]), version)

    clients = stored(tmp_path / "data")
    assert clients["here"]["requests"] == {"Metadata": [1, 9]}
    assert clients["here"]["connections"] == 2
    assert {"only-1", "only-9"} <= clients.keys()


def test_a_broker_that_nobody_has_used_writes_no_file(tmp_path: Path) -> None:
    with InProcessBroker(tmp_path / "data"):
        pass

    assert not (tmp_path / "data" / "clients.json").exists()


def test_a_file_that_cannot_be_read_is_replaced_and_the_broker_runs(tmp_path: Path) -> None:
    with InProcessBroker(tmp_path / "data"):
        pass
    (tmp_path / "data" / "clients.json").write_text("{")

    with InProcessBroker(tmp_path / "data") as broker:
        asker(broker, "here").call(MetadataRequest(topics=[]), 1)

    assert stored(tmp_path / "data").keys() == {"here"}


def test_a_refused_request_is_noted_for_the_client_that_has_sent_it(tmp_path: Path) -> None:
    with InProcessBroker(tmp_path / "data", as_version="4.1") as broker:
        client = asker(broker, "old")
        client.send(produce_request((TOPIC, 0, batch(b"x"))), 2)
        broker.turn_until(lambda: client.fake.transport.closed)

    (one,) = stored(tmp_path / "data").values()
    assert (one["client_id"], one["as_version"]) == ("old", "4.1")
    assert (one["requests"], one["refused"]) == ({}, {"Produce": [2]})


def test_of_those_who_have_to_log_in_only_those_who_did_are_remembered(tmp_path: Path) -> None:
    with SecuredBroker(tmp_path) as broker:
        with broker.connect("SASL_PLAINTEXT") as stranger:
            stranger.client_id = "stranger"
            stranger.call(ApiVersionsRequest(), 0)
            stranger.send(MetadataRequest(topics=[]), 1)
            assert stranger.closed_by_server()
        with broker.connect("SASL_PLAINTEXT") as alice:
            alice.client_id = "of-alice"
            shake(alice, "PLAIN")
            authenticate(alice, b"\0alice\0alice-secret")
            alice.call(MetadataRequest(topics=[]), 1)
        data = broker.data

    (client,) = stored(data).values()
    assert client["client_id"] == "of-alice"
    assert list(client["requests"]) == ["SaslHandshake", "SaslAuthenticate", "Metadata"]


# The memory alone


class Caller:
    """A connection of a client."""

    routes = Routes({0: None})  # type: ignore[dict-item]

    def __init__(self, client_id: str) -> None:
        self.client_id: str | None = client_id
        self.is_authenticated = True
        self.peer_host = "127.0.0.1"
        self.read: frozenset[tuple[int, int]] = frozenset()
        self.software_name = self.software_version = ""
        self.usage: ClientUsage | None = None
        self.used: dict[Any, None] = {}
        self.written: frozenset[int] = frozenset()


class Seen:
    """A census whose worker does its jobs when the test says so."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self.files = MemoryFilesystem()
        self.files.make_dir("/data")
        self.worker = ManualWorker()
        self.now_ms = 1_000
        self.census = self.started()

    def started(self) -> Census:
        return Census(self.loop, self.files, "/data/clients.json", self.worker, lambda: self.now_ms)  # type: ignore[arg-type]

    def come(self, client_id: str) -> Caller:
        caller = Caller(client_id)
        error = UnservedRequest(0, 99, None, "")
        error.client_id = client_id
        self.census.refused(caller, error)
        return caller

    def ids(self) -> list[str]:
        """The client ids that are remembered, in their order."""
        found: list[str] = []
        self.census.tell(lambda rows, _: found.extend(row["client_id"] for row in rows))
        self.worker.do_all()
        self.turn_until(lambda: bool(found) or not len(self.census))
        return found

    def turn_until(self, condition: Callable[[], bool]) -> None:
        """Let the loop run what is due, until this holds."""
        while not condition():
            self.loop.run_until_complete(asyncio.sleep(0.001))


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch) -> Iterator[Seen]:
    monkeypatch.setattr(census, "CLIENTS_MAX", 3)
    loop = asyncio.new_event_loop()
    yield Seen(loop)
    loop.close()


def test_whoever_was_seen_longest_ago_is_forgotten_and_counted(seen: Seen) -> None:
    first = seen.come("a")
    for name in "bc":
        seen.come(name)
    seen.census.gone(first)
    seen.come("d")

    assert seen.ids() == ["c", "a", "d"]
    assert seen.census.forgotten == 1


def test_one_that_was_forgotten_and_is_still_here_is_noted_again(seen: Seen) -> None:
    first = seen.come("a")
    for name in "bcd":
        seen.come(name)
    assert "a" not in seen.ids()

    seen.census.look([first])

    assert seen.ids() == ["c", "d", "a"]
    assert len(seen.census) == 3


def test_whoever_has_not_logged_in_where_he_should_is_not_remembered(seen: Seen) -> None:
    stranger = Caller("a")
    stranger.is_authenticated = False
    stranger.used[object()] = None
    seen.census.refused(stranger, UnservedRequest(0, 99, None, ""))
    seen.census.gone(stranger)

    assert len(seen.census) == 0


def test_the_file_is_written_in_the_background_and_read_before(seen: Seen) -> None:
    caller = seen.come("a")
    seen.census.look([caller])
    assert not seen.files.exists("/data/clients.json")
    seen.worker.do_all()
    seen.census.look([caller])
    seen.turn_until(lambda: bool(seen.worker.jobs))
    seen.worker.do_all()
    assert seen.files.exists("/data/clients.json")

    seen.now_ms += 5_000
    seen.census = seen.started()
    again = seen.come("a")
    seen.come("b")

    assert seen.ids() == ["a", "b"]
    assert again.usage is not None
    assert (again.usage.first_ms, again.usage.connections) == (1_000, 2)


def test_nothing_is_written_while_nothing_changes(seen: Seen) -> None:
    seen.come("a")
    seen.ids()
    seen.census.look([])
    seen.turn_until(lambda: bool(seen.worker.jobs))
    seen.worker.do_all()
    seen.files.remove("/data/clients.json")

    seen.census.look([])
    seen.loop.run_until_complete(asyncio.sleep(0))
    seen.worker.do_all()

    assert not seen.files.exists("/data/clients.json")


def test_a_disk_that_takes_no_file_stops_nothing(seen: Seen) -> None:
    seen.come("a")
    seen.files.faults = dict.fromkeys(range(10_000), 28)

    seen.census.stop()

    seen.files.faults = {}
    assert not seen.files.exists("/data/clients.json")
