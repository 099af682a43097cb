"""`triglot transactions` against a running server: ours and, in the long part, Apache Kafka."""

from __future__ import annotations

import itertools
import time
from functools import partial
from typing import TYPE_CHECKING

import pytest

from tests.clients.available import end_of_test
from tests.clients.transactions.conversation import Conversation
from tests.clients.transactions.scripts import parse
from tests.clients.transactions.telling import SETTINGS, VERBS, prepare
from tests.support import typed_command
from tests.support.broker_process import BrokerProcess
from tests.support.fetched import NotAvailable
from tests.support.kafka_process import KafkaProcess
from tests.support.kafka_release import RELEASES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.support.server_process import ServerProcess

    Tell = Callable[..., list[str]]

pytestmark = [pytest.mark.clients, pytest.mark.timeout(600)]

#: So that a batch may come after the end of its transaction, as with Kafka before 3.6.
UNVERIFIED = {**SETTINGS, "transaction.partition.verification.enable": "false"}
KAFKA_MARKS = (pytest.mark.java, pytest.mark.long)
SERVERS = [
    pytest.param(None, id="triglot"),
    *(pytest.param(one, id=f"kafka-{one.name}", marks=KAFKA_MARKS) for one in RELEASES),
]

run = partial(typed_command.run, "transactions")
asked = partial(typed_command.asked, "transactions")
refused = partial(typed_command.refused, "transactions")

BEGUN = (
    "topic orders 2",
    "init/4 id=bank as=b timeout=50000",
    "add/3 id=bank by=b orders:0,orders:1",
    "produce/11 id=bank by=b orders:0 seq=0 x,y",
)
LATE = (
    "topic orders",
    "init/4 id=late as=l",
    "add/3 id=late by=l orders:0",
    "produce/11 id=late by=l orders:0 seq=0 x",
    "end/3 id=late by=l commit",
    "produce/11 id=late by=l orders:0 seq=1 y",
)
"""A batch that came after the end of its transaction: it is open from offset 2 on."""


@pytest.fixture(scope="module", params=SERVERS)
def server(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ServerProcess]:
    folder = tmp_path_factory.mktemp("server") / "data"
    release = request.param
    try:
        started: ServerProcess = (
            BrokerProcess(folder, settings=UNVERIFIED)
            if release is None
            else KafkaProcess(folder, settings=UNVERIFIED, release=release)
        )
    except NotAvailable as reason:
        end_of_test("java", str(reason))
    with started:
        prepare(started, None)
        yield started


_numbers = itertools.count()


@pytest.fixture
def talk(server: ServerProcess) -> Iterator[Conversation]:
    """Topics and transactional ids of this test have a beginning of their own."""
    made = Conversation(server, f"t{next(_numbers)}-")
    yield made
    made.close()


@pytest.fixture
def tell(talk: Conversation) -> Tell:
    def tell(*lines: str) -> list[str]:
        answers = []
        for line in lines:
            step = parse(line)
            answers.append(VERBS[step.verb](talk, step))
        return answers

    return tell


@pytest.fixture
def bootstrap(server: ServerProcess) -> str:
    return server.bootstrap


def test_a_transactional_id_is_listed_with_its_state_and_described(
    talk: Conversation, tell: Tell, bootstrap: str
) -> None:
    tell(*BEGUN)
    name, topic = talk.own("bank"), talk.own("orders")
    producer_id, epoch = talk.producers["b"]

    listed = {
        one["transactional_id"]: one
        for one in asked(bootstrap, "list", "--state", "Ongoing")["transactions"]
    }
    assert (listed[name]["state"], listed[name]["producer_id"]) == ("Ongoing", producer_id)
    assert listed[name]["coordinator"] == bootstrap

    found = asked(bootstrap, "describe", "--transactional-id", name)
    assert (found["state"], found["timeout_ms"]) == ("Ongoing", 50_000)
    assert (found["producer_id"], found["producer_epoch"]) == (producer_id, epoch)
    assert found["partitions"] == [{"topic": topic, "partition": n} for n in (0, 1)]
    assert found["duration_ms"] >= 0
    assert abs(time.time() * 1000 - found["start_ms"]) < 60_000
    code, out, err = run(bootstrap, "describe", "--transactional-id", name)
    assert (code, err) == (0, "")
    assert f"partitions        {topic}-0, {topic}-1\n" in out

    tell("end/3 id=bank by=b commit")
    found = asked(bootstrap, "describe", "--transactional-id", name)
    assert (found["state"], found["start_ms"]) == ("CompleteCommit", None)
    assert "CompleteCommit" in run(bootstrap, "list")[1]


