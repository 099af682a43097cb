"""Apache Kafka's own `kafka-transactions` against our broker: all that it can do, by its releases.

A release runs in one virtual machine, whose start costs more than all its commands.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, NamedTuple

import pytest

from tests.clients.available import end_of_test
from tests.clients.drivers.program_driver import CLIENTS, Program
from tests.clients.transactions.conversation import Conversation
from tests.clients.transactions.scripts import parse
from tests.clients.transactions.telling import (
    SETTINGS,
    VERBS,
    finalized_level,
    prepare,
)
from tests.support import fetched
from tests.support.broker_process import CHECKOUT, BrokerProcess
from tests.support.caller import Caller
from tests.support.fetched import NotAvailable
from tests.support.kafka_release import KAFKA_4, RELEASES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.support.kafka_release import Release

    Tell = Callable[..., list[str]]

pytestmark = [pytest.mark.clients, pytest.mark.java, pytest.mark.long]

TOOL = "org.apache.kafka.tools.TransactionsCommand"
FEATURES = "org.apache.kafka.tools.FeatureCommand"
SCRIPT = "kafka_2.13-4.3.1/bin/kafka-features.sh "
PAGE = (CHECKOUT / "docs/transactions.md").read_text(encoding="utf-8")
UNVERIFIED = {**SETTINGS, "transaction.partition.verification.enable": "false"}


class Ended(NamedTuple):
    code: int
    out: str
    err: str

    @property
    def rows(self) -> list[dict[str, str]]:
        """The table that was printed, by its head."""
        head, *rows = (line.rstrip("\t").split("\t") for line in self.out.splitlines())
        names = [name.strip() for name in head]
        return [
            dict(zip(names, (cell.strip() for cell in row), strict=True)) for row in rows if row[0]
        ]


class KafkasTool:
    """`kafka-transactions` of one release. Raises `NotAvailable`."""

    def __init__(self, release: Release, folder: Path) -> None:
        jars = fetched.jars(release.pom)
        sources = CLIENTS / "java"
        classes = fetched.classes(sources / "common", sources / "tools", classpath=jars)
        command = release.java(folder, "tool", classes=classes, quiet=True)
        self.program = Program([*command, "triglot.ToolHost"], folder)
        self.bootstrap = ""

    def run(self, *words: str) -> Ended:
        return self.run_class(TOOL, "--bootstrap-server", self.bootstrap, *words)

    def run_class(self, tool: str, *words: str) -> Ended:
        return Ended(**self.program.call("run", tool=tool, words=",".join(words)))


@pytest.fixture(scope="module", params=[pytest.param(one, id=one.name) for one in RELEASES])
def release(request: pytest.FixtureRequest) -> Release:
    found: Release = request.param
    return found


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    folder = tmp_path_factory.mktemp("server") / "data"
    with BrokerProcess(folder, settings=UNVERIFIED) as started:
        prepare(started, None)
        yield started


@pytest.fixture(scope="module")
def tool(
    release: Release, server: BrokerProcess, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[KafkasTool]:
    try:
        made = KafkasTool(release, tmp_path_factory.mktemp("tool"))
    except NotAvailable as reason:
        end_of_test("java", str(reason))
    made.bootstrap = server.bootstrap
    yield made
    made.program.close()


_numbers = itertools.count()


@pytest.fixture
def talk(server: BrokerProcess) -> Iterator[Conversation]:
    """Topics and transactional ids of each test have a beginning of their own."""
    made = Conversation(server, f"t{next(_numbers)}-")
    yield made
    made.close()


@pytest.fixture
def tell(talk: Conversation) -> Tell:
    """A transaction of `bank` is open in orders-0 from its first offset on."""

    def tell(*lines: str) -> list[str]:
        return [VERBS[step.verb](talk, step) for step in map(parse, lines)]

    tell("topic orders 2", "init/4 id=bank as=b timeout=50000", "add/3 id=bank by=b orders:0")
    tell("produce/11 id=bank by=b orders:0 seq=0 x", "sleep 20")
    return tell


@pytest.mark.usefixtures("tell")
def test_kafkas_tool_lists_and_describes(
    tool: KafkasTool, talk: Conversation, release: Release
) -> None:
    bank, orders, producer_id = talk.own("bank"), talk.own("orders"), str(talk.producers["b"][0])
    mine = {"TransactionalId": bank, "ProducerId": producer_id, "TransactionState": "Ongoing"}

    def listed(*words: str) -> list[dict[str, str]]:
        ended = tool.run("list", *words)
        assert ended.code == 0, ended
        return [row for row in ended.rows if row["TransactionalId"] == bank]

    assert listed() == [{**mine, "Coordinator": "1"}]
    assert listed("--duration-filter", "10") == [{**mine, "Coordinator": "1"}]
    assert listed("--duration-filter", "3600000") == []
    if release is KAFKA_4:
        assert len(listed("--transactional-id-pattern", f"{bank[:-2]}.*")) == 1
        assert listed("--transactional-id-pattern", "nobody") == []

    (found,) = tool.run("describe", "--transactional-id", bank).rows
    assert found.items() >= {**mine, "CoordinatorId": "1", "ProducerEpoch": "0"}.items()
    assert found["TransactionTimeoutMs"] == "50000"
    assert found["TopicPartitions"] == f"{orders}-0"
    assert 0 <= int(found["TransactionDurationMs"]) < 60_000

    place = ("--topic", orders, "--partition", "0")
    for words in (place, (*place, "--broker-id", "1")):
        (found,) = tool.run("describe-producers", *words).rows
        assert (found["ProducerId"], found["ProducerEpoch"]) == (producer_id, "0")
        assert (found["LastSequence"], found["CurrentTransactionStartOffset"]) == ("0", "0")
        assert found["LatestCoordinatorEpoch"] == "-1"

    ended = tool.run("describe", "--transactional-id", "nobody")
    assert ended.code == 1
    assert "could not be found" in ended.out + ended.err


def test_kafkas_tool_finds_what_hangs_and_aborts_it(
    tool: KafkasTool, talk: Conversation, tell: Tell, release: Release
) -> None:
    bank, orders, producer_id = talk.own("bank"), talk.own("orders"), str(talk.producers["b"][0])
    place = ("--topic", orders, "--partition", "0")

    # what the coordinator has in hand does not hang, whatever its age
    hanging = ("find-hanging", "--max-transaction-timeout", "0")
    assert tool.run(*hanging, "--topic", orders).rows == []
    tell("end/3 id=bank by=b commit", "produce/11 id=bank by=b orders:0 seq=1 late")
    for where in (("--topic", orders), place, ("--broker-id", "1")):
        rows = tool.run(*hanging, *where).rows
        (found,) = (row for row in rows if row["Topic"] == orders)
        assert (found["Partition"], found["ProducerId"]) == ("0", producer_id)
        assert found["StartOffset"] == "2"
    assert tool.run("find-hanging", "--topic", orders).rows == []

    # abort, as for brokers since 3.0 and as for those before
    assert tool.run("abort", *place, "--start-offset", "7").code == 1
    assert tool.run("abort", *place, "--start-offset", "2").code == 0
    assert tool.run(*hanging, "--topic", orders).rows == []
    tell("produce/11 id=bank by=b orders:0 seq=2 late")
    by_producer = ("--producer-id", producer_id, "--producer-epoch", "0")
    assert tool.run("abort", *place, *by_producer, "--coordinator-epoch", "9").code == 0
    assert tool.run(*hanging, "--topic", orders).rows == []
    # of a coordinator that another one has followed
    assert tool.run("abort", *place, *by_producer, "--coordinator-epoch", "8").code == 1

    # forceTerminateTransaction
    if release is KAFKA_4:
        tell("init/4 id=bank as=b", "add/3 id=bank by=b orders:1")
        tell("produce/11 id=bank by=b orders:1 seq=0 x")
        assert tool.run("forceTerminateTransaction", "--transactionalId", bank).code == 0
        (found,) = tool.run("describe", "--transactional-id", bank).rows
        assert found["TransactionState"] in ("CompleteAbort", "Empty")
        (told,) = tell("end/3 id=bank by=b commit")
        assert told.startswith("PRODUCER_FENCED")


@pytest.mark.parametrize("release", [KAFKA_4], ids=["4"], indirect=True)
def test_the_level_is_changed_as_the_page_on_transactions_says(
    tool: KafkasTool, tmp_path: Path
) -> None:
    typed = [line.removeprefix(SCRIPT) for line in PAGE.splitlines() if line.startswith(SCRIPT)]
    levels = []
    with BrokerProcess(tmp_path / "data") as broker, Caller(broker.host, broker.port) as caller:
        levels.append(finalized_level(caller, "transaction.version"))
        for line in typed:
            ended = tool.run_class(
                FEATURES, *line.replace("127.0.0.1:9092", broker.bootstrap).split()
            )
            assert ended.code == 0, ended
            levels.append(finalized_level(caller, "transaction.version"))
    assert levels == [0, 2, 0, 2]
