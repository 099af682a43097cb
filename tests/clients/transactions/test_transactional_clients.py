"""Transactions of real clients: commits, aborts, offsets, zombies, and a broker that is killed.

The clients talk to our broker and, in the long part, to Apache Kafka 3.9 and 4, which proves the
tests. One server at a time: the tests of each follow each other.
"""

from __future__ import annotations

import itertools
import os
from typing import TYPE_CHECKING, Any

import pytest

from protocol.errors import ErrorCode
from protocol.messages.offset_fetch import OffsetFetchRequest
from tests.clients.available import MARKS, end_of_test
from tests.clients.drivers.driver import Refused
from tests.clients.transactions.brokers import ON_KAFKA, REFERENCES, STABLE
from tests.clients.transactions.conversation import Conversation, until
from tests.clients.transactions.hosts import HOSTS
from tests.clients.transactions.telling import SETTINGS, prepare
from tests.support.broker_process import BrokerProcess
from tests.support.caller import Caller, batch
from tests.support.fetched import NotAvailable
from tests.support.kafka_process import KafkaProcess

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.clients.transactions.hosts import Host
    from tests.support.server_process import ServerProcess

#: The first test of a client fetches it.
pytestmark = [pytest.mark.clients, pytest.mark.timeout(600)]

COMMITTED, UNCOMMITTED = "read_committed", "read_uncommitted"
STABLE_SINCE = 7

TRIGLOT = "triglot"
KAFKA_MARKS = (pytest.mark.java, pytest.mark.long)
SERVERS = [
    pytest.param(TRIGLOT, id=TRIGLOT),
    *(pytest.param(name, id=f"kafka-{name}", marks=KAFKA_MARKS) for name in STABLE if ON_KAFKA),
]
CLIENTS = [pytest.param(name, id=name, marks=MARKS[HOSTS[name].runtime]) for name in HOSTS]


@pytest.fixture(scope="module", params=SERVERS)
def server(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ServerProcess]:
    """The server that the clients talk to; one at a time."""
    if "TEST_BOOTSTRAP" in os.environ:
        pytest.skip("a server from outside cannot be killed")
    folder = tmp_path_factory.mktemp("server") / "data"
    level = None
    try:
        if request.param == TRIGLOT:
            started: ServerProcess = BrokerProcess(folder, settings=SETTINGS)
        else:
            reference = REFERENCES[request.param]
            started = KafkaProcess(folder, settings=SETTINGS, release=reference.release)
            level = reference.level_to_set
    except NotAvailable as reason:
        end_of_test("java", str(reason))
    with started:
        prepare(started, level)
        yield started


@pytest.fixture(scope="module")
def hosts(
    server: ServerProcess, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[str, Host]]:
    """The clients that this server has met."""
    found: dict[str, Host] = {}
    yield found
    for host in found.values():
        host.end()


@pytest.fixture(params=CLIENTS)
def host(
    request: pytest.FixtureRequest,
    server: ServerProcess,
    hosts: dict[str, Host],
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Host]:
    """The client that the parameter names; its producers are those of one test."""
    name = request.param
    if name not in hosts:
        try:
            hosts[name] = HOSTS[name].host(server.bootstrap, tmp_path_factory.mktemp(name))
        except NotAvailable as reason:
            end_of_test(HOSTS[name].runtime, f"{name}: {reason}")
    yield hosts[name]
    hosts[name].release()


_numbers = itertools.count()


@pytest.fixture
def unique() -> str:
    """A beginning of names that no other test has."""
    return f"t{next(_numbers)}-{os.urandom(3).hex()}"


def make_topic(server: ServerProcess, name: str, *values: bytes) -> str:
    """A topic of one partition with these records."""
    with Caller(server.host, server.port) as caller:
        caller.create_topic(name)
        assert until(lambda: caller.describe(name).error_code == 0)
        with caller.leader_of(name) as leader:
            # It may not lead at once.
            assert until(lambda: leader.offset(name, -1, version=5).error_code == 0)
            if values:
                assert leader.produce(name, batch(*values), version=8).error_code == 0
    return name


def committed_offset(server: ServerProcess, group: str, topic: str) -> int:
    """What the group has for partition 0, when no transaction holds it; -1 is nothing."""
    asked = OffsetFetchRequest.Topic(name=topic, partition_indexes=[0])
    request = OffsetFetchRequest(group_id=group, topics=[asked], require_stable=True)
    entries: list[Any] = []
    with (
        Caller(server.host, server.port) as any_broker,
        any_broker.coordinator_of(group, 0) as caller,
    ):

        def stable() -> bool:
            entries.append(caller.call(request, STABLE_SINCE).topics[0].partitions[0])
            return bool(entries[-1].error_code != ErrorCode.UNSTABLE_OFFSET_COMMIT)

        assert until(stable)
    assert entries[-1].error_code == 0
    offset: int = entries[-1].committed_offset
    return offset


