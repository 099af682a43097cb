"""A directory that Apache Kafka wrote is our broker's from now on, and Kafka's again.

One story for each release. Kafka writes everything, with transactions that were committed, that
were aborted and that have not ended, and is killed. Of what it left there are two copies: one that
our broker opens, adds to and is killed on, and which Kafka then ends the transactions of; and one
on which Kafka starts again and stops, and which our broker then opens.

3.9 has a static quorum here and 4 a dynamic one; `TEST_MOVING_ALL=1` has both of each.
"""

from __future__ import annotations

import os
import shutil
import time
from typing import TYPE_CHECKING, NamedTuple

import pytest

from tests.clients.moving.kafka import FEW_SHARDS, kafka
from tests.clients.moving.prepared import prepare
from tests.clients.moving.served import Served, assert_carried_over, read, served
from tests.clients.moving.writing import (
    GROUPS,
    KEEP,
    TRANSACTIONAL,
    transactional,
    write_all,
    write_codecs,
    write_transactions,
)
from tests.support.administrator import Administrator
from tests.support.broker_process import BrokerProcess
from tests.support.caller import batch
from tests.support.kafka_process import ALWAYS
from tests.support.kafka_release import KAFKA_3_9, KAFKA_4, Release
from tests.support.server_process import ServerFailed

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.clients.moving.writing import Sender
    from tests.support.kafka_process import KafkaProcess
    from tests.support.server_process import ServerProcess

pytestmark = [pytest.mark.long, pytest.mark.clients, pytest.mark.java, pytest.mark.slow]

CASES = [(KAFKA_3_9, False), (KAFKA_4, True)]
if os.environ.get("TEST_MOVING_ALL"):
    CASES += [(KAFKA_3_9, True), (KAFKA_4, False)]


#: What Kafka says of a directory on which a broker was killed, by itself or by us, and why.
OF_A_KILL = {
    "[TransactionCoordinator id=1] Connection to node 1": "a transaction is to be ended, and it "
    "does not listen yet",
    "Non-monotonic update of high watermark": "the checkpoint is ahead of what was written back",
}


#: For transactions to be ended.
PATIENCE_S = 30


class Story(NamedTuple):
    """The answers of each broker, and the complaints of Kafka."""

    left_by_kafka: Served
    #: Of the directory of a Kafka that was killed.
    by_us: Served
    left_by_us: Served
    by_kafka: Served
    after_the_end: Served
    #: Of the directory of a Kafka that stopped.
    by_itself: Served
    by_us_after_stop: Served
    #: What our broker printed at its two starts.
    printed: list[str]
    producer_ids: list[int]
    complaints: list[str]
    #: Of Kafka about what it had left itself when it was killed.
    own_complaints: list[str]
    #: Whether the transaction in partition 1 was one that Kafka had decided to commit.
    prepared: bool
    #: The same and what it says always.
    all_own_complaints: list[str]


@pytest.fixture(
    scope="module",
    params=CASES,
    ids=lambda case: f"kafka-{case[0].name}-{'dynamic' if case[1] else 'static'}",
)
def story(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Story]:
    release, dynamic = request.param
    folder = tmp_path_factory.mktemp(f"from-kafka-{release.name}")
    servers: list[ServerProcess] = []
    try:
        yield told(folder, release, servers, dynamic=dynamic)
    finally:
        for server in servers:
            if server.run is not None:
                server.kill()


def told(folder: Path, release: Release, servers: list[ServerProcess], *, dynamic: bool) -> Story:
    theirs = kafka(folder / "kafka", folder / "logs", release, dynamic=dynamic)
    servers.append(theirs)
    theirs.start()
    sender = write(theirs)
    left_by_kafka = served(theirs, GROUPS)
    theirs.kill()
    prepares = release is KAFKA_3_9
    if prepares:
        prepare(folder / "logs", "prepared")
    shutil.copytree(folder / "logs", folder / "killed")

    theirs.start()
    with pytest.raises(ServerFailed, match="another broker serves"):
        BrokerProcess(folder / "logs").start()
    by_itself = served(theirs, GROUPS)
    theirs.stop()
    own = theirs.complaints(), theirs.all_complaints()
    broker = BrokerProcess(folder / "killed", settings=FEW_SHARDS)
    broker.port = theirs.port  # the last registration of a broker that was killed stays a while
    servers.append(broker)
    broker.start()
    by_us = served(broker, GROUPS)
    producer_ids = [sender.producer_id, add(broker)]
    left_by_us = served(broker, GROUPS)
    printed = [broker.output()]
    broker.kill()

    again = kafka(folder / "kafka-again", folder / "killed", release, dynamic=dynamic)
    again.take_ports_of(theirs)
    servers.append(again)
    again.start()
    by_kafka = served(again, GROUPS)
    with Administrator(again.host, again.port) as admin:
        producer_ids.append(admin.new_producer_id())
    end_transactions(again, prepares=prepares)
    after_the_end = served(again, GROUPS)
    again.stop()

    broker = BrokerProcess(folder / "logs", settings=FEW_SHARDS)
    servers.append(broker)
    broker.start()
    by_us_after_stop = served(broker, GROUPS)
    printed.append(broker.output())
    broker.stop()
    return Story(
        left_by_kafka,
        by_us,
        left_by_us,
        by_kafka,
        after_the_end,
        by_itself,
        by_us_after_stop,
        printed,
        producer_ids,
        again.complaints(),
        own[0],
        prepares,
        own[1],
    )