def test_a_list_is_chosen_by_producer_and_by_duration(
    talk: Conversation, tell: Tell, bootstrap: str
) -> None:
    tell(*BEGUN, "init/4 id=idle as=i", "sleep 20")
    bank, (of_bank, _), (of_idle, _) = (
        talk.own("bank"),
        talk.producers["b"],
        talk.producers["i"],
    )
    both = ("--producer-id", str(of_bank), "--producer-id", str(of_idle))

    def names(*words: str) -> list[str]:
        found = asked(bootstrap, "list", *words)["transactions"]
        return [one["transactional_id"] for one in found]

    assert names(*both) == [bank, talk.own("idle")]
    assert names(*both, "--duration-filter", "10") == [bank]
    assert names(*both, "--duration-filter", "1000000") == []
    assert names(*both, "--state", "Empty") == [talk.own("idle")]


def test_a_list_is_chosen_by_a_pattern_where_the_broker_can(
    talk: Conversation, tell: Tell, bootstrap: str, request: pytest.FixtureRequest
) -> None:
    tell("init/4 id=a1 as=a", "init/4 id=b1 as=b")
    pattern = ("--transactional-id-pattern", talk.own("a") + ".*")
    if "kafka-3.9" in request.node.name:
        assert "by pattern (Kafka 4.1 is the first)" in refused(bootstrap, "list", *pattern)
        return
    (found,) = asked(bootstrap, "list", *pattern)["transactions"]
    assert found["transactional_id"] == talk.own("a1")
    assert "is no regular expression" in refused(
        bootstrap, "list", "--transactional-id-pattern", "["
    )


def test_a_partition_tells_its_producers_and_what_they_have_open(
    talk: Conversation, tell: Tell, bootstrap: str
) -> None:
    tell(*BEGUN)
    place = f"{talk.own('orders')}-0"
    producer_id, epoch = talk.producers["b"]

    (found,) = asked(bootstrap, "describe-producers", "--topic-partition", place)["producers"]
    assert (found["producer_id"], found["epoch"]) == (producer_id, epoch)
    assert (found["last_sequence"], found["start_offset"]) == (1, 0)
    assert found["coordinator_epoch"] is None

    tell("end/3 id=bank by=b abort")
    (found,) = asked(bootstrap, "describe-producers", "--topic-partition", place)["producers"]
    assert found["start_offset"] is None
    assert found["coordinator_epoch"] is not None
    empty = f"{talk.own('orders')}-1"
    assert run(bootstrap, "describe-producers", "--topic-partition", empty)[0] == 0


def test_a_batch_after_the_end_hangs_and_is_found_and_aborted(
    talk: Conversation, tell: Tell, bootstrap: str
) -> None:
    tell(*BEGUN[1:2], *LATE)
    topic = talk.own("orders")
    search = ("find-hanging", "--topic", topic, "--max-transaction-timeout", "0")
    (found,) = asked(bootstrap, *search)["hanging"]
    assert (found["partition"], found["start_offset"]) == (0, 2)
    assert found["transactional_id"] == talk.own("late")
    assert found["reason"] == f"'{talk.own('late')}' is in state CompleteCommit"
    assert found["silent_ms"] >= 0
    # Whose producer was heard of a moment ago may still be about to end it.
    assert asked(bootstrap, "find-hanging", "--topic", topic)["hanging"] == []

    code, out, err = run(bootstrap, *search)
    assert (code, err) == (0, "")
    (line,) = (line for line in out.splitlines() if line.startswith("to abort it: "))
    command = line.removeprefix("to abort it: triglot transactions ").split()
    (aborted,) = asked(bootstrap, *command).values()
    assert (aborted["topic"], aborted["producer_id"]) == (topic, found["producer_id"])

    assert asked(bootstrap, *search)["hanging"] == []
    (told,) = tell("fetch/11 orders:0 committed")
    assert "lso=4" in told, told
    wanted = "no open transaction begins at 2; none is open there"
    assert wanted in refused(bootstrap, *command)


