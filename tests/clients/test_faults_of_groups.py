"""What members of groups do when partitions are assigned anew, a coordinator moves, or records are
gone with a lost leader: what docs/faults.md says of each client.

Each member lives in a program of its own, which says what happens to it.
"""

from __future__ import annotations

import asyncio
import threading
import warnings
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING

import pytest

from testing import Broker
from tests.clients.available import MARKS, end_of_test
from tests.clients.drivers.driver import Refused
from tests.clients.drivers.program_driver import ProgramDriver
from tests.clients.groups.group_clients import GROUP_CLIENTS
from tests.clients.groups.host import Host
from tests.support.caller import Caller, batch
from tests.support.fetched import NotAvailable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.clients.available import Clients
    from tests.clients.drivers.program_driver import Program
    from tests.clients.groups.group_clients import GroupClient
    from tests.clients.groups.host import Event

PATIENCE_S = 60.0
SESSION_MS = 30_000
CLIENTS = {one.key: one for one in GROUP_CLIENTS}
TRIED = (
    *("kafka-python", "confluent-kafka", "confluent-kafka-consumer", "aiokafka"),
    *("java-4", "java-4-consumer"),
)
FROM_THE_START = ("aiokafka",)
"""Clients that know nothing of leader epochs: their offset is out of range, and they do what
`auto.offset.reset` says. Others ask where the epoch of their last record has ended (KIP-320)."""

pytestmark = pytest.mark.clients


class Member:
    """The only member of a group, and all that it said."""

    def __init__(self, client: GroupClient, broker: Broker, host: Host) -> None:
        self.broker = broker
        self.group, self.topic = f"group-of-{client.key}", f"topic-of-{client.key}"
        self._changed = threading.Condition()
        self._events: list[Event] = []
        broker.topic(self.topic).create()
        # By the assignors that take everything back first: what others do not move, nobody sees.
        words = {
            **{"bootstrap": broker.bootstrap, "group": self.group, "topic": self.topic},
            **{"session_ms": SESSION_MS, "heartbeat_ms": 300},
            **(client.words if client.range_words is None else client.range_words),
        }
        if client.java and client.protocol == "classic":
            words |= {
                "client.session.timeout.ms": SESSION_MS,
                "client.heartbeat.interval.ms": 300,
            }
        host.join("one", self._note, **words)

    def _note(self, event: Event) -> None:
        with self._changed:
            self._events.append(event)
            self._changed.notify_all()

    @property
    def said(self) -> int:
        """How many events there are so far."""
        return len(self._events)

    def wait_for(self, what: Callable[[list[Event]], bool], after: int = 0) -> list[Event]:
        """The events after the first so many, when they are so."""
        with self._changed:
            done = self._changed.wait_for(lambda: what(self._events[after:]), PATIENCE_S)
            assert done, self._events
            return self._events[after:]

    def wait_until_committed(self, offset: int, after: int = 0) -> list[Event]:
        return self.wait_for(
            lambda found: any(
                one["event"] == "committed" and one["offsets"].get("0") == offset for one in found
            ),
            after,
        )

    def produce(self, *values: bytes) -> int:
        """The offset behind the last."""
        with Caller(self.broker.host, self.broker.port) as caller:
            for value in values:
                assert caller.produce(self.topic, batch(value)).error_code == 0
        return self.broker.topic(self.topic).ends()[0].end


def marks(key: str) -> list[pytest.MarkDecorator]:
    client = CLIENTS[key]
    return [*MARKS[client.runtime], *([pytest.mark.long] if client.java else [])]


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    settings = {
        "group.initial.rebalance.delay.ms": 0,
        "group.consumer.heartbeat.interval.ms": 300,
        "group.consumer.min.heartbeat.interval.ms": 300,
    }
    with Broker(settings) as broker:
        yield broker


