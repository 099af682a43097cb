"""Faults as real clients meet them: what docs/faults.md says that they do.

Each client keeps its own settings for retries. The broker is one that `--testing` started, or one
that knows nothing of faults behind a proxy that does.
"""

from __future__ import annotations

import asyncio
import warnings
from typing import TYPE_CHECKING, Any

import pytest

from testing.control import Control
from testing.faults import Clock, Faults, conversations
from tests.clients.available import every_client_but
from tests.clients.records import FIRST_TIMESTAMP_MS, Record
from tests.support.broker_process import BrokerProcess
from tests.support.caller import Caller, batch
from tests.support.proxy_process import ProxyProcess

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.clients.drivers.driver import DeliveringDriver, Driver

with warnings.catch_warnings():
    # kafka-python 3.0 reads its own files by a function that Python calls outdated.
    warnings.simplefilter("ignore", DeprecationWarning)
    import kafka

pytestmark = pytest.mark.clients

FOUR = every_client_but("java-3.9", "kafkajs")
THROUGH_THE_PROXY = ("kafka-python", "confluent-kafka")
EACH = pytest.mark.parametrize(
    ("faulty", "client"),
    [
        *(pytest.param("tested_broker", *one.values, id=one.id, marks=one.marks) for one in FOUR),
        *(pytest.param("proxy", one, id=f"{one}-through-the-proxy") for one in THROUGH_THE_PROXY),
    ],
    indirect=True,
)
OF_THE_BROKER = pytest.mark.parametrize("faulty", ["tested_broker"], indirect=True)
"""What a proxy cannot do."""


OUT_OF_TIME = {
    "kafka-python": ("RequestTimedOutError", "KafkaTimeoutError"),
    "confluent-kafka": ("_MSG_TIMED_OUT",),
    "aiokafka": ("RequestTimedOutError",),
    "kafka-clients": ("TimeoutException",),
}
"""What a client tells when it gives up a record: kafka-python by whose time is over first, the
request's or the record's."""

SETTINGS = {"offsets.topic.num.partitions": "1", "group.initial.rebalance.delay.ms": "0"}


@pytest.fixture(scope="module")
def tested_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    data = tmp_path_factory.mktemp("faulty") / "data"
    with BrokerProcess(data, settings=SETTINGS, arguments=("--testing", "127.0.0.1:0")) as broker:
        yield broker


@pytest.fixture(scope="module")
def proxy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    data = tmp_path_factory.mktemp("behind") / "data"
    with (
        BrokerProcess(data, settings=SETTINGS) as broker,
        ProxyProcess(broker.bootstrap) as proxy,
    ):
        yield proxy


@pytest.fixture(params=["tested_broker", "proxy"])
def faulty(request: pytest.FixtureRequest) -> BrokerProcess:
    """What the clients talk to, and its control port."""
    found: BrokerProcess = request.getfixturevalue(request.param)
    return found


@pytest.fixture
def control(faulty: BrokerProcess) -> Control:
    return Control.at(faulty.control)


@pytest.fixture
def faults(control: Control) -> Iterator[Faults]:
    found = Faults(control)
    yield found
    found.clear()


@pytest.fixture
def new_topic(faulty: BrokerProcess, topic: str) -> str:
    with Caller(faulty.host, faulty.port) as caller:
        caller.create_topic(topic, 1, **{"retention.ms": "-1"})
    return topic


def record(value: bytes) -> Record:
    return Record(0, FIRST_TIMESTAMP_MS, None, value)


def values(broker: BrokerProcess, topic: str) -> list[bytes | None]:
    """What is stored, as a client of our own reads it."""
    with Caller(broker.host, broker.port) as caller:
        return caller.values(topic)


@EACH
@pytest.mark.parametrize("idempotent", [False, True])
def test_a_producer_sends_again_what_another_leader_was_to_take(
    client: Driver, faulty: BrokerProcess, faults: Faults, new_topic: str, idempotent: bool
) -> None:
    with faults.fail("Produce", topic=new_topic, error="NOT_LEADER_OR_FOLLOWER", times=2) as fault:
        client.produce(
            faulty.bootstrap, new_topic, [record(b"a")], codec="none", idempotent=idempotent
        )

    assert (fault.calls, fault.fired) == (2, 2)
    assert values(faulty, new_topic) == [b"a"]


@EACH
def test_a_producer_that_may_not_write_tells_its_caller(
    client: Driver, faulty: BrokerProcess, faults: Faults, new_topic: str
) -> None:
    told: Exception | None = None
    with faults.fail(
        "Produce", topic=new_topic, error="TOPIC_AUTHORIZATION_FAILED", times="always"
    ) as fault:
        try:
            client.produce(
                faulty.bootstrap, new_topic, [record(b"a")], codec="none", idempotent=False
            )
        except Exception as error:
            told = error

    assert told is not None
    assert fault.fired == 1, "it was not sent again"
    assert values(faulty, new_topic) == []


