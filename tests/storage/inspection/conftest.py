"""A directory that a running broker wrote, of every record format, in several segments."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import pytest

from tests.storage.inspection.directories import contents_of
from tests.support.broker_process import BrokerProcess

if TYPE_CHECKING:
    from tests.storage.inspection.directories import Contents

TOPICS = {
    "plain": {"segment.bytes": "16384"},
    "old": {"message.format.version": "0.9.0", "segment.bytes": "16384"},
    "middle": {"message.format.version": "0.10.0"},
    "idempotent": {"segment.bytes": "8192"},
}
ROUNDS, ROUND = 30, 10


@pytest.fixture(scope="session")
def written(tmp_path_factory: pytest.TempPathFactory) -> Contents:
    """What a clean stop of our broker left of a few hundred records of confluent-kafka."""
    import confluent_kafka
    from confluent_kafka.admin import AdminClient, NewTopic

    folder = tmp_path_factory.mktemp("written") / "data"
    rng = random.Random(1)
    with BrokerProcess(folder) as broker:
        settings: dict[str, str | int | float | bool] = {
            "bootstrap.servers": broker.bootstrap,
            "log_level": 0,
        }
        topics = [NewTopic(name, 1, 1, config=config) for name, config in TOPICS.items()]
        admin = AdminClient(settings)
        for future in admin.create_topics(topics).values():
            future.result()
        for codec, exactly in (("none", False), ("gzip", False), ("none", True)):
            producer = confluent_kafka.Producer(
                {
                    **settings,
                    "linger.ms": 1,
                    "compression.type": codec,
                    "enable.idempotence": exactly,
                    "acks": "all",
                }
            )
            for number in range(ROUNDS * ROUND):
                value = rng.randbytes(20) * rng.randrange(1, 5)
                for topic in ("idempotent",) if exactly else ("plain", "old", "middle"):
                    producer.produce(topic, value, str(number))
                if number % ROUND == ROUND - 1:
                    producer.flush()
            producer.flush()
    return contents_of(folder)