def test_a_part_of_a_transaction_in_hand_is_aborted_only_by_who_insists(
    talk: Conversation, tell: Tell, bootstrap: str
) -> None:
    tell(*BEGUN)
    place = f"{talk.own('orders')}-0"
    producer_id, epoch = talk.producers["b"]
    topic = ("--topic", talk.own("orders"), "--max-transaction-timeout", "0")
    assert asked(bootstrap, "find-hanging", *topic)["hanging"] == []

    where = ("abort", "--topic-partition", place)
    said = refused(bootstrap, *where, "--start-offset", "0")
    assert "which is in state Ongoing and in 2 partitions: abort it whole" in said
    insist = said.partition("insist with ")[2].split()
    assert insist == [
        *("--producer-id", str(producer_id)),
        *("--producer-epoch", str(epoch)),
        *("--coordinator-epoch", "0"),
    ]
    asked(bootstrap, *where, *insist)

    producers = asked(bootstrap, "describe-producers", "--topic-partition", place)["producers"]
    assert [one["start_offset"] for one in producers] == [None]
    older = ("--producer-id", str(producer_id), "--producer-epoch", "0", "--coordinator-epoch", "0")
    tell("init/4 id=bank as=b", "add/3 id=bank by=b orders:0")
    tell("produce/11 id=bank by=b orders:0 seq=0 x")
    assert "INVALID_PRODUCER_EPOCH" in refused(bootstrap, *where, *older)


def test_a_transaction_is_aborted_whole_and_its_producer_fenced(
    talk: Conversation, tell: Tell, bootstrap: str
) -> None:
    tell(*BEGUN, "produce/11 id=bank by=b orders:1 seq=0 z")
    name, topic = talk.own("bank"), talk.own("orders")

    aborted = asked(bootstrap, "abort", "--transactional-id", name)["aborted"]

    assert aborted["partitions"] == [{"topic": topic, "partition": n} for n in (0, 1)]
    for number in (0, 1):
        place = f"{topic}-{number}"
        producers = asked(bootstrap, "describe-producers", "--topic-partition", place)["producers"]
        assert [one["start_offset"] for one in producers] == [None]
    (told,) = tell("end/3 id=bank by=b commit")
    assert told.split()[0] in ("PRODUCER_FENCED", "INVALID_PRODUCER_EPOCH")
    said = refused(bootstrap, "abort", "--transactional-id", name)
    assert f"transactional id '{name}' is in state Empty: there is nothing to abort" in said


def test_what_there_is_not_is_one_sentence(bootstrap: str) -> None:
    for action in ("describe", "abort"):
        said = refused(bootstrap, action, "--transactional-id", "nobody")
        assert said == "triglot: there is no transactional id 'nobody'\n"
    said = refused(bootstrap, "describe-producers", "--topic-partition", "no-where-7")
    assert "partition no-where-7: UNKNOWN_TOPIC_OR_PARTITION" in said
    nowhere = ("--topic-partition", "no-where-7", "--producer-id", "1", "--producer-epoch", "0")
    said = refused(bootstrap, "abort", *nowhere, "--coordinator-epoch", "0")
    assert "partition no-where-7: WriteTxnMarkers: UNKNOWN_TOPIC_OR_PARTITION" in said
    assert "there is no partition 3 of topic 'nix' led by broker 9" in refused(
        bootstrap, "find-hanging", "--topic", "nix", "--partition", "3", "--broker-id", "9"
    )
    said = refused(bootstrap, "list", "--state", "ongoing")
    assert "no state 'ongoing'; there are Empty, Ongoing, " in said