def end_transactions(server: ServerProcess, *, prepares: bool) -> None:
    """The next life of a transactional id ends what the last one left open."""
    transactional(server, "open")
    if not prepares:
        transactional(server, "prepared")
    wait_for_ends(server)


def wait_for_ends(server: ServerProcess) -> None:
    """Until a reader of committed records gets to what we put behind the transactions."""
    places = [(TRANSACTIONAL, 0), (TRANSACTIONAL, 1)]
    deadline = time.monotonic() + PATIENCE_S
    while True:
        found = read(server, places, isolation="read_committed").values()
        if all(records[-1].value == b"of ours" for records in found):
            return
        assert time.monotonic() < deadline, found
        time.sleep(0.2)


def write(theirs: KafkaProcess) -> Sender:
    sender = write_all(theirs, old_formats=False)
    with Administrator(theirs.host, theirs.port) as admin:
        admin.create(TRANSACTIONAL, 3, configs=KEEP)
    write_transactions(theirs)
    return sender


def add(broker: BrokerProcess) -> int:
    """Records behind the open transactions, a topic and a commit; the id of a new producer."""
    with Administrator(broker.host, broker.port) as admin:
        for partition in range(3):
            appended = admin.produce(TRANSACTIONAL, batch(b"of ours"), partition=partition)
            assert appended.error_code == 0
        admin.create("ours", configs=KEEP)
        write_codecs(broker, "ours", 1)
        admin.commit_when_ready("simple", {("ours", 0): 17})
        return admin.new_producer_id()


def values(said: Served, partition: int) -> list[bytes | None]:
    """Of the topic with transactions, what a reader of committed records gets."""
    return [record.value for record in said.committed_records[TRANSACTIONAL, partition]]


def test_we_serve_all_that_kafka_left_when_it_was_killed(story: Story) -> None:
    """And commit what it had decided to."""
    committed = dict(story.by_us.committed_records)
    if story.prepared:
        *before, last = committed[TRANSACTIONAL, 1]
        assert last.value == b"prepared"
        committed[TRANSACTIONAL, 1] = before
    by_us = story.by_us._replace(committed_records=committed)
    assert_carried_over(story.left_by_kafka, by_us)


def test_we_serve_all_that_kafka_left_when_it_stopped(story: Story) -> None:
    assert_carried_over(story.by_itself, story.by_us_after_stop)


def test_our_broker_warns_of_nothing(story: Story) -> None:
    lines = [line for printed in story.printed for line in printed.splitlines()]
    assert [line for line in lines if "[warning" in line or "[error" in line] == []


def test_readers_of_committed_records_stop_before_open_transactions(story: Story) -> None:
    assert values(story.left_by_kafka, 0)[-1:] == [b"4.2"]
    assert values(story.left_by_us, 0) == values(story.left_by_kafka, 0)
    decided = [b"prepared", b"of ours"] if story.prepared else []
    assert values(story.left_by_us, 1) == [*values(story.left_by_kafka, 1), *decided]
    assert values(story.left_by_us, 2) == [*values(story.left_by_kafka, 2), b"of ours"]
    everything = story.left_by_us.records[TRANSACTIONAL, 0]
    assert len(everything) > len(values(story.left_by_us, 0))
    assert everything[-1].value == b"of ours"


def test_kafka_serves_what_we_added_before_we_were_killed(story: Story) -> None:
    ended = {(TRANSACTIONAL, number) for number in range(3)}
    for part in ("records", "committed_records"):
        left, found = getattr(story.left_by_us, part), getattr(story.by_kafka, part)
        assert {place: found[place] for place in left if place not in ended} == {
            place: left[place] for place in left if place not in ended
        }
    assert story.by_kafka.offsets == story.left_by_us.offsets
    assert set(story.by_kafka.facts.topics) == set(story.left_by_us.facts.topics)


def test_kafka_ends_the_transactions_that_we_left_as_they_were(story: Story) -> None:
    decided = [b"prepared"] if story.prepared else []
    assert values(story.after_the_end, 1) == [*values(story.left_by_kafka, 1), *decided, b"of ours"]
    assert values(story.after_the_end, 0) == [
        *values(story.left_by_kafka, 0),
        b"behind",
        b"of ours",
    ]


def test_producer_ids_never_come_again(story: Story) -> None:
    assert story.producer_ids == sorted(set(story.producer_ids))


def test_kafka_complains_of_nothing_but_of_what_it_says_of_its_own(story: Story) -> None:
    """Of a directory that we were killed on, and of one that it was killed on itself."""
    for complaints in (story.complaints, story.own_complaints):
        assert [said for said in complaints if not any(text in said for text in OF_A_KILL)] == []


def test_what_kafka_always_says_it_says_of_its_own_directory(story: Story) -> None:
    said = "".join(story.all_own_complaints)
    always = [text for text in ALWAYS if text in said]
    assert always in (list(ALWAYS), list(ALWAYS)[:1])  # the second is for 3.9
