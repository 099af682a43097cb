"""A consumer that commits rising offsets without a pause, to a broker that comes and goes."""

from __future__ import annotations

import threading
import time

import confluent_kafka

from tests.clients.kill_loads import PARTITIONS, PATIENCE_S

RETRY_S = 0.05
CALL_S = 20.0


class Commits:
    """A thread that commits `number` for every partition of a topic at once. `acknowledged` is the
    last number that was; the one after it may have been stored or not."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self._topic = topic
        self._consumer = confluent_kafka.Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": f"commits-{topic}",
                "enable.auto.commit": False,
                "reconnect.backoff.ms": 20,
                "reconnect.backoff.max.ms": 200,
                "log_level": 0,
            }
        )
        self.acknowledged = 0
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._stopping.is_set():
            number = self.acknowledged + 1
            places = [
                confluent_kafka.TopicPartition(self._topic, partition, number)
                for partition in range(PARTITIONS)
            ]
            try:
                stored = self._consumer.commit(offsets=places, asynchronous=False)
            except confluent_kafka.KafkaException:
                time.sleep(RETRY_S)
                continue
            if stored and not any(place.error for place in stored):
                self.acknowledged = number

    def finish(self) -> None:
        self._stopping.set()
        self._thread.join(PATIENCE_S)

    def faults(self, bootstrap: str, at_least: int) -> list[str]:
        """What is wrong with what is committed now."""
        reader = confluent_kafka.Consumer(
            {"bootstrap.servers": bootstrap, "group.id": f"commits-{self._topic}"}
        )
        places = [confluent_kafka.TopicPartition(self._topic, one) for one in range(PARTITIONS)]
        try:
            found = reader.committed(places, timeout=CALL_S)
        finally:
            reader.close()
        offsets = [place.offset for place in found]
        if min(offsets) < at_least:
            return [f"{at_least} was committed, {offsets} is found"]
        return []

    def close(self) -> None:
        self.finish()
        self._consumer.close()
