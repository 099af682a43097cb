"""A directory with an end that was decided and not finished, taken to Apache Kafka and back."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.coordinator.transactions.capture import SETTINGS
from tests.coordinator.transactions.scripts import Script
from tests.coordinator.transactions.world import TOPIC, World
from tests.support.caller import Caller
from tests.support.kafka_process import KafkaProcess
from tests.support.kafka_release import KAFKA_3_9, KAFKA_4, Release

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.java, pytest.mark.long, pytest.mark.timeout(300)]


@pytest.mark.parametrize("release", [KAFKA_3_9, KAFKA_4], ids=["3.9", "4"])
def test_kafka_finishes_an_end_that_was_decided_here_and_gives_the_ids_back(
    tmp_path: Path, release: Release
) -> None:
    with World(tmp_path / "data") as world:
        producer = world.begin()
        world.write(producer, 0)
        world.end(producer)
        half = world.begin("half")
        world.add(half, 2, transactional_id="half")
        world.append(half, 2)
        world.participants.refusing = {(TOPIC, 2)}
        world.end(half, name="half")
        assert world.state("half") == "PrepareCommit"
    kafka = KafkaProcess(
        tmp_path / "kafka", logs=tmp_path / "data", settings=SETTINGS, release=release
    )

    kafka.start()
    with Caller(kafka.host, kafka.port) as caller:
        script = Script(caller.call)
        script.number(producer[0])
        script.state("half")
        script.init()
        script.add(0)
    complaints = kafka.complaints()
    kafka.stop()

    assert script.lines == [
        "state: NONE CompleteCommit 60000 started 1 0 []",
        "init v4: NONE 0 1",
        "add v3: 0 [(0, 'NONE')]",
    ]
    assert complaints == []
    with World(tmp_path / "data") as world:
        world.start()
        assert world.content(2) == ["data", "commit"]
        assert (world.state("half"), world.state("x")) == ("CompleteCommit", "Ongoing")
        world.end((producer[0], 1))
        assert world.begin() == (producer[0], 2)


def test_kafka_has_a_transaction_that_was_kept_here_as_the_open_one_that_it_is(
    tmp_path: Path,
) -> None:
    two_phase = {"transaction.two.phase.commit.enable": "true"}
    with World(tmp_path / "data", version=2, **two_phase) as world:
        producer = world.begin(two_phase=True)
        world.write(producer, 0)
        assert world.begin(two_phase=True, keep=True) == (producer[0], 1)
    kafka = KafkaProcess(
        tmp_path / "kafka", logs=tmp_path / "data", settings=SETTINGS, release=KAFKA_4
    )

    kafka.start()
    with Caller(kafka.host, kafka.port) as caller:
        script = Script(caller.call)
        script.number(producer[0])
        script.state()
        script.init()
        script.state()
    complaints = kafka.complaints()
    kafka.stop()

    assert script.lines == [
        "state: NONE Ongoing 2147483647 started 0 0 [('t', [0])]",
        "init v4: NONE 0 2",
        "state: NONE Empty 60000 - 0 2 []",
    ]
    assert complaints == []