def wait_for_markers(server: ServerProcess, transactional_id: str) -> None:
    """Kafka answers the end of a transaction before its markers are written."""
    talk = Conversation(server, "")
    talk.settle(transactional_id)
    talk.close()


def test_a_commit_is_seen_by_readers_of_committed_records_and_an_abort_is_not(
    host: Host, server: ServerProcess, unique: str
) -> None:
    topic = make_topic(server, unique)
    host.open("p", unique)
    host.begin("p")
    host.send("p", topic, "a")
    host.send("p", topic, "b")
    assert host.read(topic, UNCOMMITTED) == ["a", "b"]
    assert host.read(topic, COMMITTED) == []
    host.commit("p")
    wait_for_markers(server, unique)
    assert host.read(topic, COMMITTED) == ["a", "b"]

    host.begin("p")
    host.send("p", topic, "c")
    host.abort("p")
    host.begin("p")
    host.send("p", topic, "d")
    host.commit("p")
    wait_for_markers(server, unique)
    assert host.read(topic, COMMITTED) == ["a", "b", "d"]
    assert host.read(topic, UNCOMMITTED) == ["a", "b", "c", "d"]


def test_offsets_count_if_the_records_of_their_transaction_do(
    host: Host, server: ServerProcess, unique: str
) -> None:
    source = make_topic(server, f"{unique}-source", b"1", b"2", b"3")
    target = make_topic(server, f"{unique}-target")
    group = f"{unique}-group"
    host.open("p", unique)
    host.begin("p")
    host.copy("p", group, source, target, 3)
    host.abort("p")
    assert committed_offset(server, group, source) == -1
    wait_for_markers(server, unique)
    assert host.read(target, COMMITTED) == []

    host.begin("p")
    host.copy("p", group, source, target, 3)
    host.commit("p")
    assert committed_offset(server, group, source) == 3
    wait_for_markers(server, unique)
    assert host.read(target, COMMITTED) == ["1", "2", "3"]


def go_on(host: Host, name: str, topic: str) -> None:
    """Send and commit, one of which a client that is fenced hears of first."""
    host.send(name, topic, name)
    host.commit(name)


def test_a_second_instance_fences_the_first_and_aborts_its_transaction(
    host: Host, server: ServerProcess, unique: str
) -> None:
    topic = make_topic(server, unique)
    host.open("zombie", unique)
    host.begin("zombie")
    host.send("zombie", topic, "zombie")
    host.open("successor", unique)

    with pytest.raises(Refused):
        go_on(host, "zombie", topic)

    host.begin("successor")
    host.send("successor", topic, "successor")
    host.commit("successor")
    wait_for_markers(server, unique)
    assert host.read(topic, COMMITTED) == ["successor"]
    assert host.read(topic, UNCOMMITTED) == ["zombie", "successor"]


@pytest.mark.parametrize("end", ["commit", "abort"])
def test_a_transaction_goes_on_after_the_broker_was_killed_in_it(
    host: Host, server: ServerProcess, unique: str, end: str
) -> None:
    topic = make_topic(server, unique)
    host.open("p", unique)
    host.begin("p")
    host.send("p", topic, "before")
    server.kill()
    server.start()
    host.send("p", topic, "after")
    assert host.read(topic, COMMITTED) == []
    getattr(host, end)("p")

    host.begin("p")
    host.send("p", topic, "next")
    host.commit("p")
    ended = ["before", "after"] if end == "commit" else []
    wait_for_markers(server, unique)
    assert host.read(topic, COMMITTED) == [*ended, "next"]
    assert host.read(topic, UNCOMMITTED) == ["before", "after", "next"]


def test_a_transaction_that_nobody_ends_is_aborted_after_its_time_out(
    host: Host, server: ServerProcess, unique: str
) -> None:
    topic = make_topic(server, unique)
    host.open("p", unique, 1_000)
    host.begin("p")
    host.send("p", topic, "forgotten")
    host.open("other", f"{unique}-other")
    host.begin("other")
    host.send("other", topic, "kept")
    host.commit("other")
    # The last stable offset moves past it when the coordinator has looked.
    with Caller(server.host, server.port) as any_broker, any_broker.leader_of(topic) as caller:
        assert until(lambda: caller.fetch(topic, isolation_level=1).last_stable_offset == 4)
    assert host.read(topic, COMMITTED) == ["kept"]