@pytest.fixture(
    scope="module", params=[pytest.param(key, id=key, marks=marks(key)) for key in TRIED]
)
def member(
    request: pytest.FixtureRequest, broker: Broker, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Member]:
    """A member that has read and committed two records."""
    client = CLIENTS[request.param]
    try:
        host = Host(client, tmp_path_factory.mktemp(client.key))
    except NotAvailable as reason:
        end_of_test(client.runtime, f"{client.key}: {reason}")
    try:
        found = Member(client, broker, host)
        found.produce(b"a", b"b")
        found.wait_until_committed(2)
        yield found
    finally:
        host.kill()


def changes(events: list[Event]) -> list[str]:
    return [one["event"] for one in events if one["event"] in ("gave", "lost", "gained")]


def values(events: list[Event]) -> list[str]:
    return [value for one in events if one["event"] == "read" for value in one["values"]]


def test_members_give_up_their_partitions_and_get_them_again_when_a_test_says_so(
    member: Member,
) -> None:
    said = member.said

    member.broker.faults.rebalance(member.group)

    member.wait_for(lambda found: "gained" in changes(found), said)
    end = member.produce(b"after a rebalance")
    found = member.wait_until_committed(end, said)
    assert changes(found)[-1] == "gained"
    assert values(found) == ["after a rebalance"], "nothing is read twice"


def test_members_go_on_at_a_coordinator_that_has_moved_without_a_rebalance(
    member: Member,
) -> None:
    said = member.said
    with member.broker.faults.move_coordinator(member.group) as fault:
        while not fault.fired:
            member.produce(b"meanwhile")
            threading.Event().wait(0.1)
        end = member.produce(b"after a move")
        found = member.wait_until_committed(end, said)
    assert changes(found) == []
    assert values(found)[-1] == "after a move"
    sent = member.broker.conversations(api="FindCoordinator")
    assert any(member.group in one.text for one in sent)


def test_members_notice_that_records_are_gone_with_a_lost_leader(
    member: Member, request: pytest.FixtureRequest
) -> None:
    end = member.produce(b"lost", b"lost, too")
    member.wait_until_committed(end)
    said = member.said

    member.broker.faults.truncate(member.topic, offset=end - 2)

    new_end = member.produce(b"written by the new leader")
    assert new_end == end - 1
    found = member.wait_until_committed(new_end, said)
    knows_epochs = not any(key in request.node.name for key in FROM_THE_START)
    first = next(one["offset"] for one in found if one["event"] == "read")
    assert first == (end - 2 if knows_epochs else 0)
    assert values(found)[-1] == "written by the new leader"
    assert "lost" not in values(found)
    asked = member.broker.conversations(api="OffsetForLeaderEpoch")
    assert knows_epochs == any(member.topic in one.text for one in asked)


def test_a_commit_that_another_coordinator_was_to_take_is_made_again(
    member: Member, request: pytest.FixtureRequest
) -> None:
    if "[confluent-kafka" in request.node.name:
        pytest.skip("a commit by librdkafka does not survive it: docs/faults.md")
    said = member.said
    with member.broker.faults.fail(
        "OffsetCommit", error="NOT_COORDINATOR", group=member.group
    ) as fault:
        found = member.wait_until_committed(member.produce(b"committed twice"), said)
    assert fault.fired == 1
    assert "refused" not in [one["event"] for one in found]


def test_a_commit_of_a_member_that_is_not_known_is_refused(member: Member) -> None:
    said = member.said
    with member.broker.faults.fail(
        "OffsetCommit", error="UNKNOWN_MEMBER_ID", group=member.group
    ) as fault:
        end = member.produce(b"refused")
        member.wait_for(lambda found: any(one["event"] == "refused" for one in found), said)
    assert fault.fired == 1
    member.wait_until_committed(end, said)


