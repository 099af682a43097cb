"""A segment that somebody removed, as a real consumer meets it: it is told, and skips nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING

import confluent_kafka
import pytest

from protocol.errors import ErrorCode
from tests.support.broker_process import BrokerProcess
from tests.support.caller import Caller, batch

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.clients

TOPIC = "t"
MISSING = range(2, 4)


@pytest.fixture
def broker(tmp_path: Path) -> BrokerProcess:
    """A directory of six records in segments of two, without the second segment."""
    data = tmp_path / "data"
    server = BrokerProcess(data)
    with server, Caller(server.host, server.port) as caller:
        caller.create_topic(TOPIC, segment_bytes="150")
        for number in range(6):
            caller.produce(TOPIC, batch(b"%d" % number))
    paths = sorted((data / f"{TOPIC}-0").glob("*.log"))
    assert [int(path.stem) for path in paths] == [0, 2, 4]
    paths[1].unlink()
    return server


def test_librdkafka_stops_before_the_hole_with_an_error_and_goes_on_behind_it_when_told(
    broker: BrokerProcess,
) -> None:
    place = confluent_kafka.TopicPartition(TOPIC, 0, 0)
    with broker:
        consumer = confluent_kafka.Consumer(
            {
                "bootstrap.servers": broker.bootstrap,
                "group.id": "g",
                "auto.offset.reset": "latest",
                "fetch.error.backoff.ms": 100,
                "log_level": 0,
            }
        )
        consumer.assign([place])
        found: list[int | None] = []
        errors: list[int] = []
        while len(errors) < 2:
            message = consumer.poll(5)
            assert message is not None, "neither a record nor an error"
            error = message.error()
            if error is None:
                found.append(message.offset())
            else:
                errors.append(error.code())

        assert found == [0, 1]
        assert set(errors) == {ErrorCode.CORRUPT_MESSAGE}
        place.offset = MISSING.stop
        consumer.seek(place)
        while len(found) < 4:
            message = consumer.poll(5)
            assert message is not None
            if message.error() is None:
                found.append(message.offset())
        assert found == [0, 1, 4, 5]
        consumer.close()