@EACH
@pytest.mark.parametrize("idempotent", [False, True])
def test_a_lost_answer_makes_a_duplicate_unless_the_producer_is_idempotent(
    client: Driver, faulty: BrokerProcess, faults: Faults, new_topic: str, idempotent: bool
) -> None:
    with faults.drop_answer("Produce", topic=new_topic) as fault:
        client.produce(
            faulty.bootstrap, new_topic, [record(b"a")], codec="none", idempotent=idempotent
        )

    assert fault.fired == 1
    assert values(faulty, new_topic) == ([b"a"] if idempotent else [b"a", b"a"])


@EACH
def test_a_consumer_reads_on_when_its_fetches_meet_errors(
    client: Driver, faulty: BrokerProcess, faults: Faults, new_topic: str
) -> None:
    sent = [record(b"%d" % number) for number in range(20)]
    client.produce(faulty.bootstrap, new_topic, sent, codec="none", idempotent=True)

    with faults.fail("Fetch", topic=new_topic, error="NOT_LEADER_OR_FOLLOWER", times=2) as fault:
        stored = client.consume(faulty.bootstrap, new_topic)

    assert fault.fired == 2
    assert [one.value for _, one in stored[0]] == [one.value for one in sent]


def commit_by_kafka_python(bootstrap: str, topic: str, group: str) -> None:
    consumer = kafka.KafkaConsumer(
        topic, bootstrap_servers=bootstrap, group_id=group, auto_offset_reset="earliest"
    )
    try:
        next(consumer)
        consumer.commit()
    finally:
        consumer.close(autocommit=False)


def commit_by_confluent_kafka(bootstrap: str, topic: str, group: str) -> None:
    import confluent_kafka

    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )
    try:
        consumer.subscribe([topic])
        message = consumer.poll(60)
        assert message is not None
        assert message.error() is None
        consumer.commit(asynchronous=False)
    finally:
        consumer.close()


def commit_by_aiokafka(bootstrap: str, topic: str, group: str) -> None:
    import aiokafka

    async def commit() -> None:
        consumer = aiokafka.AIOKafkaConsumer(
            topic,
            bootstrap_servers=bootstrap,
            group_id=group,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
        )
        await consumer.start()
        try:
            await consumer.getone()
            await consumer.commit()
        finally:
            await consumer.stop()

    asyncio.run(commit())


@pytest.mark.parametrize("commit", [commit_by_kafka_python, commit_by_aiokafka])
def test_a_commit_looks_for_the_coordinator_that_has_moved(
    commit: Any, faulty: BrokerProcess, faults: Faults, control: Control, new_topic: str
) -> None:
    with Caller(faulty.host, faulty.port) as caller:
        caller.produce(new_topic, batch(b"a"))

    with faults.fail("OffsetCommit", error="NOT_COORDINATOR") as fault:
        commit(faulty.bootstrap, new_topic, f"group-of-{new_topic}")

    assert fault.fired == 1
    commits = [
        sent
        for sent in conversations(control, api="OffsetCommit")
        if f"group_id: group-of-{new_topic}," in sent.text
    ]
    assert commits[0].fault
    assert [sent for sent in commits if not sent.fault], "it committed again"
    between = conversations(control, api="FindCoordinator", after=commits[0].number)
    assert any(f"group-of-{new_topic}" in sent.text for sent in between)


@pytest.mark.parametrize(
    "commit", [commit_by_kafka_python, commit_by_confluent_kafka, commit_by_aiokafka]
)
def test_a_commit_of_a_member_that_is_not_known_is_refused(
    commit: Any, faulty: BrokerProcess, faults: Faults, new_topic: str
) -> None:
    with Caller(faulty.host, faulty.port) as caller:
        caller.produce(new_topic, batch(b"a"))

    with (
        faults.fail("OffsetCommit", error="UNKNOWN_MEMBER_ID", times="always"),
        pytest.raises(Exception, match=r"(?i)member|rebalance|commit"),
    ):
        commit(faulty.bootstrap, new_topic, f"group-of-{new_topic}")


@OF_THE_BROKER
def test_a_consumer_that_lost_its_session_joins_again_and_reads_on(
    faulty: BrokerProcess, control: Control, new_topic: str
) -> None:
    consumer = kafka.KafkaConsumer(
        new_topic,
        bootstrap_servers=faulty.bootstrap,
        group_id=f"group-of-{new_topic}",
        auto_offset_reset="earliest",
        client_id=new_topic,
    )
    with Caller(faulty.host, faulty.port) as caller:
        caller.produce(new_topic, batch(b"a"))
        assert next(consumer).value == b"a"
        joined = conversations(control, client=new_topic, api="JoinGroup")

        Clock(control).advance(minutes=5)

        caller.produce(new_topic, batch(b"b"))
        assert next(consumer).value == b"b"
        while len(conversations(control, client=new_topic, api="JoinGroup")) == len(joined):
            consumer.poll(100)
    consumer.close()