def read_by_kafka_python(broker: Broker, topic: str, lose: Callable[[], None]) -> str:
    with warnings.catch_warnings():
        # kafka-python 3.0 reads its own files by a function that Python calls outdated.
        warnings.simplefilter("ignore", DeprecationWarning)
        import kafka
    consumer = kafka.KafkaConsumer(bootstrap_servers=broker.bootstrap, auto_offset_reset="none")
    place = kafka.TopicPartition(topic, 0)
    consumer.assign([place])
    consumer.seek(place, 0)
    try:
        assert [next(consumer).value for _ in range(4)] == [b"a", b"b", b"c", b"d"]
        lose()
        with pytest.raises(kafka.errors.KafkaError, match="truncated") as raised:
            next(consumer)
    finally:
        consumer.close()
    return type(raised.value).__name__


def read_by_confluent_kafka(broker: Broker, topic: str, lose: Callable[[], None]) -> str:
    import confluent_kafka

    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": broker.bootstrap,
            "group.id": "none",
            "auto.offset.reset": "error",
            "enable.auto.commit": False,
        }
    )
    consumer.assign([confluent_kafka.TopicPartition(topic, 0, 0)])
    try:
        assert len(consumer.consume(4, timeout=PATIENCE_S)) == 4
        lose()
        message = consumer.poll(PATIENCE_S)
    finally:
        consumer.close()
    assert message is not None
    error = message.error()
    assert error is not None
    assert "truncation detected at offset 4" in error.str()
    return str(error.name())


def read_by_aiokafka(broker: Broker, topic: str, lose: Callable[[], None]) -> str:
    import aiokafka

    async def read() -> str:
        consumer = aiokafka.AIOKafkaConsumer(
            bootstrap_servers=broker.bootstrap, auto_offset_reset="none"
        )
        place = aiokafka.TopicPartition(topic, 0)
        consumer.assign([place])
        await consumer.start()
        try:
            consumer.seek(place, 0)
            assert [(await consumer.getone()).value for _ in range(4)] == [b"a", b"b", b"c", b"d"]
            await asyncio.to_thread(lose)
            with pytest.raises(aiokafka.errors.KafkaError, match="OutOfRange") as raised:
                await consumer.getone()
        finally:
            await consumer.stop()
        return type(raised.value).__name__

    return asyncio.run(read())


def read_by_java(broker: Broker, topic: str, lose: Callable[[], None], *, program: Program) -> str:
    words = {"topic": topic, "client.client.id": topic}
    with ThreadPoolExecutor(1) as pool:
        reading = pool.submit(program.call, "read-on", bootstrap=broker.bootstrap, **words)
        while not any(
            "fetch_offset: 4" in sent.text
            for sent in broker.conversations(api="Fetch", client=topic)
        ):
            assert not reading.done(), reading.result()
            threading.Event().wait(0.05)
        lose()
        with pytest.raises(Refused, match="Truncated partitions") as raised:
            reading.result()
    return str(raised.value).split(": ")[1]


@pytest.mark.java
def test_java_tells_its_caller_of_the_loss_where_it_may_not_choose_an_offset(
    broker: Broker, clients: Clients
) -> None:
    java = clients.get("java-4")
    assert isinstance(java, ProgramDriver)
    read = partial(read_by_java, program=java.program)
    assert told_of_the_loss(broker, "java-to-its-end", read) == "LogTruncationException"


@pytest.mark.parametrize(
    ("read", "told"),
    [
        (read_by_kafka_python, "LogTruncationError"),
        (read_by_confluent_kafka, "_AUTO_OFFSET_RESET"),
        (read_by_aiokafka, "OffsetOutOfRangeError"),
    ],
)
def test_a_consumer_that_may_not_choose_an_offset_tells_its_caller_of_the_loss(
    broker: Broker, read: Callable[..., str], told: str
) -> None:
    assert told_of_the_loss(broker, f"{read.__name__}-to-its-end", read) == told


def told_of_the_loss(broker: Broker, topic: str, read: Callable[..., str]) -> str:
    """The error that a client tells which has read four records, of which two get lost."""
    broker.topic(topic).create()
    with Caller(broker.host, broker.port) as caller:
        for value in (b"a", b"b", b"c", b"d"):
            caller.produce(topic, batch(value))
    return read(broker, topic, lambda: broker.faults.truncate(topic, offset=2))
