"""The stories of classic groups are told to Apache Kafka 3.9 and to our broker, which answer alike.

The scripts under tests/coordinator say what the answers are; the machine alone is tested with all
of them. `DIFFERENT` has those in which Kafka does something else, and why we do not.
"""

from __future__ import annotations

import os
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pytest

from protocol.errors import ErrorCode
from protocol.messages.find_coordinator import FindCoordinatorRequest
from protocol.messages.heartbeat import HeartbeatRequest
from tests.clients.available import end_of_test
from tests.clients.group_refusals import refusals
from tests.clients.wire_stories import WireTeller, as_brokers_answer, commands, is_for_brokers
from tests.coordinator.stories import SCRIPTS, TOPIC, stories
from tests.support.broker_process import BrokerProcess
from tests.support.caller import Caller
from tests.support.fetched import NotAvailable
from tests.support.kafka_process import KafkaProcess

if TYPE_CHECKING:
    from tests.support.server_process import ServerProcess

pytestmark = pytest.mark.long

SETTINGS = {"group.initial.rebalance.delay.ms": "0", "group.min.session.timeout.ms": "100"}
COORDINATOR_TIMEOUT_S = 30

#: Titles of stories that Kafka tells otherwise, and always does.
DIFFERENT = {
    "a join that repeats a parked one takes its place": "Kafka never answers the earlier one",
    "a sync that repeats a parked one takes its place": "Kafka never answers the earlier one",
    "a member that is made to leave while its sync is parked is told so": "Kafka tells it nothing",
    "a pending id is not for a static member": "Kafka fails, and says so with code -1",
    "a protocol that is named twice counts once": "Kafka counts it twice: none speaks it",
}
#: Those in which Kafka chooses the leader by the hash of an id; here it is who came first.
BY_CHANCE = {
    "a member leaves while others are parked in their joins",
    "the leader dies between join and sync: its followers are told when it has had time enough",
}

STORIES = {
    title: lines
    for path in sorted(SCRIPTS.glob("*.txt"))
    for title, lines in stories(path)
    # Time is short here, so sessions are allowed to be.
    if is_for_brokers(lines) and not title.startswith("the session timeout must be")
}
AT_ONCE = 24
REFUSALS = "refusals"


def _tell(server: ServerProcess, title: str) -> list[Any]:
    """The commands of the story with the answers of a broker."""
    lines = STORIES[title]
    in_real_time = any("expire" in line for line in lines)
    teller = WireTeller(server, f"{title} {os.urandom(3).hex()}", in_real_time=in_real_time)
    try:
        return [
            (" ".join(words), teller.answers(words, expected))
            for words, expected in commands(lines)
        ]
    except Exception as error:
        return [repr(error)]
    finally:
        teller.close()


def _written(title: str) -> list[Any]:
    return [
        (" ".join(words), as_brokers_answer(answers)) for words, answers in commands(STORIES[title])
    ]


def _told(server: ServerProcess) -> dict[str, list[Any]]:
    """All stories, and the refusals; they hardly keep a broker busy, so many are told at once."""
    with server, ThreadPoolExecutor(AT_ONCE) as threads:
        with Caller(server.host, server.port) as caller:
            caller.create_topic(TOPIC)
            _wait_for_coordinator(caller)
            refused = refusals(caller)
        # Those first in which time passes: the others fit beside them.
        titles = sorted(STORIES, key=lambda title: "expire" not in " ".join(STORIES[title]))
        told = dict(
            zip(titles, threads.map(lambda title: _tell(server, title), titles), strict=True)
        )
        for title in titles:
            if told[title] != _written(title) and title not in DIFFERENT:
                # A busy machine is late. Once more, alone.
                told[title] = _tell(server, title)
        return {**told, REFUSALS: refused}


def _wait_for_coordinator(caller: Caller) -> None:
    """Kafka makes the topic of offsets when a group is first looked for, and reads it."""
    nobody = HeartbeatRequest(group_id="nobody", generation_id=1, member_id="nobody")
    deadline = time.monotonic() + COORDINATOR_TIMEOUT_S
    while True:
        caller.call(FindCoordinatorRequest(key="nobody", key_type=0), 1)
        code = caller.call(nobody, 3).error_code
        if code == ErrorCode.UNKNOWN_MEMBER_ID:
            return
        assert time.monotonic() < deadline, ErrorCode(code).name
        time.sleep(0.1)


@pytest.fixture(scope="module")
def told_by_kafka(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[Any]]:
    try:
        kafka = KafkaProcess(tmp_path_factory.mktemp("kafka") / "data", settings=SETTINGS)
    except NotAvailable as reason:
        end_of_test("java", str(reason))
    return _told(kafka)


@pytest.fixture(scope="module")
def told_by_us(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[Any]]:
    return _told(BrokerProcess(tmp_path_factory.mktemp("ours") / "data", settings=SETTINGS))


@pytest.mark.parametrize("title", STORIES)
def test_our_broker_tells_the_story_as_the_machine_does(
    title: str, told_by_us: dict[str, list[Any]]
) -> None:
    assert told_by_us[title] == _written(title)


@pytest.mark.java
@pytest.mark.parametrize("title", STORIES)
def test_apache_kafka_tells_the_story_as_the_machine_does(
    title: str, told_by_kafka: dict[str, list[Any]], request: pytest.FixtureRequest
) -> None:
    if title in BY_CHANCE:
        pytest.skip("Kafka may choose another leader")
    if title in DIFFERENT:
        request.applymarker(pytest.mark.xfail(reason=DIFFERENT[title], strict=True))
    assert told_by_kafka[title] == _written(title)


@pytest.mark.java
def test_apache_kafka_refuses_in_the_same_words(
    told_by_us: dict[str, list[Any]], told_by_kafka: dict[str, list[Any]]
) -> None:
    for ours, theirs in zip(told_by_us[REFUSALS], told_by_kafka[REFUSALS], strict=True):
        request, version, answer = theirs
        # An empty name of a protocol is no name in any version.
        nameless = answer.replace("protocol_name=None", "protocol_name=''")
        assert ours in (theirs, (request, version, nameless))