@OF_THE_BROKER
def test_a_member_joins_again_when_its_group_rebalances(
    faulty: BrokerProcess, faults: Faults, control: Control, new_topic: str
) -> None:
    group = f"group-of-{new_topic}"
    consumer = kafka.KafkaConsumer(
        new_topic,
        bootstrap_servers=faulty.bootstrap,
        group_id=group,
        auto_offset_reset="earliest",
        client_id=new_topic,
    )
    with Caller(faulty.host, faulty.port) as caller:
        caller.produce(new_topic, batch(b"a"))
        assert next(consumer).value == b"a"
        joined = conversations(control, client=new_topic, api="JoinGroup")

        faults.rebalance(group)

        while len(conversations(control, client=new_topic, api="JoinGroup")) == len(joined):
            consumer.poll(100)
        caller.produce(new_topic, batch(b"b"))
        assert next(consumer).value == b"b"
    consumer.close()


@OF_THE_BROKER
def test_a_consumer_reads_on_in_a_new_leader_epoch(
    faulty: BrokerProcess, faults: Faults, control: Control, new_topic: str
) -> None:
    import confluent_kafka

    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": faulty.bootstrap,
            "group.id": f"group-of-{new_topic}",
            "auto.offset.reset": "earliest",
        }
    )
    consumer.subscribe([new_topic])
    with Caller(faulty.host, faulty.port) as caller:
        caller.produce(new_topic, batch(b"a"))
        message = consumer.poll(60)
        assert message is not None
        assert message.value() == b"a"
        epoch = control.get(f"/topics/{new_topic}")["partitions"][0]["leader_epoch"]

        faults.new_leader_epoch(new_topic)

        caller.produce(new_topic, batch(b"b"))
        message = consumer.poll(60)
        assert message is not None
        assert (message.value(), message.leader_epoch()) == (b"b", epoch + 1)
    consumer.close()


@OF_THE_BROKER
def test_records_that_have_aged_are_gone_for_a_client(
    faulty: BrokerProcess, control: Control, topic: str
) -> None:
    import confluent_kafka

    client = confluent_kafka.Consumer({"bootstrap.servers": faulty.bootstrap, "group.id": "none"})
    partition = confluent_kafka.TopicPartition(topic, 0)
    clock = Clock(control)
    with Caller(faulty.host, faulty.port) as caller:
        caller.create_topic(topic, retention_ms="3600000")
        caller.produce(topic, batch(b"a", timestamp_ms=clock.now_ms()))
        assert client.get_watermark_offsets(partition, timeout=30) == (0, 1)

        clock.advance(hours=2)

        while client.get_watermark_offsets(partition, timeout=30) != (1, 1):
            clock.advance(minutes=1)
    client.close()


GIVE_UP_MS = 3_000


@EACH
def test_a_producer_sends_again_what_was_not_taken_from_a_closed_connection(
    client: Driver, faulty: BrokerProcess, faults: Faults, new_topic: str
) -> None:
    with faults.close("Produce", topic=new_topic) as fault:
        client.produce(faulty.bootstrap, new_topic, [record(b"a")], codec="none", idempotent=False)

    assert fault.fired == 1
    assert values(faulty, new_topic) == [b"a"]


@EACH
def test_a_producer_waits_for_an_answer_that_is_late(
    client: Driver, faulty: BrokerProcess, faults: Faults, new_topic: str
) -> None:
    with faults.delay("Produce", topic=new_topic, ms=300) as fault:
        client.produce(faulty.bootstrap, new_topic, [record(b"a")], codec="none", idempotent=False)

    assert fault.fired == 1
    assert values(faulty, new_topic) == [b"a"]


@EACH
def test_a_throttled_producer_tells_of_it(
    client: DeliveringDriver, faulty: BrokerProcess, faults: Faults, new_topic: str
) -> None:
    with faults.throttle("Produce", ms=300, topic=new_topic) as fault:
        told = client.deliver(faulty.bootstrap, new_topic, b"a", give_up_ms=60_000)

    assert fault.fired == 1
    assert values(faulty, new_topic) == [b"a"]
    tells = not client.name.startswith("aiokafka")
    assert told == ("", pytest.approx(300) if tells else None)


@EACH
def test_a_request_that_is_never_answered_is_given_up_by_the_client(
    client: DeliveringDriver, faulty: BrokerProcess, faults: Faults, new_topic: str
) -> None:
    with faults.never_answer("Produce", topic=new_topic, times="always") as fault:
        while not fault.fired:  # where its time was over before it had sent anything, again
            told = client.deliver(faulty.bootstrap, new_topic, b"a", give_up_ms=GIVE_UP_MS)

    assert told.error in OUT_OF_TIME[client.name.split()[0]]
    assert b"a" in values(faulty, new_topic), "which the producer does not know"
